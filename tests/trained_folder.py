"""A run folder in which one trial of a small sweep has ended, made in this process without Ray."""

import torch
from run_folders import write_proof
from small_sweep import save_policy, small_sweep

from rltune.runner.folder import freeze_all
from rltune.runner.provenance import driver_provenance
from rltune.runner.trial import TrialPayload, run_trial
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.store.files import write_json_atomic
from rltune.store.rundir import RunDir
from rltune.types import TrialStatus

ADAPTED = """  policy.lora.rank: 4
  policy.lora.alpha: 8
  policy.dtype: {dtype}
  advantage.kind: grpo
  optim.lr: 1.0e-2
  optim.gradient_checkpointing: true
  rollout.groups: 2"""


def trained_folder(folder, *, which, **changes):
    """Return the run folder, and the spec of its trial that has ended.

    Two conditions and two seeds; a gate and a checkpoint at every step.

    Args:
        folder: Where the sweep file and the run folder are made.
        which: Index of the trial that is trained.
        changes: Keywords of `small_sweep`.

    """
    text = small_sweep(
        policy=save_policy(folder / "policy"),
        gate_every=1,
        checkpoint_every=1,
        train_tasks=8,
        values="[0.0, 0.01]",
        seeds="[0, 1]",
        turns=2,
        **changes,
    )
    return train_one(folder, text, which=which)


def train_one(folder, text, *, which):
    """Train one trial of the sweep whose file has this text; return its run folder and its spec."""
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    loaded = load_sweep(folder / "small.yaml")
    specs = expand(loaded)
    run = RunDir(folder / "small-0").create()
    tasks = freeze_all(run, specs, base=folder)
    run.sweep.write_text(loaded.text, encoding="utf-8")
    write_proof(run, loaded)
    write_json_atomic(run.plan, {"trials": specs})
    spec = specs[which]
    payload = TrialPayload(
        spec=spec,
        folder=run.trial(spec.trial_id).path,
        manifest=tasks[spec.trial_id].path,
        metric=loaded.spec.metric,
        attempt=1,
        driver=driver_provenance(["test"]),
        stop_file=folder / "stop",
        base=folder,
    )
    before = torch.get_num_threads()
    status = run_trial(payload)
    torch.set_num_threads(before)
    assert status is TrialStatus.DONE
    return run, spec


def adapted(folder, dtype):
    """Return a run folder whose trial trained an adapter, with blocks computed again."""
    text = small_sweep(
        policy=save_policy(folder / "policy"),
        gate_every=1,
        checkpoint_every=1,
        train_tasks=8,
        values="[0.0, 0.01]",
        seeds="[0, 1]",
        turns=2,
    )
    run, _ = train_one(
        folder, text.replace("  rollout.groups: 2", ADAPTED.format(dtype=dtype)), which=0
    )
    return run

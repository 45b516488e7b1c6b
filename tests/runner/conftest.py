"""A sweep small enough to train in seconds, with an untrained policy in a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rltune.policy.tiny import tiny_model, tiny_tokenizer
from rltune.runner.folder import freeze_all
from rltune.runner.provenance import driver_provenance
from rltune.runner.trial import TrialPayload
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.rundir import RunDir
from rltune.types import TrialSpec

SWEEP = """
name: small
title: Small
question: Does it run?
base: sokoban
hold:
  tracking.wandb: disabled
  env.train_tasks: 16
  env.prompt: compact
  policy.model: {policy}
  rollout.groups: 2
  rollout.group_size: 2
  optim.mini_batch_size: 4
  optim.micro_batch_size: 4
  critic.warmup_steps: 1
  gate.every: {gate_every}
  gate.tasks: 4
  gate.test_tasks: 2
  budget.steps: {steps}
  checkpoint.every: {checkpoint_every}
  loss.kl_type: k2
  loss.entropy_coeff: 0.0
  rollout_filter:
    strategy: top_p
    value: 1.0
    mode: softmax
    metric: reward_variance
    type: largest
    include_zero: true
    on_drop: drop
    loss_scaling: none
axis:
  key: loss.kl_loss_coef
  values: [0.0, 0.01, 0.1, 0.03]
  control: 0.0
  coupled:
    - {{key: loss.use_kl_loss, rule: "value > 0", why: one switch}}
seeds: [0]
metric: {{name: heldout/reward_mean, mode: max}}
profiles: {{default: laptop, allowed: [laptop]}}
"""

WriteSweep = Callable[..., Path]
MakePayload = Callable[..., TrialPayload]


@pytest.fixture(scope="session")
def small_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    state = torch.get_rng_state()
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer("sokoban")
    model = tiny_model("sokoban", hidden_size=32, layers=1, heads=2)
    torch.set_rng_state(state)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def write_sweep(small_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> WriteSweep:
    """Return a function that writes the small sweep and returns its path."""

    def write(*, steps: int = 2, gate_every: int = 2, checkpoint_every: int = 3) -> Path:
        path = tmp_path_factory.mktemp("sweep") / "small.yaml"
        text = SWEEP.format(
            policy=small_policy,
            steps=steps,
            gate_every=gate_every,
            checkpoint_every=checkpoint_every,
        )
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def small(write_sweep: WriteSweep) -> LoadedSweep:
    return load_sweep(write_sweep())


@pytest.fixture
def threads() -> Iterator[None]:
    """Give torch its threads back after a trial that set them."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_payload(tmp_path: Path, threads: None) -> MakePayload:
    """Return a function that prepares one attempt of a trial in a run folder of its own."""

    def make(
        loaded: LoadedSweep,
        *,
        condition: int = 0,
        attempt: int = 1,
        name: str = "run",
        stop_file: Path | None = None,
    ) -> TrialPayload:
        run = RunDir(tmp_path / name).create()
        spec: TrialSpec = expand(loaded)[condition]
        tasks = freeze_all(run, [spec])
        return TrialPayload(
            spec=spec,
            folder=run.trial(spec.trial_id).path,
            manifest=tasks[spec.trial_id].path,
            metric_name=loaded.spec.metric.name,
            metric_mode=loaded.spec.metric.mode,
            attempt=attempt,
            driver=driver_provenance(["test"]),
            stop_file=stop_file or tmp_path / "stop",
            base=tmp_path,
        )

    return make

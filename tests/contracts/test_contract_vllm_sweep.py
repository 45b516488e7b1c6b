"""Two steps of GRPO and PPO, adapters and full weights, by `rltune sweep`, on real vLLM."""

import json
import subprocess
import sys

import pytest
from patience import HANG_S
from small_sweep import small_sweep

from rltune.rollout.vllm_setup import INSTALL, vllm_version

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(vllm_version() is None, reason=f"vLLM is not installed: {INSTALL}"),
]

HOLD = """  rollout.engine: vllm
  rollout.vllm.kv_cache_gib: 0.25
  optim.lr: 1.0e-3
"""
GRPO_LORA = HOLD + "  advantage: {kind: grpo}\n  policy.lora: {rank: 8, dropout: 0.1}\n"
SPLIT = HOLD + "  rollout.vllm.tensor_parallel: 2\n  resources: {engine: own, ranks: 2}\n"
ESTIMATORS = """  loss.use_kl_loss: true
  loss.kl_loss_coef: 0.01
axis: {key: advantage.kind, values: [gae, grpo], control: gae}
"""
STATED = 1e-4  # as in docs/engines.md, float32
CLOCKS = ("timing_s/", "perf/")


def test_grpo_with_adapters_is_the_same_in_the_trials_process_and_in_one_of_its_own(tmp_path):
    """Nothing but clocks differs."""
    shared = metrics_of(tmp_path / "shared", of_kl(GRPO_LORA, "icepop"))
    require_agreement(shared)
    own = metrics_of(tmp_path / "own", of_kl(GRPO_LORA, "icepop"), "resources.engine=own")
    assert own == shared


def test_two_ranks_train_with_ppo_and_grpo_and_two_processes_sample(tmp_path):
    """Each weight goes from two shards into two parts of a layer; the reference is sharded, too."""
    require_agreement(metrics_of(tmp_path / "split", of_estimators(SPLIT, "tis")))


def require_agreement(measured):
    """Engine and trainer agree in both steps, up to rounding, and each computes for itself."""
    for rows in measured.values():
        gaps = [row["rollout_corr/logprob_diff_max"] for row in rows[1:]]
        assert len(gaps) == 2
        assert all(0 < gap < STATED for gap in gaps), gaps
        for row in rows[1:]:  # a weight is e to the difference: inside the cap and the band
            assert row["rollout_corr/rollout_is_std"] > 0
            for end in ("min", "max"):
                assert abs(row[f"rollout_corr/rollout_is_{end}"] - 1) < 2 * STATED


def of_kl(hold, correction):
    """Return the sweep file with these keys held."""
    text = small_sweep(policy="tiny", steps=2, gate_every=1, values="[0.0, 0.01]")
    text = text.replace("rollout_correction.kind: none", f"rollout_correction.kind: {correction}")
    return text.replace("axis:", f"{hold}axis:", 1)


def of_estimators(hold, correction):
    """Return one that compares PPO with GRPO, with a policy that trains in both steps."""
    text = of_kl(hold, correction).replace("critic.warmup_steps: 1", "critic.warmup_steps: 0")
    held, axis = text.split("axis:", 1)
    return f"{held}{ESTIMATORS}seeds:{axis.split('seeds:', 1)[1]}"


def metrics_of(tmp_path, text, *sets):
    """Run the sweep; return what the audit's trials measured, clocks left out, by trial."""
    tmp_path.mkdir()
    sweep = tmp_path / "small.yaml"
    sweep.write_text(text)
    options = [word for own in sets for word in ("--set", own)]
    command = ["-c", "from rltune.cli import main; main()", "sweep", str(sweep)]
    done = subprocess.run(
        [sys.executable, *command, "--runs-dir", str(tmp_path / "runs"), *options],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (audit,) = tmp_path.glob("runs/*/audit.json")
    assert json.loads(audit.read_text())["verdict"] == "passed"
    trials = sorted(tmp_path.glob("runs/*/trials/*"))
    assert len(trials) == 2
    measured = {}
    for trial in trials:
        provenance = json.loads((trial / "provenance.json").read_text())
        assert provenance["engine"] == "vllm"
        assert provenance["versions"]["vllm"] == vllm_version()
        rows = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
        measured[trial.name] = [
            {key: value for key, value in row.items() if not key.startswith(CLOCKS)} | {"time": 0}
            for row in rows
        ]
    return measured

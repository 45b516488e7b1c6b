"""F1: interrupted and resumed is bit-equal to uninterrupted; checkpoints are kept and chosen."""

import json
import os
import shutil
import time
from dataclasses import replace
from functools import cache

import pytest
import torch

from rltune.errors import CheckpointError, InterruptedRun
from rltune.policy.load import weights_digest
from rltune.store.jsonl import read_jsonl
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import (
    Progress,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from rltune.trainer.train_state import make_train_state
from rltune.types import TrialStatus

KL = {"loss__use_kl_loss": True, "loss__kl_loss_coef": 0.05, "loss__entropy_coeff": 0.01}
KINDS = {
    "grpo": {},
    "gae-own": {"advantage": {"kind": "gae"}, "optim__epochs": 2, **KL},
    "gae-policy": {"advantage": {"kind": "gae"}, "critic__backbone": "policy", **KL},
    "gae-warmup": {"advantage": {"kind": "gae"}, "critic__warmup_steps": 4},
    # The filter leaves steps and mini-batches with nothing to learn from.
    "grpo-mask": {
        "rollout_filter": {"value": 0.5, "include_zero": False, "on_drop": "mask"},
        "optim__mini_batch_size": 2,
    },
    "grpo-lora": {"policy__lora__rank": 2, **KL},
    "grpo-dropout": {"policy__lora__rank": 2, "policy__lora__dropout": 0.2, "optim__epochs": 2},
    "gae-own-lora": {"advantage": {"kind": "gae"}, "policy__lora__rank": 2, **KL},
    "gae-own-dropout": {
        "advantage": {"kind": "gae"},
        "policy__lora__rank": 2,
        "policy__lora__dropout": 0.2,
        "optim__epochs": 2,
        **KL,
    },
    "gae-policy-lora": {
        "advantage": {"kind": "gae"},
        "critic__backbone": "policy",
        "policy__lora__rank": 2,
        **KL,
    },
}
# Others have what they have.
SLOW = {"gae-own", "gae-policy", "grpo-lora", "gae-own-lora", "gae-own-dropout"}
STEPS = {
    "budget__steps": 6,
    "checkpoint__every": 2,
    "gate__every": 3,
    "rollout__max_response_tokens": 3,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make_trial_in):
    """Return the uninterrupted trial of a kind and its result, run once."""

    @cache
    def run(kind):
        trial = make_trial_in(tmp_path_factory.mktemp(kind), **STEPS, **KINDS[kind])
        return trial, trial.run()

    return run


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory, make_trial_in):
    trial = make_trial_in(tmp_path_factory.mktemp("stopped"), **STEPS)
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=4)
    return trial


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """Return a trial that was stopped at step 3, and may be changed."""
    folder = shutil.copytree(stopped_once.folder.path, tmp_path / "stopped", symlinks=True)
    return replace(stopped_once, folder=TrialDir(folder), warnings=[], lines=[])


def lasting(result):
    """Return a result without its clocks and its name."""
    return replace(result, train_s=0.0, total_s=0.0, trial_id="")


def assert_same_trial(got, result, whole):
    want, want_result = whole
    assert lasting(result) == lasting(want_result)
    assert result.status is TrialStatus.DONE
    assert weights_digest(got.policy.model) == weights_digest(want.policy.model)
    assert got.folder.heldout.read_bytes() == want.folder.heldout.read_bytes()
    assert got.folder.episodes.read_bytes() == want.folder.episodes.read_bytes()
    assert [row["step"] for row in got.rows] == list(range(7))


def about_checkpoints(trial):
    """Return the warnings about torn ones; that three tokens cut most responses is another."""
    return [warning for warning in trial.warnings if "cannot be read" in warning]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in KINDS]
)
def test_stopped_and_resumed_is_bit_equal(make_trial, whole, kind):
    trial = make_trial(**STEPS, **KINDS[kind])
    with pytest.raises(InterruptedRun, match=r"^stopped at step 3; the same command goes on$"):
        trial.run(stop_at=4)
    assert trial.last_step == 3
    assert 3 in trial.checkpoints
    assert_same_trial(trial, trial.run(), whole(kind))
    assert about_checkpoints(trial) == []


@pytest.mark.parametrize(
    "kinds", [KINDS.keys() - SLOW, pytest.param(KINDS, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_the_kinds_and_the_seeds_differ(make_trial, whole, kinds):
    """Else the test above could not fail."""
    other = make_trial(**STEPS, **KINDS["grpo"], seed=1).run()
    digests = {whole(kind)[1].metrics_sha256 for kind in kinds} | {other.metrics_sha256}
    assert len(digests) == len(kinds) + 1
    empty = [row["rollout/filter_kept_ratio"] for row in whole("grpo-mask")[0].rows[1:]]
    assert min(empty) < 1


def test_updates_are_those_that_the_optimisers_made_whatever_the_progress_says(make_trial, whole):
    """A checkpoint whose progress lacks the counts goes on with the right ones."""
    trial = make_trial(**STEPS, **KINDS["gae-warmup"])
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=6)
    path = trial.folder.checkpoint(5) / "state.json"
    state = json.loads(path.read_text())
    del state["progress"]["policy_updates"], state["progress"]["critic_updates"]
    path.write_text(json.dumps(state))
    assert_same_trial(trial, trial.run(), whole("gae-warmup"))
    assert (trial.rows[-1]["budget/policy_updates"], trial.rows[-1]["budget/critic_updates"]) == (
        *(4, 12),  # of two steps after the warm-up, of all six
    )


@pytest.mark.parametrize("die_at", [0, pytest.param(3, marks=pytest.mark.slow), 6])
def test_killed_between_checkpoints_goes_on_from_the_newest(make_trial, whole, killed, die_at):
    trial = make_trial(**STEPS)
    with pytest.raises(killed):
        trial.run(die_at=die_at)
    assert trial.last_step == die_at
    assert die_at not in trial.checkpoints  # its records are ahead of every checkpoint
    assert_same_trial(trial, trial.run(), whole("grpo"))


def test_killed_often(make_trial, whole, killed):
    trial = make_trial(**STEPS)
    for die_at in (1, 3, 3, 5):
        with pytest.raises(killed):
            trial.run(die_at=die_at)
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=1)  # asked to stop before it did anything
    assert_same_trial(trial, trial.run(), whole("grpo"))


def test_killed_before_done_was_written(make_trial):
    trial = make_trial(**STEPS)
    want = trial.run()
    trial.folder.done.unlink()
    trial.folder.best_heldout.unlink()
    assert lasting(trial.run()) == lasting(want)
    assert trial.folder.read_done().metrics_sha256 == want.metrics_sha256
    assert trial.folder.best_heldout.resolve().name == f"step-{want.best_step:06d}"


def test_the_reference_after_a_resume_is_the_start_of_the_trial(make_trial):
    """With the resume point as reference, the KL would begin at 0 again."""
    changes = {"loss__use_kl_loss": True, "loss__kl_loss_coef": 0.01, "optim__mini_batch_size": 8}
    trial = make_trial(**STEPS, **changes)
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=4)
    trial.run()
    kl = {row["step"]: row["actor/kl_loss"] for row in trial.rows if row["step"]}
    assert kl[1] == pytest.approx(0, abs=1e-6)
    assert kl[4] > 1e-4


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # in the last weight, of which safetensors keeps no digest
    path.write_bytes(data)


TORN = {
    "policy": lambda folder: cut(folder / "policy.safetensors"),
    "critic": lambda folder: cut(folder / "critic.safetensors"),
    "optimizer": lambda folder: cut(folder / "critic_optimizer.safetensors"),
    "state": lambda folder: (folder / "state.json").write_text('{"config_ha'),
    "one bit": lambda folder: flip_a_bit(folder / "policy.safetensors"),
    "missing": lambda folder: (folder / "actor_optimizer.safetensors").unlink(),
    "empty": lambda folder: (folder / "critic.safetensors").write_bytes(b""),
}


def test_a_torn_checkpoint_is_passed_over(make_trial, whole):
    trial = make_trial(**STEPS, **KINDS["gae-warmup"], checkpoint__keep_last=1)
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=6)
    TORN["critic"](trial.folder.checkpoint(5))
    assert_same_trial(trial, trial.run(), whole("gae-warmup"))
    (warning,) = about_checkpoints(trial)
    assert warning.startswith(f"{trial.folder.checkpoint(5)} cannot be read (")
    assert warning.endswith(
        " It is now torn-step-000005; the trial goes on from an older checkpoint, or from step 0."
    )
    assert trial.checkpoints[-1] == 6  # not pushed out by the torn one
    assert trial.folder.latest.resolve().name == "step-000006"


def test_with_all_checkpoints_torn_a_trial_starts_from_its_first_weights(make_trial, whole):
    """Although the policy's file is whole: no part of a torn checkpoint may be loaded."""
    trial = make_trial(**STEPS, **KINDS["gae-warmup"])
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=4)
    torn = trial.checkpoints
    for step in torn:
        TORN["optimizer"](trial.folder.checkpoint(step))
    assert_same_trial(trial, trial.run(), whole("gae-warmup"))
    assert len(about_checkpoints(trial)) == len(torn) > 1


@pytest.mark.parametrize("tear", TORN)
def test_nothing_of_a_torn_checkpoint_is_loaded(make_trial, small_policy, tear):
    trial = make_trial(**KINDS["gae-own"])
    saved = make_train_state(small_policy(), trial.config)
    with torch.no_grad():
        next(saved.policy.model.parameters()).add_(1)
    folder = save_checkpoint(trial.folder, saved, Progress(step=5), config_hash="a" * 64)
    TORN[tear](folder)
    train_state = make_train_state(small_policy(), trial.config)
    before = [weights_digest(module) for module in (train_state.policy.model, train_state.critic)]
    with pytest.raises(CheckpointError, match=r"step-000005 cannot be read \(\w+: "):
        load_checkpoint(folder, train_state, config_hash="a" * 64)
    found, problems = newest_checkpoint(trial.folder, train_state, config_hash="a" * 64)
    assert (found, len(problems)) == (None, 1)
    after = [weights_digest(module) for module in (train_state.policy.model, train_state.critic)]
    assert after == before
    assert (trial.folder.checkpoints / "torn-step-000005").is_dir()


def files(trial):
    paths = trial.folder.path.rglob("*")
    return {path: path.read_bytes() for path in paths if path.is_file()}


def test_a_checkpoint_of_another_config_is_refused_and_left_alone(stopped):
    trial = stopped
    before = files(trial)
    with pytest.raises(
        CheckpointError, match=r"belongs to config cccccccccc, not dddddddddd\. Move"
    ):
        trial.run(config_hash="d" * 64)
    assert files(trial) == before


def other_end(policy):
    return replace(policy, tokenizer_sha256="0" * 64)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        pytest.param(lambda make: make(seed=1), "weights", id="weights"),
        pytest.param(lambda make: make(hidden_size=16), "weights", id="architecture"),
        pytest.param(lambda make: other_end(make()), "tokenizer", id="tokenizer"),
    ],
)
def test_a_checkpoint_that_began_with_another_model_is_refused_and_left_alone(
    stopped, changed, name
):
    """The folder of policy.model holds something else now; the KL would be to that."""
    trial = stopped
    before = files(trial)
    as_it_began = trial.make_policy
    trial.make_policy = lambda: changed(as_it_began)
    with pytest.raises(
        CheckpointError,
        match=rf"step-000003 began with other {name} \(\w{{10}}\) than policy\.model now holds "
        r"\(\w{10}\)\. Restore the model, or move the trial's folder away",
    ):
        trial.run()
    assert files(trial) == before
    trial.make_policy = as_it_began
    assert trial.run().final_step == 6


def test_the_time_of_all_attempts_is_counted(stopped):
    trial = stopped
    path = trial.folder.checkpoint(3) / "state.json"
    state = json.loads(path.read_text())
    progress = state["progress"]
    assert progress["total_s"] >= progress["train_s"] > 0
    progress["total_s"] += 1000
    path.write_text(json.dumps(state))
    began = time.monotonic()
    result = trial.run()
    own_s = time.monotonic() - began
    assert 0 < result.total_s - progress["total_s"] <= own_s
    assert trial.lines[-2].endswith("resumed from step 3")


def gates(trial):
    return {row["step"]: row["heldout/reward_mean"] for row in trial.rows if "heldout/turns" in row}


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_newest_and_the_best_checkpoint_are_kept(make_trial, mode):
    trial = make_trial(
        budget__steps=5, gate__every=1, checkpoint__every=3, checkpoint__keep_last=2, optim__lr=3e-2
    )
    result = trial.run(mode=mode)
    history = gates(trial)
    best = max(history.values()) if mode == "max" else min(history.values())
    assert result.best_step == min(step for step, value in history.items() if value == best)
    assert result.heldout_metric == best
    assert (result.base_metric, result.final_metric) == (history[0], history[5])
    assert trial.folder.best_heldout.resolve().name == f"step-{result.best_step:06d}"
    assert os.readlink(trial.folder.best_heldout) == f"step-{result.best_step:06d}"
    assert os.readlink(trial.folder.latest) == "step-000005"
    assert result.best_step in trial.checkpoints
    assert 5 in trial.checkpoints
    assert len(trial.checkpoints) <= 3
    saved = json.loads((trial.folder.best_heldout / "state.json").read_text())
    assert saved["progress"]["step"] == result.best_step
    assert not list(trial.folder.checkpoints.glob(".*"))


def test_when_training_only_harms_the_start_is_the_best(make_trial):
    # So wild a step that the policy says one thing for ever, and not what the env pays for.
    trial = make_trial(budget__steps=3, gate__every=1, checkpoint__keep_last=1, optim__lr=1.0)
    result = trial.run()
    assert max(gates(trial).values()) == gates(trial)[0]
    assert result.best_step == 0
    assert trial.checkpoints == [0, 3]


def test_a_stop_writes_no_checkpoint_twice(stopped):
    trial = stopped
    before = (trial.folder.checkpoint(3) / "state.json").stat()
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=1)
    after = (trial.folder.checkpoint(3) / "state.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_records_are_cut_back_to_the_checkpoint(make_trial, killed):
    trial = make_trial(**STEPS)
    with pytest.raises(killed):
        trial.run(die_at=3)
    with pytest.raises(InterruptedRun):
        trial.run(stop_at=1)
    for path in (trial.folder.metrics, trial.folder.heldout, trial.folder.episodes):
        assert max(row["step"] for row in read_jsonl(path).rows) <= 2

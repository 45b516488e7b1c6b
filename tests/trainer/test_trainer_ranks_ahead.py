"""Ranks, several engines, and sampling ahead at once: the trial of one rank, up to rounding."""

from functools import partial
from pathlib import Path

import pytest
from copy_engine import copy_engine

from rltune.errors import InterruptedRun
from rltune.policy.byte_policy import save
from rltune.policy.load import policy_of
from rltune.store.digest import deterministic_row
from rltune.trainer.engines import make_engine
from rltune.trainer.ranks.launch import ranks_for

pytestmark = pytest.mark.slow

AHEAD = {
    "rollout__ahead": 1,
    "rollout_correction": {"kind": "tis"},
    "resources__engine": "own",
    "budget__steps": 4,
    "checkpoint__every": 2,
    "gate__every": 2,
    "gate__start_kl": True,
    "collapse__every": 1,
    "collapse__prompts": 2,
}
SEVERAL = {"resources__ranks": 2, "rollout__replicas": 2}
STATED = 1e-5  # of the larger of a metric and 1; as in docs/engines.md


@pytest.fixture
def make(make_trial, small_policy, tmp_path):
    """Return a maker of trials whose ranks read the same weights from a folder."""
    save(small_policy(), tmp_path / "model")

    def make(name, **changes):
        trial = make_trial(name, **AHEAD, **changes, policy__model=str(tmp_path / "model"))
        trial.make_policy = partial(policy_of, trial.config, Path.cwd(), device="cpu")
        return trial

    return make


def attempt(trial, **given):
    """Run a trial on its ranks, with its engines, as a launch does."""
    engines = []

    def own(policy):
        engines.append(make_engine(trial.config, policy))
        return engines[-1]

    with ranks_for(trial.config, trial=trial.folder.path, base=Path.cwd()) as group:
        try:
            trial.run(make_engine=own, group=group, **given)
        finally:
            engines[-1].close()


def test_interrupted_and_resumed_it_is_the_trial_of_one_rank(make):
    alone, several = make("alone"), make("several", **SEVERAL)
    alone.run(make_engine=copy_engine)
    with pytest.raises(InterruptedRun):
        attempt(several, stop_at=4)
    attempt(several)
    assert [row.get("rollout/staleness") for row in several.rows] == [None, 0, 1, 1, 1]
    pairs = zip(alone.rows, several.rows, strict=True)
    for row, shared in (map(deterministic_row, pair) for pair in pairs):
        assert row.keys() == shared.keys()
        for name, value in row.items():
            if not isinstance(value, float):  # digests of tasks and of what was sampled
                assert shared[name] == value, name
                continue
            limit = STATED * max(1.0, abs(value))
            assert shared[name] == pytest.approx(value, rel=0, abs=limit, nan_ok=True), name

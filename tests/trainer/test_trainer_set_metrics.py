"""Metrics of named sets: per set, and the mean over the sets; numbers by hand."""

import math

from rltune.trainer.records.outcomes import is_measured, set_metrics
from rltune.types import Episode


def episode(em, f1, *, fault=""):
    return Episode(
        *("t", 0, 0, 0, (), True, False, bool(em), float(em)),
        auxiliary={"em": float(em), "f1": f1},
        early_fault=fault,
    )


EPISODES = [episode(1, 1.0), episode(0, 0.5), episode(0, 0.0), episode(1, 1.0, fault="gone")]
NAMES = ("em", "f1", "searches")


def test_per_set_and_macro():
    sets = ("nq", "nq", "popqa", "popqa")
    metrics = set_metrics(EPISODES, sets, prefix="heldout", auxiliary_names=NAMES)
    assert metrics == {
        "heldout/nq/success_rate": 0.5,
        "heldout/nq/em": 0.5,
        "heldout/nq/f1": 0.75,
        "heldout/popqa/success_rate": 0.0,  # the other one had a fault
        "heldout/popqa/em": 0.0,
        "heldout/popqa/f1": 0.0,
        "heldout/macro/success_rate": 0.25,
        "heldout/macro/em": 0.25,
        "heldout/macro/f1": 0.375,  # each set counts the same
    }


def test_a_set_of_faults_alone_has_no_number():
    metrics = set_metrics(EPISODES, ("a", "a", "a", "b"), prefix="heldout", auxiliary_names=NAMES)
    assert math.isnan(metrics["heldout/b/em"])
    assert math.isnan(metrics["heldout/macro/em"])


def test_a_gate_that_lost_a_set_tells_nothing_by_that_set():
    metrics = set_metrics(EPISODES, ("a", "a", "a", "b"), prefix="heldout", auxiliary_names=NAMES)
    asked = {name: is_measured(metrics, f"heldout/{name}/em", EPISODES) for name in "ab"}
    assert asked == {"a": True, "b": False}
    assert not is_measured(metrics, "heldout/macro/em", EPISODES)
    assert not is_measured(metrics, "heldout/a/em", [])
    assert is_measured({"heldout/own": math.nan}, "heldout/own", EPISODES)  # of no set


def test_without_sets_there_is_nothing():
    assert set_metrics(EPISODES, (), prefix="heldout", auxiliary_names=NAMES) == {}


def test_an_env_without_these_measures_has_success_alone():
    metrics = set_metrics(EPISODES, ("a",) * 4, prefix="test", auxiliary_names=("searches",))
    assert set(metrics) == {"test/a/success_rate", "test/macro/success_rate"}

import pytest

from rltune.store.ledger import Ledger, LedgerEvent
from rltune.store.rundir import RunDir


@pytest.fixture
def ledger(tmp_path):
    return Ledger(RunDir(tmp_path).create().ledger)


def start(ledger, name, attempt=1, launch="L1"):
    ledger.log(name, LedgerEvent.STARTED, attempt=attempt, launch=launch)


def test_a_ledger_folds_to_attempts_and_last_event(ledger):
    ledger.plan(["a", "b", "c"], launch="L1")
    start(ledger, "a")
    start(ledger, "b")
    ledger.log("a", LedgerEvent.FAILED, attempt=1, launch="L1", reason="OOM")
    start(ledger, "a", 2)
    ledger.log("a", LedgerEvent.DONE, attempt=2, launch="L1")
    state = ledger.read()
    assert list(state.trials) == ["a", "b", "c"]
    assert [(t.attempts, t.last.event.value) for t in state.trials.values()] == [
        (2, "done"),
        (1, "started"),
        (0, "planned"),
    ]
    assert state.attempts("unknown") == 0


def test_planning_again_adds_only_what_is_new(ledger):
    ledger.plan(["a"], launch="L1")
    start(ledger, "a")
    ledger.plan(["a", "b"], launch="L2")
    state = ledger.read()
    assert state.trials["a"].last.event is LedgerEvent.STARTED
    assert state.trials["b"].last.launch == "L2"


def test_started_without_an_end_is_lost_once_its_driver_is_dead(ledger):
    for name in "abc":
        start(ledger, name)
    ledger.log("b", LedgerEvent.INTERRUPTED, attempt=1, launch="L1")
    state = ledger.read()
    assert [trial.trial_id for trial in state.open_trials] == ["a", "c"]
    assert [trial.trial_id for trial in ledger.close_lost(launch="L2")] == ["a", "c"]
    assert ledger.close_lost(launch="L2") == ()
    last = ledger.read().trials["a"].last
    assert (last.event, last.attempt, last.launch) == (LedgerEvent.LOST, 1, "L2")
    assert last.reason == "launch L1 ended before it reported this attempt's end"
    assert ledger.read().attempts("a") == 1


def test_foreign_lines_are_reported_and_skipped(ledger):
    ledger.plan(["a"], launch="L1")
    with ledger.path.open("a") as file:
        file.write('{"event": "started"}\n{"time": "", "event": "exploded", "trial_id": "a", ')
        file.write('"attempt": 1, "launch": "L1", "reason": ""}\n{"time')
    state = ledger.read()
    assert state.trials["a"].last.event is LedgerEvent.PLANNED
    assert len(state.problems) == 3
    start(ledger, "a")  # and the torn tail does not swallow it
    assert ledger.read().trials["a"].last.event is LedgerEvent.STARTED

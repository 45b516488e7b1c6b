"""A `--budget` of calls and money: what is spent is read from the trials' own files."""

from dataclasses import replace

from test_runner_sweep import prepare, request_of

from rltune.runner.spend import SpendLimit, overspent
from rltune.runner.sweep import run_sweep
from rltune.runner.trial import run_trial
from rltune.store.rundir import RunDir
from rltune.store.service_usage import ServiceUsage, write_usage
from rltune.types import TrialStatus


def spend(run, name, **usage):
    write_usage(run.trial(name).create().service, ServiceUsage(**usage))


def test_a_limit_is_reached_by_all_trials_together(tmp_path):
    run = RunDir(tmp_path).create()
    spend(run, "a", requests=60, paid={"USD": 1.5, "EUR": 9.0})
    limit = SpendLimit(requests=100, amount=2.0, currency="USD")
    assert overspent(run, limit) == ""
    spend(run, "b", requests=39, paid={"USD": 0.75})
    assert overspent(run, limit) == "2.25 USD reach the sweep's --budget of 2.00 USD"
    assert overspent(run, replace(limit, amount=None)) == ""
    spend(run, "c", requests=1)
    text = "100 calls to the service reach the sweep's --budget of 100 requests"
    assert overspent(run, limit) == text
    assert overspent(run, None) == ""


def test_nothing_starts_once_it_is_reached(small, tmp_path, models_are_fine):
    request = request_of(small, tmp_path, spend=SpendLimit(requests=5))
    spend(prepare(request), "earlier", requests=5)
    outcome = run_sweep(request, on_start=lambda *_: None, on_tick=lambda: None)
    assert not outcome.begun
    assert not outcome.is_interrupted
    assert set(outcome.statuses.values()) == {TrialStatus.PENDING}


def test_a_trial_looks_again_when_its_turn_comes(small, make_payload):
    made = replace(make_payload(small, condition=1), spend=SpendLimit(requests=5))
    spend(RunDir(made.folder.parents[1]), "earlier", requests=5)
    assert run_trial(made) is TrialStatus.PENDING
    assert not made.folder.joinpath("provenance.json").exists()

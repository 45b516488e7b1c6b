"""`rltune next`, and the limits of `rltune sweep`, around a runner that only writes files."""

import pytest
from cases import each
from run_folders import CONTROL, FolderWriter, write_sweep
from test_cli_sweep import GATES, FakeRunner, finish

from rltune.cli.options import Budget, parse_budget, parse_duration
from rltune.errors import InputError
from rltune.runner import sweep as runner
from rltune.runner.budget import Declined, TimeEstimate
from rltune.runner.spend import SpendLimit
from rltune.store.files import read_json, write_json_atomic
from rltune.types import TrialStatus


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A fake runner that finishes the control of seed 0."""
    write_sweep(tmp_path)
    made = FakeRunner(tmp_path, [finish(CONTROL, 0)])
    monkeypatch.setattr("rltune.cli.sweep.run_sweep", made)
    monkeypatch.setattr("rltune.cli.sweep.clock", lambda: "12:00:00")
    return made


def test_next_starts_one_trial_at_most(rltune, fake):
    result = rltune("next", "sweeps/kl.yaml", "--seeds", "0")
    assert result.code == 0, result.err
    (request,) = fake.requests
    assert (request.max_trials, request.max_concurrent, request.deadline) == (1, 1, None)
    assert request.loaded.seeds == (0,)


def test_next_of_a_run_folder_is_that_of_its_last_launch(rltune, fake, tmp_path):
    writer = FolderWriter(tmp_path, seeds=(0, 1))
    plan = read_json(writer.run.plan)
    write_json_atomic(writer.run.plan, plan | {"overrides": ["optim.lr=1e-5"]})
    refused = rltune("next", str(writer.run.path))
    assert refused.code == 2
    assert "it, or a file that it names, was edited, or rltune's" in refused.err  # another identity
    write_json_atomic(writer.run.plan, plan)
    result = rltune("next", str(writer.run.path))
    assert result.code == 0, result.err
    (request,) = fake.requests
    assert request.loaded.seeds == (0, 1)
    assert request.runs_dir == writer.run.path.parent
    more = rltune("next", str(writer.run.path), "--seeds", "1")
    assert more.err.startswith("error: --seeds: a run folder already sets it.")


def test_next_without_its_sweep_file_says_so(rltune, fake, tmp_path):
    writer = FolderWriter(tmp_path)
    (tmp_path / "sweeps" / "kl.yaml").unlink()
    result = rltune("next", str(writer.run.path))
    assert result.code == 2
    assert "Run this where the sweep was started, or give the sweep file." in result.err


def test_a_limited_sweep_says_what_is_left_and_why(rltune, fake, monkeypatch):
    late = Declined(
        TimeEstimate("kl_loss_coef=0.1-s0-x", 20, 3.0, 1.0, "measured on 4 steps"), 45.0
    )

    def limited(request, **rest):
        outcome = fake(request, **rest)
        statuses = {"a": TrialStatus.DONE, "b": TrialStatus.PENDING}
        return runner.SweepOutcome(
            outcome.run, outcome.specs, statuses, frozenset("a"), False, (late,)
        )

    monkeypatch.setattr("rltune.cli.sweep.run_sweep", limited)
    result = rltune(
        "sweep", "sweeps/kl.yaml", "--seeds", "0", "--budget", "1m", "--max-trials", "2"
    )
    assert result.code == 0, result.err
    (request,) = fake.requests
    assert request.max_trials == 2
    assert request.deadline is not None
    assert "No trial starts that cannot finish by " in result.out
    # 20 steps of 3 s and 1 s before them are 61 s.
    assert (
        "Not started: kl_loss_coef=0.1-s0-x: 1 min 1 s = 1.00 s to the first gate + 20 steps of "
        "3.00 s (measured on 4 steps), and 45 s are left"
    ) in result.out
    assert result.out.endswith("1 trial left; the same command goes on.\n")


def test_nothing_left_is_said_as_before(rltune, tmp_path, monkeypatch):
    write_sweep(tmp_path)
    writer = FolderWriter(tmp_path)
    for spec in writer.specs:
        writer.finish(spec, GATES)
    monkeypatch.setattr("rltune.cli.sweep.run_sweep", FakeRunner(tmp_path, []))
    result = rltune("next", "sweeps/kl.yaml")
    assert result.code == 0
    assert "Nothing was left to run" in result.out
    assert "left; the same command" not in result.out


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28800), ("1h30m", 5400), ("45s", 45), ("1d", 86400), (" 2m ", 120)],
)
def test_lengths_of_time(text, seconds):
    assert parse_duration(text) == seconds


@each("text", ["", "8", "h", "0s", "-1h", "1m1h", "soon", "9" * 400 + "h"])
def test_what_is_no_length_of_time(text):
    with pytest.raises(InputError, match=r"--budget: .* is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (None, Budget()),
        ("8h", Budget(28800.0)),
        ("20USD", Budget(None, SpendLimit(amount=20.0, currency="USD"))),
        ("12.50 EUR, 1h", Budget(3600.0, SpendLimit(amount=12.5, currency="EUR"))),
        ("5000requests", Budget(None, SpendLimit(requests=5000))),
    ],
)
def test_a_budget_is_of_time_money_or_requests(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("8h,9h", "2 durations"),
        ("1USD, 8h, 2EUR", "2 amounts of money"),
        ("1requests,2requests,3requests", "3 numbers of requests"),
    ],
)
def test_a_budget_has_one_limit_of_a_kind(text, twice):
    message = rf"^--budget: '{text}' has {twice}\. Give each kind of limit once\.$"
    with pytest.raises(InputError, match=message):
        parse_budget(text)


MANY = "9" * 400  # would be an infinite amount


@each(
    "text",
    ["0USD", "20usd", "0requests", "1.5requests", "20", "8h,", f"{MANY}USD", f"{MANY}requests"],
)
def test_what_is_no_budget(text):
    with pytest.raises(InputError) as caught:
        parse_budget(text)
    assert str(caught.value).endswith(
        "is not a duration, an amount of money or a number of requests. Give one such as 8h, "
        "1h30m, 45s, 20USD or 5000requests; nine digits at most."
    )


def test_a_budget_of_money_is_refused_where_nothing_is_paid(rltune, fake):
    result = rltune("sweep", "sweeps/kl.yaml", "--seeds", "0", "--budget", "20USD")
    assert result.code == 2
    assert result.err == (
        "error: --budget: requests and money are those of a training service, and trainer.backend "
        "is torch. Give a time, such as 8h.\n"
    )
    assert not fake.requests


@pytest.mark.parametrize(
    ("begun", "options", "code"),
    [
        ("ab", (), 1),  # b lost its machine, say
        ("ab", ("--max-trials", "2"), 1),
        ("a", ("--max-trials", "1"), 0),
        ("a", (), 1),  # no limit kept b from starting
    ],
)
def test_what_is_left_over_is_code_1_unless_a_limit_left_it(
    rltune, fake, monkeypatch, begun, options, code
):
    def leaving(request, **rest):
        outcome = fake(request, **rest)
        statuses = {"a": TrialStatus.DONE, "b": TrialStatus.INTERRUPTED}
        return runner.SweepOutcome(
            outcome.run, outcome.specs, statuses, frozenset(begun), is_interrupted=False
        )

    monkeypatch.setattr("rltune.cli.sweep.run_sweep", leaving)
    result = rltune("sweep", "sweeps/kl.yaml", "--seeds", "0", *options)
    assert result.code == code, result.err
    assert "1 trial left; the same command goes on." in result.out

from dataclasses import replace

import pytest

from rltune.spec.audit import TrialRecord, audit_trials
from rltune.spec.expand import expand
from rltune.types import TrialResult, TrialStatus

STEPS = 4
PROVENANCE = {
    "commit": "c0ffee",
    "dirty": False,
    "diff_sha256": "",
    "versions": {"torch": "2.13.0", "ray": "2.60.0"},
    "device": "cpu",
    "dtype": "float32",
    "engine": "torch",
    "weights_sha256": "w",
    "manifest_sha256": "m",
    "host": "differs anyway",
}


def row(step, seed, updates=4):
    """One metrics line; counters are cumulative."""
    if step == 0:
        return {"step": 0, "heldout/success_rate": 0.5}
    return {
        "step": step,
        "rollout/task_hash": f"tasks of seed {seed} step {step}",
        "budget/rollouts": 128 * step,
        "budget/generated_tokens": 1000 * step,
        "budget/optimizer_steps": updates * step,
    }


def gate(step):
    return {"step": step, "tasks_sha256": "h", "temperature": 1.0, "n": 2, "success": [0, 1]}


def result(trial_id, status=TrialStatus.DONE, step=STEPS, reason=""):
    return TrialResult(
        trial_id=trial_id, status=status, reason=reason, final_step=step, best_step=step,
        heldout_metric=0.5, base_metric=0.5, final_metric=0.5, pool_metric=0.5,
        metrics_sha256="", train_s=9.0, total_s=10.0,
    )  # fmt: skip


def record(spec, updates=4):
    return TrialRecord(
        spec=spec,
        provenance=PROVENANCE,
        metrics=tuple(row(step, spec.seed, updates) for step in range(STEPS + 1)),
        heldout=tuple(gate(step) for step in (0, 2, 4)),
        result=result(spec.trial_id),
    )


@pytest.fixture
def records(load):
    overrides = [f"budget.steps={STEPS}", "gate.every=2"]
    return [record(spec) for spec in expand(load(overrides=overrides, seeds=[0, 1]))]


def lines(records):
    report = audit_trials(records)
    return [str(finding) for finding in (*report.errors, *report.warnings)]


def name(record):
    return record.spec.trial_id


def cut(record, step):
    """A record as it was after `step`, still running."""
    return replace(
        record,
        metrics=record.metrics[: step + 1],
        heldout=tuple(gate for gate in record.heldout if gate["step"] <= step),
        result=None,
    )


def test_equal_trials_pass_and_their_budget_is_counted(records):
    report = audit_trials(records)
    assert (report.ok, report.errors, report.warnings) == (True, (), ())
    assert report.budget.step == 4
    assert [(r.condition, r.trials) for r in report.budget.rows] == [
        ("kl_loss_coef=0.0", 2), ("kl_loss_coef=0.01", 2), ("kl_loss_coef=0.1", 2),
    ]  # fmt: skip
    assert report.budget.rows[0].consumed == {
        "budget/rollouts": 512.0,  # 4 steps x 128
        "budget/generated_tokens": 4000.0,
        "budget/optimizer_steps": 16.0,  # 4 x 4
        "wall_s": 10.0,
    }
    assert set(report.budget.differences.values()) == {0.0}


@pytest.mark.parametrize(
    ("field", "value", "shown", "usual"),
    [
        ("commit", "dead", "commit", "'c0ffee'"),
        ("dirty", True, "dirty", "false"),
        ("diff_sha256", "x", "diff_sha256", "''"),
        ("device", "H100", "device", "'cpu'"),
        ("dtype", "bfloat16", "dtype", "'float32'"),
        ("engine", "vllm", "engine", "'torch'"),
        ("weights_sha256", "x", "weights_sha256", "'w'"),
        ("manifest_sha256", "x", "manifest_sha256", "'m'"),
    ],
)
def test_a1_one_odd_trial_is_named(records, field, value, shown, usual):
    odd = records[2] = replace(records[2], provenance={**PROVENANCE, field: value})
    others = f"{name(records[0])}, {name(records[1])}, {name(records[3])} and 2 more"
    new = "true" if value is True else repr(value)
    assert lines(records) == [
        f"A1 error: {shown} differs: {usual} in {others}; {new} in {name(odd)}. "
        "Run the sweep again from one clean checkout on one kind of machine."
    ]


def test_a1_versions_are_compared_by_package(records):
    versions = {"torch": "2.12.0", "ray": "2.60.0"}
    records[0] = replace(records[0], provenance={**PROVENANCE, "versions": versions})
    assert lines(records)[0].startswith(
        f"A1 error: version of torch differs: '2.12.0' in {name(records[0])}; '2.13.0' in "
    )
    assert len(lines(records)) == 1


def test_a1_what_was_not_recorded_proves_nothing(records):
    records[0] = replace(records[0], provenance={"commit": "c0ffee"})
    assert lines(records)[0] == (
        f"A1 error: dirty was not recorded in {name(records[0])}. "
        "Run the sweep again from one clean checkout on one kind of machine."
    )
    assert len(lines(records)) == 8  # every field but commit


def test_a1_an_axis_over_the_env_has_a_manifest_per_value(records):
    config = {**records[1].spec.config, "env": {**records[1].spec.config["env"], "size": 7}}
    other = {**PROVENANCE, "manifest_sha256": "of size 7"}
    tasks = tuple(
        {**row, "rollout/task_hash": "x"} if row["step"] else row for row in records[1].metrics
    )
    for i in (1, 4):  # the same condition under both seeds
        spec = replace(records[i].spec, config=config)
        records[i] = replace(records[i], spec=spec, provenance=other, metrics=tasks)
    assert lines(records) == []
    records[4] = replace(records[4], provenance={**other, "manifest_sha256": "m"})
    assert lines(records)[0].startswith("A1 error: manifest_sha256 differs: 'of size 7' in ")


def test_a2_first_step_with_other_prompts_is_named(records):
    metrics = list(records[1].metrics)
    metrics[3] = {**metrics[3], "rollout/task_hash": "other"}
    metrics[4] = {**metrics[4], "rollout/task_hash": "other too"}
    records[1] = replace(records[1], metrics=tuple(metrics))
    assert lines(records) == [
        "A2 error: seed 0 drew other tasks from step 3 on: "
        f"'tasks of seed 0 step 3' in {name(records[0])}, {name(records[2])}; "
        f"'other' in {name(records[1])}. Delete these trials and run them again."
    ]


def test_a2_a_step_without_a_hash_proves_nothing(records):
    metrics = list(records[0].metrics)
    metrics[2] = {key: value for key, value in metrics[2].items() if key != "rollout/task_hash"}
    records[0] = replace(records[0], metrics=tuple(metrics))
    assert lines(records) == [
        f"A2 error: {name(records[0])} has no task hash for step 2. "
        "Delete this trial and run it again."
    ]


def test_a3_warns_over_five_percent_of_optimiser_steps(records):
    records[1] = record(records[1].spec, updates=2)
    report = audit_trials(records)
    assert report.ok
    assert report.budget.differences["budget/optimizer_steps"] == pytest.approx(0.25)
    # condition 0.01: mean of 8 and 16 is 12; (16 - 12) / 16
    assert [str(finding) for finding in report.warnings] == [
        "A3 warning: optimiser steps up to step 4 differ by 25% "
        "(kl_loss_coef=0.0: 16, kl_loss_coef=0.01: 12, kl_loss_coef=0.1: 16). "
        "Compare at equal optimiser steps, not at equal training steps."
    ]


def test_a3_at_five_percent_is_silent(records):
    def spend(record, updates):
        last = {**record.metrics[4], "budget/optimizer_steps": updates}
        return replace(record, metrics=(*record.metrics[:4], last))

    spent = [spend(r, 95 if r.spec.condition.endswith("=0.1") else 100) for r in records]
    assert lines(spent) == []  # (100 - 95) / 100
    spent = [spend(r, 94 if r.spec.condition.endswith("=0.1") else 100) for r in records]
    assert len(lines(spent)) == 1


def test_a3_names_the_remedy_of_a_filter_that_drops(records):
    filtered = {"strategy": "top_p", "value": 0.5, "include_zero": False, "on_drop": "drop"}
    for i in (1, 4):
        config = {**records[i].spec.config, "rollout_filter": filtered}
        records[i] = record(replace(records[i].spec, config=config), updates=2)
    assert lines(records)[0].endswith(
        "The filter dropped groups from the batch; set rollout_filter.on_drop: mask."
    )


def test_a3_compares_at_a_step_that_all_reached(records):
    records[0] = cut(records[0], 2)
    report = audit_trials(records)
    assert report.budget.step == 2
    assert report.budget.rows[1].consumed["budget/rollouts"] == 256  # 2 x 128
    assert report.ok  # a running trial is no error
    assert [finding.rule for finding in report.warnings] == ["A4"]


AGAIN = "Delete this trial and run it again."
RESUME = "Run `rltune sweep` again; it goes on with what is missing."


def test_a4_silent_shortfall_is_an_error(records):
    short = cut(records[0], 2)
    records[0] = replace(short, result=result(name(short), step=2))
    assert lines(records) == [
        f"A4 error: {name(short)} ended at step 2 of 4 without a reason. {AGAIN}"
    ]
    records[0] = replace(short, result=result(name(short), TrialStatus.STOPPED_EARLY, 2))
    assert lines(records) == [
        f"A4 error: {name(short)} ended at step 2 of 4 without a reason. {AGAIN}"
    ]


def test_a4_named_ends_are_warnings(records):
    short = cut(records[0], 2)
    stop = result(name(short), TrialStatus.STOPPED_EARLY, 2, "5 empty filtered steps in a row")
    records[0] = replace(short, result=stop)
    assert lines(records) == [
        f"A4 warning: {name(short)} stopped at step 2 of 4: 5 empty filtered steps in a row. "
        "Report it as an early stop; it is no success."
    ]
    records[0] = replace(short, failure={"reason": "out of memory"})
    assert lines(records) == [
        f"A4 warning: {name(short)} failed at step 2 of 4: out of memory. {RESUME}"
    ]
    records[0] = replace(short, failure={"reason": ""})
    assert lines(records) == [
        f"A4 error: {name(short)} failed at step 2 without a reason. {RESUME}"
    ]


def test_a4_pending_trials_are_named_and_break_nothing(records):
    records[0] = TrialRecord(spec=records[0].spec, provenance={})
    assert lines(records) == [f"A4 warning: {name(records[0])} has not started. {RESUME}"]


def test_a4_a_marker_that_the_metrics_do_not_support(records):
    records[0] = replace(cut(records[0], 3), result=result(name(records[0])))
    assert (
        f"A4 error: {name(records[0])} claims step 4, but its metrics end at step 3. {AGAIN}"
    ) in lines(records)


@pytest.mark.parametrize(
    ("field", "value"), [("tasks_sha256", "g"), ("temperature", 0.0), ("n", 3)]
)
def test_a5_another_evaluation_is_named(records, field, value):
    heldout = (*records[5].heldout[:2], {**records[5].heldout[2], field: value})
    records[5] = replace(records[5], heldout=heldout)
    assert lines(records)[0].startswith(f"A5 error: held-out {field} differs: ")
    assert f"{value!r} in {name(records[5])}" in lines(records)[0]


def test_a5_a_missing_gate_is_named(records):
    records[0] = replace(records[0], heldout=(gate(0), gate(4)))
    assert lines(records) == [
        f"A5 error: {name(records[0])} was evaluated at steps [0, 4], not [0, 2, 4]. "
        "Delete these trials and run them again."
    ]


def test_a5_a_running_trial_may_or_may_not_have_passed_its_next_gate(records):
    at_gate = cut(records[0], 2)
    for heldout in (at_gate.heldout, at_gate.heldout[:1]):
        records[0] = replace(at_gate, heldout=heldout)
        assert audit_trials(records).ok


def test_nothing_recorded_yet(records):
    report = audit_trials([TrialRecord(spec=r.spec, provenance={}) for r in records])
    assert report.ok
    assert report.budget.rows == ()
    assert audit_trials([]).ok

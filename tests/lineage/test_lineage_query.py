import math
from dataclasses import replace

import pytest
from cases import each

from rltune.errors import StoreError
from rltune.lineage.query import best, chain, decide_status
from rltune.lineage.record import RowContext, row_for
from rltune.lineage.row import LineageRow, row_problems
from rltune.lineage.table import LineageStore
from rltune.store.failure import TrialFailure
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

KEEP, BASELINE, DISCARD = RowStatus.KEEP, RowStatus.BASELINE, RowStatus.DISCARD


def row(exp_id, metric=None, status=KEEP, parent=""):
    return LineageRow(exp_id=exp_id, status=status, core_metric=metric, parent_exp=parent)


def test_only_keep_and_baseline_rows_can_be_best():
    others = [row(status, 9.0, status) for status in RowStatus if status not in (KEEP, BASELINE)]
    assert best([*others, row("k", 0.5), row("b", 0.4, BASELINE)], "max").row.exp_id == "k"
    assert best([*others, row("k", 0.5), row("b", 0.4, BASELINE)], "min").row.exp_id == "b"
    assert best(others, "max") == (None, ())


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("nothing", [None, math.nan])
def test_nothing_measured_never_wins(mode, nothing):
    rows = [row("a", nothing), row("b", 0.1), row("c", nothing)]
    assert best(rows, mode).row.exp_id == "b"
    assert best(rows[:1], mode) == (None, ())


def test_ties_go_to_the_earliest_and_are_shown():
    rows = [row("a", 0.3), row("b", 0.5), row("c", 0.5, BASELINE), row("d", 0.5)]
    top = best(rows, "max")
    assert (top.row.exp_id, [tie.exp_id for tie in top.ties]) == ("b", ["c", "d"])


def test_the_direction_must_be_known():
    with pytest.raises(ValueError, match=r"^mode 'up' is not a direction"):
        best([], "up")


DECISIONS = [
    pytest.param(0.6, "max", (KEEP, 0.25, "k"), id="better"),  # .6 - .35
    pytest.param(0.35, "max", (DISCARD, 0.0, "k"), id="equal-is-not-better"),
    pytest.param(0.1, "max", (DISCARD, -0.25, "k"), id="worse"),
    pytest.param(0.1, "min", (KEEP, -0.1, "b"), id="min-better-is-negative"),  # .1 - .2
    pytest.param(0.3, "min", (DISCARD, 0.1, "b"), id="min-worse"),
    pytest.param(None, "max", (DISCARD, None, "k"), id="none"),
    pytest.param(math.nan, "max", (DISCARD, None, "k"), id="nan"),
    pytest.param(math.inf, "max", (DISCARD, None, "k"), id="inf"),
]


@each(("metric", "mode", "expected"), DECISIONS)
def test_decision_against_the_best_at_record_time(metric, mode, expected):
    rows = [row("b", 0.2, BASELINE), row("k", 0.35), row("blocked", 9.0, RowStatus.SIZE_BLOCKED)]
    status, delta, baseline = decide_status(metric, rows, mode)
    assert (status, baseline) == (expected[0], expected[2])
    assert delta == (None if expected[1] is None else pytest.approx(expected[1]))


def test_the_first_measured_row_is_kept_without_a_delta():
    assert decide_status(0.1, [row("x", 0.9, DISCARD)], "max") == (KEEP, None, "")
    assert decide_status(None, [], "max") == (DISCARD, None, "")


def test_a_chain_shows_kept_ancestors_and_names_the_others():
    rows = [
        row("root", status=BASELINE),
        row("k1", parent="root"),
        row("abort", status=RowStatus.HARNESS_ABORT, parent="k1"),
        row("d", status=DISCARD, parent="abort"),
        row("tip", status=DISCARD, parent="d"),
        row("sibling", parent="root"),
    ]
    walked = chain(rows, "tip")
    assert [r.exp_id for r in walked.rows] == ["root", "k1", "tip"]
    assert [r.exp_id for r in walked.skipped] == ["abort", "d"]
    assert (walked.missing, walked.cycle) == ("", ())
    assert [r.exp_id for r in chain(rows, "root").rows] == ["root"]


def test_broken_chains_are_named():
    dangling = chain([row("a", parent="gone"), row("b", parent="a")], "b")
    assert ([r.exp_id for r in dangling.rows], dangling.missing) == (["a", "b"], "gone")
    rows = [
        row("a", parent="c"),
        row("b", parent="a"),
        row("c", parent="b"),
        row("tip", parent="c"),
    ]
    circle = chain(rows, "tip")
    assert [r.exp_id for r in circle.rows] == ["a", "b", "c", "tip"]
    assert (circle.cycle, circle.missing) == (("c", "b", "a", "c"), "")
    assert chain([row("a", parent="a")], "a").cycle == ("a", "a")


def test_a_chain_understands_aliases_and_suggests_ids():
    rows = [row("075"), row("076", parent="exp_075")]
    assert [r.exp_id for r in chain(rows, "exp_076").rows] == ["075", "076"]
    with pytest.raises(
        StoreError, match=r"^exp_id: '0755' is not in the table\. Did you mean '075'\?$"
    ):
        chain(rows, "0755")
    with pytest.raises(StoreError, match=r"`rltune lineage show` lists the ids\.$"):
        chain(rows, "zzz")


SPEC = TrialSpec(
    trial_id="kl=0.01-s1-0123456789",
    sweep="kl",
    axis_key="loss.kl_loss_coef",
    condition="loss.kl_loss_coef=0.01",
    axis_value=0.01,
    is_control=False,
    seed=1,
    config={"seed": 1, "env": {"kind": "sokoban"}},
    config_hash="ff" * 32,
    expected_delta="-0.05 success",
)
CONTROL = replace(
    SPEC,
    trial_id="kl=0-s1-0000000000",
    condition="loss.kl_loss_coef=0.0",
    is_control=True,
    axis_value=0.0,
)
RESULT = TrialResult(
    trial_id=SPEC.trial_id,
    status=TrialStatus.DONE,
    reason="",
    final_step=20,
    best_step=10,
    heldout_metric=0.5,
    base_metric=0.4,
    final_metric=0.45,
    pool_metric=0.55,
    metrics_sha256="ab",
    train_s=1.5,
    total_s=2.0,
)
CONTEXT = RowContext(
    metric_name="heldout/success_rate",
    metric_mode="max",
    timestamp="2026-01-31T12:00:00Z",
    commit="abc-dirty",
    job_name="launch-1",
    snapshot_path="trials/x/checkpoints/step-000010",
    wandb_id="w1",
)


def test_a_finished_trial_hangs_on_the_control_of_its_seed():
    control = row_for(CONTROL, replace(RESULT, heldout_metric=0.375), [], CONTEXT)
    other_seed = replace(control, exp_id="s0", seed=0, core_metric=0.4375)
    made = row_for(SPEC, RESULT, [other_seed, control], CONTEXT)
    assert (control.status, control.parent_exp, control.delta_vs_best) == (BASELINE, "", None)
    assert made == LineageRow(
        exp_id="kl=0.01-s1-0123456789",
        timestamp="2026-01-31T12:00:00Z",
        specialist="rltune",
        parent_exp="kl=0-s1-0000000000",
        baseline_exp="s0",
        domain="sokoban",
        hypothesis="loss.kl_loss_coef=0.01, seed 1",
        expected_delta="-0.05 success",
        status=KEEP,
        core_metric=0.5,
        delta_vs_best=0.0625,  # .5 - .4375
        train_s=1.5,
        total_s=2.0,
        job_name="launch-1",
        snapshot_path="trials/x/checkpoints/step-000010",
        sweep="kl",
        axis_key="loss.kl_loss_coef",
        axis_value="0.01",
        condition="loss.kl_loss_coef=0.01",
        seed=1,
        trial_id="kl=0.01-s1-0123456789",
        config_hash="ff" * 32,
        commit="abc-dirty",
        metric_name="heldout/success_rate",
        metric_mode="max",
        heldout_metric=0.5,
        pool_metric=0.55,
        best_step=10,
        wandb_id="w1",
    )


def test_only_kept_rows_keep_a_snapshot():
    control = row_for(CONTROL, replace(RESULT, heldout_metric=0.75), [], CONTEXT)
    made = row_for(SPEC, RESULT, [control], CONTEXT)
    assert (made.status, made.snapshot_path, made.delta_vs_best) == (DISCARD, "", -0.25)
    assert control.snapshot_path == CONTEXT.snapshot_path


OUTCOMES = [
    (TrialStatus.STOPPED_EARLY, RowStatus.PRUNED),
    (TrialStatus.DIVERGED, RowStatus.DIVERGED),
    (TrialStatus.INTERRUPTED, RowStatus.PREEMPTED),
    (TrialStatus.FAILED, RowStatus.CRASH),
]


@each(("status", "expected"), OUTCOMES)
@each("spec", [SPEC, CONTROL])
def test_a_result_short_of_its_budget_is_never_a_candidate(status, expected, spec):
    made = row_for(spec, replace(RESULT, status=status, reason="plateau"), [], CONTEXT)
    assert (made.status, made.core_metric, made.delta_vs_best) == (expected, 0.5, None)
    assert made.notes == "plateau"
    assert best([made], "max").row is None


def test_a_failure_is_a_row_without_numbers():
    failure = TrialFailure(RowStatus.DIVERGED, "loss is nan\0\udce9", "Traceback", 7, 2)
    made = row_for(SPEC, failure, [], replace(CONTEXT, attempt=2, notes="gpu 0"))
    assert made.exp_id == "kl=0.01-s1-0123456789.a2"
    assert made.status is RowStatus.DIVERGED
    assert made.notes == "loss is nan? (at step 7); gpu 0"
    assert (made.core_metric, made.heldout_metric, made.best_step, made.train_s) == (None,) * 4
    assert row_problems(made) == []
    early = row_for(SPEC, TrialFailure(RowStatus.PREFLIGHT_CRASH, "no weights"), [], CONTEXT)
    assert early.notes == "no weights (before the first step)"


def test_a_confounded_trial_is_disqualified_with_its_reason():
    for spec in (SPEC, CONTROL):
        made = row_for(spec, RESULT, [], replace(CONTEXT, disqualified="two axes"))
        assert (made.status, made.notes, made.delta_vs_best) == (
            RowStatus.DISQUALIFIED,
            "two axes",
            None,
        )
        assert made.core_metric == 0.5


def test_a_metric_that_is_not_finite_is_left_empty_and_said():
    made = row_for(
        SPEC, replace(RESULT, heldout_metric=math.nan, pool_metric=math.inf), [], CONTEXT
    )
    assert (made.status, made.core_metric, made.pool_metric) == (DISCARD, None, None)
    assert made.notes == "heldout/success_rate is nan"


def test_the_rows_of_a_sweep_are_accepted_by_the_store(tmp_path):
    store = LineageStore(tmp_path / "results.tsv", CONTEXT.metric_name, CONTEXT.metric_mode)
    store.record(lambda rows: row_for(CONTROL, RESULT, rows, CONTEXT))
    failure = TrialFailure(RowStatus.CRASH, "OOM\n\ttrace", step=3)
    store.record(lambda rows: row_for(SPEC, failure, rows, CONTEXT))
    again = replace(CONTEXT, attempt=2)
    store.record(lambda rows: row_for(SPEC, replace(RESULT, heldout_metric=0.75), rows, again))
    rows, problems = store.read()
    assert problems == ()
    assert [r.status.value for r in rows] == ["baseline", "crash", "keep"]
    assert [r.exp_id for r in chain(rows, rows[2].exp_id).rows] == [
        CONTROL.trial_id,
        rows[2].exp_id,
    ]
    assert best(rows, "max").row.exp_id == f"{SPEC.trial_id}.a2"


def test_what_credit_left_behind_is_in_the_row():
    """Receipts: the mean gain has a column, all of them are in the notes."""
    receipts = {"ig/clip_scale_mean": 1.0125, "ig/mean": 0.25}
    made = row_for(SPEC, replace(RESULT, receipts=receipts), [], CONTEXT)
    assert made.ig_mean == 0.25
    assert "ig/clip_scale_mean 1.012, ig/mean 0.25" in made.notes
    assert row_for(SPEC, RESULT, [], CONTEXT).ig_mean is None

"""The exported tables: there and back, the same bytes, `summary` from the others alone."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from run_folders import CONTROL, START, TREATED, FolderWriter, finished_sweep

from rltune.analysis.audit import audit_folder
from rltune.analysis.table_rows import gate_rows
from rltune.analysis.table_summary import summary_rows
from rltune.analysis.tables import TABLES, EvalRow, GateRow, HistoryRow, SummaryRow, TrialRow
from rltune.errors import StoreError
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.report.export import lineage_ids, write_tables
from rltune.report.table_files import columns_of, read_csv, read_parquet, write_csv
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.jsonl import append_jsonl
from rltune.store.run_folder import read_folder, read_records
from rltune.types import RowStatus

DOCS = Path(__file__).parents[2] / "docs" / "export.md"


def export(writer, name="out"):
    out = writer.root / name
    out.mkdir()
    folder = read_folder(writer.run)
    read = read_records(folder)
    return out, write_tables(folder, read, audit_folder(folder, read), out)


def tables(out):
    return {name: read_csv(out / f"{name}.csv", kind) for name, kind in TABLES.items()}


@pytest.fixture
def finished(tmp_path):
    return finished_sweep(tmp_path)


def final_of(rows, condition, *, method="t", estimator="mean"):
    return next(
        row
        for row in rows
        if (row.at, row.condition, row.method, row.estimator)
        == ("final", condition, method, estimator)
    )


def test_every_table_comes_back_from_csv_and_from_parquet(finished):
    out, written = export(finished)
    for table in written:
        rows = read_csv(out / f"{table.name}.csv", TABLES[table.name])
        assert len(rows) == table.rows > 0
        assert list(read_parquet(out / f"{table.name}.parquet", TABLES[table.name])) == rows


def test_the_same_inputs_give_the_same_bytes(finished):
    one, _ = export(finished, "one")
    two, _ = export(finished, "two")
    names = sorted(path.name for path in one.iterdir())
    assert len(names) == 2 * len(TABLES)
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def test_summary_is_made_again_from_trials_and_evals_alone(finished):
    out, _ = export(finished)
    for rows_of in (
        lambda name, kind: read_csv(out / f"{name}.csv", kind),
        lambda name, kind: list(read_parquet(out / f"{name}.parquet", kind)),
    ):
        trials, evals = rows_of("trials", TrialRow), rows_of("evals", EvalRow)
        again = out / "again.csv"
        write_csv(again, SummaryRow, summary_rows(trials, gate_rows(evals)))
        assert again.read_bytes() == (out / "summary.csv").read_bytes()


def test_the_columns_are_those_of_the_docs():
    text = DOCS.read_text(encoding="utf-8")
    for name, kind in TABLES.items():
        part = text.split(f"## `{name}`")[1].split("\n## ")[0]
        named = [
            column
            for line in part.splitlines()
            if line.startswith("| `")
            for column in re.findall(r"`([^`]+)`", line.split("|")[1])
        ]
        assert named == list(columns_of(kind)), name


def test_trials_have_one_row_each_whatever_became_of_them(tmp_path):
    writer = FolderWriter(tmp_path)
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    writer.train(writer.spec(CONTROL, 1), {0: 4}, steps=7)
    failure = TrialFailure(RowStatus.CRASH, "CUDA out of memory")
    writer.fail(writer.spec(TREATED, 0), failure)
    rows = {
        (r.condition, r.seed): (r.status, r.reason, r.final_step, r.final)
        for r in tables(export(writer)[0])["trials"]
    }
    assert rows == {
        (CONTROL, 0): ("done", "", 20, 0.6),
        (CONTROL, 1): ("interrupted", "", 7, None),
        (CONTROL, 2): ("pending", "", None, None),
        (TREATED, 0): ("failed", "CUDA out of memory", None, None),
        (TREATED, 1): ("pending", "", None, None),
        (TREATED, 2): ("pending", "", None, None),
    }


def test_a_sweep_that_has_not_run_has_its_plan(tmp_path):
    found = tables(export(FolderWriter(tmp_path))[0])
    assert [len(found[name]) for name in TABLES] == [6, 0, 0, 0, 3 * 2 * 3]
    assert {row.value for row in found["summary"]} == {None}


def test_a_reason_may_hold_any_text(tmp_path):
    writer = FolderWriter(tmp_path)
    reason = 'a, "b"\r\nc\tд \ud800'
    writer.fail(writer.spec(CONTROL, 0), TrialFailure(RowStatus.CRASH, reason))
    out, _ = export(writer)
    for rows in (tables(out)["trials"], list(read_parquet(out / "trials.parquet", TrialRow))):
        assert rows[0].reason == 'a, "b"\r\nc\tд \\ud800'


def test_a_trials_row_by_hand(finished):
    row = tables(export(finished)[0])["trials"][0]
    assert (row.sweep, row.axis, row.condition, row.axis_value, row.seed) == (
        *("kl", "loss.kl_loss_coef", CONTROL, "0.0"),
        0,
    )
    assert (row.base, row.selected, row.best_step, row.final) == (0.4, 0.6, 20, 0.6)
    assert (row.rollouts, row.tokens, row.optimizer_steps) == (160.0, 4000.0, 40.0)
    assert (row.policy_updates, row.critic_updates) == (40.0, 0.0)
    assert (row.wall_s, row.gpu_s, row.floor, row.ceiling) == (44.0, 0.0, 0.184, 0.95)
    assert row.ended == "2027-01-15T08:00:40Z"  # START + 20 steps of 2 s
    assert row.code_rev == "c0ffee"
    assert row.mark == "ok"


def test_history_keeps_values_that_are_no_numbers_apart(tmp_path):
    writer = FolderWriter(tmp_path)
    spec = writer.spec(CONTROL, 0)
    writer.train(spec, {0: 4}, steps=1)
    extra = {"step": 2, "time": START + 5, "a": math.nan, "b": -math.inf, "c": 2, "d": True}
    append_jsonl(writer.run.trial(spec.trial_id).metrics, extra)
    rows = [row for row in tables(export(writer)[0])["history"] if row.step == 2]
    assert [(row.metric, row.value, row.not_finite) for row in rows] == [
        *(("a", None, "nan"), ("b", None, "-inf"), ("c", 2.0, "")),
    ]
    assert {row.wall_s for row in rows} == {5.0}


def test_evals_name_tasks_and_faults_and_gates_count_them(tmp_path):
    writer = FolderWriter(tmp_path)
    manifest = {"heldout": [{"task_id": name} for name in "abcd"]}
    write_json_atomic(writer.run.tasks(), manifest)
    spec = writer.spec(CONTROL, 0)
    trial = writer.start(spec)
    gate = {"step": 0, "temperature": 0.5, "do_sample": True, "n": 4, "tasks_sha256": "t"}
    gate |= {"success": [1, 0, 1, 0], "fault": ["", "", "judge is down", ""]}
    gate |= {"auxiliary": {"f1": [0.5, None, 0.25, 1.0]}}
    append_jsonl(trial.heldout, gate)
    found = tables(export(writer)[0])
    assert [(r.task, r.metric, r.score, r.fault) for r in found["evals"]] == [
        ("a", "heldout/success_rate", 1.0, ""),
        ("b", "heldout/success_rate", 0.0, ""),
        ("c", "heldout/success_rate", None, "judge is down"),
        ("d", "heldout/success_rate", 0.0, ""),
        ("a", "heldout/f1", 0.5, ""),
        ("b", "heldout/f1", 0.0, ""),
        ("c", "heldout/f1", None, "judge is down"),
        ("d", "heldout/f1", 1.0, ""),
    ]
    success, f1 = found["gates"]
    assert (success.n_tasks, success.n_faults, success.value) == (3, 1, pytest.approx(1 / 3))
    # Wilson of 1 of 3
    assert (success.wilson_lo, success.wilson_hi) == pytest.approx((0.061492, 0.792340), abs=1e-6)
    assert (f1.n_tasks, f1.value, f1.wilson_lo) == (3, 0.5, None)


def test_the_gate_of_a_step_that_is_named_twice_is_the_later_one(tmp_path):
    writer = FolderWriter(tmp_path)
    spec = writer.spec(CONTROL, 0)
    writer.train(spec, {0: 4}, steps=1)
    append_jsonl(writer.run.trial(spec.trial_id).heldout, writer._gate(0, 9))
    assert tables(export(writer)[0])["gates"][0].value == 0.9


def test_summary_by_hand(finished):
    rows = tables(export(finished)[0])["summary"]
    control, treated = final_of(rows, CONTROL), final_of(rows, TREATED)
    # 0.6 0.7 0.8: mean 0.7, s = 0.1, t(2) = 4.302653: 0.7 +- 0.248414
    assert (control.value, control.n_seeds, control.n_planned) == (pytest.approx(0.7), 3, 3)
    assert (control.ci_lo, control.ci_hi) == pytest.approx((0.451586, 0.948414), abs=1e-6)
    assert (control.delta_vs_control, control.p, control.verdict) == (None, None, "")
    # -0.4 -0.4 -0.5: mean -13/30, s = 0.0577 but at least one task of ten: 0.1
    assert treated.delta_vs_control == pytest.approx(-13 / 30)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert treated.delta_ci_lo == pytest.approx(-13 / 30 - half, abs=1e-6)
    t = 13 / 30 * math.sqrt(3) / 0.1  # p of t with 2 df: 1 - t / sqrt(t^2 + 2)
    assert treated.p == treated.p_holm == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert (treated.test, treated.verdict, treated.p_improve) == ("paired t", "below", 0.0)
    flipped = final_of(rows, TREATED, method="bootstrap")
    assert (flipped.test, flipped.p) == ("sign flip", 0.25)
    assert (flipped.delta_ci_lo, flipped.delta_ci_hi) == pytest.approx((-0.5, -0.4))  # of three


def test_holm_counts_the_conditions_of_the_sweep(finished):
    out, _ = export(finished)
    trials = read_csv(out / "trials.csv", TrialRow)
    third = [
        replace(row, condition="third", trial_id=f"third-{row.seed}", final=0.65 + 0.1 * row.seed)
        for row in trials
        if row.condition == TREATED
    ]
    rows = summary_rows([*trials, *third], [])
    one, two = final_of(rows, TREATED), final_of(rows, "third")
    assert one.p_holm == pytest.approx(2 * one.p)
    assert two.p_holm == two.p  # the larger stays: one comparison is left
    assert two.verdict == "not separable"
    assert two.seeds_for_80 > 3


def test_lower_is_better_where_the_sweep_says_so(finished):
    out, _ = export(finished)
    trials = [replace(row, mode="min") for row in read_csv(out / "trials.csv", TrialRow)]
    assert final_of(summary_rows(trials, []), TREATED).p_improve == 1.0


def test_a_sweep_that_is_not_whole_is_marked_and_makes_no_claim(tmp_path):
    writer = finished_sweep(tmp_path)
    writer.run.trial(writer.spec(TREATED, 2).trial_id).done.unlink()
    found = tables(export(writer)[0])
    marks = {row.mark for rows in found.values() for row in rows}
    assert marks == {"audit failed; incomplete"}  # no marker, and nobody drives it
    row = final_of(found["summary"], TREATED)
    assert (row.n_seeds, row.n_planned, row.is_complete) == (2, 3, False)
    assert row.verdict == "no verdict (audit failed)"


@pytest.mark.parametrize(
    ("status", "said"),
    [("failed", "below"), ("running", "no verdict (3 of 4 seeds of the control ended)")],
)
def test_a_control_that_is_not_whole(finished, status, said):
    out, _ = export(finished)
    trials = read_csv(out / "trials.csv", TrialRow)
    trials.append(replace(trials[0], seed=3, trial_id="other", final=None, status=status))
    row = final_of(summary_rows(trials, []), TREATED)
    assert (row.n_seeds, row.delta_n, row.is_complete, row.verdict) == (3, 3, False, said)


def test_a_confounded_sweep_is_marked_and_makes_no_claim(finished):
    proof = {"ok": False, "allow_confounded": "a pilot", "warnings": []}
    write_json_atomic(finished.run.comparability, proof)
    found = tables(export(finished)[0])
    assert {row.mark for rows in found.values() for row in rows} == {"confounded"}
    assert final_of(found["summary"], TREATED).verdict == "no verdict (confounded)"


def test_children_and_repetitions_are_in_no_table(finished):
    spec = finished.spec(TREATED, 0)
    trial = finished.run.trial(spec.trial_id)
    for place in ("children/child-s0-0123456789", f"reruns/0001/{spec.trial_id}"):
        copy = finished.run.path / place
        copy.mkdir(parents=True)
        for path in (trial.spec, trial.metrics, trial.heldout, trial.done):
            (copy / path.name).write_bytes(path.read_bytes())
    before, _ = export(finished, "with")
    found = tables(before)
    assert len(found["trials"]) == 6
    assert len(found["gates"]) == 6 * 3 * 2


def test_lineage_ids_without_a_table_are_none(finished):
    assert lineage_ids(finished.run) == {}


def test_the_newest_lineage_row_of_a_trial_counts(finished):
    spec = finished.spec(CONTROL, 0)
    metric = {"metric_name": "heldout/success_rate", "metric_mode": "max"}
    store = LineageStore(finished.run.results, **metric)
    for exp_id in (spec.trial_id, f"{spec.trial_id}.a2"):
        row = LineageRow(exp_id=exp_id, status=RowStatus.CRASH, trial_id=spec.trial_id, **metric)
        store.append(row)
    rows = tables(export(finished)[0])["trials"]
    assert [row.lineage_id for row in rows if row.lineage_id] == [f"{spec.trial_id}.a2"]


def test_a_table_of_another_kind_is_refused(finished):
    out, _ = export(finished)
    with pytest.raises(StoreError, match=r"gates\.csv: has the columns .* A HistoryRow table has"):
        read_csv(out / "gates.csv", HistoryRow)


def test_a_cell_of_another_type_is_refused(finished):
    out, _ = export(finished)
    path = out / "gates.csv"
    path.write_text(path.read_text().replace(",0.4,", ",zero,", 1))
    with pytest.raises(StoreError, match=r"gates\.csv: line 2: could not convert .*'zero'"):
        read_csv(path, GateRow)

"""n of N beside every rate: one sweep with faults in its last gates, on every surface."""

import csv
import math
from dataclasses import replace

import pytest
from goldens import drawn
from run_folders import CONTROL, TREATED, finished_sweep

from rltune.analysis.audit import audit_folder
from rltune.analysis.lookup import find_side
from rltune.analysis.status import read_state
from rltune.analysis.summary import close_sweep
from rltune.analysis.table_rows import trial_rows
from rltune.analysis.tables import TABLES
from rltune.comparability.scored import Scored, scored_in
from rltune.lineage.record import RowContext, row_for
from rltune.report.compare_text import compare_and_say
from rltune.report.export import write_tables
from rltune.report.html.gather import gather
from rltune.report.html.page import page
from rltune.report.render_run import closing_view
from rltune.report.render_status import status_view
from rltune.store.files import write_json_atomic
from rltune.store.jsonl import append_jsonl_many, read_jsonl
from rltune.store.run_folder import read_folder, read_records

WARNING = "faults took more than 25% of the held-out tasks, leaving 6 of 10 at step 20"


def spoil(writer, label, seed, n):
    """Let n of the ten episodes of a trial's last gate have a fault, as the trainer records it."""
    trial = writer.run.trial(writer.spec(label, seed).trial_id)
    done = trial.read_done()
    rate = round(10 * done.final_metric) / (10 - n)  # those that it solved had no fault
    trial.write_done(replace(done, final_metric=rate))
    for path, change in (
        (trial.heldout, {"fault": [""] * (10 - n) + ["score f(): down"] * n}),
        (trial.metrics, {"heldout/fault_count": float(n), "heldout/success_rate": rate}),
    ):
        rows = [{**row, **(change if row["step"] == 20 else {})} for row in read_jsonl(path).rows]
        path.unlink()
        append_jsonl_many(path, rows)
    if 4 * n > 10:
        trial.write_done(replace(done, final_metric=math.nan, warnings=(WARNING,)))
        write_json_atomic(trial.model_card, {"warnings": [WARNING]})


@pytest.fixture
def writer(tmp_path):
    """Return a sweep: faults took 2 of 10 tasks of one last gate, and 4 of another."""
    made = finished_sweep(tmp_path)
    spoil(made, TREATED, 0, 2)
    spoil(made, TREATED, 2, 4)
    return made


def test_counts_of_a_gate_by_hand():
    assert scored_in({"n": 4, "fault": ["", "a: b", "", ""]}) == Scored(3, 4)
    assert scored_in({"n": 4}) == Scored(4, 4)
    assert (Scored(3, 4).is_lost, Scored(2, 4).is_lost) == (False, True)  # 25 %, 50 %
    assert (Scored(3, 4).words, Scored(4, 4).words) == ("3 of 4", "")


def test_the_closing_table_names_them_and_leaves_the_lost_one_out(writer):
    folder = read_folder(writer.run)
    read = read_records(folder)
    closing = close_sweep(folder, read.records, audit_folder(folder, read))
    assert closing.scored == (
        "Held-out tasks scored at the last gate, the others had a fault: "
        f"{TREATED}, seed 0: 8 of 10; {TREATED}, seed 2: 6 of 10 (over 25% lost: no result)."
    )
    assert [row.finished for row in closing.rows] == [3, 2]
    (verdict,) = (row.verdict for row in closing.rows if row.verdict)
    assert verdict.n == 2
    assert "8 of 10" in drawn(closing_view(closing, width=120), 120)


def test_the_status_shows_them(writer):
    text = drawn(status_view(read_state(read_folder(writer.run))), 120)
    assert "0.250 8/10" in text
    assert "6/10" in text
    assert WARNING in " ".join(text.split())


def test_the_tables_count_them(writer, tmp_path):
    folder = read_folder(writer.run)
    read = read_records(folder)
    (tmp_path / "tables").mkdir()
    write_tables(folder, read, audit_folder(folder, read), tmp_path / "tables")
    rows = {}
    for name in TABLES:
        with (tmp_path / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows[name] = list(csv.DictReader(file))
    trials = {(row["condition"], row["seed"]): row for row in rows["trials"]}
    assert trials[TREATED, "0"]["final_tasks"] == "8"
    assert (trials[TREATED, "2"]["final"], trials[TREATED, "2"]["final_tasks"]) == ("", "6")
    assert trials[CONTROL, "0"]["final_tasks"] == "10"
    gates = [row for row in rows["gates"] if row["n_faults"] != "0"]
    assert {(row["n_tasks"], row["n_faults"]) for row in gates} == {("8", "2"), ("6", "4")}
    finals = {row["condition"]: row for row in rows["summary"] if row["at"] == "final"}
    assert (finals[TREATED]["n_seeds"], finals[TREATED]["n_tasks"]) == ("2", "8")


def test_the_page_shows_them(writer, undrawn):
    text = page(gather(read_folder(writer.run)))
    assert ", 8 of 10<" in text
    assert WARNING in text


def test_a_comparison_notes_them(writer):
    sides = [find_side(label, writer.run.path, writer.root)[0] for label in (TREATED, CONTROL)]
    found = compare_and_say(*sides)
    assert found.n == 2
    assert any("seed 0: 8 of 10" in note and "seed 2: 6 of 10" in note for note in found.notes)


def test_the_lineage_row_says_it(writer):
    spec = writer.spec(TREATED, 2)
    result = writer.run.trial(spec.trial_id).read_done()
    context = RowContext(
        metric_name="heldout/success_rate", metric_mode="max", timestamp="t", commit="c"
    )
    assert WARNING in row_for(spec, result, (), context).notes


@pytest.mark.parametrize(
    ("metric", "counted"),
    [("heldout/nq/em", 5), ("heldout/popqa/em", 3), ("heldout/macro/em", 8), ("heldout/em", 8)],
)
def test_a_metric_of_a_named_set_is_over_the_tasks_of_that_set(writer, metric, counted):
    """The last two of the ten had a fault; five are of each set."""
    folder = read_folder(writer.run)
    trial = writer.spec(TREATED, 0).trial_id
    (record,) = (one for one in read_records(folder).records if one.spec.trial_id == trial)
    sets = {"set": ["nq"] * 5 + ["popqa"] * 5}
    record = replace(record, heldout=tuple({**gate, **sets} for gate in record.heldout))
    (row,) = trial_rows(replace(folder, metric_name=metric), [record], mark="", lineage_ids={})
    assert (row.metric, row.final_tasks) == (metric, counted)

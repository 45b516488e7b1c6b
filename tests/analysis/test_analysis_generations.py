"""A model over its generations, by hand."""

import pytest
from generation_chains import METRIC, add_generation, gate
from goldens import drawn

from rltune.analysis.generations import generation_table
from rltune.gate import wilson_interval
from rltune.lineage.generations import generations
from rltune.maths.difference import paired_interval, unpaired_interval
from rltune.report.figures.data_generations import generations_data
from rltune.report.figures.draw import draw
from rltune.report.generations import generation_csv, generations_view

FIRST, SECOND = [1, 1, 0, 0, 0], [1, 1, 1, 0, 1]


@pytest.fixture
def chain(tmp_path):
    """Two generations of one model: 1 of 5, then 2, then 4; and what fresh tasks would say."""
    add_generation(tmp_path, "a-1", "root", [gate(0, [1, 0, 0, 0, 0]), gate(2, FIRST)])
    start, end = gate(0, FIRST, tasks="other"), gate(2, SECOND, tasks="other")
    table = add_generation(tmp_path, "b-2", "next", [start, end], model="trial:a-1/root")
    return generations(table, "next", tmp_path)


def played(*generations, looks=1):
    rows = [
        {"name": name, **gate(step, successes, tasks="fresh", **more)}
        for name, step, successes, more in generations
    ]
    return {"looks": looks, "generations": rows}


FRESH = played(
    ("start", 0, [0, 0, 0, 1], {}),
    ("a-1/root", 2, [1, 0, 0, 1], {}),
    ("b-2/next", 2, [1, 1, 0, 0], {"fault": ["", "", "", "lost"]}),
)


def test_each_beside_the_one_before_by_hand(chain):
    table = generation_table(chain, FRESH)
    start, first, second = table.rows
    assert (table.metric, table.mode, table.missing, table.fresh_looks) == (METRIC, "max", "", 1)
    assert (start.number, start.name, start.heldout, start.fresh_beside) == (0, "start", None, None)
    assert (first.heldout.before, first.heldout.after) == (0.2, 0.4)
    # root's model plays the held-out tasks of its child at the child's step 0
    assert (second.heldout.before, second.heldout.after, second.heldout.tasks) == (0.4, 0.8, 5)
    assert second.heldout.is_paired
    assert second.heldout.interval == paired_interval(SECOND, FIRST)
    assert second.heldout.difference == pytest.approx(0.4)
    assert start.fresh.value == 0.25
    assert first.fresh.interval == wilson_interval(2, 4)
    assert (first.fresh_beside.before, first.fresh_beside.after) == (0.25, 0.5)
    # the last task had a fault, so it counts on neither side of the pair
    assert (second.fresh.value, second.fresh.tasks) == (2 / 3, 3)
    assert (second.fresh_beside.before, second.fresh_beside.tasks) == (1 / 3, 3)
    assert second.fresh_beside.interval == paired_interval([1, 1, 0], [1, 0, 0])
    assert [row.departs for row in table.rows] == ["", "model", "model"]


def test_settings_are_compared_at_both_gates_and_other_tasks_unpaired(tmp_path):
    add_generation(tmp_path, "a-1", "root", [gate(0, [1, 0, 0, 0, 0]), gate(2, FIRST)])
    gates = [gate(0, [0] * 5, tasks="other"), gate(2, SECOND, tasks="other")]
    table = add_generation(tmp_path, "a-1", "next", gates, parent="root")
    row = generation_table(generations(table, "next", tmp_path), None).rows[-1]
    assert (row.departs, row.heldout.is_paired) == ("settings", False)
    assert (row.heldout.before, row.heldout.after) == (0.4, 0.8)
    assert row.heldout.interval == unpaired_interval(SECOND, FIRST)


def test_a_gate_that_is_gone_leaves_its_number_out(tmp_path):
    table = add_generation(tmp_path, "a-1", "root", [gate(2, FIRST)])
    (_, row) = generation_table(generations(table, "root", tmp_path), None).rows
    assert (row.heldout, row.fresh, row.fresh_beside) == (None, None, None)


def test_the_words_of_the_table(chain):
    whole = drawn(generations_view(generation_table(chain, FRESH)), 80)
    text = " ".join(whole.split())
    assert "1 a-1/root 2 model 2 b-2/next 2 model Held-out tasks, on which" in text
    assert "1 5 0.200 0.400 +0.200 [" in text
    assert "2 5 0.400 0.800 +0.400 [" in text
    assert "was chosen on; played 1 time tasks value minus the one before 0 4 0.250 [0.05," in text
    assert "2 3 0.667 [" in text
    bare = drawn(generations_view(generation_table(chain, None)), 80)
    assert "Tasks that no generation has seen: --fresh N." in bare
    assert "was chosen on; played" not in bare


def test_the_table_as_csv(chain):
    lines = generation_csv(generation_table(chain, FRESH)).splitlines()
    assert len(lines) == 4
    start, _, second = (
        dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]
    )
    assert (start["name"], start["heldout_before"], start["fresh_value"]) == ("start", "", "0.25")
    assert (second["heldout_before"], second["heldout_is_paired"]) == ("0.4", "True")
    assert float(second["fresh_beside_difference"]) == pytest.approx(1 / 3)


def test_the_chart_says_what_it_cannot(chain):
    data = generations_data(generation_table(chain, None))
    assert data.label == "success"
    (note,) = data.head.notes
    assert note.startswith("No fresh tasks were played")
    again = generations_data(generation_table(chain, {**FRESH, "looks": 3}))
    assert again.head.notes == ("Fresh tasks were played 3 times for this chain.",)
    assert again.head.alt.endswith(
        "Generation 2, b-2/next, 0.667 on 3 fresh tasks, 0.4 to 0.8 on held-out tasks."
    )


@pytest.mark.parametrize("fresh", [None, FRESH])
def test_the_marks_of_the_chart_are_named(chain, fresh):
    text = draw(generations_data(generation_table(chain, fresh)), kind="svg").decode()
    assert "<title>b-2/next: 0.4 to 0.8, held out</title>" in text
    assert ("b-2/next: 0.667 on 3 fresh tasks" in text) is (fresh is not None)

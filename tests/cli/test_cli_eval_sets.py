"""Named evaluation sets from their files to the tables, figure and page, with a trained trial.

The questions are of the closed world, as files have them, so that the shipped policy can answer.
"""

import csv
import json

import pytest
from small_sweep import small_sweep
from trained_folder import train_one

from rltune.policy.tiny import SHIPPED
from rltune_envs.multihop_qa.questions import make_question
from rltune_envs.multihop_qa.world import World

pytestmark = pytest.mark.slow

ENV = """
  env.questions: train.jsonl
  env.corpus: corpus.jsonl
  env.k: 1
  env.eval: {two_hops: two_hops.jsonl, three_hops: three_hops.jsonl}"""
MEASURES = ("em", "f1", "success_rate")


def write_files(folder):
    world = World(seed=0, passages=300)

    def write(name, rows):
        lines = (json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines))

    def questions(first, hops):
        made = (make_question(world, first + i, hops=[hops], kinds=["bridge"]) for i in range(24))
        return [{"question": one.text, "golden_answers": list(one.answers)} for one in made]

    write("corpus", [{"title": one.title, "text": one.text} for one in world.passages])
    for number, (name, hops) in enumerate({"train": 2, "two_hops": 2, "three_hops": 3}.items()):
        write(name, questions(1000 * number, hops))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder of two steps with two sets: the first trial is done."""
    folder = tmp_path_factory.mktemp("sets")
    write_files(folder)
    text = small_sweep(
        policy=SHIPPED / "multihop_qa", values="[0.0, 0.01]", test_tasks=4, checkpoint_every=1
    )
    changes = {
        "base: sokoban": "base: multihop_qa",
        "\nhold:": f"\nhold:{ENV}",
        "gate.tasks: 4": "gate.tasks: 16",
        "heldout/reward_mean": "heldout/macro/em",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    run, _ = train_one(folder, text, which=0)
    return run.path


def rows_of(run, table):
    return list(csv.DictReader((run.path / "figures" / f"{table}.csv").read_text().splitlines()))


def gates_of(trial):
    return [json.loads(line) for line in trial.heldout.read_text().splitlines()]


def test_the_gate_measures_each_set_and_their_mean(trial):
    rows = [json.loads(line) for line in trial.metrics.read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row, gate in zip((rows[0], rows[2]), gates_of(trial), strict=True):
        assert gate["set"] == ["three_hops"] * 8 + ["two_hops"] * 8  # by name
        parts = (gate["auxiliary"]["em"][:8], gate["auxiliary"]["em"][8:])
        means = [sum(part) / 8 for part in parts]
        assert [row[f"heldout/{name}/em"] for name in ("three_hops", "two_hops")] == means
        assert row["heldout/macro/em"] == sum(means) / 2
    assert rows[0]["heldout/two_hops/em"] > 0  # the policy was warm-started on such questions
    assert trial.read_done().final_metric == rows[2]["heldout/macro/em"]


def test_the_final_test_measures_the_sets(rltune, trial):
    result = rltune("test", trial.trial_id)
    assert result.code == 0, result.err
    sets = json.loads((trial.path / "test.json").read_text())["sets"]
    names = ("two_hops", "three_hops", "macro")
    assert set(sets) == {f"test/{name}/{measure}" for name in names for measure in MEASURES}
    of_two = ", ".join(
        f"{m} {sets[f'test/two_hops/{m}']:.3f}" for m in ("success_rate", "em", "f1")
    )
    assert f"; two_hops: {of_two}; macro: " in result.out


def test_export_and_report_show_the_sets(rltune, run, trial):
    assert rltune("export", str(run.path)).code == 0
    measured = {(row["benchmark"], row["measure"]): row for row in rows_of(run, "benchmarks")}
    last = gates_of(trial)[-1]
    assert len(measured) == 9
    assert float(measured["two_hops", "em"]["value"]) == sum(last["auxiliary"]["em"][8:]) / 8
    (gate,) = (
        row
        for row in rows_of(run, "gates")
        if (row["metric"], row["step"]) == ("heldout/two_hops/em", "2")
    )
    assert (gate["n_tasks"], gate["value"]) == ("8", measured["two_hops", "em"]["value"])
    assert 0 <= float(gate["wilson_lo"]) <= float(gate["value"]) <= float(gate["wilson_hi"]) <= 1
    evals = [row for row in rows_of(run, "evals") if row["metric"] == "heldout/two_hops/f1"]
    ids = [task["task_id"] for task in json.loads(run.tasks().read_text())["heldout"]]
    assert [row["task"] for row in evals if row["step"] == "2"] == ids[8:]
    svg = (run.path / "figures" / "benchmarks.svg").read_text()
    assert ">two_hops<" in svg
    assert ">macro<" in svg
    assert rltune("report", str(run.path)).code == 0
    page = (run.path / "figures" / "report.html").read_text()
    assert "Evaluation sets" in page
    assert "Each set at the last gate" in page

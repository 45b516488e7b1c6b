"""Which trial each generation of a model departs from."""

import shutil

import pytest
from generation_chains import METRIC, add_generation, gate

from rltune.errors import StoreError
from rltune.lineage.generations import generations
from rltune.lineage.share import share
from rltune.lineage.table import LineageStore
from rltune.store.files import write_json_atomic
from rltune.store.rundir import RunDir

GATES = [gate(0, [0, 0]), gate(2, [1, 0])]


def told(found):
    return [(one.name, one.step, one.has_model_of_parent) for one in found.chain]


def test_models_are_followed_over_runs_and_rows_where_no_model_is_named(tmp_path):
    """b-2/next starts from a-1/better, though its row departs from the control of its own sweep."""
    add_generation(tmp_path, "a-1", "root", GATES)
    add_generation(tmp_path, "a-1", "better", GATES, parent="root")
    add_generation(tmp_path, "b-2", "control", GATES, parent="a-1/better")
    table = add_generation(
        tmp_path, "b-2", "next", GATES, parent="control", model="trial:a-1/better"
    )
    found = generations(table, "nex", tmp_path)
    assert told(found) == [
        ("a-1/root", 2, False),
        ("a-1/better", 2, False),
        ("b-2/next", 2, True),
    ]
    assert found.missing == ""
    assert [one.name for one in generations(table, "control", tmp_path).chain] == [
        *("a-1/root", "a-1/better", "b-2/control")
    ]


def test_the_step_that_was_handed_on_counts(tmp_path):
    add_generation(tmp_path, "a-1", "root", GATES)
    weights = tmp_path / "a-1/trials/root/checkpoints/step-000001/policy.safetensors"
    weights.parent.mkdir()
    weights.touch()
    table = add_generation(tmp_path, "b-2", "next", GATES, model="trial:a-1/root@1")
    assert told(generations(table, "next", tmp_path)) == [
        ("a-1/root", 1, False),
        ("b-2/next", 2, True),
    ]


def test_an_adapter_is_a_model_and_one_that_is_not_trained_is_not(tmp_path):
    add_generation(tmp_path, "a-1", "root", GATES, init="my-adapter")
    table = add_generation(tmp_path, "b-2", "next", GATES, init="trial:a-1/root")
    assert told(generations(table, "next", tmp_path)) == [
        ("a-1/root", 2, False),
        ("b-2/next", 2, True),
    ]


@pytest.mark.parametrize("content", [None, "{", "[1]"])
def test_a_provenance_that_cannot_be_read_is_as_none(tmp_path, content):
    """As for all who ask for the base folder of a trial."""
    add_generation(tmp_path, "a-1", "root", GATES)
    table = add_generation(tmp_path, "b-2", "next", GATES, model="trial:a-1/root")
    provenance = tmp_path / "b-2/trials/next/provenance.json"
    provenance.unlink(missing_ok=True)
    if content is not None:
        provenance.write_text(content)
    assert [name for name, _, _ in told(generations(table, "next", tmp_path))] == [
        *("a-1/root", "b-2/next")
    ]


def test_what_is_not_there_is_named_and_ends_the_chain(tmp_path):
    add_generation(tmp_path, "a-1", "root", GATES)
    table = add_generation(tmp_path, "b-2", "next", GATES, model="trial:a-1/root")
    other = add_generation(tmp_path, "c-3", "last", GATES, parent="b-2/gone")
    shutil.rmtree(tmp_path / "a-1")
    found = generations(table, "next", tmp_path)
    assert told(found) == [("b-2/next", 2, True)]
    assert "'trial:a-1/root' names the run 'a-1', which is neither in" in found.missing
    assert generations(other, "last", tmp_path).missing == "b-2/gone"


def test_a_circle_is_refused(tmp_path):
    table = add_generation(tmp_path, "a-1", "one", GATES, parent="b-2/two")
    add_generation(tmp_path, "b-2", "two", GATES, parent="a-1/one")
    with pytest.raises(StoreError, match="the chain is circular: it comes back to 'a-1/one'"):
        generations(table, "one", tmp_path)


def test_a_row_without_its_trial_is_refused(tmp_path):
    table = add_generation(tmp_path, "a-1", "one", GATES)
    shutil.rmtree(tmp_path / "a-1/trials")
    with pytest.raises(StoreError, match="'one' has no trial with a result in its run folder"):
        generations(table, "one", tmp_path)


def test_a_shared_table_leads_to_the_runs(tmp_path):
    add_generation(tmp_path / "runs", "a-1", "root", GATES)
    table = add_generation(tmp_path / "runs", "b-2", "next", GATES, model="trial:a-1/root")
    for path in (tmp_path / "runs/study-x/results.tsv", tmp_path / "nights.tsv"):
        path.parent.mkdir(exist_ok=True)
        shared = LineageStore(path, METRIC, "max")
        share(LineageStore.open(table).read().rows, shared, "b-2")
        found = generations(path, "b-2/next", tmp_path / "runs")
        assert told(found) == [("a-1/root", 2, False), ("b-2/next", 2, True)]
    with pytest.raises(StoreError, match="--runs-dir where the table is not beside the runs"):
        generations(path, "b-2/next", tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("model", "step"), [("a-1/root", 2), ("a-1/root@latest", 3), ("/their/runs/a-1/root@1", 1)]
)
def test_in_a_bundle_steps_come_from_results_and_runs_from_their_names(tmp_path, model, step):
    """No checkpoint is there, and the run is in another folder than the one that names it."""
    add_generation(tmp_path / "before", "a-1", "root", GATES)
    trial = RunDir(tmp_path / "before" / "a-1").trial("root")
    shutil.rmtree(trial.checkpoints)
    write_json_atomic(trial.done, {"best_step": 2, "final_step": 3})
    table = add_generation(tmp_path / "run", "b-2", "next", GATES, model=f"trial:{model}")
    places = (tmp_path / "run", tmp_path / "before")
    found = generations(table, "next", tmp_path, bundled=places)
    assert told(found) == [("a-1/root", step, False), ("b-2/next", 2, True)]
    trial.done.unlink()
    found = generations(table, "next", tmp_path, bundled=places)
    assert len(found.chain) == (2 if step == 1 else 1)
    shutil.rmtree(tmp_path / "before")
    found = generations(table, "next", tmp_path, bundled=places)
    assert found.missing == f"policy.model: 'trial:{model}' names a run that is not here."

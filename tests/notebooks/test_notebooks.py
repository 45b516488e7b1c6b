"""Every notebook runs from top to bottom, where a reader would start it, and is kept stripped."""

from pathlib import Path

import nbclient
import nbformat
import pytest
from patience import HANG_S
from run_folders import finished_sweep

from rltune.store.jsonl import append_jsonl_many, read_metrics

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
QUICK = "STEPS, SEEDS, HELDOUT_TASKS, RUNS = 2, [0], 16, {runs!r}"


def execute(name, parameters=None):
    """Run a notebook, its cell of parameters replaced; return its outputs."""
    path = next(path for path in NOTEBOOKS if path.stem == name)
    notebook = nbformat.read(path, as_version=4)
    if parameters is not None:
        tagged = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
        assert len(tagged) == 1
        tagged[0].source = parameters
    client = nbclient.NotebookClient(
        notebook, timeout=HANG_S, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.get("name") == "stderr"]
    return outputs


def pictures(outputs):
    return sum("image/png" in out.get("data", {}) for out in outputs)


def texts(outputs):
    plain = [out.get("data", {}).get("text/plain", "") for out in outputs]
    return "\n".join([*(out.get("text", "") for out in outputs), *plain])


def test_they_are_all_here():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart",
        "02_figure3",
        "03_advantages_by_hand",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_holds_no_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert len(code) > 4
    assert not [cell.id for cell in code if cell.outputs or cell.execution_count]
    assert not [cell.id for cell in cells if "execution" in cell.metadata]


@pytest.mark.slow
def test_the_quickstart_runs_a_sweep_and_reads_it(tmp_path):
    outputs = execute("01_quickstart", QUICK.format(runs=str(tmp_path)))
    said = texts(outputs)
    assert "2 of 2 trials finished, ok>" in said
    assert "Comparable: the conditions differ in loss.kl_loss_coef" in said
    assert "no verdict (1 seed; at least 3 are needed)" in said
    assert "on 16 held-out tasks" in said
    assert "checkpoints" in said
    assert "Shipped: **step" in said


def measured_run(root):
    """Return a finished run folder, small and hand-made, whose trials have collapse signals."""
    writer = finished_sweep(root)
    for trial in writer.run.trial_dirs():
        rows = read_metrics(trial.metrics).rows
        signals = {"retrieval_accuracy": 0.75, "retrieval_chance": 0.125, "reasoning_entropy": 3.0}
        named = {f"collapse/{name}": value for name, value in signals.items()}
        trial.metrics.unlink()
        append_jsonl_many(trial.metrics, [{**row, **named} for row in rows])
    return writer.run.path


@pytest.mark.slow
def test_a_finished_sweep_becomes_the_figure(tmp_path):
    run = measured_run(tmp_path)
    outputs = execute("02_figure3", f"RUN, RUNS = {str(run)!r}, None")
    assert pictures(outputs) == 2
    said = texts(outputs)
    assert "6 of 6 trials finished, ok>" in said
    assert f"{run}/trials/kl_loss_coef=0.1-s0-" in said


@pytest.mark.slow
def test_one_batch_goes_through_every_stage():
    assert pictures(execute("03_advantages_by_hand")) == 3

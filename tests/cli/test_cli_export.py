"""`rltune export` on a run folder."""

import csv

import pytest
from run_folders import CONTROL, TREATED, finished_sweep

COLLAPSE = {
    "collapse/retrieval_accuracy": 0.5,
    "collapse/retrieval_chance": 0.125,
    "collapse/reasoning_entropy": 3.0,
}


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def measured(tmp_path):
    """Return a finished run folder whose trials have collapse signals."""
    writer = finished_sweep(tmp_path)
    for label in (CONTROL, TREATED):
        for seed in (0, 1, 2):
            writer.run.trial(writer.spec(label, seed).trial_id).metrics.unlink()
            writer.train(writer.spec(label, seed), {0: 4, 10: 5, 20: 6}, steps=20, **COLLAPSE)
    return writer.run.path


def test_every_number_and_the_figure_are_written(rltune, measured):
    result = rltune("export", str(measured))
    assert (result.code, result.err) == (0, "")
    names = {path.name for path in (measured / "figures").iterdir()}
    assert names == {"curves.csv", "dynamics.csv", "dynamics.png", "dynamics.svg"}
    points = rows(measured / "figures" / "curves.csv")
    assert {row["condition"] for row in points} == {CONTROL, TREATED}
    last = [
        r["value"] for r in points if r["metric"] == "heldout/success_rate" and r["step"] == "20"
    ]
    assert last == ["0.6"] * 6
    bands = rows(measured / "figures" / "dynamics.csv")
    assert {(row["metric"], row["n_seeds"]) for row in bands} == {
        ("heldout/success_rate", "3"),
        ("collapse/retrieval_accuracy", "3"),
        ("collapse/reasoning_entropy", "3"),
    }
    drawn = (measured / "figures" / "dynamics.svg").read_text()
    assert "random floor" in drawn
    assert "no claim can be made" not in drawn


def test_without_the_signals_it_says_how_to_get_them(rltune, tmp_path):
    run = finished_sweep(tmp_path).run.path
    result = rltune("export", str(run))
    assert result.code == 0
    assert "no figure: no trial measured collapse; run with --set collapse.every=5" in result.err
    assert [path.name for path in (run / "figures").iterdir()] == ["curves.csv"]


def test_it_says_on_the_figure_that_the_audit_failed(rltune, measured):
    victim = next((measured / "trials").glob("*kl_loss_coef=0.1-s0*")) / "provenance.json"
    victim.write_text(victim.read_text().replace("c0ffee", "other0"))
    assert rltune("export", str(measured)).code == 0
    assert "The audit is failed" in (measured / "figures" / "dynamics.svg").read_text()

"""`rltune export` on a run folder."""

import csv
import json
import sys

import pytest
from run_folders import CONTROL, TREATED, finished_sweep

from rltune.store.files import read_json, sha256_file, write_json_atomic

COLLAPSE = {
    "collapse/retrieval_accuracy": 0.5,
    "collapse/retrieval_chance": 0.125,
    "collapse/reasoning_entropy": 3.0,
}
TABLES = ("trials", "history", "evals", "gates", "summary")
PLAIN = {f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")}
PLAIN |= {"curves.csv", "manifest.json"}
ALL = PLAIN | {"dynamics.csv", "dynamics.png", "dynamics.svg"}


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def names(run):
    return {path.name for path in (run / "figures").iterdir()}


def measure(root, **extra):
    """Return a finished run folder whose trials have collapse signals."""
    writer = finished_sweep(root)
    for label in (CONTROL, TREATED):
        for seed in (0, 1, 2):
            trial = writer.run.trial(writer.spec(label, seed).trial_id)
            trial.metrics.unlink()
            trial.heldout.unlink()
            signals = {**COLLAPSE, **extra}
            writer.train(writer.spec(label, seed), {0: 4, 10: 5, 20: 6}, steps=20, **signals)
    return writer.run.path


@pytest.fixture
def measured(tmp_path):
    return measure(tmp_path)


def test_every_number_and_the_figure_are_written(rltune, measured):
    result = rltune("export", str(measured))
    assert (result.code, result.err) == (0, "")
    assert names(measured) == ALL
    points = rows(measured / "figures" / "curves.csv")
    assert {(row["sweep"], row["condition"]) for row in points} == {
        ("kl", CONTROL),
        ("kl", TREATED),
    }
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
    # three seeds that agree: s is one of ten tasks, 0.6 +- 4.30265 x 0.1 / sqrt(3)
    assert float(bands[2]["low"]) == pytest.approx(0.35159, abs=1e-5)


def test_it_says_what_it_found_and_wrote(rltune, measured):
    said = rltune("export", str(measured)).out.splitlines()
    assert said[0] == "Audit passed (6 of 6 trials finished)."
    # 6 trials x (21 steps x 3 signals + 20 x 3 of budget + 3 gates) = 6 x 126
    folder = measured.relative_to(measured.parent.parent)
    # 6 trials x 3 gates x success and reward x 10 tasks = 360; by estimator and condition:
    # 3 ends + 2 measures x 3 gates = 9, x 3 x 2 = 54
    assert said[1:7] == [
        f"wrote {folder}/figures/trials.csv, .parquet: 6 rows",
        f"wrote {folder}/figures/history.csv, .parquet: 1,116 rows",  # + 20 x 3 clocks and rates
        f"wrote {folder}/figures/evals.csv, .parquet: 360 rows",
        f"wrote {folder}/figures/gates.csv, .parquet: 36 rows",
        f"wrote {folder}/figures/summary.csv, .parquet: 54 rows",
        f"wrote {folder}/figures/curves.csv: 756 values",
    ]
    assert [text.split(":")[0].rsplit("/")[-1] for text in said[7:]] == [
        *("dynamics.csv", "dynamics.png", "dynamics.svg", "manifest.json"),
    ]


def test_the_newest_run_folder_is_the_default_and_json_tells_the_same(rltune, measured):
    result = rltune("export", "--json")
    assert (result.code, result.err) == (0, "")
    said = json.loads(result.out)
    assert (said["audit"], said["values"], said["notes"]) == ("passed", 756, [])
    assert (said["mark"], said["rows"]["evals"]) == ("ok", 360)
    assert {path.rsplit("/")[-1] for path in said["wrote"]} == names(measured) == ALL


def test_the_manifest_proves_what_was_read_and_written(rltune, measured):
    rltune("export", str(measured))
    manifest = read_json(measured / "figures" / "manifest.json")
    assert manifest["mark"] == "ok"
    assert manifest["audit"]["verdict"] == "passed"
    assert manifest["trials"] == {"planned": 6, "finished": 6}
    read = {entry["path"]: entry["sha256"] for entry in manifest["inputs"]}
    assert read == {path: sha256_file(measured / path) for path in read}
    kinds = {path.rsplit("/")[-1] for path in read}
    assert kinds == {
        *("sweep.yaml", "plan.json", "tasks.json"),
        *("spec.json", "provenance.json", "metrics.jsonl", "heldout.jsonl", "DONE"),
    }
    wrote = {entry["path"]: entry["sha256"] for entry in manifest["outputs"]}
    assert set(wrote) == ALL - {"manifest.json"}
    assert wrote == {name: sha256_file(measured / "figures" / name) for name in wrote}


def test_exporting_again_gives_the_same_bytes(rltune, measured):
    rltune("export", str(measured))
    before = {path.name: path.read_bytes() for path in (measured / "figures").iterdir()}
    rltune("export", str(measured))
    assert {path.name: path.read_bytes() for path in (measured / "figures").iterdir()} == before


def test_trials_without_a_result_are_named_and_every_row_is_marked(rltune, measured):
    victim = next((measured / "trials").glob("*kl_loss_coef=0.1-s0*"))
    (victim / "DONE").unlink()
    said = rltune("export", str(measured)).out
    assert "marked in every row: audit failed; incomplete" in said
    manifest = read_json(measured / "figures" / "manifest.json")
    assert manifest["not_in_summary"] == [{"trial_id": victim.name, "why": "no result yet"}]
    assert {row["mark"] for row in rows(measured / "figures" / "evals.csv")} == {
        "audit failed; incomplete"
    }


def test_without_pyarrow_the_csv_files_stand_and_an_old_parquet_goes(rltune, measured, monkeypatch):
    rltune("export", str(measured))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    result = rltune("export", str(measured))
    assert result.code == 0
    assert (
        "no Parquet: run `pip install 'rltune[parquet]'`; the CSV files are written" in result.err
    )
    assert not [name for name in names(measured) if name.endswith(".parquet")]


def test_the_figure_has_its_reference_lines_and_no_notes(rltune, measured):
    rltune("export", str(measured))
    drawn = (measured / "figures" / "dynamics.svg").read_text()
    for said in ("random floor", "ceiling", "chance", "KL constraint", f"{CONTROL} (control)"):
        assert f"<!-- {said} -->" in drawn
    assert "no claim can be made" not in drawn


def test_without_the_signals_it_says_how_to_get_them(rltune, tmp_path):
    run = finished_sweep(tmp_path).run.path
    result = rltune("export", str(run))
    assert result.code == 0
    assert "no figure: no trial measured collapse; run with --set collapse.every=5" in result.err
    assert names(run) == PLAIN


def test_it_says_on_the_figure_that_the_audit_failed(rltune, measured):
    victim = next((measured / "trials").glob("*kl_loss_coef=0.1-s0*")) / "provenance.json"
    victim.write_text(victim.read_text().replace("c0ffee", "other0"))
    result = rltune("export", str(measured))
    assert result.code == 0
    assert result.out.startswith("Audit FAILED")
    assert read_json(measured / "audit.json")["verdict"] == "failed"
    assert "The audit FAILED" in (measured / "figures" / "dynamics.svg").read_text()


def test_a_hidden_second_axis_is_stamped_on_the_figure(rltune, measured):
    warned = {"rule": "S8", "message": "the filter is a second axis", "accepted_reason": None}
    proof = {"ok": True, "warnings": [warned]}
    write_json_atomic(measured / "comparability.json", proof)
    rltune("export", str(measured))
    assert "a second axis" in (measured / "figures" / "dynamics.svg").read_text()


def test_without_matplotlib_the_csv_files_stand_and_one_error_says_so(
    rltune, measured, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = rltune("export", str(measured))
    assert result.code == 2
    (error,) = result.err.splitlines()
    assert error.startswith("error: figure: drawing it needs matplotlib, which is not installed.")
    assert "pip install 'rltune[figures]'" in error
    assert names(measured) == PLAIN | {"dynamics.csv"}
    assert "dynamics.csv" in result.out


def test_values_that_are_not_finite_leave_the_rest_drawn(rltune, tmp_path):
    run = measure(tmp_path, **{"collapse/reasoning_entropy": float("nan")})
    assert rltune("export", str(run)).code == 0
    metrics = {row["metric"] for row in rows(run / "figures" / "dynamics.csv")}
    assert metrics == {"heldout/success_rate", "collapse/retrieval_accuracy"}
    assert names(run) == ALL


def test_a_torn_line_is_named(rltune, measured):
    victim = next((measured / "trials").glob("*kl_loss_coef=0.1-s0*")) / "metrics.jsonl"
    victim.write_bytes(victim.read_bytes() + b'{"step": 21, "he')
    result = rltune("export", str(measured))
    assert result.code == 0
    assert "metrics.jsonl:22: a torn last line" in result.err

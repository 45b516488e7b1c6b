"""`rltune export` on a run folder."""

import csv
import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from run_folders import CONTROL, TREATED, finished_sweep

from rltune.report.figures import files
from rltune.report.figures.draw import draw_kinds
from rltune.store.files import read_json, sha256_file, write_json_atomic

COLLAPSE = {
    "collapse/retrieval_accuracy": 0.5,
    "collapse/retrieval_chance": 0.125,
    "collapse/reasoning_entropy": 3.0,
}
TABLES = ("trials", "history", "evals", "gates", "summary")
PLAIN = {f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")}
PLAIN |= {"curves.csv", "manifest.json"}
FIGURES = ("learning_curves", "comparison", "dynamics", "heatmap", "budget")
DATA = {f"{name}.json" for name in FIGURES}
KINDS = ("png", "svg", "pdf")
DRAWN = ("comparison", "budget")  # of `exported_once`


def drawings(names):
    return {f"{name}.{kind}" for name in names for kind in KINDS}


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def contents(run):
    return {path.name: path.read_bytes() for path in (run / "figures").iterdir()}


def names(run):
    return {path.name for path in (run / "figures").iterdir()}


def measure(root, **extra):
    """Return a finished run folder whose trials have collapse signals."""
    writer = finished_sweep(root)
    for label, finals in ((CONTROL, (6, 7, 8)), (TREATED, (2, 3, 3))):
        for seed, last in enumerate(finals):
            trial = writer.run.trial(writer.spec(label, seed).trial_id)
            trial.metrics.unlink()
            trial.heldout.unlink()
            signals = {**COLLAPSE, **extra}
            writer.train(writer.spec(label, seed), {0: 4, 10: 5, 20: last}, steps=20, **signals)
    return writer.run.path


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("measured"))


def copied(folder, root):
    """Copy a run folder to where commands look by themselves."""
    return Path(shutil.copytree(folder, root / "runs" / folder.name))


@pytest.fixture
def measured(measured_once, tmp_path):
    return copied(measured_once, tmp_path)


def only(drawn):
    """Return what draws these figures and no others."""
    return lambda data, kinds: draw_kinds(data, kinds) if data.head.figure in drawn else {}


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    """Return what sets the kinds of file that are drawn; none, unless a test looks at some.

    Of the figures those named in `of`: to draw them takes longer than all the rest of an export.
    """

    def wants(*wanted, of=FIGURES):
        monkeypatch.setattr(files, "KINDS", wanted)
        monkeypatch.setattr(files, "draw_kinds", only(of if wanted else ()))

    wants()
    return wants


@pytest.fixture
def all_kinds(kinds):
    kinds(*KINDS)


@pytest.fixture(scope="module")
def exported_once(measured_once, tmp_path_factory):
    """Return the run folder of `measured`, some figures exported, and what the command wrote."""
    from rltune.cli.entry import run

    folder = copied(measured_once, tmp_path_factory.mktemp("exported"))
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        patch.chdir(folder.parent.parent)
        patch.setenv("COLUMNS", "80")
        patch.setattr(files, "KINDS", KINDS)
        patch.setattr(files, "draw_kinds", only(DRAWN))
        code = run(("export", str(folder)))
    assert (code, err.getvalue()) == (0, "")
    return folder, out.getvalue().splitlines()


@pytest.fixture
def exported(exported_once, tmp_path):
    return copied(exported_once[0], tmp_path)


def test_every_number_and_the_figures_are_written(exported_once):
    measured, _ = exported_once
    assert names(measured) == PLAIN | DATA | drawings(DRAWN)
    points = rows(measured / "figures" / "curves.csv")
    assert {(row["sweep"], row["condition"]) for row in points} == {
        ("kl", CONTROL),
        ("kl", TREATED),
    }
    last = [
        r["value"] for r in points if r["metric"] == "heldout/success_rate" and r["step"] == "20"
    ]
    assert sorted(last) == ["0.2", "0.3", "0.3", "0.6", "0.7", "0.8"]
    panels = read_json(measured / "figures" / "dynamics.json")["panels"]
    assert [(panel["metric"], len(panel["series"])) for panel in panels] == [
        ("heldout/success_rate", 2),
        ("collapse/retrieval_accuracy", 2),
        ("collapse/reasoning_entropy", 2),
    ]
    # 0.6, 0.7 and 0.8: s = 0.1, 0.7 +- 4.30265 x 0.1 / sqrt(3)
    end = panels[0]["series"][0]["means"][-1]
    assert (end["n_seeds"], end["low"]) == (3, pytest.approx(0.45159, abs=1e-5))


def test_it_says_what_it_found_and_wrote(exported_once):
    measured, said = exported_once
    assert said[0] == "Audit passed (6 of 6 trials finished)."
    # 6 trials x (21 steps x 3 signals + 20 x 5 of budget + 3 gates) = 6 x 166
    folder = measured.relative_to(measured.parent.parent)
    # 6 trials x 3 gates x success and reward x 10 tasks = 360; by estimator and condition:
    # 3 ends + 2 measures x 3 gates = 9, x 3 x 2 = 54
    assert said[1:7] == [
        f"wrote {folder}/figures/trials.csv, .parquet: 6 rows",
        f"wrote {folder}/figures/history.csv, .parquet: 1,356 rows",  # + 20 x 3 clocks and rates
        f"wrote {folder}/figures/evals.csv, .parquet: 360 rows",
        f"wrote {folder}/figures/gates.csv, .parquet: 36 rows",
        f"wrote {folder}/figures/summary.csv, .parquet: 54 rows",
        f"wrote {folder}/figures/curves.csv: 996 values",
    ]
    ends = {name: ", .png, .svg, .pdf" if name in DRAWN else "" for name in FIGURES}
    assert [text.rsplit("/")[-1] for text in said[7:]] == [
        *(f"{name}.json{end}" for name, end in ends.items()),
        "manifest.json: digests of what was read and written",
    ]


def test_the_newest_run_folder_is_the_default_and_json_tells_the_same(rltune, measured):
    result = rltune("export", "--json")
    assert (result.code, result.err) == (0, "")
    said = json.loads(result.out)
    assert (said["audit"], said["values"], said["notes"]) == ("passed", 996, [])
    assert (said["mark"], said["rows"]["evals"]) == ("ok", 360)
    assert said["left_out"] == {}
    wrote = {path.rsplit("/")[-1] for path in said["wrote"]}
    assert wrote == names(measured) == PLAIN | DATA


def test_the_manifest_proves_what_was_read_and_written(rltune, exported):
    manifest = read_json(exported / "figures" / "manifest.json")
    assert manifest["mark"] == "ok"
    assert manifest["audit"]["verdict"] == "passed"
    assert manifest["trials"] == {"planned": 6, "finished": 6}
    read = {entry["path"]: entry["sha256"] for entry in manifest["inputs"]}
    assert read == {path: sha256_file(exported / path) for path in read}
    kinds = {path.rsplit("/")[-1] for path in read}
    assert kinds == {
        *("sweep.yaml", "comparability.json", "plan.json", "tasks.json"),
        *("spec.json", "provenance.json", "metrics.jsonl", "heldout.jsonl", "DONE"),
    }
    wrote = {entry["path"]: entry["sha256"] for entry in manifest["outputs"]}
    assert set(wrote) == (PLAIN | DATA | drawings(DRAWN)) - {"manifest.json"}
    assert wrote == {name: sha256_file(exported / "figures" / name) for name in wrote}


@pytest.mark.slow
def test_every_figure_is_written_in_every_kind_and_exporting_again_gives_the_same_bytes(
    rltune, all_kinds, measured
):
    rltune("export", str(measured))
    before = contents(measured)
    assert set(before) == PLAIN | DATA | drawings(FIGURES)
    rltune("export", str(measured))
    assert contents(measured) == before


@pytest.mark.parametrize(("kind", "drawn_as"), [("csv", ("svg",)), ("parquet", ())])
def test_figures_are_made_again_from_the_tables_alone(
    rltune, kinds, exported, tmp_path, kind, drawn_as
):
    some = ("comparison", "budget")
    kinds(*drawn_as, of=some)
    before = contents(exported)
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("trials", "history", "summary"):
        shutil.move(exported / "figures" / f"{name}.{kind}", copy)
    shutil.move(exported / "figures" / "manifest.json", copy)
    shutil.rmtree(exported)
    result = rltune("export", str(copy), "--from-tables")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1] == f"made from the {kind} tables alone"
    made = {path.name: path.read_bytes() for path in copy.iterdir()}
    drawn = DATA | {f"{name}.{end}" for name in some for end in drawn_as}
    assert {name: made[name] for name in drawn} == {name: before[name] for name in drawn}


def test_tables_that_were_edited_make_no_figures(rltune, exported):
    path = exported / "figures" / "history.csv"
    path.write_text(path.read_text().replace(",0.6,", ",0.9,"))
    result = rltune("export", str(exported), "--from-tables")
    assert result.code == 2
    assert "history.csv: is not the file that manifest.json lists (other sha256)." in result.err
    assert "Export the run folder again." in result.err


def test_figures_that_differ_from_the_manifest_are_named(rltune, kinds, exported):
    kinds("svg", of=("budget",))
    path = exported / "figures" / "manifest.json"
    manifest = read_json(path)
    listed = [e for e in manifest["outputs"] if not e["path"].endswith(".svg")]
    listed += [e for e in manifest["outputs"] if e["path"] == "budget.svg"]
    manifest["outputs"] = listed  # of an export that drew what is drawn here
    for entry in manifest["outputs"]:
        if entry["path"] == "budget.svg":
            entry["sha256"] = "0" * 64
    write_json_atomic(path, manifest)
    result = rltune("export", "--from-tables", "--json")  # of the newest run folder
    assert (result.code, json.loads(result.out)["differ"]) == (0, ["budget.svg"])
    said = "same data, drawn differently than listed (another matplotlib or rltune): budget.svg"
    assert said in result.err
    manifest["outputs"] = [e for e in manifest["outputs"] if e["path"] != "heatmap.json"]
    write_json_atomic(path, manifest)
    kinds()
    result = rltune("export", "--from-tables")
    assert "not the data that manifest.json lists: heatmap.json" in result.err


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "there is no manifest.json here."),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "not the manifest of this"),
        (lambda folder: folder.rmdir(), "there is no such folder."),
    ],
)
def test_what_is_no_export_is_refused_with_the_next_action(rltune, tmp_path, make, said):
    folder = tmp_path / "some"
    folder.mkdir()
    make(folder)
    result = rltune("export", str(folder), "--from-tables")
    assert result.code == 2
    assert said in result.err
    assert "xport" in result.err.partition(said)[2]  # what to do: give an export, or export again


def test_the_estimator_is_that_of_the_export(rltune, measured):
    rltune("export", str(measured), "--estimator", "iqm")
    assert read_json(measured / "figures" / "heatmap.json")["estimator"] == "iqm"
    assert read_json(measured / "figures" / "learning_curves.json")["method"] == "bootstrap"
    before = contents(measured)
    assert rltune("export", str(measured), "--from-tables").err == ""
    assert contents(measured) == before
    result = rltune("export", str(measured), "--from-tables", "--estimator", "mean")
    assert result.code == 2
    assert "figures from tables keep the estimator of their export" in result.err


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


def test_without_the_signals_it_says_how_to_get_them_and_old_figures_go(rltune, kinds, tmp_path):
    kinds("svg", of=("budget", "dynamics"))
    run = finished_sweep(tmp_path).run.path
    (run / "figures").mkdir()
    (run / "figures" / "dynamics.svg").write_bytes(b"of another export")
    result = rltune("export", str(run))
    assert result.code == 0
    said = "no figure dynamics: no trial measured collapse; run with --set collapse.every=5"
    assert said in result.err
    assert "budget.svg" in names(run)
    assert not [name for name in names(run) if name.startswith("dynamics")]


def test_it_says_on_the_figure_that_the_audit_failed_and_what_is_a_second_axis(
    rltune, kinds, measured
):
    kinds("svg", of=("comparison",))  # report/test_report_figures_draw has the mark on each figure
    warned = {"rule": "S8", "severity": "warning", "message": "the filter is a second axis"}
    write_json_atomic(measured / "comparability.json", {"ok": True, "warnings": [warned]})
    victim = next((measured / "trials").glob("*kl_loss_coef=0.1-s0*")) / "provenance.json"
    victim.write_text(victim.read_text().replace("c0ffee", "other0"))
    result = rltune("export", str(measured))
    assert result.code == 0
    assert result.out.startswith("Audit FAILED")
    assert read_json(measured / "audit.json")["verdict"] == "failed"
    figure = (measured / "figures" / "comparison.svg").read_text()
    assert "AUDIT FAILED (A1)" in figure
    assert "a second axis" in figure


def test_without_matplotlib_the_tables_and_the_data_stand(rltune, all_kinds, exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = rltune("export", str(exported))
    assert result.code == 0
    said = "no drawings: run `pip install 'rltune[figures]'`; the data of the figures are written"
    assert result.err == f"{said}\n"
    assert names(exported) == PLAIN | DATA


@pytest.mark.slow
def test_values_that_are_not_finite_leave_the_rest_drawn(rltune, kinds, tmp_path):
    some = ("dynamics", "learning_curves")
    kinds("svg", of=some)
    run = measure(tmp_path, **{"collapse/reasoning_entropy": float("nan")})
    assert rltune("export", str(run)).code == 0
    panels = read_json(run / "figures" / "dynamics.json")["panels"]
    assert [len(panel["series"]) for panel in panels] == [2, 2, 0]
    assert {f"{name}.svg" for name in some} <= names(run)


def test_a_point_leads_back_to_its_trial(rltune, exported):
    (panel,) = read_json(exported / "figures" / "learning_curves.json")["panels"]
    line = panel["series"][1]["seeds"][2]
    assert (exported / "trials" / line["trial_id"] / "metrics.jsonl").is_file()
    assert line["trial_id"].startswith("kl_loss_coef=0.1-s2-")


def test_a_torn_line_is_named(rltune, measured):
    victim = next((measured / "trials").glob("*kl_loss_coef=0.1-s0*")) / "metrics.jsonl"
    victim.write_bytes(victim.read_bytes() + b'{"step": 21, "he')
    result = rltune("export", str(measured))
    assert result.code == 0
    assert "metrics.jsonl:22: a torn last line" in result.err

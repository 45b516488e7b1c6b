"""`rltune report` on a run folder."""

import json
import os

import pytest
from replay_rows import add_usual
from run_folders import CONTROL, FolderWriter, finished_sweep
from trained_folder import trained_folder

from rltune.store.jsonl import append_jsonl, read_jsonl


@pytest.fixture
def finished(tmp_path):
    writer = finished_sweep(tmp_path)
    add_usual(writer)
    return writer


def test_the_page_is_written_beside_the_figures(rltune, finished):
    result = rltune("report", str(finished.run.path))
    assert (result.code, result.err) == (0, "")
    page = finished.run.path / "figures" / "report.html"
    assert f"wrote runs/{finished.run.path.name}/figures/report.html: " in result.out
    assert "Open it in a browser; it needs no network" in result.out
    assert page.read_text().startswith("<!doctype html>")


def test_the_same_folder_gives_the_same_bytes_and_is_only_read(rltune, finished, tmp_path, undrawn):
    before = set(finished.run.path.rglob("*"))
    for name in ("one.html", "two.html"):
        assert rltune("report", str(finished.run.path), "--out", name).code == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert set(finished.run.path.rglob("*")) == before


def test_the_newest_run_is_meant_and_json_is_data(rltune, finished, undrawn):
    result = rltune("report", "--json")
    assert (result.code, result.err) == (0, "")
    told = json.loads(result.out)
    assert told["wrote"].endswith("figures/report.html")
    assert told["audit"] == "passed"
    assert told["replays"] == 8
    assert told["bytes"] == os.path.getsize(told["wrote"])
    assert len(told["inputs_sha256"]) == 64


def test_a_sweep_that_has_only_been_planned_has_a_page(rltune, tmp_path):
    writer = FolderWriter(tmp_path)
    result = rltune("report", str(writer.run.path))
    assert (result.code, result.err) == (0, "")
    text = (writer.run.path / "figures" / "report.html").read_text()
    assert "Not finished: there is no comparison to judge yet." in text
    assert "No learning curves: no trial has a value of heldout/success_rate yet." in text


def test_a_torn_line_is_told_and_on_the_page(rltune, finished, undrawn):
    trial = finished.run.trial(finished.spec(CONTROL, 0).trial_id)
    with trial.metrics.open("ab") as file:
        file.write(b'{"step": 21, "heldo')
    result = rltune("report", str(finished.run.path))
    assert result.code == 0
    assert result.err.startswith("unreadable: ")
    assert "a torn last line" in (finished.run.path / "figures" / "report.html").read_text()


def test_lines_of_another_version_are_no_replays(rltune, finished, undrawn):
    spec = finished.spec(CONTROL, 0)
    append_jsonl(finished.run.trial(spec.trial_id).replays, {"step": 1, "turns": [{}]})
    assert json.loads(rltune("report", "--json").out)["replays"] == 8


def test_what_is_no_run_folder_is_refused(rltune, tmp_path):
    (tmp_path / "other").mkdir()
    result = rltune("report", "other")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: other: this is not a run folder; it has no sweep.yaml. Run folders are "
        "<runs-dir>/<sweep>-<hash8>.\n"
    )


def test_a_place_that_cannot_be_written_is_refused(rltune, finished, tmp_path, undrawn):
    (tmp_path / "file").write_text("")
    result = rltune("report", str(finished.run.path), "--out", "file/report.html")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: file/report.html: the page cannot be written: ")
    assert result.err.endswith("Give --out FILE in a folder that can be written.\n")


def test_a_real_trial_shows_what_each_token_was_credited(rltune, tmp_path, undrawn):
    run, spec = trained_folder(tmp_path, which=0)
    rows = read_jsonl(run.trial(spec.trial_id).replays).rows
    assert {row["step"] for row in rows} == {1, 2}
    told = json.loads(rltune("report", str(run.path), "--json").out)
    assert told["replays"] == len(rows)
    text = (run.path / "figures" / "report.html").read_text()
    turn = rows[0]["turns"][0]
    assert f"{turn['credit'][0]:+.3g} " in text
    assert f"over {turn['n_tokens']} tokens" in text or f"each of {turn['n_tokens']} tokens" in text
    assert "Board before turn 1. 4 rows, 4 columns: " in text

"""`rltune report --finding` and `rltune verify`, as their user types them."""

import json
import shutil

import pytest
from publishing import drawn_once, seal_again
from run_folders import FolderWriter, finished_sweep
from trained_folder import trained_folder

from rltune.report.finding.files import read_finding
from rltune.store.files import read_json, write_json_atomic

assert drawn_once  # used by all tests here, too


@pytest.fixture
def published(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    (tmp_path / "note.md").write_text("A pilot on seeds 100, 101 said so.\n")
    result = rltune("report", str(writer.run.path), "--finding", "findings/kl", "--note", "note.md")
    assert (result.code, result.err) == (0, "")
    assert "`kl_loss_coef=0.1` ends **below the control**" in result.out
    assert "wrote findings/kl: 10 files, " in result.out
    return tmp_path / "findings" / "kl"


def test_a_finding_is_written_and_holds(rltune, published):
    assert "A pilot on seeds 100, 101" in (published / "index.md").read_text()
    result = rltune("verify", "findings/kl")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("findings/kl holds.\n")
    told = json.loads(rltune("verify", "findings/kl", "--json").out)
    assert told["ok"]
    assert [one["name"] for one in told["checks"] if one["unseen"]] == [
        "lineage",
        "code of the commit",
    ]


def test_a_change_is_named_and_makes_exit_code_1(rltune, published):
    text = (published / "index.md").read_text()
    (published / "index.md").write_text(text.replace("p = 0.017", "p = 0.0017"))
    result = rltune("verify", "findings/kl")
    assert result.code == 1
    assert "DIFFERS  every line of the page" in result.out
    assert "p = 0.0017)', recomputed" in " ".join(result.out.split())
    assert result.out.endswith("findings/kl does not hold: 2 checks failed.\n")


def test_the_page_is_made_again_from_the_tables_and_the_note_stays(rltune, published):
    before = {path: path.read_bytes() for path in published.iterdir()}
    (published / "index.md").unlink()
    (published / "figure.svg").unlink()
    assert rltune("report", "findings/kl").code == 0
    assert {path: path.read_bytes() for path in published.iterdir()} == before
    run = next((published.parents[1] / "runs").iterdir())
    assert rltune("report", str(run), "--finding", "findings/kl").code == 0
    assert {path: path.read_bytes() for path in published.iterdir()} == before


def test_a_page_that_is_made_again_has_the_present_form(rltune, published):
    manifest = read_json(published / "manifest.json")
    del manifest["page"]
    write_json_atomic(published / "manifest.json", manifest)
    assert rltune("report", "findings/kl").code == 0
    assert read_json(published / "manifest.json")["page"] == 3


def test_a_changed_table_makes_no_page(rltune, published):
    with (published / "gates.csv").open("a") as file:
        file.write("x\n")
    page = (published / "index.md").read_bytes()
    result = rltune("report", "findings/kl")
    assert result.code == 2
    assert "findings/kl/gates.csv: was changed (sha256 " in result.err
    assert (published / "index.md").read_bytes() == page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--note", "note.md"], "--note: is of a finding. Add --finding FOLDER."),
        (["--metric", "a"], "--metric: is of a finding. Add --finding FOLDER."),
        (["--finding", "f", "--out", "x"], "--out: is of the HTML page. Leave it out."),
        (["--finding", "f", "--note", "no.md"], "--note: 'no.md' cannot be read: "),
        (["--finding", "sweeps"], "--finding sweeps: is a folder with other files in it."),
        (["--finding", "f", "--metric", "a"], "--metric a: no trial measured it."),
    ],
)
def test_options_without_effect_are_refused(rltune, tmp_path, options, message):
    writer = finished_sweep(tmp_path)
    result = rltune("report", str(writer.run.path), *options)
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "f").exists()


def test_a_sweep_that_has_only_been_planned_is_a_finding_without_an_answer(rltune, tmp_path):
    writer = FolderWriter(tmp_path)
    assert rltune("report", str(writer.run.path), "--finding", "f").code == 0
    assert "**INCOMPLETE: 0 of 6 trials have a result.**" in (tmp_path / "f/index.md").read_text()
    assert rltune("verify", "f").code == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_folder(tmp_path_factory.mktemp("trained"), which=1, steps=2)


@pytest.mark.slow
def test_a_trial_is_run_again_without_its_run_folder(rltune, trained, monkeypatch):
    run, spec = trained
    tmp_path = run.path.parent  # the folder that the trial's relative paths refer to
    monkeypatch.chdir(tmp_path)
    assert rltune("report", str(run.path), "--finding", "f").code == 0
    result = rltune("verify", "f", "--trial", "0.01@0")
    assert (result.code, result.out.count("DIFFERS")) == (0, 0)
    assert f"{spec.trial_id} again: bit-equal" in " ".join(result.out.split())
    assert list((tmp_path / "runs").iterdir()) == []  # nothing stays of one that agrees

    def publish_other(digest):
        content = read_json(tmp_path / "f" / "trials.json")
        for one in content["trials"]:
            one[digest] = one.get(digest) and "0" * 64
        write_json_atomic(tmp_path / "f" / "trials.json", content)
        seal_again(tmp_path / "f" / "manifest.json")

    # weights, then numbers that no run gives, with digests that agree
    publish_other("weights_sha256")
    result = rltune("verify", "f", "--trial", "0.01@0")
    assert result.code == 1
    text = " ".join(result.out.split())
    assert "every metric is the same, and the weights that its gate chose are others" in text
    publish_other("metrics_sha256")
    result = rltune("verify", "f", "--rerun", "5")  # only one has a result
    assert result.code == 1
    text = " ".join(result.out.split())
    assert f"DIFFERS {spec.trial_id} again" in text
    assert "on the same software and machine" in text
    assert "kept in runs/verify-f-" in text
    assert read_finding(tmp_path / "f").metric == "heldout/reward_mean"


def test_a_trial_that_is_not_there_is_refused(rltune, published):
    result = rltune("verify", "findings/kl", "--trial", "0.3@0")
    assert result.code == 2
    assert "--trial: '0.3@0' is no trial of this finding." in result.err


def test_a_trial_of_a_later_version_is_refused_with_the_key_that_is_not_known(rltune, published):
    trials = published / "trials.json"
    content = read_json(trials)
    content["shared"]["config"]["loss.later_key"] = 1
    write_json_atomic(trials, content)
    result = rltune("verify", "findings/kl", "--trial", "0.1@0")
    assert result.code == 2
    assert "trials.json: loss.later_key: 'later_key' is not a key of loss." in result.err


def test_a_bundle_is_written_and_holds_elsewhere(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    result = rltune("bundle", str(writer.run.path), "--out", "paper.zip")
    assert (result.code, result.err) == (0, "")
    assert "Prove it anywhere with `rltune verify paper.zip`." in result.out
    result = rltune("verify", "paper.zip")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("paper.zip holds.\n")
    assert "as listed in bundle.json" in result.out
    shutil.unpack_archive("paper.zip", "paper")  # to read its page
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "paper").rglob("*")}
    result = rltune("verify", "paper")
    assert (result.code, result.out.splitlines()[-1]) == (0, "paper holds.")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "paper").rglob("*")} == there
    result = rltune("bundle", str(writer.run.path), "--out", "paper")
    assert result.code == 2
    assert "--out paper: is not the name of a zip. Give NAME.zip." in result.err

"""`rltune lineage generations`: of hand-made rows, and of three generations that really trained."""

import json
import shutil

import pytest
import torch
from generation_chains import add_generation, gate
from small_sweep import save_policy, small_sweep
from trained_folder import train_one

from rltune.cli import entry
from rltune.lineage.share import share
from rltune.lineage.table import LineageStore
from rltune.runner.recorder import open_recorder
from rltune.store.rundir import RunDir


def add_two(runs):
    add_generation(runs, "a-1", "root", [gate(0, [1, 0, 0, 0]), gate(2, [1, 1, 0, 0])])
    gates = [gate(0, [1, 1, 0, 0]), gate(2, [1, 1, 1, 0])]
    return add_generation(runs, "b-2", "next", gates, model="trial:a-1/root")


def test_the_chart_of_recorded_gates(rltune, tmp_path):
    add_two(tmp_path / "runs")
    result = rltune("lineage", "generations", "runs/b-2", "--of", "next")
    assert (result.code, result.err) == (0, "")
    assert "2 b-2/next" in " ".join(result.out.split())
    assert result.out.splitlines()[-1] == "wrote runs/b-2/generations/next/generations.png"
    folder = tmp_path / "runs/b-2/generations/next"
    assert {path.name for path in folder.iterdir()} == {
        f"generations.{kind}" for kind in ("csv", "json", "png", "svg")
    }
    data = json.loads((folder / "generations.json").read_text())
    assert [row["name"] for row in data["rows"]] == ["start", "a-1/root", "b-2/next"]
    assert data["rows"][2]["heldout"]["after"] == 0.75


def record_of(youngest, *played):
    generations = [
        {"name": name, "step": step, "tasks_sha256": "fresh", "success": [0, 1]}
        for name, step in played
    ]
    head = {"format": "rltune-fresh-1", "youngest": youngest, "looks": 1, "tasks": ["x", "y"]}
    return json.dumps(head | {"generations": generations})


def test_a_record_of_the_same_generations_is_shown(rltune, tmp_path):
    add_two(tmp_path / "runs")
    folder = tmp_path / "runs/b-2/generations/next"
    folder.mkdir(parents=True)
    played = (("start", 0), ("a-1/root", 2), ("b-2/next", 2))
    (folder / "fresh.json").write_text(record_of("b-2/next", *played))
    data = json.loads(rltune("lineage", "generations", "runs/b-2", "--json").out)
    assert [row["fresh"]["value"] for row in data["rows"]] == [0.5] * 3


def test_a_look_that_another_command_takes_meanwhile_counts(rltune, tmp_path, monkeypatch):
    add_two(tmp_path / "runs")
    path = tmp_path / "runs/b-2/generations/next/fresh.json"
    record = record_of("b-2/next", ("start", 0), ("a-1/root", 2), ("b-2/next", 2))

    def play(found, n, *, no_custom_code):
        path.parent.mkdir(parents=True)
        path.write_text(record)
        return json.loads(record)

    monkeypatch.setattr("rltune.cli.generations._played", play)
    rltune("lineage", "generations", "runs/b-2", "--fresh", "2")
    assert json.loads(path.read_text())["looks"] == 2


def test_looks_are_counted_wherever_the_chart_goes(rltune, tmp_path, monkeypatch):
    add_two(tmp_path / "runs")
    record = record_of("b-2/next", ("start", 0), ("a-1/root", 2), ("b-2/next", 2))
    played = []
    monkeypatch.setattr(
        "rltune.cli.generations._played",
        lambda found, n, **_: played.append(n) or json.loads(record),
    )
    for out, options in (("one", ()), ("two", ()), ("three", ("--again",))):
        given = ("lineage", "generations", "runs/b-2", "--fresh", "2", "--out", out, *options)
        assert rltune(*given).code == 0
        assert (tmp_path / out / "generations.json").is_file()
    own = tmp_path / "runs/b-2/generations/next"
    assert (json.loads((own / "fresh.json").read_text())["looks"], played) == (2, [2, 2])


def test_what_cannot_be_written_is_refused_before_it_is_played(rltune, tmp_path):
    add_two(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    refused = rltune("lineage", "generations", "runs/b-2", "--fresh", "2", "--out", "file")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"error: file: {tmp_path}/file is a file. Let it be written, or give another --out.\n"
    )


def test_the_folder_of_a_study_has_a_table(rltune, tmp_path):
    add_two(tmp_path / "runs")
    study = tmp_path / "runs/study-nights"
    study.mkdir()
    rows = LineageStore.open(tmp_path / "runs/b-2/results.tsv").read().rows
    share(rows, LineageStore(study / "results.tsv", "heldout/success_rate", "max"), "b-2")
    result = rltune("lineage", "generations", str(study), "--json")
    assert [row["name"] for row in json.loads(result.out)["rows"]][-1] == "b-2/next"


def test_again_without_a_number_is_refused(rltune, tmp_path):
    add_two(tmp_path / "runs")
    refused = rltune("lineage", "generations", "runs/b-2", "--again")
    assert refused.code == 2
    assert "--again: fresh tasks are played again" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is no record of fresh tasks."),
        ('{"format": "rltune-fresh-1", "looks": 1}', "is no record of fresh tasks."),
        (record_of("c-3/x"), "it is of c-3/x, not of b-2/next."),
        (record_of("b-2/next", ("start", 0), ("b-2/next", 2)), "of other generations than are"),
    ],
)
def test_a_record_of_something_else_is_refused(rltune, tmp_path, content, message):
    add_two(tmp_path / "runs")
    folder = tmp_path / "runs/b-2/generations/next"
    folder.mkdir(parents=True)
    (folder / "fresh.json").write_text(content)
    refused = rltune("lineage", "generations", "runs/b-2")
    assert refused.code == 2
    assert message in " ".join(refused.err.split())


def sweep_of(policy):
    return small_sweep(
        policy=policy,
        gate_every=1,
        checkpoint_every=1,
        train_tasks=8,
        values="[0.0, 0.01]",
        seeds="[0, 1]",
    )


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A runs dir with three generations of one model, each of a sweep of its own."""
    runs, policy = tmp_path_factory.mktemp("grown"), ""
    policy = save_policy(runs / "policy")
    for name in ("a-1", "b-2", "c-3"):
        text = sweep_of(policy)
        _, spec = train_one(runs, text, which=0)
        run = RunDir((runs / "small-0").rename(runs / name))
        metric = ("heldout/success_rate", "max")
        recorder = open_recorder(run, launch="l", metric=metric, commit="c", disqualified="")
        recorder.reconcile_all([spec])
        policy = f"trial:{name}/{spec.trial_id}@2"
        exported = run.path / "models" / f"{spec.trial_id}@2"
        trial = str(run.trial(spec.trial_id).path)
        assert entry.run(("model", trial, "--out", str(exported), "--checkpoint", "2")) == 0
    return runs


def weights_at_start(folder, run):
    (trial,) = RunDir(folder / "runs" / run).trial_dirs()
    return json.loads(trial.provenance.read_text())["weights_sha256"]


@pytest.mark.slow
def test_three_generations_play_fresh_tasks(rltune, grown, tmp_path):
    """The fresh tasks are in no split of any generation, and each plays them with its own weights:

    those with which the next one started.
    """
    before = torch.get_num_threads()
    shutil.copytree(grown, tmp_path / "runs", symlinks=True)
    asked = ("lineage", "generations", "runs/c-3", "--fresh", "12", "--json")
    first = rltune(*asked)
    assert first.code == 0, first.err
    data = json.loads(first.out)
    assert [row["name"].partition("/")[0] for row in data["rows"]] == ["start", "a-1", "b-2", "c-3"]
    assert [row["fresh"]["tasks"] for row in data["rows"]] == [12] * 4
    (written,) = (tmp_path / "runs/c-3/generations").glob("*/generations.json")
    assert data == json.loads(written.read_text())
    assert all(row["fresh_beside"]["is_paired"] for row in data["rows"][1:])
    (path,) = (tmp_path / "runs/c-3/generations").glob("*/fresh.json")
    record = json.loads(path.read_text())
    known = set()
    for run in ("a-1", "b-2", "c-3"):
        tasks = json.loads((tmp_path / "runs" / run / "tasks.json").read_text())
        known |= {t["task_id"] for part in ("train", "heldout", "test") for t in tasks[part]}
    assert not known & set(record["tasks"])
    assert len(set(record["tasks"])) == 12
    digests = [one["checkpoint_sha256"] for one in record["generations"]]
    assert digests[:3] == [weights_at_start(tmp_path, run) for run in ("a-1", "b-2", "c-3")]
    assert len(set(digests[:3])) == 3
    assert data["rows"][3]["step"] == 0  # the last gates tie, so its gate chose its start
    assert digests[3] == digests[2]

    shown = rltune(*asked)  # the second time shows, and plays nothing
    assert json.loads(shown.out) == data
    other = rltune("lineage", "generations", "runs/c-3", "--fresh", "13")
    assert other.code == 2
    assert "12 fresh tasks were played, not 13. Add --again" in " ".join(other.err.split())
    again = json.loads(rltune(*asked, "--again").out)
    assert again == {**data, "fresh_looks": 2}  # the same tasks, luck and models
    torch.set_num_threads(before)


@pytest.mark.slow
def test_more_fresh_tasks_than_there_are_is_refused(rltune, grown, tmp_path, monkeypatch):
    from rltune_envs import draw

    monkeypatch.setattr(draw, "MAX_DUPLICATES", 3)
    shutil.copytree(grown, tmp_path / "runs", symlinks=True)
    refused = rltune("lineage", "generations", "runs/c-3", "--fresh", "100000")
    assert refused.code == 2
    assert "--fresh" in refused.err
    assert not list((tmp_path / "runs").glob("*/generations"))

"""The generations of a model in a bundle: what they rest on comes along, and no doctored one holds.

Three generations: the control of `kl`, its condition, and a trial of `next` that trains the model
of that on. `next` is bundled; of `kl` its two trials are.
"""

import hashlib
import json
import shutil
from dataclasses import replace

import pytest
from generation_chains import add_generation, gate
from publishing import (
    CODE,
    copied,
    drawn_once,
    problems_of,
    replace_in,
    seal_bundle,
    sources_at,
)
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter
from test_report_finding import add_rows

from rltune.analysis.fresh import split_seed_of
from rltune.analysis.generations import generation_table
from rltune.cli import entry
from rltune.errors import StoreError
from rltune.lineage.generations import generations
from rltune.report.bundle.archive import files_of
from rltune.report.bundle.charts import rests_on
from rltune.report.bundle.run import build, verify_bundle
from rltune.report.generations import write_generations
from rltune.store.digest import metrics_digest
from rltune.store.files import read_json, write_json_atomic
from rltune.store.origin import Origin, write_origin
from rltune.store.run_folder import read_folder
from rltune.store.rundir import RunDir
from rltune_envs.arithmetic.env import ArithmeticEnv
from rltune_envs.splits import build_manifest

assert drawn_once  # used by all tests here, too
assert copied  # as `root`

RECORDS = ("spec.json", "heldout.jsonl", "DONE")
FRESH_TASKS = ["fresh-1", "fresh-2", "fresh-3", "fresh-4"]


def ended(root, text, gates):
    """Return the writer of a run folder whose trials of seed 0 have ended with cards and rows."""
    writer = FolderWriter(root, text)
    manifest = build_manifest(ArithmeticEnv(), train_tasks=3, heldout_tasks=10, split_seed=0)
    write_json_atomic(writer.run.tasks(), manifest.to_json())
    for label, solved in gates.items():
        trial = writer.run.trial(writer.spec(label, 0).trial_id)
        writer.finish(writer.spec(label, 0), solved)
        written = {"weights_sha256": f"file of {trial.trial_id}"}
        written["metrics_sha256"] = metrics_digest(trial.metrics)
        result = replace(trial.read_done(), **written)
        trial.write_done(result)
        checkpoint = {
            "path": f"checkpoints/{trial.checkpoint(result.best_step).name}",
            "weights_sha256": f"weights of {trial.trial_id}",
            "file_sha256": result.weights_sha256,
        }
        write_json_atomic(trial.model_card, {"trial_id": trial.trial_id, "checkpoint": checkpoint})
        provenance = read_json(trial.provenance) | {"manifest_sha256": manifest.sha256}
        write_json_atomic(trial.provenance, provenance | {"host": "my-laptop", "base": str(root)})
    add_rows(writer)
    return writer


def fresh_of(found, weights):
    """Return the record of fresh tasks of a chain, of which each generation solves one more."""
    names = [("start", 0), *((one.name, one.step) for one in found.chain)]
    digest = hashlib.sha256("\n".join(FRESH_TASKS).encode()).hexdigest()
    rows = [
        {
            "name": name,
            "checkpoint_sha256": weights[i],
            "step": step,
            "tasks_sha256": digest,
            "success": [1] * i + [0] * (4 - i),
        }
        for i, (name, step) in enumerate(names)
    ]
    return {
        "format": "rltune-fresh-1",
        "youngest": names[-1][0],
        "looks": 1,
        "split_seed": split_seed_of(names[-1][0]),
        "excluded": 13,
        "tasks": FRESH_TASKS,
        "generations": rows,
    }


def charted(writer, weights):
    """Write the chart of the youngest generation into its run folder."""
    name = writer.spec(TREATED, 0).trial_id
    found = generations(writer.run.results, name, writer.root / "runs")
    assert len(found.chain) == len(weights) - 1
    record = fresh_of(found, weights)
    folder = writer.run.path / "generations" / name
    write_generations(folder, generation_table(found, record))
    write_json_atomic(folder / "fresh.json", record)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    first = ended(root, SWEEP, {CONTROL: {0: 4, 10: 5, 20: 5}, TREATED: {0: 4, 10: 6, 20: 7}})
    trained = first.run.trial(first.spec(TREATED, 0).trial_id)
    weights = trained.checkpoint(20) / "policy.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    trained.best_heldout.symlink_to(weights.parent.name)
    model = f"trial:{first.run.path.name}/{trained.trial_id}"
    text = SWEEP.replace("name: kl", "name: next").replace(
        "hold:\n", f'hold:\n  policy.model: "{model}"\n'
    )
    second = ended(root, text, {CONTROL: {0: 7, 10: 6, 20: 6}, TREATED: {0: 7, 10: 9, 20: 8}})
    own = [first.spec(CONTROL, 0), first.spec(TREATED, 0), second.spec(TREATED, 0)]
    charted(second, ["w", *(f"weights of {spec.trial_id}" for spec in own)])
    return second


@pytest.fixture(scope="module")
def built(writer, tmp_path_factory):
    root = tmp_path_factory.mktemp("built")
    build(read_folder(writer.run), root, CODE, place="paper.zip")
    return root


def chart_of(root):
    (folder,) = root.glob("run/*/generations/*")
    return folder


def test_what_a_chart_rests_on_is_in_the_bundle_and_names_no_machine(built, writer):
    (kl,) = (built / "before").iterdir()
    assert {path.name for path in kl.iterdir()} == {
        *("sweep.yaml", "results.tsv", "tasks.json", "trials")
    }
    assert len(list((kl / "trials").iterdir())) == 2
    own = writer.run.path / "generations" / chart_of(built).name
    for name in ("generations.json", "generations.csv", "fresh.json"):
        assert (chart_of(built) / name).read_bytes() == (own / name).read_bytes()
    names = {path.name for path in chart_of(built).iterdir()}
    assert names == {"generations.json", "generations.csv", "generations.svg", "fresh.json"}
    texts = {path: path.read_text(errors="replace") for path in files_of(built)}
    told = ("my-laptop", str(writer.root))
    assert [path for path, text in texts.items() if any(one in text for one in told)] == []


def test_an_honest_chart_holds_and_says_what_it_cannot_see(root):
    _, checks = verify_bundle(root, sources_at=sources_at)
    assert [check.problems for check in checks if check.problems] == []
    (chart,) = [check for check in checks if check.name.startswith("generations up to next-")]
    assert chart.unseen == (
        "whether these weights solve these fresh tasks, and how often they were let play"
    )


def edit(place, name, change):
    def doctor(root):
        (folder,) = root.glob(place)
        content = read_json(folder / name)
        change(content)
        write_json_atomic(folder / name, content)

    return doctor


CHART = "run/*/generations/*"
OWN = f"run/*/trials/{TREATED}-s0-*"
BEFORE = f"before/*/trials/{TREATED}-s0-*"
APART = [  # (what was done, what is found); none touches what another one shows
    (
        edit(CHART, "generations.json", lambda d: d["rows"][2]["heldout"].update(after=0.8)),
        "generations.json: rows: 2: heldout: after: 0.8, recomputed 0.7",
    ),
    (lambda root: replace_in("generations.csv", ",0.7,", ",0.8,")(chart_of(root)), "csv:4: '"),
    (
        lambda root: replace_in("generations.svg", "up to next-", "up to best-")(chart_of(root)),
        "generations.svg does not show these tables: it says",
    ),
    (
        edit(CHART, "fresh.json", lambda d: d["generations"][3].update(checkpoint_sha256="other")),
        "checkpoint_sha256: other, its records have weights of k",
    ),
    (
        edit(CHART, "fresh.json", lambda d: d["generations"][0].update(checkpoint_sha256="v")),
        "fresh.json: start, checkpoint_sha256: v, its records have w",
    ),
    (
        edit(CHART, "fresh.json", lambda d: d.update(split_seed=7)),
        "fresh.json: split_seed: 7, that of the youngest generation is ",
    ),
    (edit(CHART, "fresh.json", lambda d: d.update(excluded=9)), "excluded: 9, the generations"),
    (edit(BEFORE, "DONE", lambda d: d.update(heldout_metric=0.8)), "core_metric: 0.7, its result"),
    (
        edit(BEFORE, "spec.json", lambda d: d["config"]["optim"].update(lr=0.5)),
        f"trials/{TREATED}-s0-",
    ),
    (
        edit(BEFORE, "card.json", lambda d: d["checkpoint"].update(file_sha256="x")),
        "its card.json has other weights than its result",
    ),
    (lambda root: (root / "before" / "notes.md").write_text("x"), "before/notes.md is no file"),
    (
        lambda root: shutil.copytree(chart_of(root), chart_of(root).with_name("none")),
        "generations/none: no row of results.tsv has this name",
    ),
]


def test_each_doctoring_is_caught_even_with_digests_that_agree(root):
    for doctor, _ in APART:
        doctor(root)
    seal_bundle(root)
    problems = problems_of(root)
    missed = [found for _, found in APART if not any(found in text for text in problems)]
    assert missed == [], problems


def without_generation(root):
    """A generation that lost is in no file of the chart."""
    lost = {}

    def drop(content):
        lost.update(content["rows"].pop(1))

    edit(CHART, "generations.json", drop)(root)
    edit(CHART, "fresh.json", lambda d: d["generations"].pop(1))(root)


def solved(trial, step, n):
    """Let a gate have solved n tasks, by heldout.jsonl alone."""

    def doctor(root):
        (folder,) = root.glob(trial)
        path = folder / "heldout.jsonl"
        lines = path.read_text().splitlines()
        before = f'"success": {[1] * 7 + [0] * 3}'
        assert before in lines[step // 10]
        lines[step // 10] = lines[step // 10].replace(
            before, f'"success": {[1] * n + [0] * (10 - n)}'
        )
        path.write_text("\n".join(lines) + "\n")

    return doctor


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        pytest.param(without_generation, "is of other generations than", id="a generation"),
        pytest.param(
            edit(CHART, "generations.json", lambda d: d["rows"].pop(1)),
            "-s0-19439cf593 is missing",
            id="a row of the chart",
        ),
        pytest.param(
            solved(BEFORE, 20, 9),
            "heldout.jsonl: step 20, heldout/success_rate: 0.9, metrics.jsonl has 0.7",
            id="an outcome of an older generation",
        ),
        pytest.param(
            edit(CHART, "fresh.json", lambda d: d["tasks"].__setitem__(0, "easy")),
            "start played other tasks than the 4 tasks named",
            id="a fresh task",
        ),
        pytest.param(
            lambda root: (chart_of(root) / "fresh.json").unlink(),
            "generations.json: rows: 0: fresh: ",
            id="the fresh tasks",
        ),
        pytest.param(
            lambda root: shutil.rmtree(root / "before"),
            "is of other generations than",
            id="older generations",
        ),
        pytest.param(
            lambda root: (chart_of(root) / "generations.svg").unlink(),
            "generations.svg: missing",
            id="a figure",
        ),
    ],
)
def test_a_doctored_chart_is_caught(root, doctor, found):
    doctor(root)
    seal_bundle(root)
    assert [text for text in problems_of(root) if found in text], problems_of(root)


def test_an_unpacked_bundle_is_verified_by_a_relative_path(root, monkeypatch, capsys):
    monkeypatch.chdir(root.parent)
    assert entry.run(("verify", root.name)) == 0
    edit(OWN, "DONE", lambda d: d.update(heldout_metric=0.8))(root)
    capsys.readouterr()
    assert entry.run(("verify", root.name, "--json")) == 1
    told = [
        text for one in json.loads(capsys.readouterr().out)["checks"] for text in one["problems"]
    ]
    (problem,) = [text for text in told if "core_metric: 0.9, its result has 0.8" in text]
    assert problem.startswith("run/next-")


def test_a_fresh_task_that_a_generation_trained_on_is_named(root):
    trained = read_json(next(root.glob("before/*/tasks.json")))["train"][0]["task_id"]
    edit(CHART, "fresh.json", lambda d: d["tasks"].__setitem__(0, trained))(root)
    assert any(f"fresh.json: {trained} is a task of kl-" in text for text in problems_of(root))


def test_a_chart_of_generations_that_are_gone_is_one_clear_error(writer, tmp_path):
    copy = shutil.copytree(writer.root, tmp_path / "project", symlinks=True)
    shutil.rmtree(next((copy / "runs").glob("kl-*")))
    run = replace(writer.run, path=copy / "runs" / writer.run.path.name)
    with pytest.raises(StoreError, match="of other generations than are found now"):
        build(read_folder(run), tmp_path / "bundle", CODE, place="paper.zip")


def test_a_child_comes_along_with_what_it_was_made_from(tmp_path):
    add_generation(tmp_path, "a-1", "root", [gate(2, [1, 0])])
    table = add_generation(tmp_path, "a-1", "grown", [gate(0, [1, 0]), gate(2, [1, 1])])
    run = RunDir(tmp_path / "a-1")
    child = run.child("grown")
    child.path.parent.mkdir()
    run.trial("grown").path.rename(child.path)
    write_origin(child, Origin(kind="child", parent="root", folder="trials/root", step=2))
    found = generations(table, "grown", tmp_path, bundled=[tmp_path])
    assert [one.name for one in found.chain] == ["a-1/root", "a-1/grown"]
    there = {target for _, target in rests_on(found, lambda run: tmp_path / "there" / run.name)}
    names = {path.relative_to(tmp_path / "there/a-1").as_posix() for path in there}
    assert names == {
        *("sweep.yaml", "results.tsv", "children/grown/origin.json"),
        *(f"{one}/{file}" for one in ("trials/root", "children/grown") for file in RECORDS),
    }

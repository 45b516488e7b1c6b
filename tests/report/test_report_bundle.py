"""A bundle: the same bytes for the same run, no secrets, and no doctored one passes."""

import json
import shutil
import zipfile
from dataclasses import replace

import pytest
from publishing import (
    CODE,
    copied,
    drawn_once,
    problems_of,
    replace_in,
    seal_again,
    seal_bundle,
)
from run_folders import CONTROL, CRASH, PROVENANCE, SWEEP, TREATED, FolderWriter
from test_report_finding import add_rows

from rltune.analysis.seed_blocks import take_looks
from rltune.errors import InputError, StoreError
from rltune.report.bundle.archive import unpack, write_zip
from rltune.report.bundle.run import build
from rltune.spec.plan import plan_json
from rltune.store.digest import metrics_digest
from rltune.store.files import read_json, sha256_file, write_json_atomic
from rltune.store.run_folder import read_folder

assert drawn_once  # used by all tests here, too
assert copied  # as `root`


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """All trials have ended, the condition's last seed in a crash; the gate chose step 10."""
    writer = FolderWriter(tmp_path_factory.mktemp("run"))
    for seed in (0, 1, 2):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 8, 20: 6 + seed % 2})
        if seed < 2:
            writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 5, 20: 3 - seed})
    writer.fail(writer.spec(TREATED, 2), CRASH)
    for trial in writer.run.trial_dirs():
        if result := trial.read_done():
            digest = metrics_digest(trial.metrics)
            weights = trial.checkpoint(10) / "policy.safetensors"
            weights.parent.mkdir(parents=True)
            weights.write_bytes(trial.trial_id.encode())
            written = {weights.name: sha256_file(weights)}
            state = {"config_hash": trial.read_spec().config_hash, "sha256": written}
            write_json_atomic(weights.with_name("state.json"), state)
            known = {"metrics_sha256": digest, "weights_sha256": sha256_file(weights)}
            trial.write_done(replace(result, **known))
            card = {"trial_id": trial.trial_id, "checkpoint": {"file_sha256": sha256_file(weights)}}
            write_json_atomic(trial.model_card, card)
        provenance = read_json(trial.provenance)
        machine = {"host": "my-laptop", "base": "/home/me"}
        earlier = [{**PROVENANCE, **machine, "attempt": 1}]
        write_json_atomic(trial.provenance, {**provenance, **machine, "earlier": earlier})
    add_rows(writer)
    return writer


@pytest.fixture(scope="module")
def built(writer, tmp_path_factory):
    root = tmp_path_factory.mktemp("built")
    build(read_folder(writer.run), root, CODE, place="paper.zip", has_checkpoints=True)
    return root


def test_an_honest_bundle_holds_and_names_no_machine(built, tmp_path):
    write_zip(built, tmp_path / "paper.zip")
    root = unpack(tmp_path / "paper.zip", tmp_path / "there")
    assert problems_of(root) == []
    texts = [path.read_text(errors="replace") for path in root.rglob("*") if path.is_file()]
    assert not [text for text in texts if "my-laptop" in text or "/home/me" in text]
    assert "rltune verify paper.zip --rerun 1" in (root / "finding" / "index.md").read_text()


def test_the_same_run_gives_the_same_bytes(writer, built, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    build(read_folder(writer.run), again, CODE, place="paper.zip", has_checkpoints=True)
    for root, name in ((built, "one.zip"), (again, "two.zip")):
        write_zip(root, tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def run_of(root):
    (folder,) = (root / "run").iterdir()
    return folder


def trial_of(root, label, seed):
    return next(run_of(root).glob(f"trials/{label}-s{seed}-*"))


def edit(label, seed, name, old, new):
    def doctor(root):
        replace_in(name, old, new)(trial_of(root, label, seed))

    return doctor


def edit_json(name, change):
    def doctor(root):
        path = run_of(root) / name
        content = read_json(path)
        change(content)
        write_json_atomic(path, content)

    return doctor


def without_failed_trial(root):
    shutil.rmtree(trial_of(root, TREATED, 2))


def without_row(root):
    path = run_of(root) / "results.tsv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "crash" not in line))


def other_checkpoint(root):
    folder = trial_of(root, CONTROL, 0) / "checkpoints"
    (folder / "step-000010").rename(folder / "step-000020")


def other_weights(root):
    (trial_of(root, CONTROL, 0) / "checkpoints/step-000010/policy.safetensors").write_bytes(b"x")


def other_weights_with_card_and_state(root):
    """With the digest that belongs to them in all that lies beside them."""
    other_weights(root)
    trial = trial_of(root, CONTROL, 0)
    weights = trial / "checkpoints/step-000010/policy.safetensors"
    digest = sha256_file(weights)
    for path, key in ((trial / "card.json", "checkpoint"), (weights.parent / "state.json", "")):
        content = read_json(path)
        (content[key] if key else content["sha256"])["file_sha256" if key else weights.name] = (
            digest
        )
        write_json_atomic(path, content)


def other_weights_with_done(root):
    """With DONE, too, but not with the finding's own record of it."""
    other_weights_with_card_and_state(root)
    trial = trial_of(root, CONTROL, 0)
    done = read_json(trial / "DONE")
    done["weights_sha256"] = sha256_file(trial / "checkpoints/step-000010/policy.safetensors")
    write_json_atomic(trial / "DONE", done)


def other_weights_without_card(root):
    other_weights(root)
    (trial_of(root, CONTROL, 0) / "card.json").unlink()


def other_trial_s_weights(root):
    """With the card that belongs to them."""
    ours, theirs = trial_of(root, CONTROL, 0), trial_of(root, CONTROL, 1)
    for name in ("card.json", "checkpoints/step-000010/policy.safetensors"):
        shutil.copy(theirs / name, ours / name)


def other_figure(root):
    shutil.copy(root / "finding" / "figure.svg", root / "finding" / "comparison.svg")


def predicted_afterwards(plan):
    for trial in plan["trials"]:
        trial["expected_delta"] = "-0.3 success"


DOCTORED = [  # (what was done, what is found)
    pytest.param(
        edit(CONTROL, 0, "metrics.jsonl", "0.6", "0.7"), "audit is not what", id="a metric"
    ),
    pytest.param(
        edit(TREATED, 0, "heldout.jsonl", "[1, 1, 1, 0,", "[1, 1, 1, 1,"),
        "gates.csv",
        id="an outcome of a task",
    ),
    pytest.param(
        edit(TREATED, 0, "DONE", '"final_metric": 0.3', '"final_metric": 0.6'),
        "final: 0.3, recomputed 0.6",
        id="a result",
    ),
    pytest.param(
        edit(CONTROL, 1, "provenance.json", "c0ffee", "decaf0"),
        "code_rev: c0ffee, recomputed decaf0",
        id="a commit",
    ),
    pytest.param(without_failed_trial, "status: failed, recomputed pending", id="a failed trial"),
    pytest.param(
        without_row,
        "lineage_id: kl_loss_coef=0.1-s2-7cd920ad70, recomputed ",
        id="a row of lineage",
    ),
    pytest.param(other_checkpoint, "step-000020, but the gate chose step 10", id="a checkpoint"),
    pytest.param(other_weights, "is not the file of its card", id="weights"),
    pytest.param(other_weights, "is not the file of its state.json", id="weights, by state.json"),
    pytest.param(
        other_weights_with_card_and_state,
        "policy.safetensors is not the file of weights_sha256 in DONE",
        id="weights, with card and state",
    ),
    pytest.param(
        other_weights_with_done, "trials.json is not what the records give", id="weights, with DONE"
    ),
    pytest.param(other_weights_without_card, "is missing or another", id="weights, no card"),
    pytest.param(other_trial_s_weights, "or another trial's", id="another trial's weights"),
    pytest.param(
        lambda root: (trial_of(root, CONTROL, 0) / "notes.md").write_text("We win."),
        "notes.md is no file of a bundle",
        id="one more file of a trial",
    ),
    pytest.param(
        lambda root: (root / "finding" / "more.csv").write_text("a,b"),
        "finding/more.csv is no file of a bundle",
        id="one more table",
    ),
    pytest.param(
        lambda root: replace_in("sweep.yaml", "[0, 1, 2]", "[0, 1]")(root / "finding"),
        "finding/sweep.yaml is not the sweep file of the run",
        id="what was asked",
    ),
    pytest.param(
        lambda root: (root / "finding" / "index.md").write_bytes(b"\xff"),
        "a record cannot be read: UnicodeDecodeError",
        id="a page that is no text",
    ),
    pytest.param(other_figure, "comparison.svg does not show these tables", id="a figure"),
    pytest.param(
        lambda root: replace_in("index.md", "no verdict", "below the control")(root / "finding"),
        "index.md:",
        id="a verdict",
    ),
    pytest.param(
        lambda root: replace_in("summary.csv", "0.633", "0.733")(root / "finding"),
        "recomputed 0.6",
        id="an estimate",
    ),
    pytest.param(
        edit_json("plan.json", predicted_afterwards), "trials.json is not what", id="a prediction"
    ),
    pytest.param(
        lambda root: write_json_atomic(
            run_of(root) / "comparability.json", {"ok": False, "allow_confounded": "why"}
        ),
        "mark is not what the records give",
        id="the proof",
    ),
    pytest.param(
        lambda root: (trial_of(root, CONTROL, 0) / "metrics.jsonl").unlink(),
        "audit is not what",
        id="no metrics",
    ),
]


@pytest.mark.parametrize(("doctor", "found"), DOCTORED)
def test_a_doctored_bundle_is_caught_even_with_digests_that_agree(root, doctor, found):
    doctor(root)
    seal_again(root / "finding" / "manifest.json")
    seal_bundle(root)
    assert [text for text in problems_of(root) if found in text], problems_of(root)


UNTIL = SWEEP.replace("seeds: [0, 1, 2]", "seeds: {start: 3, max: 4, until: decided}")


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """The bundle of a sweep with seeds until decided, whose first look decided."""
    writer = FolderWriter(tmp_path_factory.mktemp("until"), UNTIL)
    for spec in writer.specs[:6]:
        last = (7, 8, 8) if spec.is_control else (1, 1, 1)
        writer.finish(spec, {0: 4, 10: 5, 20: last[spec.seed]})
    take_looks(writer.run, writer.loaded, launch="1", say=lambda text: None)
    write_json_atomic(writer.run.plan, plan_json(writer.loaded, writer.specs[:6], tasks=None))
    root = tmp_path_factory.mktemp("decided")
    build(read_folder(writer.run), root, CODE, place="paper.zip")
    return root


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        (lambda path: None, ""),
        (lambda path: path.unlink(), "finding/manifest.json: inputs is not what the records give"),
        (
            lambda path: path.write_text(path.read_text().replace('"different"', '"go on"')),
            "finding/manifest.json: audit is not what the records give",
        ),
    ],
)
def test_the_looks_of_a_sweep_until_decided_are_taken_again(decided, tmp_path, doctor, found):
    root = shutil.copytree(decided, tmp_path / "bundle")
    doctor(run_of(root) / "looks.jsonl")
    problems = problems_of(root)
    assert (not problems) if not found else (found in problems), problems


def test_files_that_are_changed_missing_or_not_listed_are_named(root):
    (root / "more.txt").write_text("x")
    (run_of(root) / "sweep.yaml").write_text("name: other\n")
    (run_of(root) / "plan.json").unlink()
    found = problems_of(root)
    assert "more.txt is not listed in bundle.json" in found
    assert f"run/{run_of(root).name}/sweep.yaml was changed" in found
    assert f"run/{run_of(root).name}/plan.json is missing" in found


@pytest.mark.parametrize(
    "text", ["a value of the variable: hunter2-hunter2", "hf_" + "a1" * 17, "tml-" + "a1" * 17]
)
def test_a_secret_is_refused_with_its_place(writer, tmp_path, monkeypatch, text):
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    run = shutil.copytree(writer.run.path, tmp_path / "runs" / writer.run.path.name)
    trial = next(run.glob("trials/*"))
    (trial / "prompt.txt").write_text(f"fine\n{text}\n")
    root = tmp_path / "root"
    root.mkdir()
    folder = read_folder(replace(writer.run, path=run))
    with pytest.raises(InputError, match=r"prompt\.txt:2: holds a secret") as raised:
        build(folder, root, CODE, place="paper.zip")
    assert text not in str(raised.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.txt"], "is not a bundle; it has no bundle.json"),
        (["bundle.json", "../a.txt"], "names files outside of itself"),
        (["bundle.json", "/a.txt"], "names files outside of itself"),
    ],
)
def test_another_zip_is_refused_and_nothing_leaves_the_folder(tmp_path, names, message):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name in names:
            file.writestr(name, json.dumps({}))
    with pytest.raises(StoreError, match=message):
        unpack(tmp_path / "a.zip", tmp_path / "there")
    assert not (tmp_path / "a.txt").exists()


def test_a_damaged_or_locked_zip_is_refused(built, tmp_path):
    """A bit that turned in the compressed bytes, and an entry that needs a password."""
    write_zip(built, tmp_path / "a.zip")
    whole = (tmp_path / "a.zip").read_bytes()
    for at in range(200, 1200, 100):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        (tmp_path / "b.zip").write_bytes(damaged)
        with pytest.raises(StoreError, match="cannot be unpacked"):
            unpack(tmp_path / "b.zip", tmp_path / f"there-{at}")
    locked = bytearray(whole)
    locked[whole.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(locked)
    with pytest.raises(StoreError, match="password required"):
        unpack(tmp_path / "b.zip", tmp_path / "there")


def test_a_list_without_files_is_no_list(root):
    write_json_atomic(root / "bundle.json", {"format": "rltune-bundle-1"})
    assert f"run/{run_of(root).name}/sweep.yaml is not listed in bundle.json" in problems_of(root)


def test_what_is_no_zip_is_refused(tmp_path):
    (tmp_path / "a.zip").write_text("text")
    with pytest.raises(StoreError, match="cannot be unpacked"):
        unpack(tmp_path / "a.zip", tmp_path / "there")

"""The bundle of a study: what it holds, and that no doctored one passes for an honest one."""

import shutil

import pytest
from publishing import (
    CODE,
    copied,
    drawn_once,
    problems_in,
    replace_in,
    seal_again,
    seal_bundle,
    sources_at,
)
from study_project import Project, replace_loaded

from rltune.errors import InputError, StoreError
from rltune.lineage.across import parent_row
from rltune.lineage.record import RowContext, row_for
from rltune.lineage.share import share
from rltune.lineage.table import LineageStore
from rltune.report.bundle.archive import files_of, write_zip
from rltune.store.files import read_json, write_json_atomic
from rltune.store.lock import take_driver_lock
from rltune.store.rundir import RunDir
from rltune.study.bundle import build_study
from rltune.study.kept import keep_files, load_kept
from rltune.study.links import Evidence, parents
from rltune.study.load import load_study
from rltune.study.state import standings
from rltune.study.verify import verify_study

assert drawn_once  # used by all tests here, too
assert copied  # as `root`

LEAP = """\
    control: best kept of kl
    set: [optim.grad_clip=0.5]
    accept: {S9: clipping is no part of the question}
"""
HELPS = {"entropy_coeff=0.0": (3, 4, 3), "entropy_coeff=0.01": (8, 9, 8)}


def add_rows(writer, own):
    """Write the lineage row of every trial, as the recorder does, and share them."""
    store = LineageStore(writer.run.results, "heldout/success_rate", "max")
    parent = writer.loaded.spec.parent
    for spec in writer.specs:
        grown = parent_row(writer.run.path.parent, parent, spec.seed) if parent else ""
        context = RowContext(
            metric_name="heldout/success_rate",
            metric_mode="max",
            timestamp="2026-01-01T00:00:00Z",
            commit="c0ffee",
            job_name="launch-0001",
            grown_from=grown if spec.is_control else "",
        )
        outcome = writer.run.trial(spec.trial_id).read_done()
        if outcome is not None:
            store.append(row_for(spec, outcome, store.read().rows, context))
    shared = LineageStore(own.results, "heldout/success_rate", "max")
    share(store.read().rows, shared, writer.run.path.name)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A study whose two sweeps have ended: kl promotes 0.1, and on top of it entropy helps."""
    project = Project(tmp_path_factory.mktemp("study"))
    project.write("    control: best kept of kl\n", LEAP)
    own = load_study(project.study).folder(project.runs)
    project.finish()
    own.path.mkdir(parents=True)
    add_rows(project.kl, own)
    entropy = standings(load_study(project.study), project.runs)[1]
    writer = replace_loaded(project, entropy.loaded)
    project.finish(HELPS, writer=writer)
    add_rows(writer, own)
    best = next(one for one in writer.specs if not one.is_control and one.seed == 1)
    (writer.run.path / "generations" / best.trial_id).mkdir(parents=True)  # it was charted
    keep_files(load_study(project.study), own.path)
    return project


def laid_out(project, root, **changed):
    asked = {"place": "nights.zip", "has_checkpoints": False, **changed}
    root.mkdir(exist_ok=True)
    study = asked.pop("study", None) or load_study(project.study)
    return build_study(study, project.runs, root, CODE, **asked)


@pytest.fixture(scope="module")
def built(project, tmp_path_factory):
    root = tmp_path_factory.mktemp("built") / "bundle"
    laid_out(project, root)
    return root


def problems_of(root):
    return problems_in(verify_study(root, sources_at=sources_at))


def test_an_honest_bundle_holds_elsewhere_and_names_no_machine(built, project, tmp_path):
    there = shutil.copytree(built, tmp_path / "elsewhere")
    findings, checks = verify_study(there, sources_at=sources_at)
    assert [check.problems for check in checks if check.problems] == []
    assert len(findings) == 2
    (chart,) = built.glob("runs/entropy-*/generations/*/generations.json")
    names = [row["name"].partition("-")[0] for row in read_json(chart)["rows"]]
    assert names == ["start", "kl", "kl", "entropy", "entropy"]
    texts = {path: path.read_text(errors="replace") for path in files_of(built)}
    assert [path for path, text in texts.items() if str(project.root) in text] == []


def test_the_page_says_what_each_sweep_shows_and_what_was_promoted(built, project):
    text = (built / "index.md").read_text()
    kl = project.runs.glob("kl-*")
    assert f"`kl_loss_coef=0.1` of `{next(kl).name}` is promoted in it: above the control" in text
    assert "- `loss.kl_loss_coef`: `0.0` becomes `0.1`" in text
    assert "- `entropy_coeff=0.01` ends **above the control**: +0.500" in text
    assert "48,000 tokens" in text
    assert (
        "- S9 warning: entropy.yaml holds what kl.yaml shows to be better, under another protocol "
        "(figure3 and none), and differs from it in optim.grad_clip (1.0 and 0.5). Accepted: "
        "clipping is no part of the question"
    ) in text
    assert "Not finished" not in text
    assert "rltune verify nights.zip --rerun 1" in text


def test_the_same_runs_give_the_same_bytes_from_the_file_and_from_the_folder(
    project, built, tmp_path
):
    own = load_study(project.study).folder(project.runs).path
    laid_out(project, tmp_path / "again", study=load_kept(own))
    for root, name in ((built, "one.zip"), (tmp_path / "again", "two.zip")):
        write_zip(root, tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_an_unfinished_sweep_is_named_and_what_ran_is_there(tmp_path):
    project = Project(tmp_path)
    spec = project.kl.specs[0]
    project.kl.finish(spec, {0: 3, 10: 3, 20: 4})
    made = laid_out(project, tmp_path / "bundle")
    told = (tmp_path / "bundle" / "index.md").read_text()
    assert "**Not finished: kl has 1 of 6 trials; entropy has not begun.**" in told
    assert [one["is_finished"] for one in made.standing["sweeps"]] == [False, False]
    assert problems_of(tmp_path / "bundle") == []


def test_a_run_of_a_sweep_that_was_taken_out_is_in_it_all_the_same(project, tmp_path):
    copy = shutil.copytree(project.root, tmp_path / "project")
    study = copy / "studies" / "nights.yaml"
    text = study.read_text()
    study.write_text(text[: text.index("  - name: entropy")])
    root = tmp_path / "bundle"
    root.mkdir()
    made = build_study(
        load_study(study), copy / "runs", root, CODE, place="a.zip", has_checkpoints=False
    )
    (other,) = made.standing["other_runs"]
    assert other.startswith("entropy-")
    assert f"## Other runs of its lineage\n\n- [`{other}`]" in (root / "index.md").read_text()
    assert problems_of(root) == []


@pytest.mark.parametrize("removed", ["kl", "entropy"])
def test_a_run_folder_that_is_missing_is_one_clear_error(project, tmp_path, removed):
    copy = shutil.copytree(project.root, tmp_path / "project")
    name = next((copy / "runs").glob(f"{removed}-*")).name
    shutil.rmtree(copy / "runs" / name)
    study = load_study(copy / "studies" / "nights.yaml")
    with pytest.raises(StoreError, match=f"its records name .*{name}.*Restore the run folder"):
        build_study(study, copy / "runs", tmp_path, CODE, place="a.zip", has_checkpoints=False)


def test_a_study_that_is_being_run_is_refused(project, tmp_path):
    own = load_study(project.study).folder(project.runs)
    with (
        take_driver_lock(own.lock, argv=("rltune",)),
        pytest.raises(InputError, match="is being run by process"),
    ):
        laid_out(project, tmp_path / "bundle")
    own.lock.unlink()


def test_a_study_that_has_not_begun_is_refused(tmp_path):
    project = Project(tmp_path)
    shutil.rmtree(project.kl.run.path)
    with pytest.raises(StoreError, match="no sweep of this study has begun"):
        laid_out(project, tmp_path / "bundle")


def own_of(root):
    return root / "runs" / "study-nights"


def run_of(root, name):
    return next((root / "runs").glob(f"{name}-*"))


def edit_json(name, change):
    def doctor(root):
        path = own_of(root) / name
        content = read_json(path)
        change(content)
        write_json_atomic(path, content)

    return doctor


def without_losing_sweep(root):
    """Its run and its finding are gone, and standing.json knows nothing of it."""
    run = run_of(root, "entropy")
    shutil.rmtree(run)
    shutil.rmtree(root / "findings" / run.name)
    standing = read_json(root / "standing.json")
    standing["sweeps"][1] |= {"run": None, "trials": {"pending": 6}, "is_finished": False}
    write_json_atomic(root / "standing.json", standing)


def loser_promoted(decisions):
    decisions["entropy"] |= {"condition": "kl_loss_coef=0.0", "is_control": True, "keys": {}}


def other_parent(root):
    path = run_of(root, "entropy") / "results.tsv"
    text = path.read_text()
    path.write_text(text.replace("/kl_loss_coef=0.1-s1-", "/kl_loss_coef=0.0-s1-"))


def less_used(root):
    standing = read_json(root / "standing.json")
    standing["used"]["tokens"] = 24000
    write_json_atomic(root / "standing.json", standing)


def stranger_run(root):
    shutil.copytree(run_of(root, "kl"), root / "runs" / "other-12345678")
    shutil.copytree(root / "findings" / run_of(root, "kl").name, root / "findings/other-12345678")


def edit(where, name, old, new):
    return lambda root: replace_in(name, old, new)(where(root))


def kl_of(root):
    return root / "findings" / run_of(root, "kl").name


def seal_all(root):
    """Make every list of digests agree."""
    for manifest in (root / "findings").glob("*/manifest.json"):
        seal_again(manifest)
    seal_bundle(root)


HELD = ("kl_loss_coef: 0.1", "kl_loss_coef: 0.2")
APART = [  # (what was done, what is found); none of these touches what another one shows
    (
        edit_json("study.json", lambda d: d["entropy"].update(why="above the control (n = 9)")),
        "why: 'above the control (n = 9)', recomputed 'above the control (n = 3",
    ),
    (
        edit(lambda root: run_of(root, "entropy"), "sweep.yaml", *HELD),
        "/sweep.yaml: hold: ",
    ),
    (
        edit(lambda root: own_of(root) / "entropy" / "sweeps", "entropy.yaml", *HELD),
        "entropy/sweeps/entropy.yaml: hold: ",
    ),
    (other_parent, "promoted was kl-"),
    (edit(own_of, "results.tsv", "\t0.9\t", "\t0.8\t"), "core_metric: 0.8, its run has 0.9"),
    (less_used, "standing.json: used: tokens: 24000, recomputed 48000"),
    (edit(lambda root: root, "index.md", "48,000", "24,000"), "index.md:"),
    (edit(own_of, "study.yaml", "one after the other?", "at once?"), "standing.json: question: "),
    (stranger_run, "runs/other-12345678 is no run of the study"),
    (
        lambda root: (own_of(root) / "notes.md").write_text("We win."),
        "runs/study-nights/notes.md is no file of a bundle",
    ),
    (edit(kl_of, "trials.csv", "c0ffee", "decaf0"), "code_rev: decaf0, recomputed c0ffee"),
]


def test_each_doctoring_is_caught_even_with_digests_that_agree(root):
    for doctor, _ in APART:
        doctor(root)
    seal_all(root)
    problems = problems_of(root)
    missed = [found for _, found in APART if not any(found in text for text in problems)]
    assert missed == [], problems


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        pytest.param(
            without_losing_sweep, "is missing; study.json or results.tsv of the study", id="a sweep"
        ),
        pytest.param(
            edit_json("study.json", loser_promoted),
            "study.json: entropy, condition: 'kl_loss_coef=0.0', recomputed 'kl_loss_coef=0.1'",
            id="a promotion",
        ),
        pytest.param(
            edit_json(
                "study.json", lambda d: d["entropy"]["keys"].update({"loss.kl_loss_coef": 0.3})
            ),
            "study.json: entropy, keys: {'loss.kl_loss_coef': 0.3,",
            id="what was promoted",
        ),
        pytest.param(
            lambda root: (own_of(root) / "study.json").write_text("[1]"),
            "a record cannot be read",
            id="decisions that are none",
        ),
        pytest.param(
            lambda root: replace_in("generations.json", "0.9", "0.8")(
                next(run_of(root, "entropy").glob("generations/*"))
            ),
            "generations.json: rows: 4: heldout: after: 0.8, recomputed 0.9",
            id="a generation",
        ),
    ],
)
def test_a_doctored_record_is_caught(root, doctor, found):
    doctor(root)
    seal_all(root)
    assert [text for text in problems_of(root) if found in text], problems_of(root)


def test_a_bundle_without_a_study_file_is_caught(root):
    (own_of(root) / "study.yaml").unlink()
    problems = problems_of(root)
    assert "runs/study-nights/study.yaml is missing" in problems
    assert "runs holds 0 folders of a study, not one" in problems


@pytest.mark.slow
def test_seeds_that_a_decision_left_out_are_named(project, tmp_path):
    """A decision that looked at some seeds only, although others had ended before."""
    copy = shutil.copytree(project.root, tmp_path / "project")
    for path in (copy / "runs").glob("*/trials/*/provenance.json"):
        provenance = read_json(path)
        is_next = path.parents[2].name.startswith("entropy")
        provenance["started"] = f"20{30 if is_next else 20}-01-01T00:00:00Z"
        write_json_atomic(path, provenance)
    study = load_study(copy / "studies" / "nights.yaml")
    root = tmp_path / "bundle"
    root.mkdir()
    build_study(study, copy / "runs", root, CODE, place="a.zip", has_checkpoints=False)
    assert problems_of(root) == []
    edit_json("study.json", lambda d: d["entropy"].update(seeds=[0, 1]))(root)
    assert any("seeds: [0, 1] leaves out 2, which ended in kl-" in x for x in problems_of(root))


def test_a_seed_that_the_source_got_after_the_decision_contradicts_no_parent(root, tmp_path):
    """When the control of seed 2 was recorded, the promoted condition had seeds 0 and 1 alone."""
    rows = LineageStore.open(run_of(root, "kl") / "results.tsv").read().rows
    first, _, last = (row.exp_id for row in rows if row.condition == "kl_loss_coef=0.1")
    replace_in("results.tsv", f"/{last}\t", f"/{first}\t")(run_of(root, "entropy"))
    own = RunDir(own_of(root))
    study = load_kept(own.path)

    def contradictions() -> list[str]:
        return list(parents(Evidence(study, own, standings(study, root / "runs", work=tmp_path))))

    assert len(contradictions()) == 1
    edit_json("study.json", lambda d: d["entropy"].update(seeds=[0, 1]))(root)
    assert contradictions() == []


def test_what_was_kept_is_the_study_as_it_was_asked(project):
    own = load_study(project.study).folder(project.runs).path
    study, kept = load_study(project.study), load_kept(own)
    assert kept.spec == study.spec
    for name, loaded in study.originals.items():
        again = kept.originals[name]
        assert (again.sweep_hash, again.text) == (loaded.sweep_hash, loaded.text)
        assert str(again.path).startswith(str(own))
    assert read_json(own / "study.json")["entropy"]["seeds"] == [0, 1, 2]


def test_a_folder_without_a_study_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"it has no study\.yaml\. Give the study file"):
        load_kept(tmp_path)

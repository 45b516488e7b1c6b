"""Findings and bundles of an earlier rltune hold; what a later one wrote is named as such."""

import csv
import shutil
from dataclasses import MISSING, fields

import pytest
from run_folders import finished_sweep
from test_report_finding import CODE, add_rows, drawn_once, problems_of, replace_in, sources_at

from rltune.errors import StoreError
from rltune.report.bundle.run import build, verify_bundle
from rltune.report.finding.files import TABLES, read_finding, write_finding
from rltune.report.finding.verify import verify
from rltune.store.files import read_json, sha256_file, write_json_atomic
from rltune.store.run_folder import read_folder

assert drawn_once  # used by all tests here, too


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    writer = finished_sweep(tmp_path_factory.mktemp("finished"))
    add_rows(writer)
    root = tmp_path_factory.mktemp("built")
    build(read_folder(writer.run), root, CODE, place="paper.zip", metrics=["budget/rollouts"])
    return root


@pytest.fixture
def root(built, tmp_path):
    return shutil.copytree(built, tmp_path / "bundle")


@pytest.fixture
def folder(root):
    return root / "finding"


def relist(folder):
    """Let the manifest list the files as they are."""
    manifest = read_json(folder / "manifest.json")
    manifest["outputs"] = {name: sha256_file(folder / name) for name in manifest["outputs"]}
    write_json_atomic(folder / "manifest.json", manifest)


def edit_columns(path, change):
    """Write a table with other columns: `change` is given the rows as name -> cell."""
    with path.open(newline="") as file:
        rows = [change(row) for row in csv.DictReader(file)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def without(*names):
    return lambda row: {name: cell for name, cell in row.items() if name not in names}


def made_before_looks(folder):
    """Make a finding what rltune wrote before there were seeds until decided."""
    edit_columns(folder / "trials.csv", without("seeds_until", "look"))
    manifest = read_json(folder / "manifest.json")
    del manifest["asked"]["until"]
    write_json_atomic(folder / "manifest.json", manifest)
    relist(folder)


def test_a_finding_outlives_later_columns_and_keeps_its_own(folder, tmp_path):
    made_before_looks(folder)
    assert problems_of(folder) == []
    again = tmp_path / "again"
    write_finding(read_finding(folder), again)
    assert "seeds_until" not in (again / "trials.csv").read_text()
    for path in folder.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def test_a_bundle_outlives_later_columns(root):
    made_before_looks(root / "finding")
    listed = read_json(root / "bundle.json")
    listed["outputs"] = {name: sha256_file(root / name) for name in listed["outputs"]}
    write_json_atomic(root / "bundle.json", listed)
    _, checks = verify_bundle(root, sources_at=sources_at)
    assert [text for check in checks for text in check.problems] == []


def test_a_column_that_every_version_wrote_cannot_be_left_out(folder):
    edit_columns(folder / "summary.csv", without("p_holm"))  # hides what is not significant
    relist(folder)
    (text,) = problems_of(folder)
    assert "summary.csv: has the columns ['sweep'," in text


def test_a_column_of_a_later_rltune_is_named(folder):
    edit_columns(folder / "trials.csv", lambda row: row | {"joules": "7"})
    relist(folder)
    (text,) = problems_of(folder)
    assert "trials.csv: has the column 'joules', unknown to this rltune." in text
    assert text.endswith(
        "Use the rltune that wrote it (manifest.json names its commit), or a later one."
    )


def test_seeds_until_decided_are_those_of_the_manifest(folder):
    replace_in("manifest.json", '"until": ""', '"until": "start=3 most=6 block=1 effect=0.1"')(
        folder
    )
    assert any(
        "seeds_until: '', manifest.json has 'start=3" in text for text in problems_of(folder)
    )


COLUMNS = {  # of the first findings; what came after has the metadata LATER in its row's dataclass
    "trials": "sweep run axis condition is_control axis_value seed trial_id attempt config_sha256 "
    "code_rev code_dirty source_sha256 tasks_sha256 weights_sha256 env_sha256 device cpu_model "
    "gpus status reason started ended wall_s train_s gpu_s rollouts tokens optimizer_steps "
    "policy_updates critic_updates planned_steps final_step metric mode heldout_tasks base "
    "selected best_step final selected_tasks final_tasks floor floor_kind floor_low floor_high "
    "ceiling wandb_id lineage_id same_run_as mark",
    "gates": "trial_id condition seed step metric n_tasks n_faults value wilson_lo wilson_hi mark",
    "pairs": "condition seed step metric n_tasks both only_condition only_control",
    "measures": "condition seed step metric n_steps value",
    "summary": "sweep condition is_control metric at step n_planned n_seeds n_tasks estimator "
    "value ci_lo ci_hi ci_level method reps rng_seed delta_vs_control delta_n delta_ci_lo "
    "delta_ci_hi test p p_holm p_improve seeds_for_80 verdict is_complete mark",
}


def test_what_the_first_findings_have_stays_and_what_came_later_has_a_default():
    for name, kind in TABLES.items():
        first = {field.name for field in fields(kind) if not field.metadata.get("later")}
        assert first == set(COLUMNS[name].split()), name
        assert all(
            field.default is not MISSING for field in fields(kind) if field.metadata.get("later")
        )


def test_a_manifest_without_a_key_is_refused(folder):
    manifest = read_json(folder / "manifest.json")
    del manifest["audit"]
    write_json_atomic(folder / "manifest.json", manifest)
    with pytest.raises(StoreError, match=r"manifest\.json: lacks audit\."):
        verify(folder, sources_at=sources_at)

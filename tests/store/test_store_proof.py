"""What the check before the run found, read again: whole, or refused with one error."""

import pytest
from cases import each

from rltune.errors import StoreError
from rltune.store.proof import confounded_reason, open_warnings, read_proof, unproved
from rltune.store.rundir import RunDir

FINDING = '"severity": "warning", "message": "a second axis"'


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


def test_a_proof_is_read(run):
    run.comparability.write_text(
        '{"ok": false, "allow_confounded": "to show it", "warnings": [{"rule": "S8", '
        + FINDING
        + "}]}"
    )
    assert confounded_reason(run) == "to show it"
    assert open_warnings(run) == ("S8 warning, neither remedied nor accepted: a second axis",)


def test_a_folder_without_a_proof_has_nothing_to_read(run):
    assert (read_proof(run), confounded_reason(run)) == ({}, "")


def test_a_folder_without_a_proof_is_unproved(run):
    assert unproved(run).startswith("comparability.json is missing")
    run.comparability.write_text('{"ok": true}')
    assert unproved(run) == ""


@each(
    "text",
    [
        "[]",
        "{}",
        '{"ok": "no"}',
        '{"ok": fal',
        '{"ok": true, "warnings": [3]}',
        '{"ok": true, "warnings": [{' + FINDING + "}]}",
        '{"ok": true, "warnings": [{"rule": 8, ' + FINDING + "}]}",
        '{"ok": true, "errors": {"rule": "S8"}}',
        '{"ok": true, "axis_table": [{"condition": "a", "is_control": true, "settings": []}]}',
    ],
)
def test_what_is_no_proof_is_refused_and_never_taken_for_one_that_holds(run, text):
    run.comparability.write_text(text)
    for reads in (read_proof, confounded_reason, open_warnings):
        with pytest.raises(StoreError, match="Run the sweep's command again, which writes it anew"):
            reads(run)

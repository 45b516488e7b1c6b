"""Every doctored run folder is found by its rule; its near miss passes."""

from pathlib import Path

import pytest
from folder_mutations import FOLDER_MUTATIONS, FolderMutation
from run_folders import finished_sweep

from rltune.analysis.audit import judge_folder
from rltune.store.run_folder import read_folder, read_records


@pytest.mark.parametrize("mutation", FOLDER_MUTATIONS, ids=lambda m: f"{m.code}: {m.what}")
def test_rule(mutation: FolderMutation, tmp_path: Path) -> None:
    writer = finished_sweep(tmp_path)
    mutation.doctor(writer)
    folder = read_folder(writer.run)
    report = judge_folder(folder, read_records(folder)).report
    found = [*report.errors, *report.warnings]
    codes = {finding.code for finding in found}
    if mutation.is_fault:
        assert mutation.code in codes, [str(finding) for finding in found]
    else:
        assert report.ok
        assert codes <= ({mutation.code, *mutation.also} if mutation.is_named else set())


@pytest.mark.parametrize("rule", [f"A{number}" for number in range(1, 9)])
def test_each_rule_has_two_faults_and_a_near_miss(rule: str) -> None:
    own = [mutation.is_fault for mutation in FOLDER_MUTATIONS if mutation.rule == rule]
    assert own.count(True) >= 2
    assert own.count(False) >= 1

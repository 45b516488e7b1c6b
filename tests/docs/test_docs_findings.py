"""Every published finding: its page and figures are what its tables give, and it is small."""

import pytest
from cases import each
from literals import ROOT

from rltune.report.finding.index import folders_of
from rltune.report.finding.verify import verify
from rltune.runner.provenance import source_digest_at

FINDINGS = folders_of(ROOT / "docs" / "findings")


@pytest.mark.parametrize(
    "folder",
    [  # drawn again, which takes seconds for all; one of them in every run
        pytest.param(
            folder, id=folder.name, marks=() if folder == FINDINGS[-1] else pytest.mark.slow
        )
        for folder in FINDINGS
    ],
)
def test_a_finding_holds(folder):
    finding, checks = verify(folder, sources_at=source_digest_at)
    assert [text for check in checks for text in check.problems] == []
    assert finding is not None
    assert finding.name == folder.name


@each("folder", FINDINGS, ids=[folder.name for folder in FINDINGS])
def test_a_finding_is_small(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000


def test_no_folder_of_findings_is_left_out():
    folders = {path for path in (ROOT / "docs" / "findings").iterdir() if path.is_dir()}
    assert folders == set(FINDINGS)

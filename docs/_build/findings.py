"""The table of all findings, read from their folders."""

from pathlib import Path

from rltune.report.finding.index import findings_table

FOLDER = Path(__file__).resolve().parents[1] / "findings"


def finding_table() -> str:
    """Return one row per finding below docs/findings."""
    return findings_table(FOLDER)

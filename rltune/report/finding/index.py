"""One table over all findings of a folder."""

from pathlib import Path

from rltune.report.finding.files import PAGE, is_finding, read_finding
from rltune.report.finding.page import answer_in_short
from rltune.report.finding.records import Finding
from rltune.report.finding.words import plain, table
from rltune.report.render import plural


def folders_of(folder: Path) -> list[Path]:
    """Return the folders of the findings in a folder, by name."""
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and is_finding(path)]


def findings_table(folder: Path) -> str:
    """Return the table, its links relative to the folder."""
    findings = [read_finding(path) for path in folders_of(folder)]
    if not findings:
        return "No finding is published yet."
    headers = ["finding", "question", "against its control", "seeds", "audit"]
    return table(headers, map(_row, findings), numeric=(3,))


def _row(finding: Finding) -> list[str]:
    seeds = {row.seed for row in finding.trials}
    about = finding.about
    open_trials = about.planned - about.finished
    lost = f", {plural(open_trials, 'trial')} without a result" if open_trials else ""
    return [
        f"[{plain(about.title)}]({finding.name}/{PAGE})",
        plain(str(finding.manifest["question"])),
        answer_in_short(finding),
        str(len(seeds)),
        f"{about.verdict}{lost}",
    ]

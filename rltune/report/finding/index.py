"""One table over all findings of a folder."""

from collections.abc import Iterable
from pathlib import Path

from rltune.analysis.table_summary import verdicts_of
from rltune.analysis.verdict_words import LEVEL, Verdict
from rltune.maths.significance import holm
from rltune.report.finding.files import PAGE, is_finding, read_finding
from rltune.report.finding.page import answer_in_short
from rltune.report.finding.records import Finding
from rltune.report.finding.words import plain, table
from rltune.report.render import plural


def folders_of(folder: Path) -> list[Path]:
    """Return the folders of the findings in a folder, by name."""
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and is_finding(path)]


def findings_table(folder: Path) -> str:
    """Return the table, its links relative to the folder, and what all of it claims together."""
    findings = [read_finding(path) for path in folders_of(folder)]
    if not findings:
        return "No finding is published yet."
    headers = ["finding", "question", "against its control", "seeds", "audit"]
    verdicts = [one for finding in findings for one in verdicts_of(finding.trials)]
    return f"{table(headers, map(_row, findings), numeric=(3,))}\n\n{all_together(verdicts)}"


def all_together(verdicts: Iterable[Verdict]) -> str:
    """Return how many comparisons claim a difference, and how many would if all were one family.

    Only comparisons of a fixed number of seeds count: p of looks is adjusted in another way.
    """
    ranked = [one for one in verdicts if one.is_ranked and one.p is not None and not one.looks]
    together = holm([one.p for one in ranked if one.p is not None])
    return (
        f"Of {plural(len(ranked), 'comparison')} with a control, "
        f"{sum(one.is_claim for one in ranked)} claim a difference, each adjusted over the "
        f"conditions of its own sweep. Adjusted over all {len(ranked)} at once (Holm), "
        f"{sum(p < LEVEL for p in together)} would. Findings on one task share its seeds, its "
        "frozen tasks and the weights at the start: they do not replicate each other."
    )


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

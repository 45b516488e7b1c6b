"""The page of a finding: a function of its tables and manifest alone, as Markdown."""

from rltune.analysis.ends import NO_VERDICT
from rltune.analysis.table_summary import power_of, verdicts_of
from rltune.analysis.verdict_words import Verdict
from rltune.report.figures.notes import bad_end_notes, label_of
from rltune.report.finding.evidence import budget, evidence, files, reproduce, what_ran
from rltune.report.finding.figures import COMPARISON, FIGURE, figures_of
from rltune.report.finding.records import Finding
from rltune.report.finding.results import compared, levels, measured, predicted, seeds_alone
from rltune.report.finding.words import around, bullets, code, plain, signed

MADE = (
    "<!-- Made by `rltune report --finding`; `rltune verify` compares it with the tables beside it."
    " Do not edit it: the author's own words come from --note. -->"
)


def page(finding: Finding) -> str:
    """Return the page."""
    note = str(finding.manifest["note"])
    parts = [
        f"{MADE}\n\n# {plain(finding.about.title)}",
        _question(finding),
        stamps(finding),
        bullets(answers(finding)),
        power(finding),
        _figures(finding),
        f"## Notes of the author\n\n{note}" if note else "",
        f"## Compared with the control\n\n{compared(finding)}\n\n{levels(finding)}",
        _section("Each seed alone", seeds_alone(finding)),
        _section("Other measures at the end", measured(finding)),
        f"## Predicted and measured\n\n{predicted(finding)}",
        f"## Budget used\n\n{budget(finding)}",
        f"## Evidence\n\n{evidence(finding)}",
        f"## What ran\n\n{what_ran(finding)}",
        f"## Do it again\n\n{reproduce(finding)}",
        f"## Data\n\n{files(finding)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}" if text else ""


def _question(finding: Finding) -> str:
    question = str(finding.manifest["question"])
    return f"*{plain(question)}*" if question else ""


def stamps(finding: Finding) -> str:
    """Return what stands against the sweep as a whole, in bold; empty where nothing does."""
    about = finding.about
    notes = []
    if about.failed_rules:
        notes.append(
            f"AUDIT FAILED ({', '.join(about.failed_rules)}): this page proves no comparison."
        )
    if about.confounded:
        notes.append(
            "CONFOUNDED: more than the axis differs, so nothing follows about the axis alone. "
            f"It was run all the same: {about.confounded}"
        )
    if about.finished < about.planned:
        notes.append(f"INCOMPLETE: {about.finished} of {about.planned} trials have a result.")
    notes += bad_end_notes(finding.trials)
    return "\n\n".join(f"**{plain(note)}**" for note in notes)


def answers(finding: Finding) -> list[str]:
    """Return one sentence a condition: the verdict, with the difference that it is about."""
    return [_answer(one) for one in verdicts_of(finding.trials)]


def power(finding: Finding) -> str:
    """Return what the seeds could show, where they did not separate a condition."""
    if finding.page_form < 2:
        return ""
    found = finding.manifest["audit"]["warnings"]
    return power_of(finding.trials, [one["conditions"] for one in found if one["rule"] == "A7"])


def _answer(one: Verdict) -> str:
    difference, words = one.difference, one.sentence
    measured = ""
    if difference.n:
        ends = difference.interval or (None, None)
        measured = f": {signed(difference.mean)}{around(*ends, is_signed=True)}"
    if one.is_ranked:
        verdict, _, rest = words.partition(" (")
        return f"{code(one.condition)} ends **{verdict}**{measured} ({rest}"
    return f"{code(one.condition)}: **{plain(words)}**; measured{measured or ' nothing'}"


def answer_in_short(finding: Finding) -> str:
    """Return the verdicts in one cell: `below: 0.1; not separable: 0.01`."""
    groups: dict[str, list[str]] = {}
    for one in verdicts_of(finding.trials):
        word = one.word if not one.word.startswith(NO_VERDICT) else _why(one.word)
        groups.setdefault(word, []).append(one.condition.partition("=")[2] or one.condition)
    return "; ".join(f"{plain(word)}: {', '.join(map(code, own))}" for word, own in groups.items())


def _why(word: str) -> str:
    """Return `no verdict` with its reason, in short."""
    reason = word.removeprefix(NO_VERDICT).strip(" ()")
    return f"{NO_VERDICT} ({reason.partition(';')[0]})"


def _figures(finding: Finding) -> str:
    figures = figures_of(finding)
    label = label_of(finding.metric)
    alts = {
        FIGURE: f"{label} over training, by condition",
        COMPARISON: f"differences in {label} to the control, seed by seed",
    }
    return "\n\n".join(
        f'<img src="{name}" alt="{alts[name][:1].upper()}{alts[name][1:]}" width="520">'
        for name in figures
    )

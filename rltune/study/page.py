"""The page of a study's bundle: where it stands, a section for each sweep, and how to prove it."""

from collections.abc import Iterator, Mapping
from typing import Any

from rltune.report.finding.page import answers, stamps
from rltune.report.finding.records import Finding
from rltune.report.finding.words import bullets, code, plain, seconds
from rltune.report.render import plural
from rltune.spec.problems import show
from rltune.store.service_usage import money
from rltune.types import TrialStatus


def study_page(standing: Mapping[str, Any], findings: Mapping[str, Finding], *, place: str) -> str:
    """Return the page.

    Args:
        standing: Content of standing.json.
        findings: Name of a run folder -> its finding.
        place: How commands name the bundle.

    """
    left = unfinished(standing)
    lines = [
        f"# {plain(standing['study'])}",
        f"*{plain(standing['question'])}*",
        f"**Not finished: {plain(left)}.**" if left else "",
    ]
    for one in standing["sweeps"]:
        lines += _sweep(one, findings)
    if standing["findings"]:
        lines += ["## One beside the other", bullets(map(_across, standing["findings"]))]
    if standing["other_runs"]:
        lines += ["## Other runs of its lineage", bullets(_others(standing, findings))]
    lines += ["## Budget used", _used(standing)]
    if standing["outcomes"]:
        counts = (f"{count} {outcome}" for outcome, count in standing["outcomes"].items())
        lines += ["## Proposals", f"{', '.join(counts)}. Each answer is in `proposals.jsonl`."]
    lines += [
        "## Prove it",
        "`verify` makes every table, verdict, promotion and number here again from the records.",
        f"```bash\nrltune verify {place}\nrltune verify {place} --rerun 1"
        "    # trains a trial drawn at random again\n```",
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def unfinished(standing: Mapping[str, Any]) -> str:
    """Return which sweeps are not finished, and how far they are; empty where all are."""
    return "; ".join(_state(one) for one in standing["sweeps"] if not one["is_finished"])


def _state(one: Mapping[str, Any]) -> str:
    if one["run"] is None:
        return f"{one['name']} has not begun"
    trials = one["trials"].items()
    done = sum(count for status, count in trials if TrialStatus(status).is_finished)
    return f"{one['name']} has {done} of {plural(sum(one['trials'].values()), 'trial')}"


def _sweep(one: Mapping[str, Any], findings: Mapping[str, Finding]) -> Iterator[str]:
    yield f"## {plain(one['name'])}"
    finding = findings.get(str(one["run"]))
    yield f"*{plain(finding.manifest['question'])}*" if finding is not None else ""
    if one["promotion"] is not None:
        promotion = one["promotion"]
        verb = "stays" if promotion["is_control"] else "is promoted"
        yield f"{code(promotion['condition'])} of {code(promotion['run'])} {verb} in it: " + (
            f"{plain(promotion['why'])}."
        )
        yield bullets(
            f"{code(key)}: {code(show(was))} becomes {code(show(now))}"
            for key, (was, now) in one["diff"].items()
        )
    if finding is None:
        yield "It has not begun."
        return
    yield stamps(finding)
    yield bullets(answers(finding))
    yield f"[Its finding]({_link(str(one['run']))}), run {code(str(one['run']))}."


def _across(item: Mapping[str, Any]) -> str:
    """Return what S9 found in two sweeps, with the reason for which it was accepted."""
    reason = item["accepted_reason"]
    accepted = f" Accepted: {plain(str(reason))}" if reason else ""
    return f"{item['code']} {item['severity']}: {plain(item['message'])}{accepted}"


def _link(run: str) -> str:
    return f"findings/{run}/index.md"


def _others(standing: Mapping[str, Any], findings: Mapping[str, Finding]) -> Iterator[str]:
    """Yield a line for each run that the records name and no sweep of the study has."""
    for run in standing["other_runs"]:
        title = findings[run].about.title if run in findings else ""
        yield f"[{code(run)}]({_link(run)}): {plain(title)}"


def _used(standing: Mapping[str, Any]) -> str:
    used, limits = standing["used"], standing["limits"]
    parts = [
        seconds(used["seconds"]) + _of(limits["seconds"], seconds),
        f"{used['tokens']:,}{_of(limits['tokens'], '{:,}'.format)} tokens",
    ]
    if used["paid"] or limits["amount"] is not None:
        most = _of(limits["amount"], lambda amount: money({limits["currency"]: amount}))
        parts.append(f"{money(used['paid']) or 0}{most}")
    return f"All trials together: {', '.join(parts)}."


def _of(limit: Any, text: Any) -> str:
    return "" if limit is None else f" of {text(limit)}"

"""The shorter sections of the page: question, warnings, trials, provenance."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rltune.analysis.tables import TrialRow
from rltune.analysis.trial_states import TrialState
from rltune.comparability.judged import judged_by_condition, judged_line
from rltune.report.figures.notes import conditions_of, label_of
from rltune.report.html.gather import Evidence
from rltune.report.html.markup import Child, Html, details, el, items, join, table
from rltune.report.html.scale import rounded
from rltune.report.render import duration, plural, quantity
from rltune.report.render_status import counts

MOST_WARNINGS = 40
"""Warnings of one kind; more are counted."""


def question_section(evidence: Evidence) -> Html:
    """Return what was asked, and of how much."""
    folder, specs = evidence.folder, evidence.folder.specs
    shown = conditions_of(evidence.tables.trials)
    seeds = sorted({spec.seed for spec in specs})
    question = str(evidence.plan.get("question") or evidence.sweep.get("question") or "")
    better = "more is better" if folder.metric_mode == "max" else "less is better"
    facts: list[tuple[str, Child]] = [
        ("Axis", el("code", specs[0].axis_key)),
        ("Task", str(specs[0].config["env"]["kind"])),
        (
            "Conditions",
            ", ".join(f"{one.short}{' (control)' if one.is_control else ''}" for one in shown),
        ),
        ("Seeds", ", ".join(map(str, seeds))),
        ("Decided by", f"{label_of(folder.metric_name)}, {better}"),
        ("Profile", str(evidence.plan.get("profile") or "not recorded")),
        ("Trials", counts(evidence.state.trials)),
    ]
    listed = [el("div", el("dt", name), el("dd", value)) for name, value in facts]
    return join(
        el("p", question or "The sweep file asks no question.", class_="question"),
        el("dl", *listed, class_="facts"),
    )


def warnings_section(lines: Sequence[Html]) -> Html:
    """Return what stands against the sweep, and which trials failed and why."""
    parts: list[Html] = [el("h2", "Warnings")]
    if lines:
        parts.append(items(lines[:MOST_WARNINGS], class_="findings"))
    else:
        parts.append(el("p", "None."))
    if len(lines) > MOST_WARNINGS:
        parts.append(el("p", f"{len(lines) - MOST_WARNINGS} more not shown: `rltune status`."))
    return el("section", *parts, id="warnings", aria_label="Warnings")


def warnings_of(evidence: Evidence) -> Iterator[Html]:
    """Yield what stands against the sweep, the worst first, one line each."""
    about, trials = evidence.tables.about, evidence.state.trials
    if about.failed_rules:
        yield _warning(
            "audit failed", f"{', '.join(about.failed_rules)} found errors; see the rules.", "bad"
        )
    if about.confounded:
        why = f"It ran although more than the axis differs: {about.confounded}"
        yield _warning("confounded", why, "bad")
    yield from (_bad_end(trial) for trial in trials if trial.status.is_failure)
    if about.finished < about.planned:
        yield _warning("incomplete", f"{about.finished} of {about.planned} trials have a result.")
    for trial in trials:
        yield from _of_trial(trial)
    yield from (_warning("hidden axis", text) for text in about.open_warnings)
    for item in evidence.audit.report.warnings:
        if item.rule != "A4":  # which says again which trials did not end
            yield _warning("audit", str(item))
    said = judged_line(judged_by_condition((one.condition, one.judged) for one in trials))
    if said:
        yield _warning("judge", said)
    yield from (_warning("unreadable", str(problem)) for problem in evidence.read.problems)


def _bad_end(trial: TrialState) -> Html:
    where = "" if trial.step is None else f" at step {trial.step} of {trial.steps}"
    why = trial.reason or "no reason was recorded"
    return _warning(trial.status.value, f"{_name(trial)}{where}: {why}", "bad")


def _of_trial(trial: TrialState) -> Iterator[Html]:
    """Yield why a trial that did not fail ended early, and what its card warns of."""
    if not trial.status.is_failure and trial.reason:
        yield _warning(trial.status.value, f"{_name(trial)}: {trial.reason}")
    yield from (_warning("trial", f"{_name(trial)}: {text}") for text in trial.warnings)


def _name(trial: TrialState) -> str:
    return f"{trial.condition}, seed {trial.seed}"


def _warning(word: str, text: str, kind: str = "warn") -> Html:
    return join(el("span", word, class_=f"state {kind}"), f" {text}")


def trials_section(evidence: Evidence, places: Mapping[str, str]) -> Html:
    """Return every trial, so that a mark of a figure leads to its files and to its rerun."""
    trials = evidence.tables.trials
    caption = "Every trial. Its files are in trials/ID; rltune rerun ID --verify repeats it."
    headers = [
        "trial id",
        "condition",
        "seed",
        "status",
        "step",
        "start",
        "best gate",
        "final",
        "time",
    ]
    ids = [places[row.trial_id] for row in trials]
    found = table(caption, headers, map(_trial, trials), numeric=(2, 4, 5, 6, 7, 8), ids=ids)
    return el("section", el("h2", "Trials"), found, id="trials", aria_label="Trials")


def _trial(row: TrialRow) -> list[Child]:
    chosen = rounded(row.selected)
    return [
        el("code", row.trial_id),
        row.condition,
        row.seed,
        row.status,
        f"{row.final_step if row.final_step is not None else '–'}/{row.planned_steps}",
        rounded(row.base),
        _over(
            chosen if row.best_step is None else f"{chosen} (step {row.best_step})",
            row.selected_tasks,
            row,
        ),
        _over(rounded(row.final), row.final_tasks, row),
        duration(row.wall_s),
    ]


def _over(value: str, n: int | None, row: TrialRow) -> str:
    """Return a value with the tasks that it is over, where faults took some."""
    return value if n is None or n == row.heldout_tasks else f"{value}, {n} of {row.heldout_tasks}"


def source_section(evidence: Evidence) -> Html:
    """Return what the page was made from, and how its numbers are made again."""
    trials = evidence.tables.trials
    run = trials[0].run
    facts = [
        ("Run folder", run),
        ("Made from", f"{plural(evidence.inputs, 'file')}, sha256 {evidence.inputs_sha256[:16]}"),
        ("Code of the trials", _each(row.code_rev for row in trials)),
        ("Weights", _each(row.weights_sha256[:12] for row in trials)),
        ("Held-out tasks", _each(row.tasks_sha256[:12] for row in trials)),
        ("Device", _each(row.cpu_model or row.device for row in trials)),
        ("Sampled tokens", quantity(sum(row.tokens or 0.0 for row in trials))),
    ]
    commands = [f"rltune {name} runs/{run}" for name in ("report", "export", "audit")]
    listed = [el("div", el("dt", name), el("dd", el("code", value))) for name, value in facts]
    return el(
        "section",
        el("h2", "What this page was made from"),
        el("dl", *listed, class_="facts"),
        el("p", "The same files give the same page, byte for byte. Its numbers again, as tables:"),
        el("pre", "\n".join(commands)),
        details("The sweep file", el("pre", _sweep_text(evidence))),
        id="source",
        aria_label="Provenance",
    )


def _each(values: Iterable[str]) -> str:
    found = sorted({value for value in values if value})
    return (
        ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "") or "none"
    )


def _sweep_text(evidence: Evidence) -> str:
    text = evidence.folder.run.sweep.read_text(encoding="utf-8", errors="replace")
    most = 20_000
    return text if len(text) <= most else f"{text[:most]}\n… cut at {most} characters"


def trial_places(trials: Sequence[TrialRow]) -> dict[str, str]:
    """Return trial id -> id of its row on the page."""
    return {row.trial_id: f"trial-{at}" for at, row in enumerate(trials, start=1)}

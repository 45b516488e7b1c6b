"""The whole page: one file with its style and its script, and a policy that forbids any network."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from rltune.report.figures.notes import conditions_of
from rltune.report.html.board import tile_key, tile_symbols, tiles_of
from rltune.report.html.budget import budget_section
from rltune.report.html.episode import Credits, replay_card, strongest_credit
from rltune.report.html.gather import Evidence
from rltune.report.html.lineage import lineage_section
from rltune.report.html.markup import Html, details, el
from rltune.report.html.proof import proof_section, verdict_banner
from rltune.report.html.replays import Replay
from rltune.report.html.results import results_section
from rltune.report.html.sections import (
    question_section,
    source_section,
    trial_places,
    trials_section,
    warnings_of,
    warnings_section,
)
from rltune.report.render import plural

REPLAY_BYTES = 1_500_000
"""Bytes of all replays; those that do not fit are counted."""

_SECTIONS = (
    ("results", "Results"),
    ("proof", "Comparability"),
    ("budget", "Budget"),
    ("replays", "Replays"),
    ("lineage", "Lineage"),
    ("trials", "Trials"),
    ("warnings", "Warnings"),
    ("source", "Source"),
)


def page(evidence: Evidence) -> str:
    """Return the page: a function of the run folder's files alone."""
    style, script = _package_text("report.css"), _package_text("report.js")
    title = evidence.folder.title or evidence.folder.name
    warnings = list(warnings_of(evidence))
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content="rltune report"),
        el("title", f"{title} · rltune report"),
        el("link", rel="icon", href="data:,"),
        el("style", Html(style)),
    )
    body = el(
        "body",
        el("a", "Skip to the results", href="#results", class_="skip"),
        tile_symbols(),
        _head(evidence, title, n_warnings=len(warnings)),
        _body(evidence, warnings),
        el("script", Html(script)),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _package_text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def _policy(style: str, script: str) -> str:
    """Return the content policy: no network, and no script or style but the page's own."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(evidence: Evidence, title: str, *, n_warnings: int) -> Html:
    names = dict(_SECTIONS)
    if n_warnings:
        names["warnings"] = f"Warnings ({n_warnings})"
    links = [el("li", el("a", name, href=f"#{place}")) for place, name in names.items()]
    return el(
        "header",
        el("p", "rltune report", class_="brand"),
        el("h1", title),
        question_section(evidence),
        verdict_banner(evidence.audit),
        el("nav", el("ul", *links), aria_label="Sections"),
    )


def _body(evidence: Evidence, warnings: Sequence[Html]) -> Html:
    places = trial_places(evidence.tables.trials)
    return el(
        "main",
        results_section(evidence, places),
        proof_section(evidence),
        budget_section(evidence.tables),
        replays_section(evidence),
        lineage_section(
            evidence.lineage, mode=evidence.folder.metric_mode, path=evidence.folder.run.results
        ),
        trials_section(evidence, places),
        warnings_section(warnings),
        source_section(evidence),
        id="main",
    )


def replays_section(evidence: Evidence) -> Html:
    """Return the replays by condition, as many as fit; a first one is open."""
    credits = Credits(strongest_credit(evidence.replays))
    shown, left = _that_fit(evidence.replays, credits)
    parts = [el("h2", "What did the policy do?")]
    if not evidence.replays:
        parts.append(el("p", "No training episode is recorded yet."))
        return el("section", *parts, id="replays", aria_label="Replays")
    parts += _introduction(credits, evidence.replays[0])
    for at, one in enumerate(conditions_of(evidence.tables.trials)):
        cards = [card for replay, card in shown if replay.spec.condition == one.label]
        if cards:
            name = f"{one.label}{' (control)' if one.is_control else ''}: "
            summary = f"{name}{plural(len(cards), 'replay')}"
            parts.append(details(summary, el("div", *cards, class_="replays"), is_open=at == 0))
    if left:
        parts.append(
            el(
                "p",
                f"{plural(left, 'replay')} more not shown: this page holds "
                f"{REPLAY_BYTES // 1000:,} kB of them at most.",
            )
        )
    return el("section", *parts, id="replays", aria_label="Replays")


def _that_fit(replays: Sequence[Replay], credits: Credits) -> tuple[list[tuple[Replay, Html]], int]:
    """Return replays with their markup, and how many did not fit; every condition gets its turn."""
    turns: dict[str, int] = {}
    order: list[tuple[int, int]] = []
    for at, replay in enumerate(replays):
        turns[replay.spec.condition] = turns.get(replay.spec.condition, 0) + 1
        order.append((turns[replay.spec.condition], at))
    room, cards = REPLAY_BYTES, {}
    for _, at in sorted(order):
        card = replay_card(replays[at], credits, number=at + 1)
        room -= len(card.encode())
        if room < 0:
            break
        cards[at] = card
    return [(replays[at], cards[at]) for at in sorted(cards)], len(replays) - len(cards)


def _introduction(credits: Credits, first: Replay) -> list[Html]:
    steps = [f"down{level}" for level in (5, 3, 1)] + [f"up{level}" for level in (1, 3, 5)]
    values = [-1.0, -0.6, -0.2, 0.2, 0.6, 1.0]
    samples = [
        el("span", f"{share * credits.strongest:+.2g}", class_=f"t {name}")
        for name, share in zip(steps, values, strict=True)
    ]
    text = (
        "Training episodes: a success and a failure of each condition, early and late. The colour "
        "of a token is the advantage that the objective learned from."
    )
    said = [el("p", text)]
    if credits.strongest:
        said.append(el("p", "Less likely ", *samples, " more likely", class_="tokens"))
    if tiles := tiles_of(first.spec.config["env"]):
        said.append(tile_key(tiles))
    hint = "Step with the buttons, or with ← → Home End once a replay has the focus."
    return [*said, el("p", hint, class_="soft script-only")]

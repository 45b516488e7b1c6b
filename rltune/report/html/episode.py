"""An episode turn by turn: what was seen, what was sampled with its credit, how it ended."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune.report.html.board import board_of, draw_board
from rltune.report.html.markup import Html, details, el, items, join
from rltune.report.html.replays import Replay, ReplayTurn
from rltune.report.render import plural

LEVELS = 5
"""Strengths of colour on either side of zero, in report.css."""

MOST_NUMBERS = 24
"""Tokens of a turn whose credit stands under them; that of more is a list that opens."""

MOST_TURNS = 12
"""Turns of one replay; of a longer episode the first ones and the last."""

_DOCUMENT = re.compile(r"Doc (\d+) ?\(Title: (.*?)\) ")
_WHY = {
    "wrong": "the outcome is not the right one",
    "lost": "no solution was left",
    "unfinished": "a limit ended it before any outcome",
    "malformed": "a limit ended it and the last response could not be read",
}


@dataclass(frozen=True, slots=True)
class Credits:
    """How strong a colour a credit gets: its share of the strongest one on the page."""

    strongest: float

    def name(self, credit: float) -> str:
        """Return the class of a credit: `up1` to `up5`, `down1` to `down5`, `none`."""
        level = math.ceil(LEVELS * min(1.0, abs(credit) / self.strongest)) if self.strongest else 0
        return "none" if level == 0 else f"{'up' if credit > 0 else 'down'}{level}"


def strongest_credit(replays: Sequence[Replay]) -> float:
    """Return the largest credit, without its sign, of any token that is shown."""
    return max(
        (abs(c) for one in replays for turn in one.turns for c in turn.credit or ()), default=0.0
    )


def replay_card(replay: Replay, credits: Credits, *, number: int) -> Html:
    """Return one replay: a heading, its turns in order, and buttons that report.js brings to life.

    Args:
        replay: The episode.
        credits: The scale of the colours.
        number: Of the replay on the page; its id is made from it.

    """
    name = f"replay-{number}"
    turns = _chosen(replay.turns)
    steps = [_turn(replay, at, turn, credits) for at, turn in turns]
    left = len(replay.turns) - len(turns)
    if left:
        steps.insert(-1, el("li", f"{plural(left, 'turn')} between not shown.", class_="turn soft"))
    steps.append(_end(replay))
    outcome = "Success" if replay.success else "Failure"
    return el(
        "article",
        el(
            "h3",
            el("span", outcome, class_=f"state {'ok' if replay.success else 'bad'}"),
            f" step {replay.step}, seed {replay.spec.seed}",
            id=f"{name}-title",
        ),
        el("p", *_about(replay), class_="soft small"),
        _controls(name, len(steps)),
        el(
            "ol",
            *steps,
            class_="turns",
            id=f"{name}-turns",
            tabindex=0,
            aria_label=f"Turns of {outcome.lower()} at step {replay.step}, "
            f"seed {replay.spec.seed}. Arrow keys step.",
        ),
        class_="replay",
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _chosen(turns: Sequence[ReplayTurn]) -> list[tuple[int, ReplayTurn]]:
    numbered = list(enumerate(turns, start=1))
    return numbered if len(turns) <= MOST_TURNS else [*numbered[: MOST_TURNS - 1], numbered[-1]]


def _about(replay: Replay) -> list[str | Html]:
    said: list[str | Html] = [
        el("code", replay.task_id),
        f", prompt {replay.group}, rollout {replay.member}, reward {replay.reward:g}.",
    ]
    if not replay.kept:
        said.append(" The rollout filter dropped it: nothing was learned from it.")
    if not replay.is_recorded:
        said.append(" Played again from its responses; its credit was not recorded.")
    return said


def _controls(name: str, count: int) -> Html:
    """Return the buttons; without JavaScript they are not shown, and all turns are."""
    turns = f"{name}-turns"
    return el(
        "div",
        el(
            "button",
            "◀",
            type="button",
            data_go="-1",
            aria_label="Turn before",
            aria_controls=turns,
        ),
        el("span", f"1 of {count}", class_="where", role="status"),
        el("button", "▶", type="button", data_go="1", aria_label="Next turn", aria_controls=turns),
        el(
            "button",
            "All turns",
            type="button",
            data_all=True,
            aria_pressed="false",
            aria_controls=turns,
        ),
        class_="controls",
    )


def _turn(replay: Replay, at: int, turn: ReplayTurn, credits: Credits) -> Html:
    env = replay.spec.config["env"]
    title = f"Turn {at}"
    return el(
        "li",
        el("h4", title),
        el(
            "div",
            _seen(turn.observation, env, label=f"Board before turn {at}"),
            el("div", _said(turn, credits), *_did(replay, turn), class_="said"),
            class_="pair",
        ),
        class_="turn",
    )


def _seen(observation: str, env: Mapping[str, object], *, label: str) -> Html:
    """Return an observation: a drawn board, passages with their titles, or text."""
    if not observation:
        return el("p", "What it showed is not known here.", class_="seen soft")
    board = board_of(observation, env)
    if board is not None:
        drawn = draw_board(board, label=label)
        lines = observation.strip().split("\n")
        if len(lines) == 1:
            return el("div", drawn, class_="seen")
        return el("div", drawn, details("Whole text", el("pre", observation)), class_="seen")
    if "<information>" in observation:
        return el("div", *_passages(observation), class_="seen wide")
    return el("div", el("pre", observation.strip()), class_="seen wide")


def _passages(observation: str) -> list[Html]:
    """Return what a search brought: a list of passages, and the text around it."""
    before, _, rest = observation.partition("<information>")
    inside, _, after = rest.partition("</information>")
    parts = _DOCUMENT.split(inside)
    found = [
        join(el("b", title), f" {text.strip()}")
        for title, text in zip(parts[2::3], parts[3::3], strict=True)
    ]
    shown = items(found, class_="passages") if found else el("pre", inside.strip())
    around = [el("pre", text.strip()) for text in (before, after)]
    return [part for part in (around[0], shown, around[1]) if part != el("pre", "")]


def _said(turn: ReplayTurn, credits: Credits) -> Html:
    """Return the response, each token in the colour of its credit."""
    given = (
        el("span", turn.given, class_="given", title="given, not sampled") if turn.given else None
    )
    if turn.credit is None:
        return el("p", given, *turn.tokens, class_="tokens")
    has_numbers = len(set(turn.credit)) > 1 and len(turn.tokens) <= MOST_NUMBERS
    tokens = [
        _token(text, credit, credits, has_number=has_numbers)
        for text, credit in zip(turn.tokens, turn.credit, strict=False)
    ]
    more = turn.n_tokens - len(turn.tokens)
    tail = el("span", f" … {plural(more, 'token')} more", class_="soft") if more > 0 else None
    return el("p", given, *tokens, tail, class_="tokens numbered" if has_numbers else "tokens")


def _token(text: str, credit: float, credits: Credits, *, has_number: bool) -> Html:
    words = _visible(text)
    name = f"t {credits.name(credit)}"
    if has_number:
        return el("span", el("span", words), el("small", f"{credit:+.2f}"), class_=name)
    return join(el("wbr"), el("span", words, class_=name))  # a line breaks between tokens


def _visible(text: str) -> str:
    """Return a token as it reads; one that is blank shows its line end."""
    return text.replace("\n", "⏎\n") if text.strip() else text.replace("\n", "⏎") or "∅"


def _did(replay: Replay, turn: ReplayTurn) -> list[Html]:
    """Return what the response did, what it earned, and the credit in numbers."""
    done = ", ".join(turn.actions) or "nothing was executed"
    said = [el("p", el("b", "Did: "), done)]
    if not turn.is_valid:
        said.append(
            el("p", "The response could not be read, or not all of it.", class_="warn-text")
        )
    if turn.n_over_limit:
        said.append(el("p", f"{turn.n_over_limit} more not executed: over a limit."))
    said.append(el("p", el("b", "Reward: "), f"{turn.reward:+g}" if turn.reward else "0"))
    said.append(el("p", el("b", "Credit: "), _credit_words(replay, turn)))
    is_long = turn.credit is not None and len(turn.tokens) > MOST_NUMBERS
    if is_long and len(set(turn.credit or ())) > 1:
        pairs = " · ".join(
            f"{_visible(text).strip() or '␣'} {credit:+.2f}"
            for text, credit in zip(turn.tokens, turn.credit or (), strict=False)
        )
        said.append(details("Credit of every token", el("p", pairs, class_="small")))
    return said


def _credit_words(replay: Replay, turn: ReplayTurn) -> str:
    if turn.credit is None:
        return "not trained on" if replay.is_recorded else "not recorded"
    if not turn.credit:
        return "nothing was sampled"
    low, high, count = min(turn.credit), max(turn.credit), len(turn.credit)
    if low == high:
        return f"{low:+.3g} on each of {plural(count, 'token')}"
    return f"{low:+.3g} to {high:+.3g} over {plural(count, 'token')}"


def _end(replay: Replay) -> Html:
    if replay.success:
        said = "Solved."
    else:
        why = _WHY.get(replay.failure_class, "")
        named = "" if replay.failure_class == "none" else f": {replay.failure_class}"
        said = f"Not solved{named}{', ' if why else ''}{why}."
    parts = [
        el("p", el("b", said), f" Reward {replay.reward:g} in {plural(len(replay.turns), 'turn')}.")
    ]
    if replay.closing:
        env = replay.spec.config["env"]
        seen = _seen(replay.closing, env, label="Board at the end")
        return el(
            "li",
            el("h4", "End"),
            el("div", seen, el("div", *parts, class_="said"), class_="pair"),
            class_="turn",
        )
    return el("li", el("h4", "End"), *parts, class_="turn")

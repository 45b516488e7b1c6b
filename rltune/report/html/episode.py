"""An episode turn by turn: what was seen, what was sampled with its credit, how it ended."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltune.report.html.board import board_of, draw_board
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


def card_of(replay: Replay, credits: Credits, *, number: int) -> dict[str, Any]:
    """Return what templates/replay.html shows of one replay.

    Its id on the page is made from `number`.
    """
    numbered = list(enumerate(replay.turns, start=1))
    if len(numbered) > MOST_TURNS:
        numbered = [*numbered[: MOST_TURNS - 1], numbered[-1]]
    env = replay.spec.config["env"]
    return {
        "replay": replay,
        "name": f"replay-{number}",
        "outcome": "Success" if replay.success else "Failure",
        "turns": [_turn(replay, at, turn, credits) for at, turn in numbered],
        "left": len(replay.turns) - len(numbered),
        "end": {
            "words": _end(replay),
            "reward": f"{replay.reward:g}",
            "seen": _seen(replay.closing, env, label="Board at the end"),
        },
    }


def _turn(replay: Replay, at: int, turn: ReplayTurn, credits: Credits) -> dict[str, Any]:
    env = replay.spec.config["env"]
    own = turn.credit or ()
    is_short = len(turn.tokens) <= MOST_NUMBERS
    varies = len(set(own)) > 1
    more = turn.n_tokens - len(turn.tokens) if turn.credit is not None else 0
    return {
        "number": at,
        "seen": _seen(turn.observation, env, label=f"Board before turn {at}"),
        "given": turn.given,
        "has_credit": turn.credit is not None,
        "has_numbers": varies and is_short,
        "tokens": _tokens(turn, credits),
        "more": more,
        "did": ", ".join(turn.actions) or "nothing was executed",
        "is_valid": turn.is_valid,
        "n_over_limit": turn.n_over_limit,
        "reward": f"{turn.reward:+g}" if turn.reward else "0",
        "credit": _credit_words(replay, turn),
        "pairs": "" if is_short or not varies else _pairs(turn),
    }


def _tokens(turn: ReplayTurn, credits: Credits) -> list[dict[str, str]]:
    """Return the response, each token with its credit and the class of its colour."""
    if turn.credit is None:
        return [{"text": text} for text in turn.tokens]
    return [
        {"text": _visible(text), "name": credits.name(credit), "credit": f"{credit:+.2f}"}
        for text, credit in zip(turn.tokens, turn.credit, strict=False)
    ]


def _pairs(turn: ReplayTurn) -> str:
    return " · ".join(
        f"{_visible(text).strip() or '␣'} {credit:+.2f}"
        for text, credit in zip(turn.tokens, turn.credit or (), strict=False)
    )


def _seen(observation: str, env: Mapping[str, object], *, label: str) -> dict[str, Any]:
    """Return an observation: a drawn board, passages with their titles, or text."""
    if not observation:
        return {"kind": "unknown"}
    board = board_of(observation, env)
    if board is not None:
        is_more = "\n" in observation.strip()
        text = observation if is_more else ""
        return {"kind": "board", "board": draw_board(board, label=label), "text": text}
    before, found, rest = observation.partition("<information>")
    inside, _, after = rest.partition("</information>")
    parts = _DOCUMENT.split(inside)
    if not found or len(parts) < 3:
        return {"kind": "text", "text": observation.strip()}
    passages = [(title, text.strip()) for title, text in zip(parts[2::3], parts[3::3], strict=True)]
    return {
        "kind": "passages",
        "before": before.strip(),
        "passages": passages,
        "after": after.strip(),
    }


def _visible(text: str) -> str:
    """Return a token as it reads; one that is blank shows its line end."""
    return text.replace("\n", "⏎\n") if text.strip() else text.replace("\n", "⏎") or "∅"


def _credit_words(replay: Replay, turn: ReplayTurn) -> str:
    if turn.credit is None:
        return "not trained on" if replay.is_recorded else "not recorded"
    if not turn.credit:
        return "nothing was sampled"
    low, high, count = min(turn.credit), max(turn.credit), len(turn.credit)
    if low == high:
        return f"{low:+.3g} on each of {plural(count, 'token')}"
    return f"{low:+.3g} to {high:+.3g} over {plural(count, 'token')}"


def _end(replay: Replay) -> str:
    if replay.success:
        return "Solved."
    why = _WHY.get(replay.failure_class, "")
    named = "" if replay.failure_class == "none" else f": {replay.failure_class}"
    return f"Not solved{named}{', ' if why else ''}{why}."

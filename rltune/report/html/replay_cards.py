"""The replays section: as many replays as fit, by condition; a first one is open."""

from collections.abc import Sequence
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from rltune.report.figures.notes import conditions_of
from rltune.report.html.board import ground_of, tiles_of
from rltune.report.html.episode import Credits, card_of, strongest_credit
from rltune.report.html.gather import Evidence
from rltune.report.html.replays import Replay

REPLAY_BYTES = 1_500_000
"""Bytes of all replays; those that do not fit are counted."""

_SCALE = {"down5": -1.0, "down3": -0.6, "down1": -0.2, "up1": 0.2, "up3": 0.6, "up5": 1.0}


def replays_of_page(evidence: Evidence, template: Template) -> dict[str, Any]:
    """Return the cards of each condition, the scale of their colours, and what the tiles mean."""
    replays = evidence.replays
    credits = Credits(strongest_credit(replays))
    cards = _that_fit(replays, credits, template)
    groups = []
    for at, one in enumerate(conditions_of(evidence.tables.trials)):
        own = [card for i, card in cards.items() if replays[i].spec.condition == one.label]
        name = f"{one.label} (control)" if one.is_control else one.label
        groups += [{"name": name, "cards": own, "is_first": at == 0}] if own else []
    tiles = tiles_of(replays[0].spec.config["env"]) if replays else ()
    scale = [(name, f"{share * credits.strongest:+.2g}") for name, share in _SCALE.items()]
    return {
        "groups": groups,
        "left": len(replays) - len(cards),
        "most": REPLAY_BYTES // 1000,
        "scale": scale if credits.strongest else [],
        "tiles": tiles,
        "ground": ground_of(tiles),
    }


def _that_fit(replays: Sequence[Replay], credits: Credits, template: Template) -> dict[int, Markup]:
    """Return place -> card of the replays that fit; every condition gets its turn."""
    turns: dict[str, int] = {}
    order: list[tuple[int, int]] = []
    for at, replay in enumerate(replays):
        turns[replay.spec.condition] = turns.get(replay.spec.condition, 0) + 1
        order.append((turns[replay.spec.condition], at))
    room, cards = REPLAY_BYTES, {}
    for _, at in sorted(order):
        card = Markup(template.render(card_of(replays[at], credits, number=at + 1)))
        room -= len(card.encode())
        if room < 0:
            break
        cards[at] = card
    return dict(sorted(cards.items()))

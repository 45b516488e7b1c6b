"""Lakes from the drawings that `frozen_lake.rules.render` makes."""

from rltune_envs.frozen_lake.rules import GOAL, HOLE, PLAYER, Lake


def parse_lake(rows):
    text = "".join(rows)
    holes = sum(1 << cell for cell, symbol in enumerate(text) if symbol == HOLE)
    return Lake(len(rows), holes, text.index(PLAYER), text.index(GOAL))

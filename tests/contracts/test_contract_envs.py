"""What every environment promises, over each one that rltune has."""

from functools import partial

import pytest

from rltune_envs.checks import check_env
from rltune_envs.sokoban import SokobanEnv

ENVS = {
    "sokoban-natural": partial(SokobanEnv, search_depth=30),
    "sokoban-compact": partial(SokobanEnv, search_depth=30, prompt="compact"),
    "sokoban-one-long-turn": partial(SokobanEnv, max_turns=1, max_actions_per_turn=10),
    "sokoban-odd-limits": partial(SokobanEnv, max_actions_per_turn=3, max_actions=7),
    "sokoban-8x8-two-boxes": partial(SokobanEnv, size=8, boxes=2, prompt="compact"),
    "sokoban-10x10-three-boxes": partial(
        SokobanEnv, size=10, boxes=3, max_turns=10, max_actions=20, prompt="compact"
    ),
}


@pytest.mark.parametrize("make_env", ENVS.values(), ids=ENVS)
def test_every_environment_keeps_the_contract(make_env):
    n_seeds = 64 if make_env().size == 6 else 8
    check_env(make_env, seeds=range(n_seeds))

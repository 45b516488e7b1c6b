"""What a policy reads: coordinates, symbols, and that every form keeps the whole contract."""

import re

import pytest

from rltune_envs.checks import check_env
from rltune_envs.grid_text import OBSERVATIONS
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban.rules import parse_level
from rltune_envs.sokoban.text import SYMBOLS, board, instruction

LEVEL = parse_level(["######", "#P_XO#", "#_√_##", "######"])
COORDINATES = """\
Board size: 4 rows, 6 columns
Targets: (1, 4)
Boxes: (1, 3)
Boxes on target: (2, 2)
Player: (1, 1)
Player on target: none"""
GRID = "######\n#P_XO#\n#_√_##\n######"


def test_a_state_in_all_three_forms():
    def shown(observation):
        return board(LEVEL, LEVEL.start, observation=observation, symbols="standard")

    assert shown("grid") == GRID
    assert shown("coord") == COORDINATES
    assert shown("grid_coord") == f"Coordinates:\n{COORDINATES}\nGrid Map:\n{GRID}"


def test_several_of_a_kind_are_listed_row_by_row():
    level = parse_level(["######", "#S_XO#", "#_X_##", "######"])
    listed = board(level, level.start, observation="coord", symbols="standard").splitlines()

    assert listed[2] == "Boxes: (1, 3), (2, 2)"
    assert listed[-2:] == ["Player: none", "Player on target: (1, 1)"]


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("letters", "WWWWWW\nWPEBTW\nWEDEWW\nWWWWWW"),
        ("xsb", "######\n#@-$.#\n#-*-##\n######"),
    ],
)
def test_other_symbols(symbols, expected):
    assert board(LEVEL, LEVEL.start, observation="grid", symbols=symbols) == expected


@pytest.mark.parametrize("symbols", SYMBOLS)
def test_the_legend_names_exactly_the_symbols_that_are_drawn(symbols):
    env = SokobanEnv(symbols=symbols, boxes=2, size=7)
    legend = re.findall(r"(\S): [a-z ]+", env.system_prompt.split("state is:\n")[1].split("\n")[0])
    drawn = set()
    for seed in range(60):
        texts = [env.reset(seed=seed)]
        for _ in range(5):
            actions = env.expert_actions() or ()
            texts.append(env.step(env.format_response(actions)).observation)
        for text in texts:
            drawn |= set("".join(text.split("State:\n")[1].split("\nYou have")[0].split()))

    assert len(legend) == len(set(legend)) == 7
    assert drawn == set(legend)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_the_instruction_explains_what_is_shown_and_nothing_else(observation):
    text = instruction(observation=observation, symbols="standard", limit=3)

    assert ("Coordinates are (row, col)" in text) == (observation != "grid")
    assert ("meaning of each symbol" in text) == (observation != "coord")
    assert text.endswith('up to 3 actions, separated by the action separator " || "')


def test_a_natural_turn_shows_the_chosen_form_and_a_compact_one_the_cells():
    coord = SokobanEnv(observation="coord").reset(seed=3)
    both = SokobanEnv(observation="grid_coord", symbols="xsb").reset(seed=3)
    compact = SokobanEnv(prompt="compact").reset(seed=3)

    assert "Board size: 6 rows, 6 columns\nTargets: (" in coord
    assert "#" not in coord
    assert "Grid Map:\n######\n" in both
    assert re.fullmatch(r"[#_OX√PS]{16}", compact)


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("prompt", "natural, compact"),
        ("observation", "grid, coord, grid_coord"),
        ("symbols", "standard, letters, xsb"),
    ],
)
def test_an_unknown_form_is_refused(key, choices):
    with pytest.raises(ValueError, match=f"^{key} is 'nice'; choose one of {choices}\\.$"):
        SokobanEnv(**{key: "nice"})


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1, None, range(1, 11)), (4, None, range(4, 11)), (1, 4, range(1, 5)), (6, 7, range(6, 8))],
)
def test_the_band_of_difficulty(low, high, expected):
    env = SokobanEnv(min_difficulty=low, max_difficulty=high)

    assert {env.task(seed).difficulty for seed in range(200)} == set(expected)
    assert all(env.optimal_success_probability(seed) == 1 for seed in range(20))


def test_a_level_above_what_an_episode_allows_cannot_be_won():
    env = SokobanEnv(min_difficulty=11, max_difficulty=15)

    assert env.optimal_success_probability(0) == env.random_success_probability(0) == 0


@pytest.mark.parametrize(
    ("arguments", "n"),
    [
        ({}, 16),
        ({"size": 8, "boxes": 2, "max_turns": 10, "max_actions": 20}, 4),
        ({"observation": "coord"}, 8),
        ({"observation": "grid_coord", "symbols": "letters"}, 8),
        ({"prompt": "compact", "min_difficulty": 3, "max_difficulty": 6}, 8),
    ],
    ids=["default", "8x8-two-boxes", "coord", "grid-coord-letters", "compact-band"],
)
def test_every_form_keeps_the_contract(arguments, n):
    check_env(lambda: SokobanEnv(**arguments), seeds=range(n))

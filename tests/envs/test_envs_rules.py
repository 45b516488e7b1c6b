"""Sokoban's rules by hand, the level format, and the canonical hash."""

import re
from dataclasses import replace

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from rltune_envs.errors import LevelError
from rltune_envs.sokoban.generate import generate
from rltune_envs.sokoban.rules import ACTIONS, canonical_hash, inner_cells, parse_level, render

UP, DOWN, LEFT, RIGHT = range(4)

MOVES = [  # (one row of a room, action, the row after it)
    pytest.param("P_XO", RIGHT, "_PXO", id="walk"),
    pytest.param("P_XO", LEFT, "P_XO", id="wall"),
    pytest.param("P_XO", UP, "P_XO", id="wall-above"),
    pytest.param("PX_O", RIGHT, "_PXO", id="push"),
    pytest.param("PXO_", RIGHT, "_P√_", id="push-onto-target"),
    pytest.param("P√_XO", RIGHT, "_SXXO", id="push-off-target"),
    pytest.param("XPO_", RIGHT, "X_S_", id="walk-onto-target"),
    pytest.param("XS__", RIGHT, "XOP_", id="walk-off-target"),
    pytest.param("O_PX", RIGHT, "O_PX", id="box-against-wall"),
    pytest.param("PXX_OO", RIGHT, "PXX_OO", id="box-against-box"),
    pytest.param("PX√_O", RIGHT, "PX√_O", id="box-against-box-on-target"),
    pytest.param("_XP_O", RIGHT, "_X_PO", id="no-pull"),
]


@each(("before", "action", "after"), MOVES)
def test_one_action(before, action, after):
    wall = "#" * (len(before) + 2)
    level = parse_level([wall, f"#{before}#", wall])

    assert render(level, level.step(level.start, action))[1] == f"#{after}#"


def test_all_four_directions_push():
    rows = ["#######", "#__O__#", "#__X__#", "#OXPXO#", "#__X__#", "#__O__#", "#######"]
    level = parse_level(rows)
    expected = {
        UP: ("#__√__#", "#__P__#", "#OX_XO#", "#__X__#", "#__O__#"),
        DOWN: ("#__O__#", "#__X__#", "#OX_XO#", "#__P__#", "#__√__#"),
        LEFT: ("#__O__#", "#__X__#", "#√P_XO#", "#__X__#", "#__O__#"),
        RIGHT: ("#__O__#", "#__X__#", "#OX_P√#", "#__X__#", "#__O__#"),
    }

    for action, inner in expected.items():
        assert render(level, level.step(level.start, action))[1:-1] == inner, ACTIONS[action]


def test_solved_means_every_box_on_a_target():
    wall = "########"
    half, whole = (parse_level([wall, row, wall]) for row in ("#P√_XO_#", "#P√__√_#"))

    assert not half.is_solved(half.start)
    assert whole.is_solved(whole.start)


def test_a_drawn_level_reads_back_as_itself():
    for seed in range(50):
        level = generate(seed, height=7, width=6, boxes=2, search_depth=30, max_moves=12).level
        assert parse_level(render(level, level.start)) == level


BAD_LEVELS = [
    (["####", "#P_#", "###"], "rows have lengths [4, 4, 3]; all must be equal"),
    (["####", "#P@#", "####"], "'@' is not a level symbol; allowed: # _ O X √ P S"),
    (
        ["#####", "#PXO_", "#####"],
        "the outermost cells must all be walls, so that nothing can leave the room",
    ),
    (["P"], "the outermost cells must all be walls, so that nothing can leave the room"),
    (["#####", "#_XO#", "#####"], "0 players; exactly one is needed"),
    (["######", "#PXOS#", "######"], "2 players; exactly one is needed"),
    (
        ["#####", "#PX_#", "#####"],
        "1 boxes and 0 targets; at least one of each and equal numbers are needed",
    ),
    (
        ["#####", "#P__#", "#####"],
        "0 boxes and 0 targets; at least one of each and equal numbers are needed",
    ),
    ([], "0 players; exactly one is needed"),
]


@each(("rows", "message"), BAD_LEVELS)
def test_a_malformed_level_is_refused(rows, message):
    with pytest.raises(LevelError, match=f"^{re.escape(message)}$"):
        parse_level(rows)


def test_inner_cells_leave_the_border_out():
    # 3 x 4: row 1, columns 1 and 2 are cells 5 and 6.
    assert inner_cells(3, 4) == (1 << 5) | (1 << 6)


def mirror(rows):
    return tuple(row[::-1] for row in rows)


def turn(rows):
    return tuple("".join(column) for column in zip(*rows[::-1], strict=True))


@given(st.integers(0, 10**6))
def test_the_hash_is_one_for_all_eight_pictures_of_a_level(seed):
    level = generate(seed, height=6, width=5, boxes=1, search_depth=30, max_moves=10).level
    pictures = [render(level, level.start)]
    for _ in range(3):
        pictures.append(turn(pictures[-1]))
    pictures += [mirror(picture) for picture in pictures]

    assert len(set(pictures)) > 1
    assert {canonical_hash(parse_level(picture)) for picture in pictures} == {canonical_hash(level)}


def test_the_hash_tells_levels_apart():
    rows = ["######", "#P_XO#", "#____#", "#____#", "######"]
    others = [
        ["######", "#_PXO#", "#____#", "#____#", "######"],  # player
        ["######", "#PX_O#", "#____#", "#____#", "######"],  # box
        ["######", "#P_XO#", "#___##", "#____#", "######"],  # wall
        ["######", "#P_X_#", "#___O#", "#____#", "######"],  # target
        ["######", "#P_XO#", "#____#", "######"],  # size
        ["######", "#P_√_#", "#____#", "#____#", "######"],  # box on its target
    ]
    hashes = {canonical_hash(parse_level(drawing)) for drawing in [rows, *others]}

    assert len(hashes) == 7


def test_the_hash_is_of_the_start():
    level = parse_level(["######", "#P_XO#", "######"])
    moved = replace(level, start=level.step(level.start, RIGHT))

    assert canonical_hash(moved) != canonical_hash(level)

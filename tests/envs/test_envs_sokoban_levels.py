"""Level files: what is read, what is refused, and which level a seed plays."""

import re
from pathlib import Path

import pytest

from rltune_envs.errors import GenerationError, LevelError
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban.levels import load_levels
from rltune_envs.sokoban.rules import render

SHARED = Path(__file__).parents[3] / "shared" / "data" / "sokoban"
FILES = {
    "boxoban_unfiltered_train_000_first300.txt": 300,
    "boxoban_unfiltered_test_000_first300.txt": 300,
    "boxoban_medium_valid_000_first200.txt": 200,
    "boxoban_hard_000_first200.txt": 200,
    "Microban_155.xsb": 155,
    "Microban_II_135.xsb": 135,
}


def write(tmp_path, text):
    path = tmp_path / "levels.xsb"
    path.write_text(text, encoding="utf-8")
    return str(path)


def corridor(moves):
    """Return a level that takes exactly `moves` pushes to the right."""
    wall = "#" * (moves + 4)
    return f"{wall}\n#@${' ' * (moves - 1)}.#\n{wall}\n"


@pytest.mark.skipif(not SHARED.exists(), reason="shared/data/sokoban is not beside the repository")
@pytest.mark.parametrize(("name", "n"), FILES.items())
def test_published_files_load_whole(name, n):
    rows = load_levels(str(SHARED / name)).rows

    assert len(rows) == n
    assert [row.number for row in rows] == list(range(1, n + 1))
    if name.startswith("boxoban"):
        assert {row.level.targets.bit_count() for row in rows} == {4}
        assert {(row.level.height, row.level.width) for row in rows} == {(10, 10)}
        assert rows[1].line == 14  # after "; 0", ten rows, a blank, and "; 1"


@pytest.mark.skipif(not SHARED.exists(), reason="shared/data/sokoban is not beside the repository")
def test_the_first_boxoban_level_is_drawn_as_in_the_file():
    path = SHARED / "boxoban_unfiltered_train_000_first300.txt"
    drawn = path.read_text(encoding="utf-8").splitlines()[1:11]
    level = load_levels(str(path)).rows[0].level
    read = [row.translate(str.maketrans("_PXO√S", " @$.*+")) for row in render(level, level.start)]

    # A cell that the player cannot reach is wall here; all others are the file's.
    for ours, theirs in zip("".join(read), "".join(drawn), strict=True):
        assert ours == theirs or (ours, theirs) == ("#", " ")


def test_ragged_rows_and_all_symbols(tmp_path):
    rows = ["; 1", "  ####", "###  #", "#  $ ##", "# *$+.#", "#######", "Title: two"]
    rows += ["########", "#@$-_.*#", "########"]
    first, second = load_levels(write(tmp_path, "\n".join(rows))).rows

    # Three boxes, one of them home; three targets, the player on one. Outside becomes wall.
    assert render(first.level, first.level.start) == (
        "#######",
        "###__##",
        "#__X_##",
        "#_√XSO#",
        "#######",
    )
    assert render(second.level, second.level.start)[1] == "#PX__O√#"
    assert [(row.source, row.number, row.line) for row in (first, second)] == [
        ("levels.xsb", 1, 2),
        ("levels.xsb", 2, 8),
    ]


def test_windows_line_ends_a_mark_and_blank_lines_change_nothing(tmp_path):
    plain = load_levels(write(tmp_path, corridor(2) + "\n" + corridor(3))).rows
    other = tmp_path / "other.xsb"
    text = "\ufeff" + corridor(2) + "\n\n; x\n" + corridor(3)
    other.write_bytes(text.replace("\n", "  \r\n").encode())

    assert [row.level for row in load_levels(str(other)).rows] == [row.level for row in plain]


def test_a_room_that_cannot_be_entered_is_filled(tmp_path):
    (row,) = load_levels(write(tmp_path, "#########\n#@$.# #*#\n#########\n")).rows

    assert render(row.level, row.level.start)[1] == "#PXO#####"


BAD = [  # (the second level of a file, what is said of it)
    pytest.param("#####\n#@$x#\n#####", "'x' is not a level symbol; allowed: # @ + $ * . - _ and "
                 "blank", id="symbol"),
    pytest.param("#####\n#@$.#\n## ##", "the player can leave the room; close the wall around it",
                 id="open"),
    pytest.param("####\n#@*#\n####", "it is solved from the start", id="solved"),
    pytest.param("#######\n#@$.#$#\n#####.#\n#######", "a box or target is out of the player's "
                 "reach, so it has no solution", id="out-of-reach"),
    pytest.param("#####\n# $.#\n#####", "0 players; exactly one is needed", id="no-player"),
    pytest.param("#####\n#@$ #\n#####", "1 boxes and 0 targets; at least one of each and equal "
                 "numbers are needed", id="no-target"),
]  # fmt: skip


@pytest.mark.parametrize(("drawing", "message"), BAD)
def test_a_bad_level_is_refused_with_its_place(tmp_path, drawing, message):
    path = write(tmp_path, f"; fine\n{corridor(1)}; bad\n{drawing}\n")
    # Line 1 is a comment, 2 to 4 the first level, 5 a comment.
    with pytest.raises(LevelError) as error:
        load_levels(path)
    assert str(error.value) == f"{path}:6: level 2: {message}"


def test_files_that_hold_nothing(tmp_path):
    path = write(tmp_path, "; nothing\nTitle: no level\n")
    with pytest.raises(LevelError, match=f"^{re.escape(path)}: holds no level; its rows are made"):
        load_levels(path)
    gone = str(tmp_path / "gone.xsb")
    with pytest.raises(LevelError, match=f"^{re.escape(gone)}: cannot be read as a level file: "):
        load_levels(gone)


def test_consecutive_seeds_visit_each_row_once(tmp_path):
    path = write(tmp_path, "\n".join(corridor(1 + i % 9) for i in range(40)))
    env = SokobanEnv(levels=path)
    numbers = [env.task(seed).facts["number"] for seed in range(7, 47)]

    assert sorted(numbers) == list(range(1, 41))
    # Not the order of the file, in which the hard ones come last.
    assert [env.task(seed).facts["number"] for seed in range(40)] != list(range(1, 41))
    assert [env.task(seed).facts["number"] for seed in range(47, 87)] == numbers
    assert env.task(2**63 - 1).facts["source"] == "levels.xsb"


def test_levels_outside_the_band_are_passed_over(tmp_path):
    path = write(tmp_path, "\n".join(corridor(moves) for moves in range(1, 10)))
    lengths = [row.level.width - 4 for row in (load_levels(path).row(seed) for seed in range(9))]
    env = SokobanEnv(levels=path, min_difficulty=3, max_difficulty=6)

    def next_inside(seed):
        return next(n for n in (lengths * 2)[seed:] if 3 <= n <= 6)

    found = [env.task(seed).difficulty for seed in range(9)]
    assert found == [next_inside(seed) for seed in range(9)]
    assert set(found) == {3, 4, 5, 6}


def test_an_empty_band_says_so(tmp_path):
    path = write(tmp_path, corridor(8))
    message = (
        f"{path}: none of its 1 levels has a proven shortest solution of 1 to 4 actions; widen the "
        "band, or raise max_actions and max_turns"
    )
    with pytest.raises(GenerationError, match=f"^{re.escape(message)}$"):
        SokobanEnv(levels=path, max_turns=2).reset(seed=0)


def test_a_level_of_a_file_plays(tmp_path):
    env = SokobanEnv(levels=write(tmp_path, corridor(3)), prompt="compact")
    assert env.reset(seed=5) == "PX__O"
    env.step("<answer>Right||Right</answer>")
    assert env.step("<answer>Right</answer>").success
    facts = dict(env.task(5).facts)
    # The cell left of the box and all on the way are live; the player's own corner is dead.
    assert facts == {
        "boxes": 1, "pushes": 3, "dead_cells": 1, "source": "levels.xsb", "number": 1,
    }  # fmt: skip

"""The page of the layout is true of the code: rooms, contracts, walks, and the picture."""

import re
import sys
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from literals import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_build"))
import imports
from structure import structure_picture

PAGE = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
WALKS = re.findall(r"^\*\*(.+?)\*\*.*\n\n((?:\d+\. .*\n)+)", PAGE, re.MULTILINE)
ROWS = {room: row for row, rooms in enumerate(imports.layers()) for room in rooms}


def row_of(path):
    """Return the layer of a file, 0 at the top; a sweep file counts as its schema."""
    parts = path.removesuffix(".py").split("/")
    if parts[0] == "sweeps":
        return ROWS["spec"]
    return ROWS[imports.LEAF if parts[0] == "envs" else parts[1]]


def test_each_room_has_a_sentence_and_stands_in_a_layer():
    folders = {path.parent.name for path in (ROOT / "rltune").glob("*/__init__.py")}
    assert folders <= set(imports.rooms())
    rooms = [*imports.rooms().values()]
    inner = [one for room in rooms for one in imports.inner_rooms(room)]
    assert [room.name for room in (*rooms, *inner) if room.sentence[-1:] not in (".", "?")] == []


@pytest.mark.slow
def test_every_import_between_rooms_points_downwards():
    assert len(imports.edges()) > 50
    assert [ends for ends in imports.edges() if ROWS[ends[0]] >= ROWS[ends[1]]] == []


def test_the_lines_of_the_picture_imply_all_imports():
    graph = imports.edges()
    below = {}
    for start, end in imports.direct(graph):
        below.setdefault(start, set()).add(end)

    def reached(room):
        return {room}.union(*(reached(end) for end in below.get(room, ())))

    assert all(end in reached(start) for start, end in graph)
    assert sum(map(len, below.values())) < len(graph) / 2


def test_the_picture_has_a_box_for_each_room_and_no_two_overlap():
    svg = re.search(r"<svg.*</svg>", structure_picture(), re.DOTALL)[0]
    space = "{http://www.w3.org/2000/svg}"
    boxes = ElementTree.fromstring(svg).findall(f"{space}g/{space}rect")
    assert len(boxes) == len(ROWS)
    places = sorted((float(b.get("y")), float(b.get("x")), float(b.get("width"))) for b in boxes)
    for (y, x, width), (next_y, next_x, _) in pairwise(places):
        assert y < next_y or x + width < next_x


@pytest.mark.parametrize(("key", "steps"), WALKS)
def test_a_walk_names_files_and_climbs_at_most_twice(key, steps):
    paths = re.findall(r"^\d+\. `([^`]+)`", steps, re.MULTILINE)
    assert len(paths) > 3
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    rows = [row_of(path) for path in paths]
    climbs = sum(after < before for before, after in pairwise(rows))
    assert climbs <= 2, (key, rows)


def test_there_are_walks():
    assert len(WALKS) == 4


def test_contributing_shows_the_layers_of_the_contract():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "\n".join(imports.rows()) in page

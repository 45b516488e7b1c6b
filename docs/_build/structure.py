"""The picture of the structure: a row per layer, a box per room, a line per import that counts.

The drawing is the usual one of layered graphs (Sugiyama): a line that skips rows gets a waypoint in
each of them, the order within a row follows the means of the neighbours, and so do the places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from imports import Edges, Room, direct, edges, layers, rooms

WIDTH, ROW, BOX, GAP = 1000.0, 92.0, 42.0, 16.0
SWEEPS = 40
Node = str | tuple[str, str, int]
"""A room, or a line's waypoint: importer, imported, row."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where everything stands.

    Attributes:
        rows: Nodes of each layer, left to right.
        x: Middle of each node.
        lines: Nodes that each line runs through, from the importer down.

    """

    rows: list[list[Node]]
    x: dict[Node, float]
    lines: dict[tuple[str, str], list[Node]]


def structure_picture() -> str:
    """Return the picture as an SVG that follows the page's colours."""
    drawing, graph = _arranged(layers(), direct(edges())), edges()
    height = ROW * len(drawing.rows) - (ROW - BOX) + 2 * GAP
    parts = [
        f'<svg class="structure" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        'aria-labelledby="structure-title" xmlns="http://www.w3.org/2000/svg">',
        f'<title id="structure-title">{_title(graph)}</title>',
        f"<style>{''.join(map(_focus, rooms()))}</style>",
        *(_line(drawing, ends, graph[ends]) for ends in drawing.lines),
        *(_box(drawing, room) for room in rooms().values()),
        "</svg>",
    ]
    return f'<figure class="structure">\n{"".join(parts)}\n</figure>'


def _title(graph: Edges) -> str:
    return (
        f"{len(rooms())} rooms in {len(layers())} layers; every one of the "
        f"{sum(graph.values())} imports between rooms points downwards"
    )


def _arranged(layers: Sequence[Sequence[str]], pairs: Sequence[tuple[str, str]]) -> Drawing:
    row_of = {room: row for row, rooms in enumerate(layers) for room in rooms}
    lines: dict[tuple[str, str], list[Node]] = {}
    rows: list[list[Node]] = [list(rooms) for rooms in layers]
    for start, end in pairs:
        between = range(row_of[start] + 1, row_of[end])
        waypoints: list[Node] = [(start, end, row) for row in between]
        for row, waypoint in zip(between, waypoints, strict=True):
            rows[row].append(waypoint)
        lines[start, end] = [start, *waypoints, end]
    near = _neighbours(lines.values())
    x = _spread(rows)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            row.sort(key=lambda node: (_mean(node, near, x), str(node)))
            x |= _even(row)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            x |= _placed(row, [_mean(node, near, x) for node in row])
    return Drawing(rows, x, lines)


def _neighbours(lines: Sequence[list[Node]]) -> Mapping[Node, list[Node]]:
    near: dict[Node, list[Node]] = {}
    for line in lines:
        for upper, lower in pairwise(line):
            near.setdefault(upper, []).append(lower)
            near.setdefault(lower, []).append(upper)
    return near


def _mean(node: Node, near: Mapping[Node, list[Node]], x: Mapping[Node, float]) -> float:
    others = near.get(node, [node])
    return sum(x[other] for other in others) / len(others)


def _width(node: Node) -> float:
    return max(74.0, 8.2 * len(node) + 18) if isinstance(node, str) else 2.0


def _spread(rows: Sequence[Sequence[Node]]) -> dict[Node, float]:
    return {node: place for row in rows for node, place in _even(row).items()}


def _even(row: Sequence[Node]) -> dict[Node, float]:
    """Return the middles of a row's nodes, with equal room between them."""
    free = (WIDTH - sum(map(_width, row))) / (len(row) + 1)
    places, left = {}, 0.0
    for node in row:
        left += free
        places[node] = left + _width(node) / 2
        left += _width(node)
    return places


def _placed(row: Sequence[Node], wanted: Sequence[float]) -> dict[Node, float]:
    """Return middles as near to the wanted ones as order and width allow."""
    left = _pushed(row, wanted)
    right = _pushed(row[::-1], [WIDTH - x for x in wanted[::-1]])
    return {
        node: (low + WIDTH - high) / 2
        for node, low, high in zip(row, left, right[::-1], strict=True)
    }


def _pushed(row: Sequence[Node], wanted: Sequence[float]) -> list[float]:
    """Return middles from left to right: each where it wants to be, or beside the one before."""
    free, places = [_width(node) + GAP for node in row], []
    edge = GAP / 2
    for index, want in enumerate(wanted):
        last = WIDTH - sum(free[index:]) + free[index] / 2
        places.append(min(max(want, edge + free[index] / 2), last))
        edge = places[-1] + free[index] / 2
    return places


def _line(drawing: Drawing, ends: tuple[str, str], count: int) -> str:
    row_of = {node: row for row, nodes in enumerate(drawing.rows) for node in nodes}
    nodes, path = drawing.lines[ends], ""
    for upper, lower in pairwise(nodes):
        start, end = (
            _y(row_of[upper]) + BOX,
            _y(row_of[lower]),
        )  # straight down beside a row's boxes
        from_x, to_x, middle = drawing.x[upper], drawing.x[lower], (start + end) / 2
        path += f"{'L' if path else 'M'}{from_x:.1f} {start:g}"
        path += f"C{from_x:.1f} {middle:g} {to_x:.1f} {middle:g} {to_x:.1f} {end:g}"
    importer, imported = ends
    return (
        f'<path class="line from-{importer} to-{imported}" d="{path}">'
        f"<title>{importer} imports {imported}: {count} times</title></path>"
    )


def _y(row: int) -> float:
    """Return the upper edge of a row's boxes."""
    return GAP + row * ROW


def _box(drawing: Drawing, room: Room) -> str:
    row = next(row for row, nodes in enumerate(drawing.rows) if room.name in nodes)
    x, y, width = drawing.x[room.name], _y(row), _width(room.name)
    size = f"{room.n_files} files" if room.n_files > 1 else "1 file"
    return (
        f'<g class="room" id="room-{room.name}"><title>{escape(room.sentence)}</title>'
        f'<rect x="{x - width / 2:.1f}" y="{y:g}" width="{width:g}" height="{BOX:g}" rx="6"/>'
        f'<text x="{x:.1f}" y="{y + 18:g}">{room.name}</text>'
        f'<text class="size" x="{x:.1f}" y="{y + 34:g}">{size}</text></g>'
    )


def _focus(room: str) -> str:
    """Return the style that shows the lines of one room alone while the pointer is on it."""
    mine = f".from-{room},.to-{room}"
    return f".structure:has(#room-{room}:hover) .line:not({mine}){{opacity:.12}}"

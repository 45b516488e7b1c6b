"""The tables of docs/layout.md: rooms with their sentences, and the import contracts."""

from imports import contracts, inner_rooms, rooms


def room_table() -> str:
    """Return a row for each room, the rooms inside it below; the sentences are docstrings."""
    rows = ["| room | what is in it | files |", "|---|---|---|"]
    for room in rooms().values():
        for one in (room, *inner_rooms(room)):
            rows.append(f"| `{one.path}` | {one.sentence} | {one.n_files} |")
    return "\n".join(rows)


def contract_list() -> str:
    """Return the import contracts as a list."""
    return "\n".join(f"- {name}" for name in contracts())

"""The tables of docs/layout.md: rooms with their sentences, and the import contracts."""

from imports import contracts, inner_rooms, rooms, rows


def room_table() -> str:
    """Return a row for each room, the rooms inside it below; the sentences are docstrings."""
    lines = ["| room | files | what is in it |", "|---|---|---|"]
    for room in rooms().values():
        for one in (room, *inner_rooms(room)):
            lines.append(f"| `{one.path}` | {one.n_files} | {one.sentence} |")
    return "\n".join(lines)


def contract_list() -> str:
    """Return the import contracts as a list, below the rows of the first."""
    named = "\n".join(f"- {name[0].upper()}{name[1:]}." for name in contracts())
    return "```\n" + "\n".join(rows()) + f"\n```\n\n{named}"

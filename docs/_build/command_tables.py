"""The reference of commands, read off the command line itself, and the table of shipped sweeps."""

import re
from collections.abc import Iterator
from typing import Any

from config_tables import ROOT

from rltune.cli.app import command
from rltune.spec.load import LoadedSweep, load_sweep


def command_tables() -> str:
    """Return a section for each command: what it does, its arguments and options, examples."""
    root = command()
    context = root.make_context("rltune", [], resilient_parsing=True)
    return "\n\n".join(_sections(root, context, "rltune"))


def _sections(group: Any, context: Any, path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        found, full = group.resolve_command(context, [name])[1], f"{path} {name}"
        yield f"### {full}\n\n{_first_paragraph(found.help)}"
        if hasattr(found, "list_commands"):
            yield from _sections(found, context, full)
        else:
            yield from _parts(found, context, full)


def _parts(found: Any, context: Any, path: str) -> Iterator[str]:
    records = [record for p in found.params if (record := p.get_help_record(context))]
    usage = " ".join(_short(name) for name, _ in records if not name.startswith("-"))
    yield f"```\n{' '.join(filter(None, (path, usage)))} [OPTIONS]\n```"
    rows = [f"| `{_short(name)}` | {_escaped(told)} |" for name, told in records]
    yield "\n".join(['<div class="cards" markdown>\n\n| | |\n|---|---|', *rows, "\n</div>"])
    if found.epilog:
        lines = [line.strip() for line in found.epilog.split("Example:")[-1].strip().splitlines()]
        yield "```bash\n" + "\n".join(lines) + "\n```"


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def _short(name: str) -> str:
    """Return `FILE` or `--tasks N`: the kind of a value in place of its Python type."""
    if name.startswith("-"):
        return re.sub(r"<(int|float)[^>]*>", "N", name)
    return re.sub(r" <.*>$", "", name)


def _escaped(text: str) -> str:
    return text.replace("|", "&#124;").replace("<", "&lt;")


def sweep_table() -> str:
    """Return a row for each shipped sweep: its question, its axis, and how many trials it takes."""
    loaded = [load_sweep(path) for path in sorted((ROOT / "sweeps").glob("*.yaml"))]
    rows = "\n".join(map(_sweep_row, loaded))
    head = "| sweep | question | axis | conditions x seeds |\n|---|---|---|---|"
    return f'<div class="cards sweeps" markdown>\n\n{head}\n{rows}\n\n</div>'


def _sweep_row(loaded: LoadedSweep) -> str:
    spec, n_conditions = loaded.spec, len(loaded.conditions)
    trials = f"{n_conditions} x {len(loaded.seeds)}"
    name = f"[{spec.name}](../sweeps/{spec.name}.yaml)"
    return f"| {name} | {spec.question} | `{spec.axis.key}` | {trials} |"

"""The generations of a model as text, and as files: data, CSV and chart."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType

from rltune.analysis.generations import Beside, GenerationRow, GenerationTable, Measured
from rltune.report.figures.data_generations import GENERATIONS, generations_data
from rltune.report.figures.draw import draw_kinds, has_matplotlib
from rltune.report.markdown import visible
from rltune.report.render import grid, indent, interval, line, plural, rate, signed
from rltune.store.files import replacing, write_json_atomic, write_text_atomic

CHARTS = "generations"
"""Folder of a run: of each row whose generations were charted, a folder with its id."""
DATA, CSV, CHART = (f"{GENERATIONS}.{kind}" for kind in ("json", "csv", "svg"))
"""Files of such a folder."""

_COLUMNS = ("number", "name", "step", "departs")
_BESIDE = ("tasks", "before", "after", "difference", "low", "high", "is_paired")
_MEASURED = ("tasks", "value", "low", "high")


def generations_view(table: GenerationTable) -> RenderableType:
    """Return the generations, a table of each set of tasks, and what is missing."""
    names = grid(("", "generation", "step", "took from the one before"), right=(0, 2), whole=(1,))
    for row in table.rows:
        names.add_row(str(row.number), visible(row.name), str(row.step), row.departs)
    better = "less is better" if table.mode == "min" else "more is better"
    return Group(
        line(f"{table.metric} by generation ({better}) [95 % interval over tasks]", "bold"),
        indent(names),
        line(),
        *_heldout(table.rows),
        line(),
        *_fresh(table),
        *([line(visible(f"Missing: {table.missing}"), "yellow")] if table.missing else []),
    )


def _heldout(rows: Sequence[GenerationRow]) -> Iterator[RenderableType]:
    yield line("Held-out tasks, on which its gate chose each generation, so optimistic")
    table = grid(("", "tasks", "before", "after", "difference"), right=(0, 1, 2, 3))
    for row in rows[1:]:
        one = row.heldout
        cells = ("-",) * 4
        if one is not None:
            cells = (str(one.tasks), rate(one.before), rate(one.after), _difference(one))
        table.add_row(str(row.number), *cells)
    yield indent(table)


def _fresh(data: GenerationTable) -> Iterator[RenderableType]:
    if not data.fresh_looks:
        yield line("Tasks that no generation has seen: --fresh N.")
        return
    times = plural(data.fresh_looks, "time")
    yield line(f"Fresh tasks, which no generation trained or was chosen on; played {times}")
    table = grid(("", "tasks", "value", "minus the one before"), right=(0, 1))
    for row in data.rows:
        tasks = "-" if row.fresh is None else str(row.fresh.tasks)
        table.add_row(str(row.number), tasks, _measured(row.fresh), _difference(row.fresh_beside))
    yield indent(table)


def _difference(one: Beside | None) -> str:
    if one is None:
        return ""
    mark = "" if one.is_paired else " (other tasks)"
    return f"{signed(one.difference)} {interval(one.interval, is_signed=True)}{mark}".rstrip()


def _measured(one: Measured | None) -> str:
    return "-" if one is None else f"{rate(one.value)} {interval(one.interval)}".rstrip()


def generation_csv(table: GenerationTable) -> str:
    """Return a line per generation; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"heldout_{name}" for name in _BESIDE]
    heads += [f"fresh_{name}" for name in _MEASURED]
    heads += [f"fresh_beside_{name}" for name in _BESIDE]
    writer.writerow(["metric", *_COLUMNS, *heads])
    for row in table.rows:
        own = [getattr(row, name) for name in _COLUMNS]
        cells = [*_of(row.heldout, _BESIDE), *_of(row.fresh, _MEASURED)]
        writer.writerow([table.metric, *own, *cells, *_of(row.fresh_beside, _BESIDE)])
    return out.getvalue()


def _of(one: Beside | Measured | None, names: tuple[str, ...]) -> list[object]:
    if one is None:
        return [""] * len(names)
    ends = {"low": None, "high": None} if one.interval is None else one.interval._asdict()
    return [ends[name] if name in ends else getattr(one, name) for name in names]


def write_generations(
    folder: Path, table: GenerationTable, kinds: Sequence[str] = ("svg", "png")
) -> list[Path]:
    """Write a table as data and, where matplotlib is, as a chart of each kind; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / DATA, folder / CSV]
    write_json_atomic(files[0], table)
    write_text_atomic(files[1], generation_csv(table))
    if has_matplotlib():
        for kind, drawn in draw_kinds(generations_data(table), kinds).items():
            files.append(folder / f"{GENERATIONS}.{kind}")
            with replacing(files[-1]) as file:
                file.write(drawn)
    return files

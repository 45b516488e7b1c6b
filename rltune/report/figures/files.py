"""Figures as files: the data of each as JSON and, with matplotlib, PNG, SVG and PDF."""

from dataclasses import dataclass
from pathlib import Path

from rltune.report.figures.draw import draw_kinds, has_matplotlib
from rltune.report.figures.make import figure_data
from rltune.report.figures.records import LeftOut
from rltune.report.figures.source import Tables
from rltune.report.figures.style import KINDS
from rltune.store.files import replacing, write_json_atomic


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the figures."""

    files: tuple[Path, ...]  # written, figure by figure: data first
    left_out: tuple[LeftOut, ...]  # those that the tables cannot give
    notes: tuple[str, ...]  # what a reader must know, of all figures, each once
    is_drawn: bool  # whether matplotlib is installed; else only the data are written


def write_figures(tables: Tables, out: Path) -> Written:
    """Write every figure of an export into a folder; older files of those left out go."""
    files: list[Path] = []
    left_out: list[LeftOut] = []
    notes: dict[str, None] = {}
    is_drawn = has_matplotlib()
    for name, data in figure_data(tables).items():
        for kind in ("json", *KINDS):  # an older one would tell otherwise
            (out / f"{name}.{kind}").unlink(missing_ok=True)
        if isinstance(data, LeftOut):
            left_out.append(data)
            continue
        notes |= dict.fromkeys(data.head.notes)
        files.append(out / f"{name}.json")
        write_json_atomic(files[-1], data)
        for kind, drawn in draw_kinds(data, KINDS).items() if is_drawn else ():
            files.append(out / f"{name}.{kind}")
            with replacing(files[-1]) as file:
                file.write(drawn)
    return Written(tuple(files), tuple(left_out), tuple(notes), is_drawn)

"""The options that several commands share, and what their texts mean."""

import re
from pathlib import Path
from typing import Annotated

import typer

from rltune.errors import InputError, Problem, SpecError

Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Hardware-and-scale half: laptop, gpu, paper."),
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", metavar="0,1,2", help="Seeds to run instead of the sweep's own."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a config key everywhere, not the axis or a held knob; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunsDir = Annotated[
    Path,
    typer.Option(
        "--runs-dir", envvar="RLTUNE_RUNS_DIR", metavar="DIR", help="Folder of all run folders."
    ),
]
SweepFile = Annotated[Path, typer.Argument(metavar="FILE", help="Sweep file.", show_default=False)]
RunFolder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]", help="Run folder; the newest one if left out.", show_default=False
    ),
]
TrialName = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL",
        help="Folder of a trial; or its id, the start of it, or condition@seed.",
        show_default=False,
    ),
]
RUNS = Path("runs")


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """Return `0,1,2` as numbers.

    Raises:
        SpecError: A part is no whole number.

    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    problems = [
        Problem("--seeds", f"{part!r} is not a seed.", "Give whole numbers, such as 0,1,2.")
        for part in parts
        if not (part.isascii() and part.isdigit())
    ]
    if problems:
        raise SpecError(problems)
    return tuple(int(part) for part in parts)


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS = (86400, 3600, 60, 1)  # seconds of d, h, m, s


def parse_duration(text: str) -> float:
    """Return `8h`, `1h30m` or `45s` in seconds.

    Raises:
        InputError: It is no such text, or nothing at all.

    """
    found = _DURATION.fullmatch(text.strip())
    parts = found.groups(default="0") if found is not None else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNITS, strict=False))
    if seconds <= 0:
        what = f"{text!r} is no length of time."
        raise InputError(Problem("--budget", what, "Give one such as 8h, 1h30m or 45s."))
    return float(seconds)

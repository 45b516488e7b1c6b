"""Options that several commands share, and parsers of their values."""

import os
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rltune.errors import InputError, Problem, SpecError
from rltune.runner.budget import seconds_of
from rltune.runner.spend import SpendLimit
from rltune.spec.expand import until_decided
from rltune.spec.keys import did_you_mean
from rltune.spec.load import LoadedSweep
from rltune.spec.trial_reference import RUNS_VARIABLE, looking_in_runs

_NEGATIVE = re.compile(r"-\.?[0-9]")
RUNS = Path("runs")


def _look_there(context: typer.Context, runs_dir: Path) -> Path:
    """Look for the runs of references to trials in this runs dir, until the command is over."""
    context.with_resource(looking_in_runs(runs_dir))
    return runs_dir


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Hardware and scale profile, one that the sweep allows, such as laptop or gpu.",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", metavar="0,1,2", help="Seeds to run instead of those in the sweep file."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="decided",
        help="Add seeds until each condition is decided, by looks that together err at most 5 %.",
    ),
]
MaxSeeds = Annotated[
    int | None,
    typer.Option(
        "--max-seeds", metavar="N", help="With --until: most seeds of a condition (default: 12)."
    ),
]
Effect = Annotated[
    float | None,
    typer.Option(
        "--effect",
        metavar="X",
        help="With --until: smallest difference of interest, in the metric's unit.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a config key in all conditions, except the axis and held knobs; repeatable.",
    ),
]
NoCustomCode = Annotated[
    bool,
    typer.Option(
        "--no-custom-code",
        envvar="RLTUNE_NO_CUSTOM_CODE",
        help="Refuse files that import custom code.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunsDir = Annotated[
    Path,
    typer.Option(
        "--runs-dir",
        envvar=RUNS_VARIABLE,
        metavar="DIR",
        help="Folder that holds the run folders.",
        callback=_look_there,
    ),
]
SweepFile = Annotated[Path, typer.Argument(metavar="FILE", help="Sweep file.", show_default=False)]
RunFolder = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="Run folder (default: the newest).", show_default=False),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="WHICH",
        help="Checkpoint: best (the gate's choice), latest or a step.",
    ),
]
TrialName = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL",
        help="Trial: its folder, its id or the start of it, or condition@seed.",
        show_default=False,
    ),
]


class TakesValues(TyperCommand):
    """A command whose arguments may be negative numbers: `-0.1` is a value, not an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take unknown options as arguments if one of them looks like a negative number."""
        ctx.ignore_unknown_options |= any(_NEGATIVE.match(text) for text in args)
        return super().parse_args(ctx, args)


def require_runs_dir(runs_dir: Path, run_name: str) -> None:
    """Refuse a `--runs-dir` that no run folder can be made in; nothing is left there.

    Args:
        runs_dir: As given.
        run_name: Name of the run folder.

    Raises:
        InputError: A part of its path is a file, or cannot be written.

    """
    if why := why_not_writable(runs_dir / run_name):
        is_from_variable = os.environ.get(RUNS_VARIABLE) == str(runs_dir)
        origin = f" (from {RUNS_VARIABLE})" if is_from_variable else ""
        what = f"{str(runs_dir)!r} cannot hold run folders: {why}."
        raise InputError(Problem(f"--runs-dir{origin}", what, action="Give a writable folder."))


def why_not_writable(folder: Path) -> str:
    """Return why nothing can be written to a folder that may have to be made; empty if it can.

    A file is made and removed: permissions alone do not tell, least of all to root.
    """
    nearest = folder.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is a file"
    try:
        with tempfile.NamedTemporaryFile(dir=nearest, prefix=".rltune-"):
            return ""
    except OSError as error:
        return f"nothing can be written to {nearest} ({error.strerror})"


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """Return `0,1,2` as numbers.

    Raises:
        SpecError: A part is not a whole number.

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


_MONEY = re.compile(r"(\d{1,9}(?:\.\d+)?) ?([A-Z]{3})")
_REQUESTS = re.compile(r"(\d{1,9}) ?requests")


@dataclass(frozen=True, slots=True)
class Budget:
    """What `--budget` allows a launch."""

    seconds: float | None = None  # of time; None: any
    spend: SpendLimit | None = None  # calls to a training service, and money; None: any


def parse_budget(text: str | None) -> Budget:
    """Return `8h`, `20USD`, `5000requests`, or several of them with commas between.

    Raises:
        InputError: A part is none of these, or zero, or there are two of a kind.

    """
    seconds: float | None = None
    spend = SpendLimit()
    kinds: list[str] = []
    for part in [] if text is None else text.split(","):
        word = part.strip()
        if (match := _MONEY.fullmatch(word)) and float(match[1]) > 0:
            kinds.append("amounts of money")
            spend = replace(spend, amount=float(match[1]), currency=match[2])
        elif (match := _REQUESTS.fullmatch(word)) and int(match[1]) > 0:
            kinds.append("numbers of requests")
            spend = replace(spend, requests=int(match[1]))
        else:
            kinds.append("durations")
            seconds = parse_duration(word)
    if twice := next((kind for kind in kinds if kinds.count(kind) > 1), ""):
        what = f"{text!r} has {kinds.count(twice)} {twice}."
        raise InputError(Problem("--budget", what, "Give each kind of limit once."))
    return Budget(seconds, None if spend == SpendLimit() else spend)


def with_looks(
    loaded: LoadedSweep, until: str | None, max_seeds: int | None, effect: float | None
) -> LoadedSweep:
    """Return the sweep with the seeds that `--until`, `--max-seeds` and `--effect` ask for.

    Raises:
        SpecError: They do not fit together, or a number cannot be used.

    """
    if until is not None and until != "decided":
        what, allowed = f"{until!r} does not end a condition.", "Choose one of decided."
        raise SpecError(Problem("--until", what, allowed, did_you_mean(until, ["decided"])))
    given = {"--max-seeds": max_seeds, "--effect": effect}
    lone = [name for name, value in given.items() if value is not None]
    if until is None and loaded.until is None and lone:
        what = "the seeds are a list, which has no looks."
        raise SpecError([Problem(name, what, action="Add --until decided.") for name in lone])
    if until is None and not lone:
        return loaded
    return until_decided(loaded, most=max_seeds, effect=effect)


def parse_duration(text: str) -> float:
    """Return `8h`, `1h30m` or `45s` in seconds.

    Raises:
        InputError: It is not a duration, or zero.

    """
    seconds = seconds_of(text)
    if seconds <= 0:
        what = f"{text!r} is not a duration, an amount of money or a number of requests."
        allowed = "Give one such as 8h, 1h30m, 45s, 20USD or 5000requests; nine digits at most."
        raise InputError(Problem("--budget", what, allowed))
    return seconds

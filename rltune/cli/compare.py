"""`rltune compare A B`: test whether two trials or conditions differ."""

from pathlib import Path
from typing import Annotated

import typer

from rltune.analysis.compare_sides import Side
from rltune.analysis.lookup import find_side
from rltune.cli.console import answer, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.report.compare_text import compare_and_say, compared_view

_SIDE = "Condition or trial (condition@seed, id or folder); DIR:NAME for another run folder."


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE, show_default=False)],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Second condition or trial.", show_default=False)
    ],
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Compare the last gates of A and B: difference, interval, test, sample size, one sentence.

    Over seeds, seed by seed where both have them; two single trials task by task, which says
    nothing about other seeds. Refused if the held-out tasks or the metrics differ.

    Example:
      rltune compare kl_loss_coef=0.01 kl_loss_coef=0.0
      rltune compare 0.01@0 0.0@0 runs/kl-55b4c751
      rltune compare runs/kl-55b4c751:0.01 old/kl-55b4c751:0.01

    """
    compared = compare_and_say(*(_side(given, folder, runs_dir) for given in (a, b)))
    answer(compared, compared_view(compared), as_json=as_json)


def _side(given: str, folder: Path | None, runs_dir: Path) -> Side:
    side, problems = find_side(given, folder, runs_dir)
    for problem in problems:
        warn(f"unreadable: {problem}")
    return side

"""`rltune doctor`: is this machine ready, and what to do when it is not."""

import typer

from rltune.cli.console import emit_json, make_console
from rltune.cli.options import RUNS, Json, RunsDir


def doctor(runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Check whether this machine is ready. Exit code 1 if something required is missing."""
    from rltune.cli.diagnosis import State, diagnose

    console = make_console()
    found = []
    for item in diagnose(runs_dir):
        found.append(item)
        if not as_json:
            console.print(f"{item.state.value:<7} {item.name}: {item.detail}", soft_wrap=True)
            if item.action:
                console.print(f"        -> {item.action}", soft_wrap=True)
    missing = [item for item in found if item.state is State.MISSING]
    warned = [item for item in found if item.state is State.WARNING]
    if as_json:
        emit_json({"ok": not missing, "checks": found})
    elif missing:
        console.print(f"Not ready: {', '.join(item.name for item in missing)}.")
    else:
        note = f" ({len(warned)} to look at)" if warned else ""
        console.print(f"Ready{note}. Next: rltune sweep sweeps/quickstart.yaml")
    raise typer.Exit(1 if missing else 0)

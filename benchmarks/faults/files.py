"""Faults of files: half-written, flipped, foreign."""

from collections.abc import Callable
from pathlib import Path

from finding import Finding, interrupt, steps_again
from lab import Lab, steps_of


def torn_checkpoint(damage: Callable[[Path], None]) -> Callable[[Lab], Finding]:
    def fault(lab: Lab) -> Finding:
        interrupt(lab)
        before = steps_of(lab.trials[1])
        damage(max(lab.trials[1].checkpoints.glob("step-*")) / "policy.safetensors")
        again = lab.sweep_on()
        log = lab.trials[1].log.read_text()
        return Finding(
            "set aside as torn-step-...; the trial goes on from the checkpoint before",
            steps_again(before, lab),
            {
                "the log says it": "It is now torn-step-" in log,
                "the same command ends it": again.code == 0,
            },
        )

    return fault


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 0x40
    path.write_bytes(data)


def corrupt_marker(lab: Lab) -> Finding:
    """The DONE marker of a finished trial is half a file."""
    lab.sweep_on()
    half(lab.trials[0].done)
    status = lab.do("status", str(lab.run.path))
    again = lab.sweep_on()
    return Finding(
        "status names the file; the trial ends again from its last checkpoint",
        checks={
            "status can be read": status.code in (0, 1) and "Traceback" not in status.text,
            "status names the marker": status.says("its DONE cannot be read"),
            "the same command ends it": again.code == 0,
        },
        most_ends=2,
    )


def corrupt_config(lab: Lab) -> Finding:
    """config.yaml and trial.json of an unfinished trial are half files."""
    interrupt(lab)
    before = steps_of(lab.trials[1])
    for path in (lab.trials[1].config, lab.trials[1].spec, lab.trials[1].provenance):
        half(path)
    again = lab.sweep_on()
    return Finding(
        "written again from the sweep file",
        steps_again(before, lab),
        {"the same command ends it": again.code == 0},
    )


def torn_table(lab: Lab) -> Finding:
    """Lineage, ledger and metrics end in half a line; a foreign line stands in the table."""
    interrupt(lab)
    before = steps_of(lab.trials[1])
    with lab.run.results.open("a") as file:
        file.write("a foreign line\nhalf a li")
    with lab.run.ledger.open("a") as file:
        file.write('not json\n{"event": "sta')
    with lab.trials[1].metrics.open("a") as file:
        file.write('{"step": 9')
    again = lab.sweep_on()
    table = lab.do("lineage", "show", str(lab.run.path))
    return Finding(
        "unreadable lines are skipped, named with their number, and kept in *.torn",
        steps_again(before, lab),
        {
            "the same command ends it": again.code == 0,
            "the table names the line": table.code == 0 and table.says("line"),
        },
    )


def corrupt_ray_state(lab: Lab) -> Finding:
    """Ray Tune's experiment state is garbage."""
    interrupt(lab)
    before = steps_of(lab.trials[1])
    for path in [path for path in lab.run.tune.rglob("*") if path.is_file()]:
        if path.name != "STOP":
            path.write_bytes(b"\x00garbage")
    again = lab.sweep_on()
    return Finding(
        "never read: each launch starts a fresh one",
        steps_again(before, lab),
        {"the same command ends it": again.code == 0},
    )

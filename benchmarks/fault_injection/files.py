"""Faults of files: half-written, flipped, foreign."""

from collections.abc import Callable
from pathlib import Path

from finding import Finding, interrupt, steps_again
from sandbox import Sandbox, steps_of


def torn_checkpoint(damage: Callable[[Path], None]) -> Callable[[Sandbox], Finding]:
    def fault(sandbox: Sandbox) -> Finding:
        interrupt(sandbox)
        before = steps_of(sandbox.trials[1])
        damage(max(sandbox.trials[1].checkpoints.glob("step-*")) / "policy.safetensors")
        again = sandbox.run_sweep()
        log = sandbox.trials[1].log.read_text()
        return Finding(
            "set aside as torn-step-...; the trial goes on from the checkpoint before",
            steps_again(before, sandbox),
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


def corrupt_marker(sandbox: Sandbox) -> Finding:
    """The DONE marker of a finished trial is half a file."""
    sandbox.run_sweep()
    half(sandbox.trials[0].done)
    status = sandbox.run_command("status", str(sandbox.run.path))
    again = sandbox.run_sweep()
    return Finding(
        "status names the file; the trial ends again from its last checkpoint",
        checks={
            "status can be read": status.code in (0, 1) and "Traceback" not in status.text,
            "status names the marker": status.says("its DONE cannot be read"),
            "the same command ends it": again.code == 0,
        },
        most_ends=2,
    )


def corrupt_config(sandbox: Sandbox) -> Finding:
    """config.yaml and trial.json of an unfinished trial are half files."""
    interrupt(sandbox)
    before = steps_of(sandbox.trials[1])
    for path in (sandbox.trials[1].config, sandbox.trials[1].spec, sandbox.trials[1].provenance):
        half(path)
    again = sandbox.run_sweep()
    return Finding(
        "written again from the sweep file",
        steps_again(before, sandbox),
        {"the same command ends it": again.code == 0},
    )


def torn_table(sandbox: Sandbox) -> Finding:
    """Lineage, ledger and metrics end in half a line; a foreign line stands in the table."""
    interrupt(sandbox)
    before = steps_of(sandbox.trials[1])
    with sandbox.run.results.open("a") as file:
        file.write("a foreign line\nhalf a li")
    with sandbox.run.ledger.open("a") as file:
        file.write('not json\n{"event": "sta')
    with sandbox.trials[1].metrics.open("a") as file:
        file.write('{"step": 9')
    again = sandbox.run_sweep()
    table = sandbox.run_command("lineage", "show", str(sandbox.run.path))
    return Finding(
        "unreadable lines are skipped, named with their number, and kept in *.torn",
        steps_again(before, sandbox),
        {
            "the same command ends it": again.code == 0,
            "the table names the line": table.code == 0 and table.says("line"),
        },
    )


def corrupt_ray_state(sandbox: Sandbox) -> Finding:
    """Ray Tune's experiment state is garbage."""
    interrupt(sandbox)
    before = steps_of(sandbox.trials[1])
    for path in [path for path in sandbox.run.tune.rglob("*") if path.is_file()]:
        if path.name != "STOP":
            path.write_bytes(b"\x00garbage")
    again = sandbox.run_sweep()
    return Finding(
        "never read: each launch starts a fresh one",
        steps_again(before, sandbox),
        {"the same command ends it": again.code == 0},
    )

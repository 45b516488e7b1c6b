"""Inject all known faults into a real sweep, and print the outcomes as a table.

    python benchmarks/fault_injection/run.py [NAME...] [--markdown FILE]

A sweep of two short trials is run undisturbed first; after each fault the same command is given
again, and its numbers must be those of the undisturbed one. A disk that is full or read-only needs
root, to mount one. About half an hour on two cores.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from fault_cases import CASES
from finding import Finding, Skipped
from sandbox import Sandbox

HEAD = "| fault | outcome | lost work | orphans | holds |\n|---|---|---|---|---|\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="Parts of the faults' names.")
    parser.add_argument("--markdown", type=Path, help="Write the table there, too.")
    args = parser.parse_args()
    names = [n for n in CASES if not args.names or any(part in n for part in args.names)]
    with tempfile.TemporaryDirectory(prefix="rltune-faults-") as temporary:
        folder = Path(temporary)
        reference = undisturbed(folder)
        lines, is_green = [], True
        for i, name in enumerate(names):
            line, is_good = apply_fault(name, folder / f"{i:02d}", reference)
            lines.append(line)
            is_green &= is_good
            print(line, flush=True)
    if args.markdown:
        args.markdown.write_text(HEAD + "\n".join(lines) + "\n")
    sys.exit(0 if is_green else 1)


def undisturbed(folder: Path) -> dict[str, str]:
    """Return what the trials measure when nothing happens to them."""
    sandbox = Sandbox(folder / "undisturbed")
    ended = sandbox.run_sweep()
    if ended.code:
        sys.exit(f"the undisturbed sweep fails:\n{ended.text}")
    if wrong := sandbox.record_problems(most_ends=1):
        sys.exit(f"the undisturbed sweep fails: {wrong}")
    (folder / "reference.json").write_text(json.dumps(sandbox.digests()))
    return sandbox.digests()


def apply_fault(name: str, folder: Path, reference: dict[str, str]) -> tuple[str, bool]:
    """Return a fault's row of the table, and whether all that must hold does."""
    fault, changes = CASES[name]
    sandbox = Sandbox(folder, changes)
    began = time.monotonic()
    try:
        finding = fault(sandbox)
    except Skipped as why:
        return f"| {name} | skipped: {why} | | | |", True
    except (RuntimeError, TimeoutError, AssertionError) as error:
        return f"| {name} | not made: {' '.join(str(error).split())} | | | NO |", False
    left = sandbox.orphans()
    wrong = [what for what, holds in finding.checks.items() if not holds]
    wrong += [f"{left} processes are left"] if left else []
    wrong += _afterwards(finding, sandbox, reference)
    verdict = "yes" if not wrong else "NO: " + "; ".join(wrong)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return f"| {name} | {finding.outcome} | {finding.lost} | {left} | {verdict} |", not wrong


def _afterwards(finding: Finding, sandbox: Sandbox, reference: dict[str, str]) -> list[str]:
    wrong = sandbox.record_problems(most_ends=finding.most_ends) if finding.is_whole else []
    if finding.is_equal and sandbox.digests() != reference:
        wrong.append("other numbers than those of the undisturbed sweep")
    return wrong


if __name__ == "__main__":
    main()

"""Reads model folders and adapters in another process: `python -m rltune.policy.read_folder`.

So the driver stays without torch. Standard input is a JSON list of `Reading`s; standard output is a
JSON list of the problems that would stop a trial at its start.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rltune.errors import InputError, Problem
from rltune.interpreter import module_command, module_environment
from rltune.policy.model_folder import FolderFault, fault_problem
from rltune.spec.schema.trial import LoraConfig

_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Reading:
    """A model to read."""

    folder: str  # its folder
    name: str  # what the config calls it
    where: str  # file and key of that name
    lora: str = ""  # the adapter to start from, as JSON of `LoraConfig`; empty for none


def require_readable(readings: Sequence[Reading]) -> None:
    """Read models as a trial would, each tensor once.

    Raises:
        InputError: A trial could not start with one.

    """
    if not readings:
        return
    done = subprocess.run(
        module_command("rltune.policy.read_folder"),
        env=module_environment(),
        input=json.dumps([asdict(one) for one in readings]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip()[-_SHOWN:] or f"its process ended with code {done.returncode}"
        raise InputError(fault_problem(readings[0].name, FolderFault(why), readings[0].where))
    if problems := [Problem(**fields) for fields in json.loads(done.stdout)]:
        raise InputError(problems)


def _problems(reading: Reading) -> Iterator[Problem]:
    from rltune.policy.lora import add_adapter
    from rltune.policy.source import load_problem, require_whole

    try:
        network = require_whole(Path(reading.folder))
        if reading.lora:
            add_adapter(network, LoraConfig.model_validate_json(reading.lora), seed=0)
    except FolderFault as fault:
        yield fault_problem(reading.name, fault, reading.where)
    except InputError as error:
        yield from error.problems
    except (OSError, ValueError, ImportError) as error:
        yield load_problem(reading.name, error, reading.where)


def main() -> None:
    """Print what is wrong with the models of standard input."""
    readings = [Reading(**fields) for fields in json.load(sys.stdin)]
    print(json.dumps([asdict(problem) for one in readings for problem in _problems(one)]))


if __name__ == "__main__":
    main()

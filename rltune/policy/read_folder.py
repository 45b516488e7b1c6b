"""Reads a model folder in a process of its own: `python -m rltune.policy.read_folder`.

Its arguments are the folder, its name in the config, and the file and key of that name. The exit
code is 0 when a trial could start with the folder; else its one line of output is the problem.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from rltune.policy.model_folder import FolderFault, fault_problem
from rltune.policy.source import load_problem, require_whole


def main(folder: str, name: str, where: str) -> int:
    """Read a folder, and print why it cannot be used."""
    try:
        require_whole(Path(folder))
    except FolderFault as fault:
        problem = fault_problem(name, fault, where)
    except (OSError, ValueError, ImportError) as error:
        problem = load_problem(name, error, where)
    else:
        return 0
    print(json.dumps(asdict(problem)))
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The rules of comparability, as the checker has them, and the faults planted to try them."""

import sys
from pathlib import Path

from rltune.comparability.findings import RULES

_TESTS = Path(__file__).resolve().parents[2] / "tests"


def rule_table() -> str:
    """Return every rule with what holds when it finds nothing."""
    rows = [f"| {name} | {_when(name)} | {holds} |" for name, holds in RULES.items()]
    return "\n".join(["| rule | when | what holds |", "|---|---|---|", *rows])


def _when(rule: str) -> str:
    return "before a run" if rule.startswith("S") else "after it"


def mutation_table() -> str:
    """Return every planted fault and near miss of the tests, by rule."""
    sys.path[:0] = [str(_TESTS / "proof"), str(_TESTS)]
    from folder_mutations import FOLDER_MUTATIONS
    from sweep_mutations import SWEEP_MUTATIONS

    rows = [
        f"| `{one.code}` | {one.what} | {'caught' if one.is_fault else 'passes'} |"
        for one in (*SWEEP_MUTATIONS, *FOLDER_MUTATIONS)
    ]
    return "\n".join(["| rule | what is done | verdict |", "|---|---|---|", *rows])

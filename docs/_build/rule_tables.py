"""The rules of comparability, as the checker has them."""

from rltune.spec.findings import RULES


def rule_table() -> str:
    """Return every rule with what holds when it finds nothing."""
    rows = [f"| {name} | {_when(name)} | {holds} |" for name, holds in RULES.items()]
    return "\n".join(["| rule | when | what holds |", "|---|---|---|", *rows])


def _when(rule: str) -> str:
    return "before a run" if rule.startswith("S") else "after it"

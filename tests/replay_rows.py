"""Lines of replays.jsonl by hand."""

from rltune.store.jsonl import append_jsonl

LOST, SOLVED = "#O__#_X_P_______", "#√P_#___________"


def turn(tokens=("Up", "</answer>"), credit=(0.5, -1.0), **known):
    """Return a turn; `n_tokens` follows from the tokens."""
    return {
        "observation": LOST,
        "given": "<answer>",
        "tokens": list(tokens),
        "credit": None if credit is None else list(credit),
        "n_tokens": len(tokens),
        "actions": ["Up"],
        "reward": -0.1,
        "is_valid": True,
        "n_invalid": 0,
        "n_over_limit": 0,
        **known,
    }


def replay(*, step=1, success=True, turns=3, **known):
    """Return an episode of some equal turns."""
    row = {
        "step": step,
        "task_id": "sokoban-782abff912fd",
        "task_seed": 2882,
        "group": 0,
        "member": 0 if success else 1,
        "success": success,
        "truncated": False,
        "reward": 10.7 if success else -0.3,
        "failure_class": "none" if success else "lost",
        "turns": [turn() for _ in range(turns)],
        "closing": SOLVED if success else LOST,
        "kept": True,
    }
    return {**row, **known}


def add_replays(writer, spec, rows):
    """Append replays to a trial of a hand-made folder."""
    for row in rows:
        append_jsonl(writer.run.trial(spec.trial_id).replays, row)


def add_usual(writer):
    """Give every trial a success and a failure at steps 1 and 20."""
    for spec in writer.specs:
        rows = [replay(step=s, success=won) for s in (1, 20) for won in (True, False)]
        add_replays(writer, spec, rows)

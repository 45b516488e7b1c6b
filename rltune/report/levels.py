"""Floor and ceiling in a sentence, as far as they are known."""

from rltune.gate import wilson_interval
from rltune_envs.bounds import Floor


def levels_sentence(floor: Floor | None, ceiling: float | None, *, where: str = "") -> str:
    """Return what the random and the perfect player reach; what is unknown is named.

    Args:
        floor: Of the random player.
        ceiling: Of a perfect player.
        where: Begins the sentence: `On these`.

    """
    known = []
    if floor is not None and floor.rate is not None:
        known.append(f"a random player solves {floor.rate:.3f}{_measured(floor)}")
    if ceiling is not None:
        known.append(f"a perfect {'one' if known else 'player solves'} {ceiling:.3f}")
    if not known:
        return "Its floor and ceiling are unknown."
    sentence = f"{where} {', '.join(known)}".strip()
    unknown = "; the floor is unknown" if "random" not in sentence else ""
    unknown += "; the ceiling is unknown" if ceiling is None else ""
    return f"{sentence[0].upper()}{sentence[1:]}{unknown}."


def _measured(floor: Floor) -> str:
    """Return in brackets how far a measured floor is certain."""
    if floor.successes is None or floor.n is None:
        return ""
    low, high = wilson_interval(floor.successes, floor.n)
    return f" (measured, [{low:.3f}, {high:.3f}])"

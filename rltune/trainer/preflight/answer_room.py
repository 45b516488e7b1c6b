"""A check before anything starts that a sweep's token limit leaves room for a valid answer.

A trial sees more: `rltune.trainer.preflight.learnable` asks its own tokenizer and looks at its
prompts.
"""

from collections.abc import Iterator
from pathlib import Path

from rltune.errors import Problem
from rltune.policy.model_folder import SHIPPED
from rltune.spec.identity import canonical_json
from rltune.spec.load import LoadedSweep
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import model_path
from rltune.trainer.tasks import env_maker
from rltune_envs.errors import EnvError
from rltune_envs.protocols import HasShortestResponses, supports

_ENOUGH = {"tiny": 8}  # tokens that hold the shortest answers in any case; a check takes no second
_ENOUGH_ELSEWHERE = 64


def answer_problems(loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield the response limits below the shortest valid answer, where that is known here."""
    asked = {}
    for condition in loaded.conditions:
        plain = condition.config
        limit, model = plain["rollout"]["max_response_tokens"], plain["policy"]["model"]
        if limit < _ENOUGH.get(model, _ENOUGH_ELSEWHERE):
            asked[canonical_json([plain["env"], limit, model])] = plain
    for plain in asked.values():
        config = TrialConfig.model_validate(plain)
        limit = config.rollout.max_response_tokens
        lengths = _lengths(config, base)
        shortest = min(lengths.values(), default=0)
        if shortest > limit:
            where = loaded.where("rollout.max_response_tokens")
            yield no_room_problem(where, min(lengths, key=lengths.__getitem__), shortest, limit)


def no_room_problem(where: str, example: str, shortest: int, limit: int) -> Problem:
    """Return the problem of a token limit below the shortest valid answer."""
    what = (
        f"the shortest valid answer, such as {example[:80]!r}, has {shortest} tokens to be "
        f"sampled, rollout.max_response_tokens is {limit}."
    )
    return Problem(where, what, action=f"Raise it to {shortest} at least.")


def _lengths(config: TrialConfig, base: Path) -> dict[str, int]:
    """Return the shortest valid answers and their tokens, as far as both are known."""
    try:
        env = env_maker(config.env, None, base)()
        answers = env.shortest_responses() if supports(env, HasShortestResponses) else ()
    except (EnvError, ValueError):  # refused elsewhere, in its own words
        return {}
    model, kind = config.policy.model, config.env.kind
    counted = {
        answer: count_tokens(
            model, answer.removeprefix(env.response_prefix), env_kind=kind, base=base
        )
        for answer in answers
    }
    return {answer: n for answer, n in counted.items() if n is not None}


def count_tokens(model: str, text: str, *, env_kind: str, base: Path) -> int | None:
    """Return the tokens of a text that continues another one; None where unknown.

    It needs neither the model nor torch.

    Args:
        model: As `policy.model` names it.
        text: What is encoded, special tokens included.
        env_kind: Chooses among the shipped tiny policies.
        base: Folder to which a relative path refers.

    """
    folder = SHIPPED / env_kind if model == "tiny" else model_path(model, base)
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        encoding = Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False)
    except Exception:  # of the library's own; the trial refuses such a file by name
        return None
    return sum(end > start for start, end in encoding.offsets)

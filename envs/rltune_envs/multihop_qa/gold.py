"""The gold answers as responses, in each form that scores."""

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from rltune_envs.base import GoldResponse
from rltune_envs.multihop_qa import protocol
from rltune_envs.multihop_qa.records import Question
from rltune_envs.multihop_qa.verifiers import exact_match


@lru_cache(maxsize=4096)
def gold_answer(answers: tuple[str, ...], *, is_compact: bool) -> GoldResponse | None:
    """Return the answer block around each gold answer; None where no answer can score.

    Left out is an answer that the block would not give back (it holds a tag), or that is empty once
    normalised.

    Args:
        answers: The gold answer first, then its aliases.
        is_compact: Write for the compact prompt, without an empty thought.

    """
    opening, closing = protocol.around_action(protocol.ANSWER, is_compact=is_compact)
    before = opening if is_compact else protocol.NO_THOUGHT + opening

    def scores(text: str) -> bool:
        action = protocol.parse_response(before + text + closing, needs_think=not is_compact)
        if action is None or action.kind != protocol.ANSWER:
            return False
        return bool(exact_match(action.text, answers))

    golds = tuple(filter(scores, dict.fromkeys(map(protocol.one_line, answers))))
    before = before if is_compact else before.removeprefix(protocol.THINK)
    return GoldResponse(before, golds, closing) if golds else None


def gold_facts(question: Question) -> dict[str, Any]:
    """Return a question with its answers and its evidence, as JSON values."""
    return {
        "question": question.text,
        "answers": list(question.answers),
        "supporting": list(question.supporting),
        "evidence": [asdict(passage) for passage in question.evidence],
        "decomposition": [asdict(hop) for hop in question.decomposition],
    }

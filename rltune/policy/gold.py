"""Gold answers as token ids, and the contexts of a conversation at which they are scored.

`rltune.policy.gold_scores` scores them.
"""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase as Tokenizer

from rltune.policy.pieces import PieceEncoder, content, control_ids, frame


@dataclass(frozen=True, slots=True)
class GoldCopy:
    """A gold answer to be scored at one context of a row.

    Attributes:
        context_end: Tokens of the row that the answer follows; at least 1.
        ids: A whole response with the answer, read up to the last scored token.
        scored: True on the tokens of the answer itself; only these count.

    Raises:
        ValueError: There is no context, the lengths differ, or no token is scored.

    """

    context_end: int
    ids: tuple[int, ...]
    scored: tuple[bool, ...]

    def __post_init__(self) -> None:
        """Refuse a copy without a score."""
        if self.context_end < 1:
            raise ValueError(f"context_end is {self.context_end}; a first token needs a context.")
        if len(self.ids) != len(self.scored) or not any(self.scored):
            raise ValueError(
                f"{len(self.ids)} ids and {len(self.scored)} flags, {sum(self.scored)} of them "
                "True; there must be one flag per id, and at least one token that is scored."
            )

    @property
    def n_read(self) -> int:
        """Number of tokens up to the last scored one."""
        return max(index for index, is_scored in enumerate(self.scored) if is_scored) + 1


def encode_gold(
    tokenizer: Tokenizer, before: str, gold: str, after: str
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the ids of before + gold + after, and which of them are of the gold answer.

    A token belongs to the answer when it overlaps the answer's characters, so a token that also
    holds a space or a bracket beside it counts. As in A2TGPO; IGPO's first code counted tokens,
    which is wrong where they merge across the border. The answer is plain text; the text around it
    may hold an end token.

    Args:
        tokenizer: A fast tokenizer, which knows the characters of each token.
        before: Text between the context and the answer.
        gold: The answer.
        after: Text that closes the response.

    Raises:
        ValueError: The tokenizer is not fast, or it makes no token from the answer.

    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not know the characters of its tokens; load a fast "
            "tokenizer (one with a tokenizer.json)."
        )
    encoder = PieceEncoder(tokenizer, control_ids(tokenizer))
    tokens = encoder.tokens([frame(before), content(gold), frame(after)])
    start, stop = len(before), len(before) + len(gold)
    scored = tuple(token.start < min(stop, token.end) and token.end > start for token in tokens)
    if not any(scored):
        raise ValueError(f"the gold answer {gold!r} has no token of its own; it cannot be scored.")
    return tuple(token.id for token in tokens), scored

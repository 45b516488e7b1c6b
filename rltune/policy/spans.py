"""The characters of each token in a decoded text."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase as Tokenizer


def token_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of some ids and the characters that each of them adds to it.

    It decodes ever longer prefixes, because a sampled sequence need not be the tokenizer's own
    encoding of its text. A token that completes a character of several bytes adds that character;
    one that adds nothing has an empty span.

    Args:
        tokenizer: What decodes.
        ids: Token ids, in order.

    """
    spans: list[tuple[int, int]] = []
    text = ""
    for end in range(1, len(ids) + 1):
        longer = str(tokenizer.decode(ids[:end], skip_special_tokens=False))
        whole = longer.rstrip("\N{REPLACEMENT CHARACTER}")  # of a character that is not complete
        start = len(text) if whole.startswith(text) else _common(text, whole)
        spans.append((start, max(start, len(whole))))
        text = whole
    return text, spans


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

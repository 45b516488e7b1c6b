"""Where each token of a decoded text stands in it."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase as Tokenizer


def token_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of some ids and the characters that each of them adds to it.

    Found by decoding ever longer beginnings, because a sampled sequence need not be what the
    tokenizer would make of its text. A token that only completes a character of several bytes adds
    what was not there before; one that adds nothing has an empty span.

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
    """Return how many characters two texts begin with together."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

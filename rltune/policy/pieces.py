"""Token ids of frames and contents: only a frame can hold control tokens.

A frame is what a template, or an environment's response prefix, writes around a message. A content
is text of the world: observations, passages, questions, system and user texts. A passage that
spells `<|im_end|>` would otherwise end its message.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from transformers import PreTrainedTokenizerBase as Tokenizer

_BEFORE = "\n"  # put before a text that continues another one, so that it gets no leading space
_MOST_KNOWN = 1024  # texts whose ids are kept


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text."""

    text: str  # the text
    is_frame: bool  # whether its control tokens act as such


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its characters in the text, `start` to `end`."""

    id: int
    start: int
    end: int


def frame(text: str) -> Piece:
    """Return a part whose control tokens act as such."""
    return Piece(text, is_frame=True)


def content(text: str) -> Piece:
    """Return a part that is plain text, whatever it spells."""
    return Piece(text, is_frame=False)


def control_ids(
    tokenizer: Tokenizer, *, end_ids: Iterable[int] = (), frames: Iterable[str] = ()
) -> frozenset[int]:
    """Return the ids that steer a model rather than say something.

    These are the special tokens, the ends of a response, and the added tokens in a template's
    frames; the unknown token only where it is also an end or a beginning.

    Args:
        tokenizer: Names its special and its added tokens.
        end_ids: Ids that end a response.
        frames: Texts that a chat template writes around messages.

    """
    added = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *(id for id, token in added.items() if token.special)}
    framing = {
        id for id, token in added.items() for text in frames if token.content.strip() in text
    }
    always = {*end_ids, tokenizer.eos_token_id, tokenizer.bos_token_id}
    return frozenset(((special | framing) - {tokenizer.unk_token_id} | always) - {None})


class PieceEncoder:
    """Encodes frames and contents as one text, in which no content makes a control token.

    A text without control tokens in its contents gets the tokenizer's ids of the whole text.
    Otherwise the text is cut inside each such token, and the parts are encoded separately; likewise
    inside an added token that begins in a content and reaches into a frame.

    Args:
        tokenizer: Encodes.
        control: Ids that no content may produce.

    """

    def __init__(self, tokenizer: Tokenizer, control: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._control = control
        self._steering = control | set(tokenizer.added_tokens_decoder)
        self._known: dict[tuple[Piece, ...], tuple[int, ...]] = {}

    def encode(self, pieces: Sequence[Piece]) -> list[int]:
        """Return the ids of the joined pieces; the members of a group read the same ones."""
        key = tuple(pieces)
        if key not in self._known:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known[key] = tuple(token.id for token in self.tokens(pieces))
        return list(self._known[key])

    def tokens(self, pieces: Sequence[Piece]) -> list[Token]:
        """Return the tokens of the joined pieces.

        Characters are exact for a fast tokenizer; for others, only those of control tokens are.
        """
        text = "".join(piece.text for piece in pieces)
        ends = accumulate((len(piece.text) for piece in pieces), initial=0)
        contents = [
            span
            for span, piece in zip(pairwise(ends), pieces, strict=True)
            if not piece.is_frame and piece.text
        ]
        return list(self._plain(text, contents, 0, len(text)))

    def continued(self, text: str) -> list[int]:
        """Return the ids of a text that continues another one, control tokens included."""
        return [token.id for token in self._tokens(text, len(_BEFORE))]

    def _plain(
        self, text: str, contents: Sequence[tuple[int, int]], start: int, end: int
    ) -> Iterator[Token]:
        """Yield the tokens of text[start:end]; cut it where a content produces a control token."""
        tokens = self._tokens(text[start:end], start)
        cores = {token: _core(text, token) for token in tokens if token.id in self._steering}
        made = {
            token: core
            for token, core in cores.items()
            if _overlaps(core, contents) and (token.id in self._control or _leaves(core, contents))
        }
        cuts = {first + 1 for first, last in made.values() if last - first > 1}
        if not cuts:  # a control token of one character cannot be written as text
            yield from (token for token in tokens if token not in made)
            return
        for part in pairwise(sorted({start, *cuts, end})):
            yield from self._plain(text, contents, *part)

    def _tokens(self, text: str, start: int) -> list[Token]:
        """Return the tokens of a text that starts at an offset in a longer one."""
        if not self._tokenizer.is_fast:
            return self._spelled(text, start)
        if start:
            tokens = self._encoded(_BEFORE + text, start - len(_BEFORE))
            if all(start not in range(token.start + 1, token.end) for token in tokens):
                return [token for token in tokens if token.end > start]
        return self._encoded(text, start)

    def _encoded(self, text: str, start: int) -> list[Token]:
        encoded = self._tokenizer(
            text,
            add_special_tokens=False,
            split_special_tokens=False,
            return_offsets_mapping=True,
        )
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [Token(id, start + first, start + last) for id, (first, last) in pairs]

    def _spelled(self, text: str, start: int) -> list[Token]:
        """Return the tokens by a slow tokenizer, which only shows where control tokens are."""
        texts = {self._tokenizer.convert_ids_to_tokens(id): id for id in self._control}
        pattern = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
        tokens, done = [], 0
        for match in [*re.finditer(f"({pattern})", text), None]:
            before = text[done : match.start() if match else len(text)]
            ids = self._tokenizer.encode(before, add_special_tokens=False) if before else []
            tokens += [Token(id, start + done, start + done + len(before)) for id in ids]
            if match:
                tokens.append(
                    Token(texts[match.group()], start + match.start(), start + match.end())
                )
                done = match.end()
        return tokens


def _core(text: str, token: Token) -> tuple[int, int]:
    """Return the characters of a token without the whitespace that some control tokens include."""
    spelled = text[token.start : token.end]
    start = token.start + len(spelled) - len(spelled.lstrip())
    return start, max(start, token.end - len(spelled) + len(spelled.rstrip()))


def _overlaps(span: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    return any(max(span[0], start) < min(span[1], end) for start, end in others)


def _leaves(span: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    return not any(start <= span[0] and span[1] <= end for start, end in others)

"""From observations to the token ids that a conversation goes on with.

A conversation only ever grows: the ids of an earlier turn are never made again from text. So what
the policy is trained on is what it sampled, and a template that rewrites history cannot do harm: it
is refused.
"""

from collections.abc import Sequence
from typing import Protocol

from transformers import PreTrainedTokenizerBase as Tokenizer

from rltune.errors import InputError, Problem

_MARK = "<think>first thoughts</think> <answer>Up</answer>"  # what a template must leave alone


class TextRenderer(Protocol):
    """Makes the ids that are appended to a conversation before each response."""

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return the ids of a new conversation up to the first sampled token."""

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the ids between two responses; `is_ended` when the first has its end token."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids, special tokens left out."""


class PlainRenderer:
    """Text without a chat template.

    Args:
        tokenizer: Encodes each piece on its own.
        user: Written before each observation.
        assistant: Written before each response.

    """

    def __init__(self, tokenizer: Tokenizer, *, user: str, assistant: str) -> None:
        self._tokenizer = tokenizer
        self._user = user
        self._assistant = assistant

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return system text, observation, and the start of the response."""
        return self._encode(f"{system}{self._user}{observation}{self._assistant}{prefix}")

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the next observation and the start of the next response."""
        return self._encode(f"{self._user}{observation}{self._assistant}{prefix}")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; the tiny tokenizer's end tag is text, not a special token."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=bool(self._user)))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


class ChatRenderer:
    """Text through the tokenizer's chat template.

    The template is asked once, with a marked response, for what it writes before and after a
    response. Those pieces are then appended as ids.

    Args:
        tokenizer: Has a chat template.
        end_ids: Ids that end a response by the model's config.

    Attributes:
        end_ids: The same and the token that the template closes a response with. It is not written
            twice.

    Raises:
        InputError: The template drops or changes an earlier response when the chat goes on.

    """

    def __init__(self, tokenizer: Tokenizer, *, end_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        try:
            opened = self._render("S", "A")
            whole = self._render("S", "A", _MARK, "B")
        except Exception as error:  # templates refuse roles with errors of their own
            raise InputError(
                Problem(
                    "policy.template",
                    f"the chat template cannot show a system and a user message ({error}).",
                    action="Set policy.template: plain, or use another model.",
                )
            ) from error
        if not whole.startswith(opened + _MARK):
            raise InputError(
                Problem(
                    "policy.template",
                    "the tokenizer's chat template is not prefix-preserving: it rewrites an "
                    "earlier response when the conversation goes on, so trained tokens would "
                    "differ from sampled ones.",
                    action="Set policy.template: plain, or use a model that only appends.",
                )
            )
        self.end_ids = (*end_ids, *self._own_end(whole[len(opened + _MARK) :]))
        self._end_texts = [tokenizer.decode([end]) for end in self.end_ids]

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return the rendered system and user messages and the start of the response."""
        return self._encode(self._render(system, observation) + prefix)

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the rest of the response's frame, the next user message, and the next start."""
        whole = self._render("S", "A", _MARK, observation)
        between = whole[len(self._render("S", "A") + _MARK) :]
        if is_ended:
            for end in self._end_texts:
                if between.lstrip().startswith(end):
                    between = between.lstrip().removeprefix(end)
                    break
        return self._encode(between + prefix)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def _own_end(self, between: str) -> list[int]:
        """Return the special token that the template closes a response with, if there is one.

        Base models name another end of text in their config, and would never stop at this one.
        """
        first = self._encode(between)[:1]
        tokens = self._tokenizer.added_tokens_decoder
        return [token for token in first if token in tokens and tokens[token].special]

    def _render(self, system: str, *contents: str) -> str:
        roles = ("user", "assistant")
        messages = [{"role": "system", "content": system}] if system else []
        messages += [
            {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
        ]
        return str(
            self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

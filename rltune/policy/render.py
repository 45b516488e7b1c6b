"""From observations to the token ids that continue a conversation.

A conversation only grows: the ids of an earlier turn are never made again from text, so the policy
is trained on what it sampled. A template that rewrites history would show a served model another
conversation; it is refused, unless only its frames are wanted (`append`).

Texts of the world are encoded apart from the frames around them (`rltune.policy.pieces`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase as Tokenizer

from rltune.errors import InputError, Problem
from rltune.policy.pieces import Piece, PieceEncoder, content, control_ids, frame

_SYSTEM, _USER = "⟦system⟧", "⟦user⟧"  # stand for contents while a template is asked for its frames
_MARK = "<answer>Up</answer>"
_KEPT = (_MARK, f"<think>first thoughts</think> {_MARK}", "no tags")
"""Responses that a template must not change; many remove thoughts."""

_DATE = (  # 26 July 2024, the fallback of Llama 3's template, in place of a template's clock
    "{% macro strftime_now(form) %}{{ form"
    + "".join(
        f" | replace('%{letter}', '{text}')"
        for letter, text in {
            **{"d": "26", "m": "07", "b": "Jul", "B": "July", "Y": "2024", "y": "24"},
            **{"a": "Fri", "A": "Friday", "H": "12", "M": "00", "S": "00"},
        }.items()
    )
    + " }}{% endmacro +%}"
)
_RENDERINGS = 4  # of one conversation; a template with randomness would differ


class TextRenderer(ABC):
    """Makes the ids that are appended to a conversation before each response."""

    _tokenizer: Tokenizer
    _pieces: PieceEncoder
    _silent: frozenset[int]

    @abstractmethod
    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return the ids of a new conversation up to the first sampled token."""

    @abstractmethod
    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the ids between two responses; `is_ended` if the first has its end token."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids without ends and padding; special tags are text."""
        spoken = [id for id in ids if id not in self._silent]
        return str(self._tokenizer.decode(spoken, skip_special_tokens=False))

    def written(self, text: str) -> list[int]:
        """Return ids of a text that a policy can sample after its prefix."""
        return self._pieces.continued(text)


class PlainRenderer(TextRenderer):
    """Text without a chat template.

    A conversation begins with the special tokens that the tokenizer puts before a text: models
    expect a begin-of-text token that they were always shown.

    Args:
        tokenizer: Encodes each message with the text around it.
        user: Written before each observation.
        assistant: Written before each response.
        end_ids: Ids that end a response by the model's config.

    """

    def __init__(
        self, tokenizer: Tokenizer, *, user: str, assistant: str, end_ids: Sequence[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._user = user
        self._assistant = assistant
        self._pieces = PieceEncoder(tokenizer, control_ids(tokenizer, end_ids=end_ids))
        # The end tag of a tiny tokenizer is text, not an end token.
        self._silent = _silent_ids(tokenizer, end_ids) if user else frozenset()

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return system text, observation, and the start of the response."""
        pieces = [content(system), *self._turn(observation, prefix)]
        return [*_start_ids(self._tokenizer), *self._pieces.encode(pieces)]

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the next observation and the start of the next response."""
        return self._pieces.encode(self._turn(observation, prefix))

    def _turn(self, observation: str, prefix: str) -> list[Piece]:
        return [frame(self._user), content(observation), frame(self._assistant + prefix)]


def _silent_ids(tokenizer: Tokenizer, end_ids: Sequence[int]) -> frozenset[int]:
    """Return the ids that say nothing in a response: ends and padding."""
    return frozenset({*end_ids, tokenizer.eos_token_id, tokenizer.pad_token_id} - {None})


def _start_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the special tokens that the tokenizer puts before a text."""
    text = list(tokenizer.encode("a", add_special_tokens=False))
    whole = list(tokenizer.encode("a"))
    starts = range(len(whole) - len(text) + 1)
    return next((whole[:at] for at in starts if whole[at : at + len(text)] == text), [])


class ChatRenderer(TextRenderer):
    """Text through the tokenizer's chat template.

    What the template writes before and after a marked response is appended as ids. Where it writes
    the date, that is 26 July 2024: a prompt must not change overnight.

    Args:
        tokenizer: Has a chat template.
        end_ids: Ids that end a response by the model's config.
        is_appended: Use the template's frames even if it rewrites earlier responses itself.

    Attributes:
        end_ids: The same, and the token with which the template closes a response.

    Raises:
        InputError: The template drops or changes an earlier message when the chat goes on, writes
            one conversation in several ways, or cannot write such a conversation.

    """

    def __init__(
        self, tokenizer: Tokenizer, *, end_ids: Sequence[int], is_appended: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        try:
            fault = self._fault(is_appended=is_appended)
        except Exception as error:  # templates refuse roles with errors of their own
            raise InputError(
                Problem(
                    "policy.template",
                    f"the chat template cannot show a system and a user message ({error}).",
                    action="Set policy.template: plain, or use another model.",
                )
            ) from error
        if fault is not None:
            raise InputError(fault)
        self._first = {bool(system): self._render(system, _USER) for system in (_SYSTEM, "")}
        self._following = self._between(_USER)
        self._shapes = {mark: self._shape(mark) for mark in (_SYSTEM, _USER)}
        self.end_ids = (*end_ids, *self._own_end(self._following))
        self._end_texts = [tokenizer.decode([end]) for end in self.end_ids]
        self._silent = _silent_ids(tokenizer, self.end_ids)
        frames = [*self._first.values(), self._following]
        control = control_ids(tokenizer, end_ids=self.end_ids, frames=frames)
        self._pieces = PieceEncoder(tokenizer, control)

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return the rendered system and user messages and the start of the response."""
        return self._encode(self._first[bool(system)], system, observation, prefix)

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the rest of the response's frame, the next user message, and the next start."""
        between = self._following
        if is_ended:
            for end in self._end_texts:
                if between.lstrip().startswith(end):
                    between = between.lstrip().removeprefix(end)
                    break
        return self._encode(between, "", observation, prefix)

    def _encode(self, frames: str, system: str, observation: str, prefix: str) -> list[int]:
        """Replace the marks in a template's text by the messages, and encode the whole."""
        messages = {_SYSTEM: system, _USER: observation}
        contents = {mark: self._shapes[mark](text) for mark, text in messages.items()}
        *parts, last = re.split(f"({_SYSTEM}|{_USER})", frames)
        pieces = [content(contents[part]) if part in contents else frame(part) for part in parts]
        return self._pieces.encode([*pieces, frame(_opened(last, prefix))])

    def _shape(self, mark: str) -> Callable[[str], str]:
        """Return the template's change to the messages of a role: none, or trimming."""
        spaced = f"\n {mark} \n"
        system, user = (spaced if mark == own else own for own in (_SYSTEM, _USER))
        return str if spaced in self._render(system, user) else str.strip

    def _fault(self, *, is_appended: bool) -> Problem | None:
        """Return why the template cannot be used."""
        action = "Set policy.template: plain, or use another model."
        shown = [self._render(_SYSTEM, _USER), self._render("", _USER), self._between(_USER)]
        if _SYSTEM not in shown[0] or any(_USER not in text for text in shown):
            what = "the chat template does not show every system and user message as it is."
        elif len({self._render("S", "A", _MARK, "B") for _ in range(_RENDERINGS)}) > 1:
            what = "the chat template writes one conversation in several ways: it is random, so "
            what += "prompts would differ from trial to trial."
        elif not self._has_one_frame():
            what = "the chat template does not write every response between the same two frames, "
            what += "so a conversation cannot be appended to."
        elif is_appended or all(self._keeps(response) for response in _KEPT):
            return None
        else:
            what = "the tokenizer's chat template is not prefix-preserving: it rewrites an "
            what += "earlier message when the conversation goes on, so trained tokens would differ "
            what += "from sampled ones."
            action = "Set policy.template: append to use its frames around responses that stay as "
            action += "sampled, plain for no template, or use a model that only appends."
        return Problem("policy.template", what, action=action)

    def _keeps(self, response: str) -> bool:
        """Return whether the text so far stays unchanged over two more turns."""
        opened = self._render("S", "A")
        second = self._render("S", "A", response, "B")
        third = self._render("S", "A", response, "B", response, "C")
        return second.startswith(opened + response) and third.startswith(second + response)

    def _has_one_frame(self) -> bool:
        """Return whether the text between two messages is the same in the second turn."""
        once = self._render("S", "A", _MARK, "C").count(_MARK) == 1
        later = self._render("S", "A", "first", "B", _MARK, "C").partition(_MARK)[2]
        return once and later == self._between("C")

    def _between(self, observation: str) -> str:
        """Return what the template writes from the end of a response to the start of the next."""
        return self._render("S", "A", _MARK, observation).partition(_MARK)[2]

    def _own_end(self, between: str) -> list[int]:
        """Return the special token with which the template closes a response, if any.

        Base models have another end of text in their config, and would never stop at this one.
        """
        first = self._tokenizer.encode(between, add_special_tokens=False)[:1]
        tokens = self._tokenizer.added_tokens_decoder
        return [token for token in first if token in tokens and tokens[token].special]

    def _render(self, system: str, *contents: str) -> str:
        roles = ("user", "assistant")
        messages = [{"role": "system", "content": system}] if system else []
        messages += [
            {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
        ]
        template = self._tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = _DATE + template
        return str(
            self._tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True
            )
        )


def _opened(text: str, prefix: str) -> str:
    """Return a prompt with the start of the response, which some templates write themselves."""
    return text if prefix and text.rstrip().endswith(prefix.rstrip()) else text + prefix

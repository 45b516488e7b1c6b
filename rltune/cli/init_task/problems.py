"""A file of problems as an environment, with what a sweep over it must know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem
from rltune.report.render import plural
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.trainer.tasks import env_maker
from rltune_envs.base import TextEnv
from rltune_envs.protocols import HasGoldResponse, HasParts, require, supports
from rltune_envs.verified_task.guess import Guess

_ASKS = {
    "number": "{%s}\nGive the answer as a number.",
    "boxed": "{%s}\nPut the answer in \\boxed{}.",
    "multiple_choice": "{%s}\n{%s}\nGive the letter of the right choice in parentheses.",
    "exact": "{%s}\nGive nothing but the answer.",
}
"""Verifier -> the prompt that asks for an answer in its form; a custom score has none."""

FREE_TOKENS = 256
"""Room for a response of which no right one is known, or of a language model."""

ROOM = 64
"""Tokens of a conversation besides prompt and response."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command was given.

    Attributes:
        target: The sweep's name, with its folder.
        file: The problems: a file, or `reasoning_gym:NAME`.
        model: What the sweep trains; None makes a small policy.
        question: Column that is asked; None looks for it.
        answer: Column of the answers; None looks for it.
        verifier: Name or import path; None looks at the answers.
        force: Whether to overwrite what is there.

    """

    target: Path
    file: Path
    model: str | None
    question: str | None
    answer: str | None
    verifier: str | None
    force: bool

    @property
    def sweep(self) -> Path:
        """The sweep file."""
        return self.target.with_name(f"{self.target.name}.yaml")

    @property
    def policy(self) -> Path:
        """The folder of the small policy."""
        return self.target.with_name(f"{self.target.name}-policy")


@dataclass(frozen=True, slots=True)
class Problems:
    """Problems of a file or a data set as an environment.

    Attributes:
        section: Its env section.
        env: It.
        seeds: Part -> the seeds of its problems.
        longest_prompt: In bytes.
        longest_response: Of the gold responses, in bytes; None where none is known.

    """

    section: Mapping[str, Any]
    env: TextEnv
    seeds: Mapping[str, Sequence[int]]
    longest_prompt: int
    longest_response: int | None

    @property
    def sizes(self) -> dict[str, int]:
        """Part -> number of its problems."""
        return {part: len(own) for part, own in self.seeds.items()}

    @property
    def context(self) -> int:
        """Room for a whole conversation with the small policy, in bytes."""
        response = FREE_TOKENS if self.longest_response is None else self.longest_response
        return max(512, self.longest_prompt + response + ROOM)


def read_problems(file: Path, guess: Guess) -> Problems:
    """Return the problems, each row checked."""
    section = _section(file, guess)
    env = env_maker(VerifiedConfig.model_validate(section))()
    parts = require(env, HasParts)
    seeds = {part: parts.part_seeds(part) for part in ("train", "heldout", "test")}
    for part, own in seeds.items():
        if not own:
            action = "Give more; from 100 to train on they count as enough (S8.few_rows)."
            verb = "leaves" if guess.n_rows == 1 else "leave"
            what = f"{plural(guess.n_rows, 'row')} {verb} none for {part}."
            raise InputError(Problem(str(file), what, action=action))
    return problems_of(section, env, seeds)


def problems_of(
    section: Mapping[str, Any], env: TextEnv, seeds: Mapping[str, Sequence[int]]
) -> Problems:
    """Return problems with the lengths of their prompts and gold responses."""
    prompts, responses = zip(
        *(texts_of(env, seed) for own in seeds.values() for seed in own), strict=True
    )
    lengths = [len(text.encode()) for text in responses if text is not None]
    longest = max(len(text.encode()) for text in prompts)
    return Problems(section, env, seeds, longest, max(lengths, default=None))


def _section(file: Path, guess: Guess) -> dict[str, Any]:
    """Return the env section: what differs from the schema's defaults."""
    kind = guess.verifier
    names = (guess.question, guess.choices) if guess.choices else (guess.question,)
    verifier: dict[str, Any] = {"kind": kind}
    if kind == "exact":
        verifier["ignore_case"] = True
    section = {
        "kind": "verified",
        "train": str(file),
        "template": _ASKS[kind] % names if kind in _ASKS else f"{{{guess.question}}}",
        "answer_column": guess.answer,
        "verifier": verifier,
    }
    return {**section, "choices_column": guess.choices} if guess.choices else section


def texts_of(env: TextEnv, seed: int) -> tuple[str, str | None]:
    """Return a prompt and its gold response; None where it is unknown."""
    prompt = env.reset(seed=seed)
    gold = require(env, HasGoldResponse).gold_response() if supports(env, HasGoldResponse) else None
    return prompt, None if gold is None else gold.texts[0]

"""Supervised start of a tiny policy on expert demonstrations, stopped at a middling skill.

The whole text is learned, not only the answers: what a board becomes after two actions is a lesson
in the rules, and with it the skill comes in a few hundred steps instead of thousands. Of questions,
what is read between searches teaches to copy names, which is most of the game; the policy is then
taught the fault of answering too early.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from pydantic import TypeAdapter
from torch import Tensor

from rltune.maths.streams import stream_seed
from rltune.policy.load import Policy, assemble, weights_digest
from rltune.policy.tiny import tiny_model, tiny_tokenizer
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.env import Env
from rltune.spec.warmstart_data import TAUGHT_ENVS, UNSEEN_TASKS
from rltune.trainer.demonstrations import DemonstratedTurn, demonstrations
from rltune.trainer.tasks import env_maker
from rltune_envs.base import Task, TextEnv
from rltune_envs.splits import build_manifest

PROBE_TASKS = 512  # training tasks on which the skill is measured; distinct, as held-out ones are
_WORLDS = 16  # closed worlds that questions are demonstrated in; world 0 is none of them


@dataclass(frozen=True, slots=True)
class Recipe:
    """Numbers of the supervised start.

    Attributes:
        target: Success rate, sampling at temperature 1, at which training stops.
        batch: Demonstrations per optimiser step.
        lr: Learning rate of AdamW.
        warmup: Steps until the learning rate is reached.
        noise: Probability that a turn is answered at random, and then not learned.
        haste: Probability that a search, or the first partial result of a sum, is given as the
            answer, and learned: a fault that is spread over all tasks, for training to undo.
        text_weight: Weight of the loss on what is read, relative to what is answered.
        max_tokens: Most tokens of a response when the skill is measured.
        probe_every: Optimiser steps between measurements.

    """

    target: float
    batch: int = 128
    lr: float = 1e-3
    warmup: int = 100
    noise: float = 0.25
    haste: float = 0.0
    text_weight: float = 0.3
    max_tokens: int = 8
    probe_every: int = 20


RECIPES = {
    "sokoban": Recipe(target=0.34),
    "frozen_lake": Recipe(target=0.40),
    # A random answer would end the episode, and would teach nothing. Stopped early, the policy is
    # sure of some kinds of answers and lost at the others: nothing that training could move.
    "multihop_qa": Recipe(target=0.36, noise=0.0, haste=0.25, max_tokens=12),
    # Stops after the first partial result in four of ten answers: as for questions, a fault that is
    # spread over all sums.
    "arithmetic": Recipe(target=0.42, lr=3e-3, noise=0.0, haste=0.4, max_tokens=24, probe_every=50),
}


@dataclass(frozen=True, slots=True)
class Example:
    """A demonstration in token ids."""

    ids: list[int]  # the whole text
    is_answer: list[bool]  # true on tokens of expert answers
    is_text: list[bool]  # true on observations that follow from what came before: all but the first


class Encoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the token ids of a text."""


def warmstart(
    env_kind: str,
    out: Path,
    *,
    seed: int,
    max_steps: int,
    threads: int,
    say: Callable[[str], None],
    recipe: Recipe | None = None,
) -> float:
    """Train a tiny policy from nothing until it reaches its recipe's target; save it.

    Args:
        env_kind: A key of `TAUGHT_ENVS`.
        out: Folder to write the policy to, in transformers' format, with `warmstart.json`.
        seed: Of the initial weights, the demonstrations and the noise.
        max_steps: Stop here in any case.
        threads: Threads for torch; the weights depend on them in the last bits.
        say: Called with one line per probe.
        recipe: Numbers of the training; by default the environment's own.

    Returns:
        The success rate that was reached.

    """
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    recipe = recipe or RECIPES[env_kind]
    make_env = school_env(env_kind)
    policy = assemble(
        tiny_model(env_kind), tiny_tokenizer(env_kind), template="plain", is_bare=True
    )
    tasks = build_manifest(
        make_env(),
        train_tasks=PROBE_TASKS,
        heldout_tasks=UNSEEN_TASKS,
        test_tasks=0,
        split_seed=0,
    )
    stream = demonstrations(
        demonstrated_envs(env_kind),
        seed=seed,
        excluded={task.content_hash for task in tasks.heldout},
        noise=recipe.noise,
        haste=recipe.haste,
    )
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=recipe.lr, betas=(0.9, 0.98))
    reached = 0.0
    step = 0
    for step in range(1, max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * min(1.0, step / recipe.warmup)
        turns = itertools.islice(stream, recipe.batch)
        examples = [encode(policy.tokenizer, example) for example in turns]
        loss = _optimizer_step(policy, examples, optimizer, recipe)
        if step % recipe.probe_every == 0 or step == max_steps:
            reached = measure_skill(
                policy, tasks.train, make_env=make_env, seed=seed, max_tokens=recipe.max_tokens
            )
            say(f"step {step}  loss {loss:.3f}  success {reached:.3f} of target {recipe.target:g}")
            if reached >= recipe.target:
                break
    facts = {"env": env_kind, "seed": seed, "steps": step, "threads": threads, "reached": reached}
    _save(policy, out, {**facts, "recipe": asdict(recipe)})
    return reached


def school_env(env_kind: str, **changes: int) -> Callable[[], TextEnv]:
    """Return a maker of the environment that a tiny policy is schooled and probed in."""
    section = {"kind": env_kind, "prompt": "compact", **TAUGHT_ENVS[env_kind], **changes}
    return env_maker(TypeAdapter(Env).validate_python(section))


def demonstrated_envs(env_kind: str) -> list[TextEnv]:
    """Return what demonstrations are played in, in turn.

    Questions are shown in many other worlds than the one of the splits: a policy that is to read
    must not be able to know the answers by heart.
    """
    if env_kind == "multihop_qa":
        return [school_env(env_kind, world_seed=world)() for world in range(1, _WORLDS + 1)]
    return [school_env(env_kind)()]


def measure_skill(
    policy: Policy,
    tasks: Sequence[Task],
    *,
    make_env: Callable[[], TextEnv],
    seed: int,
    max_tokens: int,
    max_context: int = 512,
) -> float:
    """Return the success rate on the tasks, sampling at temperature 1."""
    slots = [
        Slot(task, index, 0, stream_seed(seed, "probe", index)) for index, task in enumerate(tasks)
    ]
    episodes = play(
        slots,
        make_env=make_env,
        renderer=policy.renderer,
        engine=TorchEngine(policy.decoder()),
        params=SamplingParams(temperature=1.0, max_tokens=max_tokens, max_context=max_context),
    )
    return sum(episode.success for episode in episodes) / len(episodes)


def encode(tokenizer: Encoder, turns: Sequence[DemonstratedTurn]) -> Example:
    """Return a demonstration in token ids."""
    ids: list[int] = []
    is_answer: list[bool] = []
    is_text: list[bool] = []
    for index, turn in enumerate(turns):
        prompt = tokenizer.encode(turn.prompt, add_special_tokens=False)
        response = tokenizer.encode(turn.response, add_special_tokens=False)
        ids += prompt + response
        is_answer += [False] * len(prompt) + [turn.is_expert] * len(response)
        is_text += [index > 0] * len(prompt) + [False] * len(response)
    return Example(ids, is_answer, is_text)


def _optimizer_step(
    policy: Policy,
    examples: Sequence[Example],
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    chunk: int = 64,
) -> float:
    """Make one optimiser step; return the mean loss of an answer token."""
    examples = sorted(examples, key=lambda example: len(example.ids))
    n_answer = sum(sum(example.is_answer) for example in examples)
    n_text = max(1, sum(sum(example.is_text) for example in examples))
    total = 0.0
    optimizer.zero_grad()
    for start in range(0, len(examples), chunk):
        part = examples[start : start + chunk]
        ids = _pad([example.ids for example in part], policy.pad_id)
        answer = _pad([example.is_answer for example in part], False)
        text = _pad([example.is_text for example in part], False)
        logits = policy.model(input_ids=ids).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        )
        answer_loss = losses[answer[:, 1:]].sum() / n_answer
        text_loss = losses[text[:, 1:]].sum() / n_text
        torch.autograd.backward(answer_loss + recipe.text_weight * text_loss)
        total += answer_loss.item()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    optimizer.step()
    return total


def _pad(rows: Sequence[Sequence[int]], value: int | bool) -> Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


def _save(policy: Policy, out: Path, facts: dict[str, object]) -> None:
    """Write the policy, and `warmstart.json`: where it comes from, and its weights' digest."""
    out.mkdir(parents=True, exist_ok=True)
    policy.model.save_pretrained(out)
    policy.tokenizer.save_pretrained(out)
    facts = {**facts, "weights_sha256": weights_digest(policy.model)}
    (out / "warmstart.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

"""Supervised start of the model of a sweep on what is right to say to its training tasks.

For tasks of one turn whose gold responses are known, such as problems with a verifier. The tiny
policies of the games are started by `rltune.trainer.warmstart`.
"""

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from rltune.errors import InputError, Problem
from rltune.policy.byte_policy import Demonstration, save, teach
from rltune.policy.load import Policy, policy_of, weights_digest
from rltune.spec.schema.trial import LoraConfig, TrialConfig
from rltune.trainer.demonstrations import demonstrate
from rltune.trainer.tasks import env_maker, require_tasks
from rltune.trainer.warmstart import measure_skill
from rltune_envs.base import Task, TextEnv
from rltune_envs.errors import ProtocolError

PROBED = 256  # training tasks on which the skill is measured
EVERY = 50  # optimiser steps between measurements
_SMALL = 10_000_000  # parameters up to which a model needs and tolerates a large step
_LR_SMALL, _LR = 1e-3, 1e-5


@dataclass(frozen=True, slots=True)
class Lesson:
    """Numbers of the supervised start.

    Attributes:
        target: Success rate, sampling at temperature 1, at which it stops.
        max_steps: Optimiser steps after which it stops in any case.
        lr: Learning rate; None is 1e-3 up to 10 M parameters, and 1e-5 above.
        seed: Of order and sampling.
        threads: Threads for torch; the weights depend on them in the last bits.

    """

    target: float
    max_steps: int
    lr: float | None = None
    seed: int = 0
    threads: int = 1


def warmstart_sweep(
    config: TrialConfig, base: Path, out: Path, lesson: Lesson, *, say: Callable[[str], None]
) -> float:
    """Train all weights of a config's model on its training tasks, and save it.

    Args:
        config: Of the control.
        base: Folder to which relative paths refer.
        out: Folder to write the model to, in transformers' format, with `warmstart.json`.
        lesson: Numbers of the training.
        say: Called with one line per measurement.

    Returns:
        The success rate that was reached.

    Raises:
        InputError: A task has several turns, nobody knows what is right to say, tasks cannot be
            drawn, or the model is beyond the target already.

    """
    torch.set_num_threads(lesson.threads)
    make_env = env_maker(config.env, config.reward, base)
    tasks = require_tasks(config, base).train
    shown = right_responses(make_env(), tasks)
    policy = policy_of(_with_all_weights(config), base, device="cpu")
    lr = lesson.lr or _usual_lr(policy)
    skill = partial(
        measure_skill,
        policy,
        tasks[:PROBED],
        make_env=make_env,
        seed=lesson.seed,
        max_tokens=config.rollout.max_response_tokens,
        max_context=config.rollout.max_context,
    )
    reached, step = skill(), 0
    if reached >= lesson.target:
        what = f"the model has a success of {reached:.3f} without it."
        raise InputError(Problem(f"--target {lesson.target:g}", what, action="Raise it."))
    say(f"step 0  success {reached:.3f} of target {lesson.target:g}")
    for number in itertools.count():
        steps = min(EVERY, lesson.max_steps - step)
        loss = teach(policy, shown, steps=steps, lr=lr, seed=lesson.seed + number)
        step += steps
        reached = skill()
        say(f"step {step}  loss {loss:.3f}  success {reached:.3f} of target {lesson.target:g}")
        if reached >= lesson.target or step == lesson.max_steps:
            break
    save(policy, out)
    facts = {"env": config.env.kind, "model": config.policy.model, "seed": lesson.seed, "lr": lr}
    facts |= {"steps": step, "threads": lesson.threads, "reached": reached}
    facts |= {"target": lesson.target, "weights_sha256": weights_digest(policy.model)}
    (out / "warmstart.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return reached


def right_responses(env: TextEnv, tasks: Sequence[Task]) -> list[Demonstration]:
    """Return what is right to say to each task, where it is known.

    Raises:
        InputError: A task has several turns, or nothing is known of any.

    """
    shown = []
    for task in tasks:
        try:
            turns = demonstrate(env, task.seed, random.Random(0), noise=0.0, haste=0.0)
        except ProtocolError as error:
            raise InputError(_unknown(str(error))) from error
        if len(turns) > 1:
            what = f"{task.task_id} takes {len(turns)} turns; one is demonstrated here."
            action = "Name a kind of env (rltune warmstart --help), whose tiny policy has its own."
            raise InputError(Problem("env", what, action=action))
        for turn in turns:
            prompt = turn.prompt.removeprefix(env.system_prompt)
            shown.append(Demonstration(env.system_prompt, prompt, turn.response))
    if not shown:
        raise InputError(_unknown("no training task has a right response."))
    return shown


def _unknown(what: str) -> Problem:
    action = "Choose a verifier with a form (boxed, number), or name a model that knows the task."
    return Problem("env", what, action=action)


def _with_all_weights(config: TrialConfig) -> TrialConfig:
    """Return a config without adapters: a start is a whole model."""
    policy = config.policy.model_copy(update={"lora": LoraConfig()})
    return config.model_copy(update={"policy": policy})


def _usual_lr(policy: Policy) -> float:
    count = sum(parameter.numel() for parameter in policy.model.parameters())
    return _LR_SMALL if count <= _SMALL else _LR

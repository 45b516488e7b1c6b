"""Fresh tasks: all generations of a model play tasks that none of them trained or was chosen on."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from rltune.errors import InputError, Problem, TrialError
from rltune.policy.load import weights_digest
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.final_test import TestJob, restore
from rltune.trainer.heldout import evaluate
from rltune.trainer.records.episodes import gate_row
from rltune.trainer.records.outcomes import fault_line, valid
from rltune_envs.base import Task, TextEnv
from rltune_envs.draw import draw
from rltune_envs.errors import EnvError
from rltune_envs.splits import Manifest, validate

PURPOSE = "fresh"
"""Names the streams of sampling seeds: another luck than that of gates and tests."""


def known_contents(manifests: Iterable[Manifest]) -> set[str]:
    """Return the content hashes of every task of these splits: train, held-out and test."""
    return {
        task.content_hash for one in manifests for task in (*one.train, *one.heldout, *one.test)
    }


def fresh_tasks(
    make_env: Callable[[], TextEnv], n: int, *, split_seed: int, known: Collection[str]
) -> tuple[Task, ...]:
    """Return n tasks with contents that are not known; each can be solved, where that is provable.

    Of an environment with a file of rows they are rows that no split has taken.

    Args:
        make_env: Makes the environment.
        n: Tasks.
        split_seed: Names the stream that they are drawn from.
        known: Content hashes that are left out.

    Raises:
        InputError: There are not that many.

    """
    env, size, before = make_env(), n, 0
    while True:
        drawn = _draw(env, size, split_seed)
        tasks = tuple(task for task in drawn if task.content_hash not in known)
        if len(tasks) >= n:
            validate(env, tasks[:n])
            return tasks[:n]
        if len(drawn) == before:
            what = f"the environment has {len(tasks)} tasks that no generation has seen, not {n}."
            raise InputError(Problem("--fresh", what, action="Ask for fewer, or give more rows."))
        size, before = 2 * size, len(drawn)


def _draw(env: TextEnv, size: int, split_seed: int) -> tuple[Task, ...]:
    """Return so many tasks for a test, and then as many for training; fewer where rows are few."""
    try:
        parts, _ = draw(env, {"test": size, "train": size}, split_seed)
    except EnvError as error:
        what = f"so many fresh tasks cannot be drawn: {str(error).rstrip('.')}."
        raise InputError(Problem("--fresh", what, action="Ask for fewer.")) from error
    return (*parts["test"], *parts["train"])


def play_generation(
    job: TestJob,
    step: int | None,
    tasks: Sequence[Task],
    *,
    name: str,
    config: TrialConfig,
    make_env: Callable[[], TextEnv],
) -> dict[str, Any]:
    """Return what a generation did on the tasks, as a line of heldout.jsonl with its name.

    All generations play with the settings of the youngest, and with the same sampling seeds.

    Args:
        job: Its trial, with the policy as it began.
        step: Of its checkpoint; None: as the trial began.
        tasks: The fresh tasks.
        name: Of the generation.
        config: Of the youngest.
        make_env: Makes the environment of the youngest.

    Raises:
        StoreError: The checkpoint is missing or torn.
        TrialError: Every episode had a fault.

    """
    if step is not None:
        restore(job, step)
    engine = job.make_engine(job.policy)
    try:
        played = evaluate(
            config, job.policy, engine, tasks, make_env=make_env, step=0, purpose=PURPOSE
        )
    finally:
        engine.close()
    if not valid(played.episodes):
        raise TrialError(f"{fault_line(played.episodes, where='fresh tasks')}. Repair it")
    row = gate_row(played, step=step or 0, temperature=config.gate.temperature)
    digest = weights_digest(job.policy.model) or "unknown"
    return {"name": name, "checkpoint_sha256": digest, **row}

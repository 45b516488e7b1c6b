"""Tasks of a step, and the episodes that are played on them."""

import hashlib
from collections.abc import Callable, Sequence

from rltune.maths.streams import noise_seed, permutation, stream_seed
from rltune.policy.load import Policy
from rltune.rollout.engine import Engine, SamplingParams
from rltune.rollout.episode import Probes, Slot, play
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.tasks import workers_of
from rltune.types import Episode
from rltune_envs.base import Task, TextEnv


def tasks_of_step(train: Sequence[Task], *, seed: int, step: int, groups: int) -> list[Task]:
    """Return the `groups` training tasks of a step: a function of the seed and the step alone.

    The split is gone through in a shuffled order, and shuffled again each time it is used up.
    """
    places = range((step - 1) * groups, step * groups)
    orders = {
        epoch: permutation(len(train), stream_seed(seed, "tasks", epoch))
        for epoch in {place // len(train) for place in places}
    }
    return [train[orders[place // len(train)][place % len(train)]] for place in places]


def collect(
    config: TrialConfig,
    policy: Policy,
    engine: Engine,
    tasks: Sequence[Task],
    *,
    step: int,
    make_env: Callable[[], TextEnv],
    probes: Probes | None = None,
) -> list[Episode]:
    """Play `group_size` episodes of each task, measured by the probes that credit asks for.

    The members of a group share the environment's luck, so that their rewards differ by what they
    did. The next visit to the task has other luck: there is nothing in it to learn by heart. The
    luck belongs to the place in the stream of tasks, so that trials which go through that stream in
    steps of other sizes share it, too.
    """
    rollout = config.rollout
    slots = [
        Slot(
            task,
            group,
            member,
            stream_seed(config.seed, "sampling", step, group, member),
            noise_seed(config.seed, "train", (step - 1) * len(tasks) + group),
        )
        for group, task in enumerate(tasks)
        for member in range(rollout.group_size)
    ]
    params = SamplingParams(rollout.temperature, rollout.max_response_tokens, rollout.max_context)
    return play(
        slots,
        make_env=make_env,
        renderer=policy.renderer,
        engine=engine,
        params=params,
        probes=probes,
        workers=workers_of(config),
    )


def task_digests(tasks: Sequence[Task]) -> str:
    """Return the first 8 hex digits of the sha256 of each task id, in order, with spaces."""
    return " ".join(hashlib.sha256(task.task_id.encode()).hexdigest()[:8] for task in tasks)


def sampled_digest(episodes: Sequence[Episode]) -> str:
    """Return the sha256 of all sampled token ids, turn by turn in order."""
    digest = hashlib.sha256()
    for episode in episodes:
        for turn in episode.turns:
            digest.update(f"{','.join(map(str, turn.sampled_ids))};".encode())
        digest.update(b"\n")
    return digest.hexdigest()

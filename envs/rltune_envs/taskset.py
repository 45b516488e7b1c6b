"""Single-turn tasks of the package `verifiers`: the prompts of a taskset, graded by its rewards.

Tasks are read and graded in this process, through the package's public interface and without one
of its servers: what it calls a rollout is a trace of two messages here. A task that needs more (a
container, tools, a judge, rewards that look into a runtime) is refused by name.
"""

import asyncio
import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from rltune_envs.base import FailureClass, Step, Task, TextEnv, task_of
from rltune_envs.draw import PARTS, part_of
from rltune_envs.errors import TaskError

if TYPE_CHECKING:
    import verifiers.v1 as vf

_INSTALL = (
    "env kind verifiers needs the package verifiers; install it: pip install 'rltune[verifiers]'"
)


class TasksetEnv(TextEnv):
    """One task of a taskset an episode: its prompt, a response, the sum of its weighted rewards.

    Args:
        id: The taskset: a module, or an installed package, that exports it.
        config: Keys of the taskset's own config.
        rows: At most so many tasks are read; needed where the taskset never ends.
        heldout_share: Share of the tasks that is held out, by their prompts.
        test_share: The same for the test.
        success: Reward from which a task counts as solved.

    Raises:
        TaskError: The package is not installed, the taskset cannot be loaded, or its tasks need
            more than a response.
        ValueError: A share is out of its range.

    """

    auxiliary_names = ("score",)

    def __init__(
        self,
        *,
        id: str,
        config: Mapping[str, Any] | None = None,
        rows: int | None = None,
        heldout_share: float = 0.2,
        test_share: float = 0.1,
        success: float = 1.0,
    ) -> None:
        if not (heldout_share >= 0 and test_share >= 0 and heldout_share + test_share < 1):
            raise ValueError(
                f"heldout_share {heldout_share!r} and test_share {test_share!r} leave nothing to "
                "train on; give two numbers from 0 that add up to less than 1"
            )
        self.success = success
        self._id = id
        self._rows = read_taskset(id, json.dumps(config or {}, sort_keys=True), rows)
        shares = (("heldout", heldout_share), ("test", test_share))
        self._seeds: dict[str, list[int]] = {part: [] for part in PARTS}
        for seed, row in enumerate(self._rows):  # by prompts: tasks that ask the same are in one
            self._seeds[part_of(_digest_of(row.prompt), shares)].append(seed)
        self._row: Row | None = None
        self._last: Step | None = None

    def reset(self, *, seed: int) -> str:
        """Show the task's system prompt, where it has one, and its prompt."""
        self._row, self._last = self._rows[seed % len(self._rows)], None
        return self._row.prompt

    def step(self, response: str) -> Step:
        """Grade a response; it ends the episode."""
        if self._row is None:
            raise RuntimeError("call reset(seed=...) first")
        if self._last is not None:
            return self._last.repeated()
        reward = score(self._row.task, response)
        success = reward >= self.success
        self._last = Step(
            "",
            reward=reward,
            terminated=True,
            success=success,
            failure_class=FailureClass.NONE if success else FailureClass.WRONG,
            auxiliary={"score": reward},
        )
        return self._last

    def task(self, seed: int) -> Task:
        """Describe the task of `seed`."""
        row = self._rows[seed % len(self._rows)]
        facts = {"source": f"{self._id}:{row.place}"}
        return task_of("verifiers", row.content, seed, near=row.prompt, facts=facts)

    def part_seeds(self, part: str) -> Sequence[int]:
        """Return the seeds of a split."""
        return self._seeds[part]

    def file_digests(self) -> Mapping[str, str]:
        """Return the sha256 over all tasks: a taskset that changed is refused by name."""
        digests = "".join(row.digest for row in self._rows)
        return {f"taskset {self._id}": hashlib.sha256(digests.encode()).hexdigest()}


@dataclass(frozen=True, slots=True)
class Row:
    """A task of a taskset.

    Attributes:
        task: It, which grades.
        prompt: What the policy reads.
        content: All of its data as JSON, but for its place in the taskset.
        digest: sha256 of the content.
        place: Its place in the taskset, from 0.

    """

    task: "vf.Task[Any, Any, Any]"
    prompt: str
    content: str
    digest: str
    place: int


@lru_cache(maxsize=8)
def read_taskset(id: str, config: str, rows: int | None) -> tuple[Row, ...]:
    """Return the tasks of a taskset, each content once.

    Args:
        id: The taskset.
        config: Its config, as a JSON object.
        rows: At most so many; None for all.

    Raises:
        TaskError: As `TasksetEnv`.

    """
    taskset = _loaded(id, json.loads(config))
    if rows is None and not taskset.bounded:
        raise TaskError(f"taskset {id}: it never ends; give env.rows, the tasks to read of it")
    read: dict[str, Row] = {}
    for place, task in enumerate(islice(taskset, rows)):
        if lack := _needs(task):
            raise TaskError(
                f"taskset {id}, task {place}: {lack}, and rltune has a prompt and a response only; "
                "choose another taskset, or write an environment of your own"
            )
        row = _row(task, place)
        read.setdefault(row.digest, row)
    if not read:
        raise TaskError(f"taskset {id}: it holds no task")
    return tuple(read.values())


def score(task: "vf.Task[Any, Any, Any]", response: str) -> float:
    """Return the sum of a task's weighted rewards for a response, offline."""
    import verifiers.v1 as vf

    asked = vf.MessageNode(message=vf.UserMessage(content=task.data.prompt_text))
    given = vf.MessageNode(parent=0, message=vf.AssistantMessage(content=response), sampled=True)
    trace: vf.Trace[Any, Any, Any] = vf.Trace(
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        task=vf.TraceTask(type=type(task).__name__, data=task.data),
        nodes=[asked, given],
    )
    asyncio.run(task.score(trace))
    return float(trace.reward)


def _loaded(id: str, config: Mapping[str, Any]) -> "vf.Taskset[Any, Any]":
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise TaskError(_INSTALL) from error
    try:
        return vf.load_taskset(vf.taskset_config_type(id).model_validate({**config, "id": id}))
    except Exception as error:  # whatever a foreign module raises
        why = " ".join(str(error).split())
        raise TaskError(f"taskset {id}: it cannot be loaded: {type(error).__name__}: {why}") from (
            error
        )


def _needs(task: "vf.Task[Any, Any, Any]") -> str:
    """Return what a task needs besides a response; empty where that is nothing."""
    rewards = task.hooks("reward")
    inside = [function.__name__ for function in rewards if _needs_runtime(function)]
    wants = {
        "its prompt is empty": not task.data.prompt_text,
        "it needs a container": task.NEEDS_CONTAINER,
        "it needs tools": bool(task.toolsets(task.config)),
        "a judge grades it": bool(task.config.judges),
        f"its reward {', '.join(inside)} looks into a runtime": bool(inside),
        "it has no reward": not rewards,
    }
    return next((lack for lack, holds in wants.items() if holds), "")


def _needs_runtime(function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _row(task: "vf.Task[Any, Any, Any]", place: int) -> Row:
    content = json.dumps(
        task.data.model_dump(mode="json", exclude_none=True, exclude={"idx"}), sort_keys=True
    )
    texts = filter(None, (task.data.system_prompt, task.data.prompt_text))
    return Row(task, "\n\n".join(texts), content, _digest_of(content), place)


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

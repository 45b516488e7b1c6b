"""Tasksets of the package `verifiers`: read, split and graded offline.

What needs the package is skipped without it (extra `verifiers`).
"""

import sys
from importlib.util import find_spec

import pytest

from rltune_envs.checks import check_env
from rltune_envs.errors import TaskError
from rltune_envs.taskset import TasksetEnv

needs_verifiers = pytest.mark.skipif(
    find_spec("verifiers") is None, reason="rltune[verifiers] is not installed"
)

HEAD = """
import asyncio
import verifiers.v1 as vf

class Data(vf.TaskData):
    answer: str

class Config(vf.TasksetConfig):
    largest: int = 60

class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        for a in range(self.config.largest):
            yield Sum(Data(prompt=f"{a} + 1?", system_prompt="Add.", answer=str(a + 1)))
"""
SUM = """
class Sum(vf.Task[Data]):
    @vf.reward(weight=2.0)
    async def right(self, trace):
        await asyncio.sleep(0)
        return float(trace.last_reply.endswith(self.data.answer))

    @vf.reward(weight=-0.5)
    async def long(self, trace):
        return float(len(trace.last_reply) > 10)
"""


@pytest.fixture
def taskset(tmp_path, monkeypatch):
    """Write a module with a taskset and return its name; each has another one."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body, head=HEAD):
        name = f"sums_{abs(hash((str(tmp_path), body)))}"
        text = head.replace("\nclass Sums", f"{body}\nclass Sums")
        (tmp_path / f"{name}.py").write_text(f'{text}\n__all__ = ["Sums"]\n')
        return name

    return write


@needs_verifiers
def test_a_response_earns_the_weighted_rewards(taskset):
    env = TasksetEnv(id=taskset(SUM), success=1.5)
    assert env.reset(seed=3) == "Add.\n\n3 + 1?"
    step = env.step("It is 4")
    assert (step.reward, step.success, step.terminated) == (2.0, True, True)
    assert env.step("again").reward == 0  # it has ended
    env.reset(seed=3)
    long = env.step("I think that it is 4")
    assert (long.reward, long.success) == (1.5, True)  # 2 - 0.5
    env.reset(seed=3)
    wrong = env.step("5")
    assert (wrong.reward, wrong.success, wrong.failure_class) == (0.0, False, "wrong")


@needs_verifiers
def test_the_contract_holds_in_threads(taskset):
    name = taskset(SUM)
    checked = check_env(lambda: TasksetEnv(id=name), seeds=range(8), threads=4)
    assert {"threads", "parts", "end"} <= set(checked.checked)


@needs_verifiers
def test_splits_are_by_content_and_the_config_reaches_the_taskset(taskset):
    name = taskset(SUM)
    small, large = TasksetEnv(id=name), TasksetEnv(id=name, config={"largest": 90})
    parts = {part: small.part_seeds(part) for part in ("train", "heldout", "test")}
    assert sorted(seed for seeds in parts.values() for seed in seeds) == list(range(60))
    assert all(parts.values())
    assert [s for s in large.part_seeds("heldout") if s < 60] == list(parts["heldout"])
    assert small.file_digests() != large.file_digests()
    assert len(TasksetEnv(id=name, rows=20).part_seeds("train")) < 20


@needs_verifiers
def test_tasks_that_ask_the_same_are_in_one_split(taskset):
    head = HEAD.replace("    answer: str", "    answer: str\n    note: str = ''")
    again = "            yield Sum(Data(prompt=f'{a} + 1?', answer=str(a + 1), note='b'))\n"
    head = head.replace('system_prompt="Add.", ', "") + again
    env = TasksetEnv(id=taskset(SUM, head=head))
    prompts = {
        part: {env.reset(seed=seed) for seed in env.part_seeds(part)}
        for part in ("train", "heldout", "test")
    }
    assert sum(map(len, prompts.values())) == 60
    assert sum(len(env.part_seeds(part)) for part in prompts) == 120
    assert env.task(0).near_hash == env.task(1).near_hash
    assert env.task(0).content_hash != env.task(1).content_hash


REFUSED = {
    "it needs a container": SUM.replace(
        "class Sum(vf.Task[Data]):", "class Sum(vf.Task[Data]):\n    NEEDS_CONTAINER = True"
    ),
    "its reward right looks into a runtime": SUM.replace("trace)", "trace, runtime)", 1),
    "it has no reward": "class Sum(vf.Task[Data]):\n    pass\n",
}  # fmt: skip


@needs_verifiers
@pytest.mark.parametrize("lack", REFUSED)
def test_a_task_that_needs_more_than_a_response_is_refused(taskset, lack):
    name = taskset(REFUSED[lack])
    with pytest.raises(TaskError) as caught:
        TasksetEnv(id=name)
    assert str(caught.value) == (
        f"taskset {name}, task 0: {lack}, and rltune has a prompt and a response only; choose "
        "another taskset, or write an environment of your own"
    )


@needs_verifiers
def test_a_taskset_without_an_end_needs_a_number(taskset):
    name = taskset(SUM, head=HEAD.replace("    def load", "    INFINITE = True\n\n    def load"))
    with pytest.raises(TaskError, match=r"it never ends; give env\.rows, the tasks to read of it$"):
        TasksetEnv(id=name)
    assert TasksetEnv(id=name, rows=10).reset(seed=9) == "Add.\n\n9 + 1?"


@needs_verifiers
def test_what_cannot_be_loaded_is_named(taskset):
    with pytest.raises(TaskError, match=r"^taskset nowhere: it cannot be loaded: ModuleNotFound"):
        TasksetEnv(id="nowhere")
    name = taskset(SUM)
    with pytest.raises(TaskError, match=rf"^taskset {name}: it cannot be loaded: ValidationError"):
        TasksetEnv(id=name, config={"smallest": 1})


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(TaskError) as caught:
        TasksetEnv(id="any")
    assert str(caught.value) == (
        "env kind verifiers needs the package verifiers; install it: pip install "
        "'rltune[verifiers]'"
    )


def test_shares_must_leave_something_to_train_on():
    with pytest.raises(ValueError, match=r"^heldout_share 0\.9 and test_share 0\.1 leave nothing"):
        TasksetEnv(id="any", heldout_share=0.9)

"""Many tasks on several environments: the answers are those of one environment alone."""

import threading

import pytest
from patience import HANG_S

from rltune_envs.at_once import of_each
from rltune_envs.base import Step, Task, TextEnv
from rltune_envs.bounds import floor_of
from rltune_envs.errors import HungCodeError, TaskError
from rltune_envs.guard import call
from rltune_envs.guard_batch import new_batch
from rltune_envs.splits import build_manifest

TASKS = [Task(f"t{n}", n, f"{n:064}", f"{n:064}", 0) for n in range(9)]


@pytest.fixture(autouse=True)
def fresh():
    new_batch()
    yield
    new_batch()


def ask(env, task):
    return env, task.seed


@pytest.mark.parametrize("n", [1, 2, 9, 20])
def test_answers_are_in_the_order_of_the_tasks(n):
    answers = of_each(ask, [object() for _ in range(n)], TASKS)
    assert [seed for _, seed in answers] == list(range(9))
    assert len({env for env, _ in answers}) <= min(n, 9)
    assert of_each(ask, [object()] * n, []) == []


def test_each_environment_stays_in_one_thread_and_one_alone_in_the_callers():
    homes = {}

    def where(env, task):
        homes.setdefault(env, set()).add(threading.get_ident())

    of_each(where, ["a"], TASKS)
    assert homes == {"a": {threading.get_ident()}}
    of_each(where, ["b", "c", "d"], TASKS)
    assert all(len(threads) == 1 for threads in homes.values())


def test_all_are_asked_at_the_same_time():
    barrier = threading.Barrier(3)
    assert len(of_each(lambda env, task: barrier.wait(HANG_S), [1, 2, 3], TASKS)) == 9


@pytest.mark.parametrize("n", [1, 4])
def test_the_first_error_in_order_is_raised_and_later_tasks_are_left(n):
    asked, may_fail = [], threading.Event()

    def fail(env, task):
        asked.append(task.seed)
        if task.seed == 2:
            if n > 1:
                assert may_fail.wait(HANG_S)  # the later one fails first
            raise ValueError(task.seed)
        if task.seed == 3:
            may_fail.set()
            raise ValueError(task.seed)

    with pytest.raises(ValueError, match=r"^2$"):
        of_each(fail, list(range(n)), TASKS)
    assert len(asked) < 9


@pytest.mark.parametrize("n", [1, 3])
def test_calls_that_hang_are_the_error_of_the_first(n):
    forever = threading.Event()

    def hang(env, task):
        return call(f"f{task.seed}()", forever.wait, limit_s=0.05)

    with pytest.raises(HungCodeError, match=r"^f0\(\): it did not return within 0.05 s"):
        of_each(hang, list(range(n)), TASKS)


class Asks(TextEnv):
    """A service knows the answer: the seed. Every third task may not be solvable."""

    def __init__(self, service=lambda: None, broken=()):
        self.service, self.broken = service, broken

    def reset(self, *, seed):
        self.seed = seed
        return "say it"

    def step(self, response):
        self.service()
        is_right = response == str(self.seed % 7) and self.seed not in self.broken
        return Step("", float(is_right), terminated=True, success=is_right)

    def task(self, seed):
        return Task(f"asks-{seed}", seed, f"{seed:064}", f"{seed:064}", 1)

    def format_response(self, actions):
        return actions[0]

    def expert_actions(self):
        return (str(self.seed % 7),)

    def random_actions(self, rng):
        return (str(rng.randrange(7)),)


def manifest_of(n, **options):
    first, *others = [Asks(**options) for _ in range(n)]
    return build_manifest(first, train_tasks=4, heldout_tasks=8, split_seed=0, others=others)


def test_a_manifest_is_the_same_however_many_prove_it():
    alone = manifest_of(1)
    assert manifest_of(5) == alone
    assert 0 < alone.heldout_floor.rate < 0.5
    assert floor_of(Asks(), alone.heldout, others=[Asks(), Asks()]) == alone.heldout_floor


def test_proofs_wait_for_a_service_at_the_same_time():
    """Four meet: one that waited alone would wait forever."""
    barrier = threading.Barrier(4)
    assert len(manifest_of(4, service=lambda: barrier.wait(HANG_S)).heldout) == 8


@pytest.mark.parametrize("n", [1, 4])
def test_the_first_task_that_is_not_proved_is_named(n):
    broken = [task.seed for task in manifest_of(1).heldout[3:6]]
    with pytest.raises(TaskError, match=rf"^asks-{broken[0]} \("):
        manifest_of(n, broken=broken)

"""Episodes of three turns in environments that wait, fail or hang."""

import threading

from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune_envs.base import Step, Task, TextEnv
from rltune_envs.guarded import GuardedEnv

END = 3
FOREVER = threading.Event()  # never set


class Renderer:
    def first(self, system, observation, prefix):
        return [5, *map(ord, observation)]

    def following(self, observation, prefix, *, is_ended):
        return [7, *map(ord, observation)]

    def decode(self, ids):
        return " ".join(map(str, ids))


class ThreeTurns(TextEnv):
    """Asks a service in each turn; some tasks fail, some hang."""

    def __init__(self, service=lambda: None):
        self.service = service

    def reset(self, *, seed):
        self.seed, self.turn = seed, 0
        if seed == 11:
            raise ValueError("no such task")
        return f"task {seed}"

    def step(self, response):
        self.turn += 1
        self.service()
        if self.seed % 5 == 4 and self.turn == 2:
            raise ConnectionError(f"gone for {self.seed}")
        if self.seed in HANGING and self.turn == 2:
            FOREVER.wait()
        return Step(f"{self.seed}.{self.turn}", self.seed / 7, self.turn == 3, success=True)

    def task(self, seed):
        raise NotImplementedError


HANGING = (3, 6, 8)


def script(request):
    return [4, request.conversation % 2, END]


def guarded():
    return GuardedEnv(ThreeTurns, name="Three", module=__name__, limit_s=0.1)


def played(workers, make_env=guarded, n=14, engine=None, max_context=1000):
    return play(
        [Slot(Task(f"t{seed}", seed, "", "", 0), seed // 2, seed % 2, seed) for seed in range(n)],
        make_env=make_env,
        renderer=Renderer(),
        engine=engine or ScriptedEngine(script, end_ids=[END]),
        params=SamplingParams(1.0, 8, max_context),
        workers=workers,
    )


class ThreeTurnsThatMeet(ThreeTurns):
    """Never fails."""

    def reset(self, *, seed):
        self.seed, self.turn = seed, 0
        return "task"

    def step(self, response):
        self.turn += 1
        self.service()
        return Step("on", 0.0, self.turn == 3)


class Untroubled(ThreeTurns):
    """Neither fails nor waits."""

    def reset(self, *, seed):
        self.seed, self.turn = seed, 0
        return f"task {seed}"

    def step(self, response):
        self.turn += 1
        return Step(f"{self.seed}.{self.turn}", self.seed / 7, self.turn == 3, success=True)

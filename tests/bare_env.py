"""The least that an environment can be: `reset`, `step` and `task`."""

import random

from rltune_envs.base import FailureClass, Step, TextEnv, task_of


class BareEnv(TextEnv):
    """Asks for the sum of two digits, once."""

    def reset(self, *, seed):
        self.seed, self.last = seed, None
        return "{} + {} = ?".format(*self.digits(seed))

    def step(self, response):
        if self.last is not None:
            return self.last.repeated()
        right = response == str(sum(self.digits(self.seed)))
        failure = FailureClass.NONE if right else FailureClass.WRONG
        self.last = Step("", float(right), True, False, right, failure_class=failure)
        return self.last

    def task(self, seed):
        return task_of("add", repr(self.digits(seed)), seed)

    @staticmethod
    def digits(seed):
        rng = random.Random(seed)
        return rng.randint(0, 9), rng.randint(0, 9)

"""A complete custom environment: pay an amount exactly, coin by coin; see docs/tasks.md."""

from rltune_envs.base import FailureClass, Step, Task, TextEnv, task_of

COINS = {"One": 1, "Two": 2, "Five": 5}


class MyEnv(TextEnv):
    """A coin too much, or a response that is no coin, and the task is lost."""

    system_prompt = "Pay exactly, one coin a turn: One, Two or Five."

    def __init__(self, *, max_amount: int = 40) -> None:
        self.max_amount = max_amount

    def reset(self, *, seed: int) -> str:
        """Ask for the amount of `seed`."""
        self.left = seed % self.max_amount + 1
        self.last = Step(f"Pay {self.left}")
        return self.last.observation

    def step(self, response: str) -> Step:
        """Pay the named coin."""
        if self.last.has_ended:
            return self.last.repeated()
        self.left -= COINS.get(response.strip(), self.left + 1)
        if self.left == 0:
            self.last = Step("Paid", 1.0, terminated=True, success=True)
        elif self.left < 0:
            self.last = Step("Lost", terminated=True, failure_class=FailureClass.LOST)
        else:
            self.last = Step(f"Pay {self.left}")
        return self.last

    def task(self, seed: int) -> Task:
        """Name the amount of `seed`: as hard as the fewest coins that pay it."""
        fives, rest = divmod(seed % self.max_amount + 1, 5)
        return task_of("pay", f"{fives} {rest}", seed, difficulty=fives + (rest + 1) // 2)

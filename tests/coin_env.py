"""An environment with an expert, a random player and exact odds: pay with coins of 1, 2 and 5."""

import hashlib
import random
from collections.abc import Sequence
from functools import cache

from rltune_envs.base import FailureClass, Step, Task, TextEnv
from rltune_envs.parse import parse_actions

COINS, TURNS = {"One": 1, "Two": 2, "Five": 5}, 10


class CoinEnv(TextEnv):
    """Ten turns of one coin each; a coin too much and the task is lost."""

    auxiliary_names = ("left",)
    system_prompt = "Pay exactly, one coin a turn: <answer>Five</answer>, or Two, or One."
    response_prefix = "<answer>"

    def __init__(self, *, max_amount: int = 40) -> None:
        self.max_amount = max_amount

    def reset(self, *, seed: int) -> str:
        """Ask for the amount of `seed`."""
        self.left, self.turns = self._amount(seed), 0
        self.last: Step | None = None
        return f"Pay {self.left}"

    def step(self, response: str) -> Step:
        """Pay the named coins, one after the other."""
        if self.last is not None and self.last.has_ended:
            return self.last.repeated()
        parsed = parse_actions(response, names=tuple(COINS), limit=1, needs_think=False)
        self.left -= sum(COINS[name] for name in parsed.actions)
        self.turns += 1
        is_over, is_late = self.left <= 0, self.left > 0 and self.turns == TURNS
        failure = FailureClass.LOST if self.left < 0 else FailureClass.NONE
        if is_late:
            failure = FailureClass.UNFINISHED if parsed.is_valid else FailureClass.MALFORMED
        self.last = Step(
            observation=f"Pay {self.left}",
            reward=float(self.left == 0),
            terminated=is_over,
            truncated=is_late,
            success=self.left == 0,
            actions=parsed.actions,
            is_valid=parsed.is_valid,
            n_invalid=parsed.n_invalid,
            n_over_limit=parsed.n_over_limit,
            failure_class=failure,
            auxiliary={"left": float(self.left)} if is_over or is_late else {},
        )
        return self.last

    def task(self, seed: int) -> Task:
        """Describe the amount of `seed`: as hard as the fewest coins that pay it."""
        amount = self._amount(seed)
        digest = hashlib.sha256(f"pay {amount}".encode()).hexdigest()
        return Task(f"pay-{amount}", seed, digest, digest, len(_fewest(amount)))

    def format_response(self, actions: Sequence[str]) -> str:
        """Write `<answer>Five</answer>`."""
        return f"<answer>{'||'.join(actions)}</answer>"

    def expert_actions(self) -> tuple[str, ...] | None:
        """Pay with the fewest coins."""
        return _fewest(self.left)[:1] if self.left >= 0 else None

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Pay with any coin."""
        return (rng.choice(tuple(COINS)),)

    def random_success_probability(self, seed: int) -> float:
        """Follow every way that the random player can take."""
        return _random_odds(self._amount(seed), TURNS)

    def optimal_success_probability(self, seed: int) -> float:
        """Return 1 where the turns suffice for the fewest coins, else 0."""
        return float(len(_fewest(self._amount(seed))) <= TURNS)

    def _amount(self, seed: int) -> int:
        return random.Random(seed).randint(1, self.max_amount)


def _fewest(amount: int) -> tuple[str, ...]:
    fives, rest = divmod(amount, 5)
    return ("Five",) * fives + ("Two",) * (rest // 2) + ("One",) * (rest % 2)


@cache
def _random_odds(left: int, coins: int) -> float:
    if left <= 0 or coins == 0:
        return float(left == 0)
    return sum(_random_odds(left - coin, coins - 1) for coin in COINS.values()) / len(COINS)

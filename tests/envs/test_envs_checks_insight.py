"""The contract checker names the clause about distances and gold responses that is broken."""

import re
from dataclasses import replace

import pytest

from rltune_envs.base import FailureClass, GoldResponse
from rltune_envs.check_player import Player
from rltune_envs.checks import check_env
from rltune_envs.errors import ContractError, SearchLimitError
from rltune_envs.insight_checks import check_insight
from tests.coin_env import CoinEnv, _fewest


def last_coin(gold, left):
    """Say the smallest coin of the fewest, which comes nearer as well as the largest."""
    return gold and replace(gold, golds=_fewest(left)[-1:])


class Knows(CoinEnv):
    """Knows how many coins are missing, and which one comes next."""

    def distance_to_go(self):
        return len(_fewest(self.left)) if self.left >= 0 else None

    def gold_response(self):
        if self.is_over or not self.expert_actions():
            return None
        return GoldResponse("", self.expert_actions(), "</answer>")

    @property
    def is_over(self):
        return self.last is not None and (self.last.terminated or self.last.truncated)


class Spells(Knows):
    """Takes names in any case, so there are two forms of each."""

    def gold_response(self):
        gold = super().gold_response()
        return gold and replace(gold, golds=(*gold.golds, gold.golds[0].lower()))


class Errands(Knows):
    """Counts in another unit, and would say another coin than the expert takes."""

    difficulty_unit = "errands"

    def distance_to_go(self):
        return self.left if self.left >= 0 else None

    def gold_response(self):
        return last_coin(super().gold_response(), self.left)


class Halves(Knows):
    """Knows gold responses only."""

    distance_to_go = None


class Tires(Knows):
    """Cannot tell where it is far."""

    def distance_to_go(self):
        if self.left > 20:
            raise SearchLimitError("far")
        return super().distance_to_go()


@pytest.mark.parametrize("env", [CoinEnv, Knows, Spells, Errands, Halves, Tires])
def test_a_valid_environment_passes(env):
    check_env(env, seeds=range(24))


class Windfall(Knows):
    """Somebody else pays five in the first turn, wherever that helps."""

    is_deterministic = False

    def step(self, response):
        self.left -= 5 * (self.turns == 0 and self.left > 10)
        return super().step(response)


def test_luck_may_bring_nearer_by_more_than_the_actions():
    for seed in range(24):
        check_insight(Player(Windfall, max_turns=50), seed, other=0)


def changes(**methods):
    """Return an environment that knows, but for these methods of `Knows`."""
    return type("Changed", (Knows,), methods)


def distance(of):
    return changes(distance_to_go=lambda env: of(env, Knows.distance_to_go(env)))


def gold(of):
    def gold_response(env):
        known = Knows.gold_response(env)
        return known and of(env, known)

    return changes(gold_response=gold_response)


class Noticed(Knows):
    """Pays a coin when it is asked what it would say, in the third turn."""

    def gold_response(self):
        known = super().gold_response()
        self.left -= self.turns == 2 and self.left > 1
        return known


class Spends(Knows):
    """A question costs a turn."""

    def distance_to_go(self):
        self.turns += self.turns == 3
        return super().distance_to_go()


class Wavers(Spells):
    """Names the two forms in turns."""

    n_asked = 0

    def gold_response(self):
        self.n_asked += 1
        gold = super().gold_response()
        return gold and replace(gold, golds=gold.golds[:: (-1) ** self.n_asked])


class LosesHope(Knows):
    """Loses where it is still possible to pay."""

    def step(self, response):
        step = super().step(response)
        if self.left == 3 and not self.is_over:
            self.last = step = replace(
                step, terminated=True, failure_class=FailureClass.LOST, auxiliary={"left": 3.0}
            )
        return step

    def optimal_success_probability(self, seed):
        return 0.5  # so that the expert need not succeed


class GivesUp(Knows):
    """The expert sees no way with one coin left, but there is something to say."""

    def optimal_success_probability(self, seed):
        return 0.9

    def expert_actions(self):
        return None if self.left == 1 else super().expert_actions()

    def gold_response(self):
        one = GoldResponse("", ("One",), "</answer>")
        return one if self.left == 1 and not self.is_over else super().gold_response()


class Detours(Errands):
    """Finds out after the first turn that there is more to do than it seemed."""

    def distance_to_go(self):
        distance = super().distance_to_go()
        return distance and distance + 50 * (self.turns > 0)


class Stalls(Knows):
    """Asks for more than ten turns can pay, and comes no nearer."""

    def __init__(self):
        super().__init__(max_amount=900)

    def distance_to_go(self):
        return super().distance_to_go() + self.turns


class Haggles(Knows):
    """Gives a discount on large coins, and would say large and small ones."""

    def step(self, response):
        step = super().step(response)
        return replace(step, reward=step.reward + ("Five" in step.actions))

    def gold_response(self):
        gold = super().gold_response()
        return gold and replace(gold, golds=tuple(dict.fromkeys(_fewest(self.left))))


class Revives(Knows):
    """Is without hope in the second turn, and then again not."""

    def distance_to_go(self):
        return None if self.turns == 1 and not self.is_over else super().distance_to_go()


BROKEN = [  # (environment, clause)
    (distance(lambda env, known: known and float(known)), "distance_to_go is a count or None"),
    (distance(lambda env, known: -1 if known is None else known), "distance_to_go is a count or"),
    (distance(lambda env, known: known and known + 1), "distance_to_go begins at the difficulty"),
    (distance(lambda env, known: known or None), "distance_to_go is 0 exactly when the task is"),
    (distance(lambda env, known: 0 if known is None else known), "distance_to_go is 0 exactly"),
    (distance(lambda env, known: known if known != 1 else 0), "distance_to_go is 0 exactly"),
    (distance(lambda env, known: 7 if known is None else known), "what is lost stays lost"),
    (Revives, "what is lost stays lost"),
    (LosesHope, "what is lost stays lost"),
    (
        distance(lambda env, known: known and (1 if env.turns else known)),
        "distance_to_go falls by one an action at most",
    ),
    (Stalls, "distance_to_go falls by what the expert executes"),
    (Detours, "distance_to_go does not rise under the expert"),
    (Noticed, "asking changes nothing"),
    (Wavers, "asking changes nothing"),
    (Spends, "asking changes nothing"),
    (gold(lambda env, known: ("", known.golds, "")), "gold_response is a GoldResponse or None"),
    (gold(lambda env, known: replace(known, golds=())), "gold_response is a GoldResponse or"),
    (gold(lambda env, known: replace(known, golds=known.golds * 2)), "gold_response is a Gold"),
    (gold(lambda env, known: replace(known, golds=["One"])), "gold_response is a GoldResponse"),
    (gold(lambda env, known: replace(known, after=None)), "gold_response is a GoldResponse or"),
    (gold(lambda env, known: replace(known, golds=("", "One"))), "gold_response is a GoldResp"),
    (
        changes(gold_response=lambda env: GoldResponse("", ("One",), "</answer>")),
        "after the end there is no gold_response",
    ),
    (gold(lambda env, known: None), "there is a gold_response where the expert goes on"),
    (gold(lambda env, known: replace(known, before="<answer>")), "gold_response is well formed"),
    (gold(lambda env, known: replace(known, after="")), "gold_response is well formed"),
    (gold(lambda env, known: replace(known, golds=("One||One",))), "gold_response is well for"),
    (gold(lambda env, known: replace(known, golds=("Five",))), "gold_response comes nearer"),
    (
        gold(lambda env, known: last_coin(known, env.left)),
        "gold_response does what the expert does",
    ),
    (Haggles, "all forms of a gold_response are worth the same"),
    (GivesUp, "gold_response is None where nothing helps"),
]


@pytest.mark.parametrize(
    ("env", "clause"), BROKEN, ids=[f"{clause}-{i}" for i, (_, clause) in enumerate(BROKEN)]
)
def test_a_broken_insight_is_named(env, clause):
    with pytest.raises(ContractError, match=rf"^{re.escape(clause)}[^:]*: with seed \d+, "):
        check_env(env, seeds=range(24), max_turns=50)

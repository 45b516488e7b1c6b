"""The optional protocols: who has one, through every wrapper, and what is said where one lacks."""

import hashlib
import random
from dataclasses import replace

import pytest
from cases import each

from rltune_envs import protocols
from rltune_envs.base import FailureClass, GoldResponse, task_of
from rltune_envs.checks import check_env
from rltune_envs.errors import ContractError, CustomCodeError, ProtocolError
from rltune_envs.guarded import guarded_env
from rltune_envs.protocols import (
    HasCeiling,
    HasDistance,
    HasEvalSets,
    HasExpert,
    HasFiles,
    HasFloor,
    HasGold,
    HasGoldResponse,
    HasParts,
    HasRandomPlayer,
    HasRepeatedRows,
    HasShortestResponses,
    HasSymbols,
    WritesActions,
    lack_of,
    methods_of,
    require,
    supports,
)
from rltune_envs.rewards import SCORES, Rubric, Term
from rltune_envs.verified import VerifiedEnv
from tests.bare_env import BareEnv

OWN_SUCCESS = Rubric((Term("success", 1.0, SCORES["success"]),))
OTHER_SUCCESS = Rubric((Term("valid_turns", 1.0, SCORES["valid_turns"]),))


NUMBERS = tuple(map(str, range(20)))


class Full(BareEnv):
    """The same with every protocol: its actions are the numbers from 0 to 19."""

    def step(self, response):
        if self.last is not None:
            return self.last.repeated()
        step = super().step(response)
        if response in NUMBERS:
            self.last = replace(step, actions=(response,))
        else:
            malformed = {"is_valid": False, "n_invalid": 1, "failure_class": FailureClass.MALFORMED}
            self.last = replace(step, terminated=False, truncated=True, **malformed)
        return self.last

    def task(self, seed):
        return replace(super().task(seed), difficulty=1)

    def format_response(self, actions):
        return "".join(actions)

    def expert_actions(self):
        return None if self.last else (str(sum(self.digits(self.seed))),)

    def random_actions(self, rng):
        return (str(rng.randrange(20)),)

    def random_success_probability(self, seed):
        return 1 / 20

    def optimal_success_probability(self, seed):
        return 1.0

    def distance_to_go(self):
        return 1 if self.last is None else 0 if self.last.success else None

    def gold_response(self):
        return None if self.last else GoldResponse("", (str(sum(self.digits(self.seed))),), "")

    def gold(self, seed):
        return {"answers": [str(sum(self.digits(seed)))]}

    def shortest_responses(self):
        return NUMBERS

    def eval_sets(self):
        return {"even": 2**32}

    def cell_symbols(self):
        return "0123456789"

    def part_seeds(self, part):
        return [("train", "heldout", "test").index(part)]

    def repeated_rows(self):
        return 0

    def file_digests(self):
        return {"train: p.jsonl": "0" * 64}


METHOD = {
    WritesActions: "format_response",
    HasExpert: "expert_actions",
    HasRandomPlayer: "random_actions",
    HasFloor: "random_success_probability",
    HasCeiling: "optimal_success_probability",
    HasDistance: "distance_to_go",
    HasGoldResponse: "gold_response",
    HasGold: "gold",
    HasShortestResponses: "shortest_responses",
    HasSymbols: "cell_symbols",
    HasParts: "part_seeds",
    HasFiles: "file_digests",
    HasRepeatedRows: "repeated_rows",
    HasEvalSets: "eval_sets",
}


WITH_ARGUMENT = {WritesActions, HasRandomPlayer, HasFloor, HasCeiling, HasGold, HasParts}


def guarded(kind):
    return guarded_env(kind, f"my_pkg.my_mod:{kind.__name__}", {})


def judged(kind):
    return VerifiedEnv(kind(), OWN_SUCCESS)


def judged_and_guarded(kind):
    return VerifiedEnv(guarded(kind), OWN_SUCCESS)


WAYS = [lambda kind: kind(), guarded, judged, judged_and_guarded]


def without(protocol):
    return type("Without", (Full,), {METHOD[protocol]: None})


def test_every_protocol_is_known_here():
    public = {one for one in vars(protocols).values() if getattr(one, "_is_protocol", False)}
    assert {one for one in public if one.__module__ == protocols.__name__} == set(METHOD)
    assert methods_of(HasExpert) == ("format_response", "expert_actions")


@each("way", WAYS)
@each("protocol", METHOD)
def test_a_wrapper_answers_for_what_it_wraps(way, protocol):
    assert supports(way(Full), protocol)
    assert not supports(way(BareEnv), protocol)
    assert not supports(way(without(protocol)), protocol)


@each("way", WAYS)
@each("protocol", METHOD)
def test_one_that_lacks_is_named_with_its_method(way, protocol):
    env = way(without(protocol))
    message = f"^Without has no {METHOD[protocol]}\\(\\)\\. Define it$"
    with pytest.raises(ProtocolError, match=message):
        require(env, protocol)
    if way is not WAYS[0]:
        given = {"random_actions": random.Random(0), "format_response": ()}
        arguments = [given.get(METHOD[protocol], 0)] if protocol in WITH_ARGUMENT else []
        with pytest.raises(ProtocolError, match=message):
            getattr(env, METHOD[protocol])(*arguments)


def test_all_missing_methods_are_named():
    message = "BareEnv has no format_response() and no expert_actions()"
    assert lack_of(guarded(BareEnv), HasExpert).lack == message
    assert str(lack_of(BareEnv(), HasExpert)) == f"{message}. Define them"


def test_not_implemented_is_a_fault_like_any_other():
    class Unsure(Full):
        def distance_to_go(self):
            raise NotImplementedError

    env = guarded(Unsure)
    env.reset(seed=0)
    assert supports(env, HasDistance)
    with pytest.raises(CustomCodeError, match="it raised NotImplementedError"):
        env.distance_to_go()


@pytest.mark.parametrize("way", WAYS)
def test_the_bare_contract_is_proved_and_the_rest_is_named(way):
    proved = check_env(lambda: way(BareEnv), seeds=range(8))

    assert proved.checked == (
        "threads", "records", "reset", "global_random_state", "instances", "task", "end",
        "bad_responses", "names", "noise",
    )  # fmt: skip
    assert proved.skipped == {
        "format": ("HasRandomPlayer",),
        "shortest": ("HasShortestResponses",),
        "expert": ("HasExpert",),
        "insight": ("HasDistance", "HasGoldResponse"),
        "floor": ("HasFloor", "HasRandomPlayer"),
        "ceiling": ("HasCeiling", "HasExpert"),
        "parts": ("HasParts",),
    }


SKIPPED = {
    WritesActions: {"format", "expert", "floor", "ceiling"},
    HasExpert: {"expert", "ceiling"},
    HasRandomPlayer: {"format", "floor"},
    HasFloor: {"floor"},
    HasCeiling: {"ceiling"},
    HasShortestResponses: {"shortest"},
    HasParts: {"parts"},
}


@pytest.mark.parametrize("protocol", METHOD)
def test_without_one_protocol_the_others_are_still_proved(protocol):
    proved = check_env(lambda: judged_and_guarded(without(protocol)), seeds=range(4), threads=2)
    assert set(proved.skipped) == SKIPPED.get(protocol, set())


BROKEN = {
    "format_response": (lambda self, actions: "".join(actions) + "!", "format_response"),
    "expert_actions": (lambda self: ("19",), "the expert solves every task"),
    "random_actions": (lambda self, rng: (str(random.randrange(20)),), "threads do not change"),
    "random_success_probability": (lambda self, seed: 0.9, "agrees with random play"),
    "optimal_success_probability": (lambda self, seed: 2.0, "are probabilities"),
    "distance_to_go": (lambda self: 1, "0 exactly when the task is solved"),
    "gold_response": (lambda self: GoldResponse("", ("x",), ""), "gold_response"),
    "gold": (lambda self, seed: {"answers": (1,)}, "gold is plain JSON"),
    "shortest_responses": (lambda self: ("one",), "shortest_responses are well formed"),
    "part_seeds": (lambda self, part: [1, 2], "no task is in two parts"),
}


@pytest.mark.parametrize("method", BROKEN)
def test_what_is_implemented_must_hold(method):
    function, clause = BROKEN[method]
    broken = type("Broken", (Full,), {method: function})
    with pytest.raises(ContractError, match=clause):
        check_env(broken, seeds=range(24))


@pytest.mark.parametrize(
    ("method", "function", "clause"),
    [
        ("reset", lambda self, *, seed: BareEnv.reset(self, seed=seed) + str(id(self)), "threads"),
        (
            "step",
            lambda self, response: BareEnv.step(self, response + "!" * self.turn()),
            "episode",
        ),
        ("task", lambda self, seed: task_of("add", str(random.random()), seed), "task"),
    ],
)
def test_a_bare_environment_can_fail(method, function, clause):
    kinds = {"turn": lambda self: random.randrange(2), method: function}
    with pytest.raises(ContractError, match=clause):
        check_env(type("Broken", (BareEnv,), kinds), seeds=range(16))


def test_a_task_is_named_by_its_content():
    digest, near = (hashlib.sha256(text.encode()).hexdigest() for text in ("2 + 3", "sum 5"))
    task = task_of("add", "2 + 3", 7)
    assert (task.task_id, task.seed, task.content_hash) == (f"add-{digest[:12]}", 7, digest)
    assert (task.near_hash, task.difficulty, task.facts) == (digest, None, {})

    known = task_of("add", "2 + 3", 7, near="sum 5", difficulty=2, facts={"sum": 5})
    assert (known.near_hash, known.difficulty, known.facts) == (near, 2, {"sum": 5})


def test_under_another_success_no_floor_is_exact():
    assert not supports(VerifiedEnv(Full(), OTHER_SUCCESS), HasFloor)
    assert supports(VerifiedEnv(Full(), OTHER_SUCCESS), HasRandomPlayer)

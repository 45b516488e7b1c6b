"""What is measured of an environment around each response: nothing that nobody asked for."""

import pytest

from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Probes, Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune.types import Distance
from rltune_envs.base import GoldResponse, Step, Task, TextEnv, task_of
from rltune_envs.errors import SearchLimitError

END = 3
DISTANCE, GOLD, BOTH = Probes(distance=True), Probes(gold=True), Probes(distance=True, gold=True)


class Renderer:
    def first(self, system, observation, prefix):
        return [5]

    def following(self, observation, prefix, *, is_ended):
        return [7]

    def decode(self, ids):
        return "x"


class Countdown(TextEnv):
    """Three turns; `distances` are those before the first response, between, and at the end."""

    def __init__(self, distances=(3, 2, None, None)):
        self.distances = distances
        self.turns = 0
        self.asked = []

    def reset(self, *, seed):
        return "go"

    def task(self, seed):
        return task_of("countdown", str(seed), seed)

    def step(self, response):
        self.asked.append("step")
        self.turns += 1
        return Step("on", 0.0, terminated=self.turns == 3, truncated=False, success=False)

    def distance_to_go(self):
        self.asked.append("distance")
        found = self.distances[self.turns]
        if found == "limit":
            raise SearchLimitError("too many states")
        return found

    def gold_response(self):
        self.asked.append("gold")
        found = self.distances[self.turns]
        if found == "limit":
            raise SearchLimitError("too many states")
        return None if found is None else GoldResponse("a", (str(found),), "z")


def played(probes, *distances):
    env = Countdown(distances) if distances else Countdown()
    (episode,) = play(
        [Slot(Task("t", 0, "", "", 0), 0, 0, seed=0)],
        make_env=lambda: env,
        renderer=Renderer(),
        engine=ScriptedEngine(lambda _: [END], end_ids=[END]),
        params=SamplingParams(1.0, 4, 100),
        **({} if probes is None else {"probes": probes}),
    )
    return episode.turns, env.asked


def test_distances_stand_around_each_response():
    turns, asked = played(DISTANCE)
    assert [turn.distance for turn in turns] == [
        Distance(3, 2), Distance(2, None), Distance(None, None),
    ]  # fmt: skip
    assert asked == ["distance", "step", "distance"] * 3
    assert [turn.gold for turn in turns] == [None] * 3


def test_gold_is_what_a_perfect_player_says_before_the_response():
    turns, asked = played(GOLD)
    # a dead end is known, and is something else than "not measured"
    nothing = GoldResponse("", (), "")
    assert [turn.gold for turn in turns] == [
        GoldResponse("a", ("3",), "z"), GoldResponse("a", ("2",), "z"), nothing,
    ]  # fmt: skip
    assert asked == ["gold", "step"] * 3
    assert [turn.distance for turn in turns] == [None] * 3


@pytest.mark.parametrize("probes", [None, Probes()])
def test_nothing_is_measured_that_nobody_asked_for(probes):
    turns, asked = played(probes)
    assert asked == ["step"] * 3
    assert all(turn.distance is None and turn.gold is None for turn in turns)


def test_a_search_without_an_end_is_not_measured_and_ends_no_episode():
    turns, _ = played(BOTH, 3, "limit", 1, 0)
    assert len(turns) == 3
    assert [turn.distance for turn in turns] == [None, None, Distance(1, 0)]
    assert [turn.gold for turn in turns] == [
        GoldResponse("a", ("3",), "z"), None, GoldResponse("a", ("1",), "z"),
    ]  # fmt: skip


def test_probes_change_nothing_of_what_is_played():
    bare, _ = played(None)
    probed, _ = played(BOTH)
    assert [(t.sampled_ids, t.prompt_ids, t.reward) for t in bare] == [
        (t.sampled_ids, t.prompt_ids, t.reward) for t in probed
    ]

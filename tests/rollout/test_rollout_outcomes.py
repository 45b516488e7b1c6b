"""What an episode is in the end: its measures, why it failed, what failed outside the policy."""

import pytest

from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune_envs.base import FailureClass, Step, Task

END = 3


class Renderer:
    def first(self, system, observation, prefix):
        return [5, 6]

    def following(self, observation, prefix, *, is_ended):
        return [7]

    def decode(self, ids):
        return " ".join(map(str, ids))


class TwoTurns:
    """Lost on the second turn; the first one has the given fault."""

    system_prompt = response_prefix = ""

    def __init__(self, fault=""):
        self.fault = fault

    def reset(self, *, seed):
        self.turns = 0
        return "start"

    def step(self, response):
        self.turns += 1
        is_over = self.turns == 2
        return Step(
            "on",
            reward=0.5,
            terminated=is_over,
            truncated=False,
            success=False,
            failure_class=FailureClass.LOST if is_over else FailureClass.NONE,
            auxiliary={"em": 0.25} if is_over else {},
            fault="" if is_over else self.fault,
        )


def played(*, fault="", max_context=100):
    (episode,) = play(
        [Slot(Task("t", 0, "", "", 0), 0, 0, seed=0)],
        make_env=lambda: TwoTurns(fault),
        renderer=Renderer(),
        engine=ScriptedEngine(lambda _: [4, END], end_ids=[END]),
        params=SamplingParams(1.0, 8, max_context),
    )
    return episode


def test_the_env_says_why_it_failed_and_what_it_measured():
    episode = played()
    assert (episode.failure_class, episode.auxiliary, episode.fault) == ("lost", {"em": 0.25}, "")


def test_a_fault_in_any_turn_is_the_episodes():
    episode = played(fault="retriever: slow")
    assert [turn.fault for turn in episode.turns] == ["retriever: slow", ""]
    assert (episode.failure_class, episode.fault) == ("fault", "retriever: slow")


@pytest.mark.parametrize("turns", [0, 1])
def test_an_episode_that_the_context_cuts_is_unfinished(turns):
    episode = played(max_context=2 + 3 * turns)  # a prompt of 2, then 2 sampled and 1 between
    assert (len(episode.turns), episode.truncated) == (turns, True)
    assert (episode.failure_class, episode.auxiliary) == ("unfinished", {})

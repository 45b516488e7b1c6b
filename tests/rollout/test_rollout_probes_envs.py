"""Probes of the shipped environments: under expert play, in a hole, and where nobody knows."""

from itertools import pairwise

import pytest
from cases import each

from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Probes, Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune_envs.base import Task
from rltune_envs.errors import ProtocolError
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.sokoban import SokobanEnv

END = 3
ALL = Probes(distance=True, gold=True)
ENVS = {
    "sokoban": lambda: SokobanEnv(max_turns=10, max_actions=20),
    "frozen_lake": lambda: FrozenLakeEnv(success_rate=1.0),
    "multihop_qa": MultihopQaEnv,
}


class Renderer:
    """Ids are places in a list of what was said."""

    def __init__(self, said):
        self.said = said

    def first(self, system, observation, prefix):
        return [5, 6]

    def following(self, observation, prefix, *, is_ended):
        return [7]

    def decode(self, ids):
        return "".join(self.said[i - 10] for i in ids if i >= 10)


def run(env, *, renderer, script, seed):
    (episode,) = play(
        [Slot(Task("t", seed, "", "", 0), 0, 0, seed=0)],
        make_env=lambda: env,
        renderer=renderer,
        engine=ScriptedEngine(script, end_ids=[END]),
        params=SamplingParams(1.0, 8, 400),
        probes=ALL,
    )
    return episode


@each("kind", ENVS)
@each("seed", [1, 5])
def test_under_expert_play_the_distance_falls_to_0_and_there_is_always_gold(kind, seed):
    env = ENVS[kind]()
    renderer = Renderer([])

    def expert(_):
        response = env.format_response(env.expert_actions())
        renderer.said.append(response.removeprefix(env.response_prefix))
        return [9 + len(renderer.said), END]

    episode = run(env, renderer=renderer, script=expert, seed=seed)
    assert episode.success
    distances = [turn.distance for turn in episode.turns]
    assert all(one.after < one.before for one in distances)
    assert all(one.after == later.before for one, later in pairwise(distances))
    assert distances[-1].after == 0
    assert all(turn.gold.golds for turn in episode.turns)


def test_from_a_hole_in_the_ice_no_solution_is_left():
    env = FrozenLakeEnv(success_rate=1.0, frozen_probability=0.7, max_turns=40, max_actions=80)
    actions = ["Left", "Down", "Right", "Up"]
    said = [env.format_response((action,)).removeprefix(env.response_prefix) for action in actions]
    for seed in range(30):
        ids = iter([10, 12, 11, 10, 13, 12, 11, 11, 12, 10, 12, 13] * 4)
        episode = run(
            env,
            renderer=Renderer(said),
            script=lambda _, ids=ids: [next(ids), END],
            seed=seed,
        )
        if episode.failure_class == "lost":
            break
    last = episode.turns[-1]
    assert last.distance.before is not None
    assert last.distance.after is None
    assert last.gold.golds  # there was something right to say before it


def test_an_environment_that_cannot_say_is_an_error():
    class Silent(SokobanEnv):
        distance_to_go = None

    with pytest.raises(ProtocolError, match=r"^Silent has no distance_to_go\(\)"):
        run(Silent(), renderer=Renderer(["x"]), script=lambda _: [10, END], seed=1)

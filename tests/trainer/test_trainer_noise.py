"""The environment's luck: shared where runs are compared, fresh where a task comes again."""

from itertools import groupby

import pytest

from rltune.maths.streams import noise_seed
from rltune.rollout.torch_engine import TorchEngine
from rltune.store.jsonl import read_jsonl
from rltune.trainer.collect import collect
from rltune.trainer.heldout import evaluate
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.rewards import Rubric, Term, find_score
from rltune_envs.verified import VerifiedEnv

SHORT = {"budget__steps": 2, "gate__every": 2}


def lucks(rows):
    """Return (step, group) -> the noise seeds of its members."""
    place = lambda row: (row["step"], row["group"])  # noqa: E731
    return {
        key: {row["noise_seed"] for row in members}
        for key, members in groupby(sorted(rows, key=place), key=place)
    }


def test_a_group_shares_its_luck_and_no_two_visits_do(make_trial):
    trial = make_trial(budget__steps=7, gate__every=7)  # 14 visits to 12 tasks
    trial.run()
    found = lucks(read_jsonl(trial.folder.episodes).rows)

    assert len(found) == 14
    assert all(len(noise) == 1 for noise in found.values())
    assert len(set().union(*found.values())) == 14


def test_conditions_of_one_seed_share_all_luck_and_seeds_share_none(make_trial):
    one = make_trial("one", **SHORT)
    other = make_trial("other", **SHORT, optim__lr=1e-2, loss__entropy_coeff=0.1)
    apart = make_trial("apart", **SHORT, seed=1)
    for trial in (one, other, apart):
        trial.run()
    first, second, third = (lucks(read_jsonl(t.folder.episodes).rows) for t in (one, other, apart))

    assert first == second
    assert set().union(*first.values()).isdisjoint(set().union(*third.values()))


def test_steps_of_another_size_go_through_the_same_luck(make_trial):
    """As they go through the same tasks: 2 groups in 4 steps, 4 groups in 2."""
    streams = []
    for groups, steps in ((2, 4), (4, 2)):
        changes = {"rollout__groups": groups, "budget__steps": steps, "gate__every": 9}
        trial = make_trial(f"{groups}", rollout__group_size=8 // groups, **changes)
        trial.run()
        rows = read_jsonl(trial.folder.episodes).rows
        visits = {(r["step"], r["group"]): (r["task_id"], r["noise_seed"]) for r in rows}
        streams.append([visits[key] for key in sorted(visits)])
    assert streams[0] == streams[1]
    assert len(streams[0]) == 8


class Decided(FrozenLakeEnv):
    """A slippery lake on which every response goes right and down: only luck decides."""

    def step(self, response):
        return super().step("<answer>Right||Down</answer>")


def slippery():
    return Decided(success_rate=0.5, prompt="compact")


def judged():
    term = Term("success", 1.0, find_score("success", auxiliary_names=()))
    return VerifiedEnv(slippery(), Rubric((term,)))


@pytest.mark.parametrize("make_env", [slippery, judged])
def test_the_luck_reaches_the_ice(small_policy, make_config, make_env):
    """The same steps on the same lakes do not end alike at two gates."""
    config, policy = make_config(gate__temperature=0.0), small_policy()
    tasks = [make_env().task(seed) for seed in range(12)]

    def ends(step, purpose="heldout"):
        played = evaluate(
            config,
            policy,
            TorchEngine(policy.decoder()),
            tasks,
            make_env=make_env,
            step=step,
            purpose=purpose,
        )
        return [(episode.closing, episode.reward) for episode in played.episodes]

    assert ends(3) == ends(3)
    assert ends(3) != ends(4)
    assert ends(3) != ends(3, "test")


def test_the_members_of_a_group_stand_on_the_same_ice(small_policy, make_config):
    config = make_config(rollout__group_size=8)
    policy = small_policy()
    tasks = [slippery().task(seed) for seed in range(12)]
    engine = TorchEngine(policy.decoder())
    episodes = collect(config, policy, engine, tasks, step=1, make_env=slippery)

    ends = {(episode.group, episode.closing) for episode in episodes}
    assert len(ends) == len(tasks)


def test_a_noise_seed_is_exact_in_json_of_every_reader():
    assert all(0 <= noise_seed(seed, "train", 1, 0) < 2**53 for seed in range(100))

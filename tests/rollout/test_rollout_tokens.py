"""Episodes as rows (D4, B4): end tokens are trained, padding is not, groups keep their number."""

from dataclasses import replace

import pytest
import torch

from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune.rollout.tokens import to_batch
from rltune.types import Episode, StopReason, Turn
from rltune_envs.base import Step, Task

END = 3


def turn(prompt, sampled, *, reward=0.0, logprob=-0.5):
    return Turn(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(sampled),
        logprobs=(logprob,) * len(sampled),
        stop_reason=StopReason.STOP,
        observation="",
        response="",
        actions=(),
        reward=reward,
        is_valid=True,
        n_invalid=0,
        n_over_limit=0,
    )


def episode(*turns, group=0, member=0):
    reward = sum(t.reward for t in turns)
    return Episode("t", 0, group, member, turns, True, False, True, reward)


ROWS = [
    episode(turn([5, 6], [7, END], reward=1.0), turn([8], [9], reward=0.5), group=0),
    episode(turn([5, 6], [END], reward=-1.0), group=0, member=1),
    replace(episode(group=1), success=False),  # its first prompt filled the context
]


@pytest.mark.parametrize("pad_id", [0, END])
def test_layout_by_hand(pad_id):
    p = pad_id
    batch = to_batch(ROWS, pad_id=pad_id)
    assert batch.ids_NT.tolist() == [[5, 6, 7, END, 8, 9], [5, 6, END, p, p, p], [p] * 6]
    assert batch.action_mask_NT.int().tolist() == [
        [0, 0, 1, 1, 0, 1],  # the end token is trained
        [0, 0, 1, 0, 0, 0],
        [0] * 6,
    ]
    assert batch.turn_ids_NT.tolist() == [[-1, -1, 0, 0, -1, 1], [-1, -1, 0, -1, -1, -1], [-1] * 6]
    assert batch.rewards_NT.tolist() == [[0, 0, 0, 0, 0, 1.5], [0, 0, -1, 0, 0, 0], [0] * 6]
    assert batch.turn_rewards_NT.tolist() == [[0, 0, 0, 1, 0, 0.5], [0, 0, -1, 0, 0, 0], [0] * 6]
    assert batch.rewards_N.tolist() == [1.5, -1.0, 0.0]
    assert batch.success_N.tolist() == [True, True, False]
    assert batch.group_N.tolist() == [0, 0, 1]
    assert batch.episode_N.tolist() == [0, 1, 2]
    assert batch.lengths_N.tolist() == [6, 3, 0]  # also when padding is made of end tokens
    assert (batch.rollout_logprobs_NT != 0).tolist() == batch.action_mask_NT.tolist()


def test_rows_are_cut_to_their_own_length():
    batch = to_batch(ROWS, pad_id=0)
    part = batch.rows(torch.tensor([1, 2]))
    assert part.ids_NT.tolist() == [[5, 6, END], [0, 0, 0]]
    assert part.group_N.tolist() == [0, 1]
    assert part.turn_rewards_NT.tolist() == [[0, 0, -1], [0, 0, 0]]
    assert part.success_N.tolist() == [True, False]
    assert part.episode_N.tolist() == [1, 2]  # as in the step, not as in the part
    assert part.rows(torch.tensor([1])).episode_N.tolist() == [2]
    assert batch.rows(torch.tensor([2])).ids_NT.shape == (1, 1)


def test_an_episode_with_a_fault_earns_nothing_in_any_turn():
    faulted = replace(ROWS[0], turns=(replace(ROWS[0].turns[0], fault="down"), ROWS[0].turns[1]))
    batch = to_batch([faulted, ROWS[1]], pad_id=0)
    assert batch.is_valid_N.tolist() == [False, True]
    for name in ("action_mask_NT", "rewards_NT", "turn_rewards_NT", "rollout_logprobs_NT"):
        assert not getattr(batch, name)[0].any(), name
        assert getattr(batch, name)[1].any(), name
    assert (batch.turn_ids_NT[0] == -1).all()


def test_only_empty_episodes():
    batch = to_batch([episode(), episode(group=1)], pad_id=0)
    assert batch.ids_NT.shape == (2, 1)
    assert not batch.action_mask_NT.any()


def test_a_script_without_a_token_is_refused():
    engine = ScriptedEngine(lambda _: [], end_ids=[END])
    from rltune.rollout.engine import Request

    with pytest.raises(ValueError, match="at least one"):
        engine.generate([Request(0, [5], 0)], SamplingParams(1.0, 4, 10))


class Talk:
    """An env of two turns whose observations grow by one token; ids are their own text."""

    system_prompt = ""
    response_prefix = ""

    def reset(self, *, seed):
        self.turns = 0
        return "5"

    def step(self, response):
        self.turns += 1
        return Step(
            "6" * self.turns, 1.0, terminated=False, truncated=self.turns == 2, success=False
        )


class Digits:
    def first(self, system, observation, prefix):
        return [int(digit) for digit in observation]

    def following(self, observation, prefix, *, is_ended):
        return [9 if is_ended else 8, *self.first("", observation, prefix)]

    def decode(self, ids):
        return "".join(map(str, ids))


def play_talk(script, *, max_context=100, n=1):
    return play(
        [Slot(Task("t", 0, "", "", 0), i, 0, seed=i) for i in range(n)],
        make_env=Talk,
        renderer=Digits(),
        engine=ScriptedEngine(script, end_ids=[END]),
        params=SamplingParams(1.0, 4, max_context),
    )


def test_play_by_hand():
    (got,) = play_talk(lambda request: [7, END] if len(request.prompt_ids) == 1 else [7, 7])
    assert [t.prompt_ids for t in got.turns] == [(5,), (9, 6)]  # 9: the first turn was ended
    assert [t.sampled_ids for t in got.turns] == [(7, END), (7, 7)]
    assert [t.response for t in got.turns] == ["73", "77"]
    assert (got.reward, got.truncated, got.terminated, got.success) == (2.0, True, False, False)
    assert got.n_sampled == 4


def test_a_full_context_ends_the_episode_without_a_turn():
    # 1 + 2 tokens, then 2 of prompt: 5 are not less than 5
    (got,) = play_talk(lambda _: [7, END], max_context=5)
    assert len(got.turns) == 1
    assert (got.reward, got.truncated, got.terminated) == (1.0, True, False)
    (never,) = play_talk(lambda _: [7, END], max_context=1)
    assert (never.turns, never.reward, never.truncated) == ((), 0, True)


def test_rows_end_at_different_turns_and_keep_their_place():
    def script(request):
        return [request.conversation] if request.conversation % 2 else [7, END]

    episodes = play_talk(script, n=4, max_context=6)
    assert [e.group for e in episodes] == [0, 1, 2, 3]
    assert [t.sampled_ids[0] for e in episodes for t in e.turns[:1]] == [7, 1, 7, END]

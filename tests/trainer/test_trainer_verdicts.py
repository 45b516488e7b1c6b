"""Verdicts on turns: who is asked and when, what the judge gold says, and who keeps the outcome."""

import numpy as np
import pytest
import torch
from credit_cases import (
    ANY,
    GRPO,
    PAIR,
    batch_of,
    config_of,
    make_episode,
    make_turn,
    sample,
    shipped,
    verdicts,
    walk,
)

from rltune.advantages.adca import adca
from rltune.maths.turns import broadcast_turns, has_turn, turn_count
from rltune.rollout.episode import Probes
from rltune.signals.info_gain import InfoGains
from rltune.signals.step_flags import gold_flags, stack_flags
from rltune.trainer.batches.micro_batches import Limit
from rltune.trainer.credit.attribution import by_information_gain, probes
from rltune.trainer.credit.info_gain import information_gain
from rltune.trainer.credit.judging import Judged
from rltune.trainer.filtering import FilterResult, apply_filter

ADCA = {"kind": "adca", "judge": "solver"}
LLM = {"kind": "adca", "judge": "llm"}


def config(attribution, kind="frozen_lake"):
    return config_of(kind, attribution=attribution, advantage=GRPO)


FOUR = [
    *PAIR,
    make_episode([make_turn([2, 3], before=2, after=1)], reward=0.5),
    walk([5, 4, 4, 3], reward=1.0, group=1),
    walk([5, 5, 4], reward=0.0, group=1),
    make_episode([make_turn([2])], group=1, reward=0.25),  # its distance is not known
]


def test_the_judge_gold_is_gains_and_passages_and_the_answer():
    measured = Probes(distance=True, gold=True)
    episodes = sample("multihop_qa", probes=measured, temperature=0.7)
    batch = batch_of(episodes)
    turn_ids = batch.turn_ids_NT
    n = turn_count(turn_ids)
    gains = information_gain(
        shipped("multihop_qa"), batch, episodes, ig_type="prob_diff", limit=Limit(ANY, 4)
    )
    flags = [
        gold_flags(
            [float(x) if has else None for x, has in zip(own, has_own, strict=True)][
                : len(e.turns)
            ],
            [turn.distance for turn in e.turns],
            is_success=e.success,
        )
        for own, has_own, e in zip(gains.ig_NK, gains.has_ig_NK, episodes, strict=True)
    ]
    assert len({flag for own in flags for flag in own}) == 2
    flags_NK, judged_N = stack_flags(flags, n_turns=n)
    rewards, success = batch.rewards_N, batch.success_N
    group = batch.group_N
    is_turn = has_turn(turn_ids, n_turns=n)
    want = adca(flags_NK, judged_N, is_turn, rewards, success, group).advantages_NK
    got = verdicts(config({"kind": "adca", "judge": "gold"}, "multihop_qa"), episodes).advantages_NT
    torch.testing.assert_close(got, broadcast_turns(want, turn_ids), rtol=1e-5, atol=1e-5)


def test_an_episode_that_was_not_measured_keeps_its_outcome():
    found = verdicts(config(ADCA), FOUR)
    plain = verdicts(config({**ADCA, "alpha": 0.0}), FOUR)
    last = batch_of(FOUR).action_mask_NT[-1]
    assert torch.equal(found.advantages_NT[-1][last], plain.advantages_NT[-1][last])
    assert found.metrics["adca/judged_rate"] == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("skip", "rows"),
    [("none", [0, 1, 2, 3, 4, 5]), ("all_negative", [0, 3]), ("small_advantage", [0, 1, 3, 4, 5])],
)
def test_who_is_judged(skip, rows):
    asked = []

    def ask(episodes):
        asked.extend(FOUR.index(episode) for episode in episodes)
        return Judged([None] * len(episodes), {"adca/judge_calls": 7.0})

    # FOUR[2] has the mean of its group, 0.5: an advantage of exactly 0
    found = verdicts(config({**LLM, "skip": skip}), FOUR, ask=ask)
    assert asked == rows
    assert found.metrics["adca/asked_count"] == len(rows)
    assert found.metrics["adca/judge_calls"] == 7
    assert found.metrics["adca/judged_rate"] == 0


@pytest.mark.parametrize("on_drop", ["drop", "mask"])
def test_nobody_is_asked_about_a_fault_or_a_group_that_was_filtered_out(on_drop):
    broken = make_episode([make_turn([2, 3], fault="retriever: down")], group=1, reward=9.0)
    episodes, asked = [*FOUR, broken], []

    def ask(about):
        asked.extend(episodes.index(episode) for episode in about)
        return Judged([(True,) * len(episode.turns) for episode in about], {})

    drop_N = np.array([True] * 3 + [False] * 4)
    keep_N = ~drop_N & np.array([True] * 6 + [False])
    chosen = FilterResult(keep_N, drop_N, np.zeros(2), 0.5, 0, 1.0)
    batch = apply_filter(batch_of(episodes), chosen, on_drop=on_drop)
    found = verdicts(config(LLM), episodes, batch=batch, ask=ask)
    assert asked == [3, 4, 5]
    assert found.metrics["adca/asked_count"] == 3


QUIET = [
    ({"alpha": 0.0}, 1),
    ({"first_steps": 2}, 3),
    ({"alpha_schedule": "cosine", "alpha_steps": 4}, 5),  # alpha 0 from there on
]
LOUD = [({}, 9), ({"first_steps": 2}, 2), ({"alpha_schedule": "cosine", "alpha_steps": 4}, 4)]


@pytest.mark.parametrize(("numbers", "step"), QUIET)
def test_nobody_is_asked_where_verdicts_have_no_weight(numbers, step):
    found = verdicts(config({**LLM, **numbers}), FOUR, step=step)
    assert found.metrics["adca/asked_count"] == 0
    assert found.metrics["adca/alpha"] == 0
    for judge in ("solver", "gold", "llm"):
        assert probes(config({**LLM, "judge": judge, **numbers}).attribution, step) == Probes()


@pytest.mark.parametrize(("numbers", "step"), LOUD)
def test_and_where_they_have(numbers, step):
    with pytest.raises(AssertionError, match="the judge was asked"):
        verdicts(config({**LLM, **numbers}), FOUR, step=step)
    want = {
        "solver": Probes(distance=True),
        "gold": Probes(distance=True, gold=True),
        "llm": Probes(),
    }
    for judge, measured in want.items():
        assert probes(config({**LLM, "judge": judge, **numbers}).attribution, step) == measured


def test_probes_of_information_gain():
    assert probes(config({"kind": "info_gain"}).attribution, 1) == Probes(gold=True)
    assert probes(config({"kind": "info_gain", "mode": "none"}).attribution, 1) == Probes()
    assert probes(config({"kind": "none"}).attribution, 1) == Probes()


def test_alpha_is_that_of_the_step():
    cosine = {**ADCA, "alpha": 0.4, "alpha_min": 0.2, "alpha_schedule": "cosine", "alpha_steps": 4}
    found = [
        verdicts(config(cosine), FOUR, step=step).metrics["adca/alpha"] for step in (1, 3, 5, 9)
    ]
    assert found == pytest.approx([0.4, 0.3, 0.2, 0.2])


def test_information_gain_without_a_mode_gives_no_credit():
    gainless = config({"kind": "info_gain", "mode": "none"}).attribution
    gains = InfoGains(torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="attribution info_gain has no mode"):
        by_information_gain(batch_of(FOUR), gains, torch.zeros(4), gainless, turn_clip_beta=0.0)

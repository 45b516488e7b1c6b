"""Credit of turns: its limits, ADCA's goldens through the trainer, who is asked and who is left."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from credit_cases import (
    GRPO,
    PAIR,
    batch_of,
    config_of,
    gains_for,
    make_episode,
    nobody,
    sample,
    shipped,
    signals_of,
    verdicts,
    walk,
)

from rltune.rollout.episode import Probes
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.credit.judging import Judged
from rltune.trainer.credit.stages import assign_credit
from rltune.trainer.filtering import FilterResult, apply_filter

ADCA = {"kind": "adca", "judge": "solver"}
LLM = {"kind": "adca", "judge": "llm"}


def config(attribution, kind="frozen_lake", **advantage):
    return config_of(kind, attribution=attribution, advantage={**GRPO, **advantage})


@pytest.fixture(scope="module")
def played():
    """Episodes with every probe: answers of several turns, some of them right."""
    return {
        kind: sample(kind, probes=Probes(distance=True, gold=True), temperature=heat)
        for kind, heat in (("frozen_lake", 1.5), ("multihop_qa", 0.7))
    }


def credited(episodes, attribution, *, kind="frozen_lake", batch=None, ask=nobody, **numbers):
    """Return the credit of the whole pipeline."""
    batch = batch_of(episodes) if batch is None else batch
    chosen = config(attribution, kind)
    return assign_credit(
        shipped(kind),
        batch,
        signals_of(batch),
        episodes,
        chosen,
        **{"step": 1, "sepa_lambda": 0.0, "scale": 1.0, "ask": ask, **numbers},
        gains=gains_for(shipped(kind), batch, episodes, chosen),
    )


LIMITS = [
    {"kind": "none"},
    {**ADCA, "alpha": 0.0},
    {**LLM, "alpha": 0.0},
    {**ADCA, "alpha_schedule": "cosine", "alpha_steps": 1},
    {"kind": "info_gain", "mode": "none"},
    *(
        {"kind": "info_gain", "mode": mode, "ig_coef": 0.0}
        for mode in ("separate", "turn-group", "turn-group-v1d")
    ),
]


@pytest.mark.parametrize("attribution", LIMITS, ids=str)
def test_the_limits_are_bit_equal_to_the_estimator(played, attribution):
    episodes = played["frozen_lake"]
    batch = batch_of(episodes)
    step = 2 if "alpha_steps" in attribution else 1  # step 2 is the end of that cosine
    got = credited(episodes, attribution, step=step).credit
    want = estimate(batch, signals_of(batch), config(attribution).advantage).advantages_NT
    assert torch.equal(got.advantages_NT, want)
    assert want.any()
    assert got.clip_scale_NT is None or (got.clip_scale_NT[want != 0] == 1).all()


def test_away_from_the_limits_it_is_not(played):
    """Else the test above could not fail."""
    episodes = played["frozen_lake"]
    on = [ADCA, {"kind": "info_gain", "mode": "joint", "ig_coef": 0.0}, {"kind": "info_gain"}]
    found = [credited(episodes, one).credit.advantages_NT for one in [{"kind": "none"}, *on]]
    assert not any(torch.equal(a, b) for i, a in enumerate(found) for b in found[:i])


EQUAL = [walk([2, 1, 1], reward=0.0), walk([2, 1, 0], reward=0.0)]
GOLDENS = [
    pytest.param(PAIR, {}, [[1.050709, 0.966194, 0.881678], [-1.033806, -0.915485]], id="decouple"),
    pytest.param(
        PAIR,
        {"fusion": "all_steps"},
        [[3.050709, 1.966194, 0.881678], [-2.033806, -0.915485]],
        id="all steps",
    ),
    pytest.param(
        PAIR, {"scope": "flat"}, [[1.040825, 0.959175, 0.877526], [-1.040825, -0.918350]], id="flat"
    ),
    pytest.param(PAIR, {"normalize": False}, [[1.02, 1.0, 0.98], [-1.0, -0.98]], id="no z-score"),
    pytest.param(
        PAIR,
        {"length_normalize": True},
        [[0.606627, 0.557832, 0.509037], [-0.731011, -0.647345]],
        id="length-normalised",
    ),
    pytest.param(
        PAIR,
        {"scheme": "allocation"},
        [[1.253128, 1.144206, 1.035285], [-1.168752, -1.016875]],
        id="allocation",
    ),
    pytest.param(EQUAL, {}, [[-0.11547, -0.173205], [0.11547, 0.057735]], id="equal outcomes"),
]


@pytest.mark.parametrize(("episodes", "numbers", "want"), GOLDENS)
def test_goldens_from_distances(episodes, numbers, want):
    found = verdicts(config({**ADCA, **numbers}), episodes)
    batch = batch_of(episodes)
    for row, turns in enumerate(want):
        for turn, value in enumerate(turns):
            tokens = found.advantages_NT[row][batch.turn_ids_NT[row] == turn]
            assert len(tokens) == 2 + turn  # the same on every token of the turn
            assert tokens.tolist() == pytest.approx([value] * len(tokens), abs=1e-5)
    assert (found.advantages_NT[~batch.action_mask_NT] == 0).all()
    assert (found.metrics["adca/asked_count"], found.metrics["adca/judged_rate"]) == (2, 1)


@pytest.fixture
def faulty(played):
    """Add an episode with a fault to both prompts; all that it holds is out of proportion."""

    def add(episodes):
        for group, place in ((0, 1), (1, len(episodes))):
            broken = [replace(turn, fault="retriever: down") for turn in episodes[0].turns]
            bad = make_episode(broken, group=group, reward=1e6, success=True)
            episodes = [*episodes[:place], bad, *episodes[place:]]
        return episodes

    return add


KINDS = {
    "solver": ("frozen_lake", ADCA),
    "gold": ("multihop_qa", {"kind": "adca", "judge": "gold"}),
    "v1d": ("multihop_qa", {"kind": "info_gain"}),
    "joint": ("frozen_lake", {"kind": "info_gain", "mode": "joint"}),
}


def same_rows(got_NT, rows, want_NT):
    width = min(got_NT.shape[1], want_NT.shape[1])
    torch.testing.assert_close(got_NT[rows, :width], want_NT[:, :width], rtol=1e-4, atol=1e-4)
    assert not got_NT[rows, width:].any()
    assert not want_NT[:, width:].any()


@pytest.mark.parametrize("case", KINDS)
def test_a_fault_gets_nothing_and_changes_nobody(played, faulty, case):
    kind, attribution = KINDS[case]
    want = credited(played[kind], attribution, kind=kind).credit.advantages_NT
    episodes = faulty(played[kind])
    got = credited(episodes, attribution, kind=kind).credit.advantages_NT
    is_bad = [bool(episode.fault) for episode in episodes]
    assert sum(is_bad) == 2
    assert not got[is_bad].any()
    same_rows(got, [not bad for bad in is_bad], want)


@pytest.mark.parametrize("case", KINDS)
@pytest.mark.parametrize("on_drop", ["drop", "mask"])
def test_groups_that_were_filtered_out_get_nothing_and_change_nobody(played, case, on_drop):
    kind, attribution = KINDS[case]
    episodes = played[kind]
    keep_N = np.array([episode.group != 0 for episode in episodes])
    chosen = FilterResult(keep_N, ~keep_N, np.zeros(3), 2 / 3, 0, 1.0)
    batch = apply_filter(batch_of(episodes), chosen, on_drop=on_drop)
    got = credited(episodes, attribution, kind=kind, batch=batch).credit.advantages_NT
    want = credited(episodes, attribution, kind=kind).credit.advantages_NT
    if on_drop == "mask":
        assert not got[~keep_N].any()
        got = got[keep_N]
    same_rows(want, keep_N, got)


@pytest.mark.parametrize("case", [*KINDS, "llm"])
def test_rows_in_another_order_get_the_same(played, case):
    kind, attribution = KINDS.get(case, ("frozen_lake", LLM))
    episodes = played[kind]

    def ask(asked):
        by_id = {id(episode): index for index, episode in enumerate(episodes)}
        places = [by_id[id(episode)] for episode in asked]
        flags = [
            tuple((place + k) % 3 == 0 for k in range(len(episode.turns)))
            for place, episode in zip(places, asked, strict=True)
        ]
        return Judged(flags, {})

    order = torch.from_numpy(np.random.default_rng(0).permutation(len(episodes))[:-3])
    whole = batch_of(episodes).rows(order.sort().values)
    want = credited(episodes, attribution, kind=kind, batch=whole, ask=ask).credit.advantages_NT
    batch = batch_of(episodes).rows(order)
    got = credited(episodes, attribution, kind=kind, batch=batch, ask=ask).credit.advantages_NT
    torch.testing.assert_close(got, want[order.argsort().argsort()], rtol=1e-4, atol=1e-4)

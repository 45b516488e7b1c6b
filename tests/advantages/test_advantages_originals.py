"""Agreement with the originals: numbers frozen from running their packages.

`tests/golden/make_textpolicy.py` and `make_fieldkit.py` make them again.
"""

import json
from pathlib import Path

import pytest
import torch

from rltune.advantages.grpo import grpo, grpo_center
from rltune.advantages.gtpo import gtpo
from rltune.advantages.hicra import hicra
from rltune.advantages.sepa import SepaState, exec_variance, sepa_lambda, sepa_pool, sepa_update
from rltune.signals.planning import planning_spans, planning_tokens

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TEXTPOLICY = json.loads((GOLDEN / "textpolicy.json").read_text())
FIELDKIT = json.loads((GOLDEN / "fieldkit.json").read_text())
FLOAT32 = {"rtol": 2e-6, "atol": 2e-6}


def padded(rows, *, dtype=torch.float64, fill=float("nan")):
    width = max(len(row) for row in rows)
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows], dtype=dtype)


def test_the_files_say_where_they_come_from():
    for golden, counts in ((TEXTPOLICY, (4, 3, 8)), (FIELDKIT, (7,))):
        assert set(golden["header"]) == {"source", "version", "command", "tolerance"}
        assert (
            tuple(
                len(golden[k]) for k in ("tokens", "schedules", "planning", "cases") if k in golden
            )
            == counts
        )


@pytest.mark.parametrize("scope", ["completion", "batch"])
@pytest.mark.parametrize("case", TEXTPOLICY["tokens"], ids=lambda case: f"beta{case['beta']}")
def test_token_weights_agree_with_textpolicy(case, scope):
    signal_NT = padded(case["signal"])
    mask_NT = ~signal_NT.isnan()
    planning_NT = padded(case["planning"], dtype=torch.bool, fill=True)
    adv_NT = torch.tensor(case["advantages"], dtype=torch.float64)[:, None].expand_as(signal_NT)
    pooled = sepa_pool(signal_NT, planning_NT, mask_NT, lam=case["lam"], scope=scope)
    weighed = gtpo(adv_NT, pooled, mask_NT, beta=case["beta"], scope=scope)
    raised = hicra(weighed, planning_NT, mask_NT, alpha=case["alpha"])
    for name, got_NT in (("sepa", pooled), ("gtpo", weighed), ("hicra", raised)):
        want = torch.tensor(case[scope][name], dtype=torch.float64)
        torch.testing.assert_close(got_NT[mask_NT], want, **FLOAT32)


@pytest.mark.parametrize(
    "case", TEXTPOLICY["schedules"], ids=lambda case: f"{case['schedule']}{case['steps']}"
)
def test_schedules_agree_with_textpolicy_at_one_batch_a_step(case):
    state, got = SepaState(), []
    for signal, planning in zip(case["signal"], case["planning"], strict=True):
        signal_NT, planning_NT = padded([signal]), padded([planning], dtype=torch.bool)
        variance = exec_variance(signal_NT, planning_NT, ~signal_NT.isnan())
        state = sepa_update(
            state,
            variance=variance,
            success_rate=0.0,
            ema_decay=case["ema_decay"],
            warmup=case["warmup"],
        )
        lam = sepa_lambda(
            state,
            schedule=case["schedule"],
            delay=0,
            steps=case["steps"],
            var_threshold=case["var_threshold"],
        )
        got.append(lam)
    assert got == pytest.approx(case["lam"], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "case", TEXTPOLICY["planning"], ids=lambda case: "".join(case["tokens"]).replace("\n", " ")
)
def test_planning_tokens_agree_where_textpolicy_is_right(case):
    offsets, at = [], 0
    for token in case["tokens"]:
        offsets.append((at, at + len(token)))
        at += len(token)
    got = planning_tokens(offsets, planning_spans("".join(case["tokens"]), case["grams"]))
    theirs = [mark == 1 for mark in case["marked"]]
    if case["kind"] == "same":
        assert got == theirs
    elif case["kind"] == "left":  # it marks all of ours, and tokens to the left
        assert got == [False, False, True, True, True, False]
        assert theirs == [True, True, True, True, True, False]
    else:  # it misses sub-words, apostrophes and commas
        assert all(got)
        assert not any(theirs)


def test_centred_rewards_agree_with_textpolicy():
    case = TEXTPOLICY["grpo_center"]
    rewards_N = torch.tensor(case["rewards"], dtype=torch.float64)
    got = grpo_center(rewards_N, torch.zeros(len(rewards_N), dtype=torch.int64))
    want = torch.tensor(case["advantages"], dtype=torch.float64)
    torch.testing.assert_close(got, want, **FLOAT32)


@pytest.mark.parametrize("case", FIELDKIT["cases"], ids=lambda case: f"{len(case['rewards'])}")
def test_group_advantages_agree_with_fieldkit(case):
    rewards_N = torch.tensor(case["rewards"], dtype=torch.float64)
    group_N = torch.zeros(len(rewards_N), dtype=torch.int64)
    got = grpo(rewards_N, group_N, ddof=0, eps=1e-8, min_std=1e-8)
    assert got.tolist() == pytest.approx(case["normalized"], abs=1e-12)
    assert grpo_center(rewards_N, group_N).tolist() == pytest.approx(case["centred"], abs=1e-12)

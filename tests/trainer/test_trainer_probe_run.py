"""S6's probe: which conditions have one gradient, and which near misses have not."""

import sys

import pytest

from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.probe.run import probe

SMALL = {
    "env": {"kind": "sokoban", "prompt": "compact"},
    "policy": {"model": "tiny"},
    "rollout": {"groups": 4, "group_size": 4, "max_response_tokens": 8, "max_context": 256},
    "optim": {"mini_batch_size": 8, "micro_batch_size": 4},
    "gate": {"every": 10, "tasks": 8},
    "budget": {"steps": 40},
}
EIGHT = {"rollout": {"groups": 8}}  # enough for a fault that leaves an episode alone
ONE_STEP = {"optim": {"mini_batch_size": 16}}
ONE_TURN = {"env": {"max_turns": 1, "max_actions": 2}}
CENTER = {"advantage": {"kind": "grpo_center"}}
RLOO = {"advantage": {"kind": "rloo"}}
QA = {"env": {"kind": "multihop_qa", "prompt": "compact", "hops": [2], "kinds": ["bridge"]}}
SUCCESS = {"reward": {"terms": [{"score": "success"}]}}
KL = {"loss": {"use_kl_loss": True, "kl_loss_coef": 1e-3}}


def config_of(*changes):
    tree = {key: dict(section) for key, section in SMALL.items()}
    for change in changes:
        for key, section in change.items():
            tree[key] = {**tree.get(key, {}), **section}
    return TrialConfig.model_validate(tree)


def compare(left, right, *shared):
    """Return (kind, factor, whether only faults tell them apart) of two conditions."""
    configs = {"a": config_of(*shared, left), "b": config_of(*shared, right)}
    (found,), failed = probe(configs, [("a", "b")])
    assert failed == {}
    return found.kind, pytest.approx(found.factor, rel=1e-5), found.only_faults_differ


def loss(**keys):
    return {"loss": keys}


def reward(**weights):
    terms = [{"score": score, "weight": weight} for score, weight in weights.items()]
    return {"reward": {"terms": terms}}


def grpo(**keys):
    return {"advantage": {"kind": "grpo", **keys}}


def adca(**keys):
    return {"attribution": {"kind": "adca", "judge": "solver", **keys}}


def gain(**keys):
    return {
        **QA,
        "attribution": {"kind": "info_gain", "ig_coef": 1.0, **keys},
        **grpo(ddof=0),
    }


FAST = {  # of each part of the objective one that is equal and one that is not
    *("two names of one estimator", "cispo where the ratio is 1", "a factor on a rubric"),
    *("GAE of levels where only the last turn pays", "sequences of one token"),
    *("std and variance of a group, which rank alike", "verdicts without weight"),
    *("two KL estimators with the gradient of k2", "a schedule that never leaves the other"),
    *("a factor beside a KL term", "a std per group", "ppo and cispo, and two optimiser steps"),
    *("one step, in bfloat16", "a little weight of verdicts", "a lambda", "planning phrases"),
    *("KL estimators with gradients of their own", "bilevel GAE of several turns"),
    *("a share of groups", "what gains are normalised over", "other mini-batches"),
}


def some(cases):
    """Mark the other cases as slow."""
    return [pytest.param(case, marks=() if case in FAST else pytest.mark.slow) for case in cases]


ONE_RUN = {
    "two names of one estimator": (grpo(normalize_std=False), CENTER, ()),
    "no ratio where the ratio is 1": (loss(kind="ppo"), loss(kind="reinforce"), (CENTER, ONE_STEP)),
    "cispo where the ratio is 1": (loss(kind="ppo"), loss(kind="cispo"), (CENTER, ONE_STEP)),
    "a reward that is a success": (
        {"advantage": {"kind": "maxrl", "outcome": "reward"}},
        {"advantage": {"kind": "maxrl", "outcome": "success"}},
        (SUCCESS,),
    ),
    "a factor on rewards that are divided by their std": (
        reward(success=1.0), reward(success=2.0), (grpo(),),
    ),
    "a factor on a rubric": (
        reward(em=1.0, f1=0.5), reward(em=2.0, f1=1.0), (grpo(), QA),
    ),
    "GAE of levels where only the last turn pays": (
        {"advantage": {"kind": "gae", "lam": 1.0}},
        {"advantage": {"kind": "gae_bilevel", "gamma_turn": 1.0}},
        (SUCCESS,),
    ),
    "sequences of one token": (
        loss(aggregation="token-mean"), loss(aggregation="seq-mean-token-mean"),
        (CENTER, ONE_TURN, {"rollout": {"max_response_tokens": 1}}),
    ),
    "std and variance of a group, which rank alike": (
        {"rollout_filter": {"metric": "reward_variance"}},
        {"rollout_filter": {"metric": "reward_variance_mass"}},
        (CENTER, {"rollout_filter": {"strategy": "top_k", "value": 0.5}}),
    ),
    "two KL estimators with the gradient of k2": (
        loss(kl_type="k1+"), loss(kl_type="k3+"), (CENTER, KL),
    ),
    "how a mini-batch is divided": (
        {"optim": {"micro_batch_size": 2}}, {"optim": {"micro_batch_size": 8}}, (CENTER,),
    ),
    "a correction of an engine that is the trainer": (
        {"rollout_correction": {"kind": "none"}}, {"rollout_correction": {"kind": "tis"}},
        (CENTER,),
    ),
    "the outcome of an environment that pays success alone": (
        grpo(outcome="success"), grpo(), ({"env": {"kind": "frozen_lake", "format_penalty": 0.0}},),
    ),
    "a score without weight": (
        reward(success=1.0, valid_turns=0.0), reward(success=2.0), (grpo(),),
    ),
    "verdicts without weight": (adca(alpha=0.0), {"attribution": {"kind": "none"}}, (CENTER,)),
    "a schedule that never leaves the other": (
        grpo(shaping={"gtpo_beta": 0.1, "grams": ["Up"],
                      "sepa": {"schedule": "linear", "steps": 20, "warmup": 8, "delay": 2}}),
        grpo(shaping={"gtpo_beta": 0.1, "grams": ["Up"],
                      "sepa": {"schedule": "auto", "steps": 20, "warmup": 8, "delay": 2}}),
        (),
    ),
    "bilevel GAE of one turn": (
        {"advantage": {"kind": "gae"}},
        {"advantage": {"kind": "gae_bilevel"}},
        (ONE_TURN,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", some(ONE_RUN))
def test_one_run_under_two_names_is_equal(case):
    left, right, shared = ONE_RUN[case]
    assert compare(left, right, *shared) == ("equal", 1.0, False)


PROPORTIONAL = {
    "rloo is centred times n/(n-1)": (CENTER, RLOO, (EIGHT,), 4 / 3, True),
    "a divisor of the loss": (
        loss(sum_norm=16.0), loss(sum_norm=1.0),
        (CENTER, loss(aggregation="seq-mean-token-sum-norm")), 16.0, False,
    ),
    "a factor on rewards": (reward(success=1.0), reward(success=2.0), (CENTER,), 2.0, False),
    "the std of a sample, and of the population": (
        grpo(ddof=1), grpo(ddof=0), (EIGHT,), 1.1547, True,
    ),
    "and of a loss with a critic": (
        loss(sum_norm=2.0), loss(sum_norm=1.0),
        ({"advantage": {"kind": "gae"}}, loss(aggregation="seq-mean-token-sum-norm")), 2.0, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PROPORTIONAL)
def test_one_run_up_to_a_factor_is_proportional(case):
    left, right, shared, factor, only_faults = PROPORTIONAL[case]
    assert compare(left, right, *shared) == ("proportional", factor, only_faults)


TWO_RUNS = {
    "a factor beside a KL term": (CENTER, RLOO, (KL,)),
    "a factor beside an entropy bonus": (CENTER, RLOO, (loss(entropy_coeff=1e-4),)),
    "a factor on rewards beside a KL term": (
        reward(success=1.0), reward(success=2.0), (CENTER, KL),
    ),
    "a std per group": (grpo(), CENTER, ()),
    "whitened over the batch": (
        CENTER, {"advantage": {"kind": "reinforce_pp_baseline"}}, (),
    ),
    "no ratio, and two optimiser steps": (loss(kind="ppo"), loss(kind="reinforce"), (CENTER,)),
    "ppo and cispo, and two optimiser steps": (loss(kind="ppo"), loss(kind="cispo"), (CENTER,)),
    "one step, in bfloat16": (
        loss(kind="ppo"), loss(kind="cispo"),
        (CENTER, ONE_STEP, {"policy": {"dtype": "bfloat16"}}),
    ),
    "another epoch": ({"optim": {"epochs": 1}}, {"optim": {"epochs": 2}}, (CENTER,)),
    "other mini-batches": (
        {"optim": {"mini_batch_size": 8}}, {"optim": {"mini_batch_size": 16}}, (CENTER,),
    ),
    "a reward that is more than a success": (
        {"advantage": {"kind": "maxrl", "outcome": "reward"}},
        {"advantage": {"kind": "maxrl", "outcome": "success"}},
        ({"reward": {"terms": [{"score": "success"}, {"score": "valid_turns"}]}},),
    ),
    "KL estimators with gradients of their own": (
        loss(kl_type="k2"), loss(kl_type="k3"), (CENTER, KL),
    ),
    "a correction of another engine": (
        {"rollout_correction": {"kind": "none"}}, {"rollout_correction": {"kind": "tis"}},
        (CENTER, {"policy": {"dtype": "bfloat16"}}),
    ),
    "a little weight of verdicts": (adca(alpha=1e-3), {"attribution": {"kind": "none"}}, (CENTER,)),
    "verdicts that end in the last step": (
        adca(first_steps=39), adca(first_steps=40), (CENTER,),
    ),
    "a critic that learns alone for longer": (
        {"critic": {"warmup_steps": 3}}, {"critic": {"warmup_steps": 4}},
        ({"advantage": {"kind": "gae"}},),
    ),
    "a lambda": ({"advantage": {"lam": 1.0}}, {"advantage": {"lam": 0.999}},
                 ({"advantage": {"kind": "gae"}},)),
    "bilevel GAE of several turns": (
        {"advantage": {"kind": "gae"}}, {"advantage": {"kind": "gae_bilevel"}}, (),
    ),
    "a schedule that leaves the other for a few steps": (
        grpo(shaping={"gtpo_beta": 0.1, "grams": ["Up"],
                      "sepa": {"schedule": "linear", "steps": 60, "warmup": 8, "ema_decay": 0.3}}),
        grpo(shaping={"gtpo_beta": 0.1, "grams": ["Up"],
                      "sepa": {"schedule": "auto", "steps": 60, "warmup": 8, "ema_decay": 0.3}}),
        (),
    ),
    "planning phrases": (
        grpo(shaping={"hicra_alpha": 0.2, "grams": ["Up"]}),
        grpo(shaping={"hicra_alpha": 0.2, "grams": ["Up", "Left"]}),
        (),
    ),
    "a share of groups": (
        {"rollout_filter": {"value": 0.6}}, {"rollout_filter": {"value": 0.5}}, (CENTER,),
    ),
    "probabilities and their logs": (gain(ig_type="prob_diff"), gain(ig_type="log_prob_diff"), ()),
    "what gains are normalised over": (gain(mode="separate"), gain(mode="turn-group"), ()),
}  # fmt: skip


@pytest.mark.parametrize("case", some(TWO_RUNS))
def test_a_near_miss_is_another_run(case):
    left, right, shared = TWO_RUNS[case]
    assert compare(left, right, *shared)[0] == "different"


ESTIMATORS = """
from rltune.advantages.grpo import grpo_center

def twice(outcome_N, group_N):
    return 2 * grpo_center(outcome_N, group_N)

def picky(outcome_N, group_N):
    raise ValueError("a group of one has no spread")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "probe_estimators.py").write_text(ESTIMATORS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name: {"advantage": {"kind": "custom", "estimator": f"probe_estimators:{name}"}}
    sys.modules.pop("probe_estimators", None)


def test_an_estimator_of_ones_own_is_compared_by_what_it_does(own):
    assert compare(CENTER, own("twice")) == ("proportional", 2.0, False)


def test_what_differs_only_where_a_fault_left_an_episode_alone():
    alone = {"advantage": {"kind": "grpo_center", "singleton": 1.0}}
    assert compare(CENTER, alone, EIGHT) == ("equal", 1.0, True)


def test_an_estimator_that_fails_is_named_and_the_others_are_compared(own):
    configs = {"a": config_of(CENTER), "b": config_of(RLOO), "own": config_of(own("picky"))}
    found, failed = probe(configs, [("a", "b"), ("a", "own"), ("b", "own")])
    assert [(item.a, item.b, item.kind) for item in found] == [("a", "b", "proportional")]
    assert list(failed) == ["own"]
    assert "a group of one has no spread" in failed["own"]


def test_a_probe_is_the_same_every_time():
    configs = {"a": config_of(CENTER), "b": config_of(RLOO)}
    assert probe(configs, [("a", "b")]) == probe(configs, [("a", "b")])

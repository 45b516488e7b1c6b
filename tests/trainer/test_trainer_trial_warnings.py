"""A trial warns of what could not be learned (K10, K12): in its result, its card and its log."""

import pytest

from rltune.trainer.trial_warnings import CUT_SHARE, cut_warnings, idle_warning, trial_warnings


def step(spread, **others):
    return {"rollout/in_group_reward_std": spread} | others


def test_a_cut_gate_names_the_key_to_raise(make_config):
    config = make_config(rollout__max_response_tokens=6, rollout__max_context=120)
    gate = {
        "heldout/clip_ratio": 1.0,
        "heldout/context_clip_ratio": CUT_SHARE - 0.01,
        "heldout/out_of_context_ratio": CUT_SHARE,
    }
    assert cut_warnings(gate, config) == [
        "rollout.max_response_tokens (6) cut 100% of the responses at the first gate: raise it, "
        "or they can hardly succeed",
        "rollout.max_context (120) cut 80% of the episodes at the first gate: raise it, or they "
        "can hardly succeed",
    ]


def test_only_the_first_gate_is_asked(make_config):
    rows = [{"heldout/clip_ratio": 0.0}, step(0.1), {"heldout/clip_ratio": 1.0}]
    rows[1]["actor/grad_norm"] = 1.0
    assert trial_warnings(rows, make_config()) == ()
    assert trial_warnings([], make_config()) == ()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [step(0.0, **{"actor/grad_norm": 0.0}), step(1e-17)],
            "no step of 2 training steps had a gradient: rewards in every group were equal, and "
            "the policy is where it began",
        ),
        (
            [step(0.3)],  # a filter kept nothing, or a critic alone was trained
            "no step of 1 training step had a gradient: nothing was trained on, or all of it had "
            "advantage 0, and the policy is where it began",
        ),
        (
            [step(0.0, **{"actor/grad_norm": 0.5})] * 3,  # entropy, KL, a critic's errors
            "rewards in every group were equal in all of 3 training steps: no response was better "
            "than another of its prompt, so what moved the policy was not the reward",
        ),
        ([step(0.0), step(0.1, **{"actor/grad_norm": 0.5})], ""),
        ([step(float("nan"), **{"actor/grad_norm": 0.5})], ""),  # faults: nobody knows
        ([], ""),
    ],
)
def test_what_taught_nothing(rows, said):
    assert idle_warning(rows, group_size=4) == said


def test_single_rollouts_are_not_compared():
    assert idle_warning([step(0.0, **{"actor/grad_norm": 0.5})], group_size=1) == ""


def test_a_trial_without_spread_says_so_everywhere(make_trial):
    trial = make_trial(is_constant=True)
    warning = trial.run().warnings[-1]
    assert warning.startswith("no step of 4 training steps had a gradient: rewards in every group")
    assert warning in trial.folder.model_card.with_suffix(".md").read_text(encoding="utf-8")
    assert warning in trial.warnings


def test_a_trial_whose_responses_are_cut_says_so_at_its_first_gate(make_trial):
    trial = make_trial(rollout__max_response_tokens=1)
    warnings = trial.run().warnings
    assert warnings[0].startswith("rollout.max_response_tokens (1) cut ")
    assert trial.warnings[0] == warnings[0]

"""Collapse signals of a step: cross-scored responses against plain forwards; nothing else moves."""

from dataclasses import replace

import pytest
import torch
from credit_cases import lasting, make_episode, make_turn, sample, shipped

from rltune.rollout.episode import Probes
from rltune.signals.collapse import collapse_signals
from rltune.trainer.credit.collapse import collapse_metrics
from rltune.trainer.ranks.scoring import score_actions

KIND = "frozen_lake"


@pytest.fixture(scope="module")
def episodes():
    return sample(KIND, probes=Probes(), seeds=(0, 1, 2, 3))


def measured(episodes, *, prompts=8, temperature=0.7):
    policy = shipped(KIND)

    @torch.no_grad()
    def score(ids, mask):
        scores = score_actions(policy.model, ids, mask, temperature=temperature)
        return scores.tokens.logprobs_M

    return collapse_metrics(policy, episodes, prompts=prompts, score=score)


@torch.no_grad()
def plain(chosen, temperature):
    """Score each response at each prompt by a forward of its own."""
    table = torch.zeros(len(chosen), len(chosen))
    for i, response in enumerate(chosen):
        for j, prompt in enumerate(chosen):
            context, said = prompt.turns[0].prompt_ids, response.turns[0].sampled_ids
            ids = torch.tensor([*context, *said])
            logits = shipped(KIND).model(input_ids=ids[None]).logits[0] / temperature
            before = logits.log_softmax(-1)[len(context) - 1 : -1]
            table[i, j] = before.gather(1, torch.tensor(said)[:, None]).sum()
    return table


@pytest.mark.parametrize(("prompts", "n"), [(8, 4), (3, 3)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_metrics_are_those_of_plain_forwards(episodes, prompts, n, temperature):
    got = measured(episodes, prompts=prompts, temperature=temperature)
    chosen = [next(e for e in episodes if e.group == group) for group in range(n)]
    want = collapse_signals(plain(chosen, temperature))
    assert got == pytest.approx(
        {
            "collapse/retrieval_accuracy": want.retrieval_accuracy,
            "collapse/retrieval_chance": 1 / n,
            "collapse/mutual_information": want.mutual_information,
            "collapse/conditional_entropy": want.conditional_entropy,
            "collapse/reasoning_entropy": want.reasoning_entropy,
        },
        abs=1e-4,
    )


def test_a_group_is_its_first_sound_episode_that_said_something(episodes):
    silent = make_episode([], group=0)
    broken = make_episode([make_turn([2, 3], fault="retriever: down")], group=1)
    assert measured([silent, broken, *episodes]) == measured(episodes)
    first_two = [e for e in episodes if e.group < 2]
    turns = (replace(first_two[0].turns[0], fault="down"), *first_two[0].turns[1:])
    got = measured([replace(first_two[0], turns=turns), *first_two[1:]])
    assert got == measured(first_two[1:])


def test_nothing_below_two_groups(episodes):
    only = [e for e in episodes if e.group == 0]
    assert measured(only) == {}
    assert measured([]) == {}
    silent = [replace(e, turns=()) for e in episodes if e.group != 0]
    assert measured([*only, *silent]) == {}


def test_it_changes_no_other_metric(make_trial):
    sections = {"budget__steps": 3, "gate__every": 9}
    off = make_trial("off", **sections)
    on = make_trial("on", collapse={"every": 2, "prompts": 2}, **sections)
    off.run()
    on.run()
    for row, plain_row in zip(on.rows, off.rows, strict=True):
        others = {name: x for name, x in lasting(row).items() if not name.startswith("collapse/")}
        assert others == lasting(plain_row)
    assert [row["step"] for row in on.rows if "collapse/retrieval_accuracy" in row] == [1, 3]
    assert not any(name.startswith("collapse/") for row in off.rows for name in row)
    assert "timing_s/collapse" in on.rows[1]

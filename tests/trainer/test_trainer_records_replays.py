"""replays.jsonl: which episodes are kept, and that each token stands beside its own advantage."""

import json

import numpy as np
import pytest
import torch
from credit_cases import batch_of, make_episode, make_turn, shipped

from rltune.store.jsonl import read_jsonl
from rltune.store.rundir import TrialDir
from rltune.trainer.filtering import FilterResult
from rltune.trainer.records.replays import MOST_TOKENS, pick, replay_steps, write_replays
from rltune.types import StopReason


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        (20, {1, 5, 10, 15, 20}),  # 0, 1/4, 1/2, 3/4 and all of 20; 0 is step 1
        (400, {1, 100, 200, 300, 400}),
        (4, {1, 2, 3, 4}),
        (1, {1}),
    ],
)
def test_at_most_five_steps_of_a_trial_are_kept(steps, kept):
    assert replay_steps(steps) == kept


def episode(group, success, **known):
    return make_episode([make_turn([7], **known)], group=group, success=success)


def test_a_success_and_a_failure_of_one_prompt_come_first():
    step = [episode(0, True), episode(0, True), episode(1, False), episode(1, True)]
    assert pick(step, np.ones(4, dtype=bool)) == [3, 2]


def test_a_dropped_group_is_shown_only_where_nothing_else_is_left():
    step = [episode(0, True), episode(0, False), episode(1, True), episode(2, False)]
    assert pick(step, np.array([False, False, True, True])) == [2, 3]
    assert pick(step, np.zeros(4, dtype=bool)) == [0, 1]


def test_one_outcome_alone_gives_one_replay_and_a_fault_none():
    assert pick([episode(0, True), episode(0, True)], np.ones(2, dtype=bool)) == [0]
    assert pick([episode(0, False, fault="retriever: down")], np.ones(1, dtype=bool)) == []


def chosen(keep):
    keep_N = np.array(keep)
    return FilterResult(keep_N, ~keep_N, np.zeros(1), 1.0, 0, 1.0)


def rows_of(path):
    return read_jsonl(TrialDir(path).replays).rows


def test_each_token_has_the_advantage_of_its_own_place(tmp_path):
    policy = shipped("sokoban")
    up, bar, end = (policy.tokenizer.encode(text)[0] for text in ("Up", "||", "</answer>"))
    first = make_turn([up, bar, up, end], prompt=(5, 6, 7), response="<answer>Up||Up</answer>")
    second = make_turn([up, end], prompt=(5,), response="<answer>Up</answer>")
    won = make_episode([first, second], success=True)
    lost = make_episode([second], success=False)
    batch = batch_of([won, lost])
    # Row 0: 3 prompt tokens, 4 sampled, 1 prompt token, 2 sampled. Each place counts its column.
    advantages = torch.arange(20, dtype=torch.float32).reshape(2, 10)
    write_replays(TrialDir(tmp_path), policy, [won, lost], chosen([True, True]),
                  (batch, advantages), step=5, steps=5)  # fmt: skip
    one, two = rows_of(tmp_path)
    assert [turn["credit"] for turn in one["turns"]] == [[3, 4, 5, 6], [8, 9]]
    assert [turn["credit"] for turn in two["turns"]] == [[11, 12]]  # row 1 starts at 10
    assert one["turns"][0]["tokens"] == ["Up", "||", "Up", "</answer>"]
    assert (one["turns"][0]["given"], one["step"], one["kept"]) == ("<answer>", 5, True)
    assert (one["success"], two["success"]) == (True, False)


def test_what_was_not_trained_on_has_no_credit(tmp_path):
    policy = shipped("sokoban")
    step = [episode(0, True), episode(0, False)]
    batch = batch_of(step).rows(torch.tensor([1]))  # the filter took the first one out
    learned = (batch, torch.ones(batch.ids_NT.shape))
    write_replays(
        TrialDir(tmp_path), policy, step, chosen([False, False]), learned, step=1, steps=5
    )
    write_replays(TrialDir(tmp_path), policy, step, chosen([False, False]), None, step=4, steps=5)
    assert [row["turns"][0]["credit"] for row in rows_of(tmp_path)] == [None, [1], None, None]
    assert [row["kept"] for row in rows_of(tmp_path)] == [False] * 4


def test_a_long_turn_is_cut_and_counted(tmp_path):
    policy = shipped("sokoban")
    word = policy.tokenizer.encode("Up")[0]
    long = make_episode([make_turn([word] * (MOST_TOKENS + 9))])
    batch = batch_of([long])
    learned = (batch, torch.zeros(batch.ids_NT.shape))
    write_replays(TrialDir(tmp_path), policy, [long], chosen([True]), learned, step=1, steps=5)
    (turn,) = rows_of(tmp_path)[0]["turns"]
    assert (len(turn["tokens"]), len(turn["credit"])) == (MOST_TOKENS, MOST_TOKENS)
    assert turn["n_tokens"] == MOST_TOKENS + 9
    assert long.turns[0].stop_reason is StopReason.STOP


def test_a_resumed_trial_has_the_replays_of_one_that_was_not_stopped(make_trial, plain, killed):
    whole, _ = plain  # four steps, and a checkpoint after each second one
    parts = make_trial()
    with pytest.raises(killed):
        parts.run(die_at=3)  # ahead of the checkpoint of step 2
    assert rows_of(parts.folder.path)[-1]["step"] == 3
    parts.run()
    assert parts.folder.replays.read_bytes() == whole.folder.replays.read_bytes()
    found = [json.loads(line) for line in whole.folder.replays.read_text().splitlines()]
    assert sorted({row["step"] for row in found}) == [1, 2, 3, 4]
    assert all(len(t["credit"]) == t["n_tokens"] for row in found for t in row["turns"])
    assert all(row["closing"] for row in found)

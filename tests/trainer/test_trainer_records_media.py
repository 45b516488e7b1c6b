"""What trackers show: tables, distributions, artifacts; and that showing changes no number."""

import numpy as np
import pytest
import torch
from credit_cases import make_episode, make_turn

from rltune.policy.load import file_digest
from rltune.track.base import Histogram
from rltune.trainer.filtering import FilterResult
from rltune.trainer.records.media import (
    EPISODES,
    episode_table,
    filter_table,
    gradient_histogram,
    value_histogram,
)

STEPS = {"budget__steps": 4, "checkpoint__every": 2, "gate__every": 2}  # as `plain` has them


class Watcher:
    """A tracker that shows media, in memory."""

    shows_media = True

    def __init__(self):
        self.rows, self.shown, self.made, self.summaries = [], [], [], []

    def resume(self, rows):
        self.rows.extend(dict(row) for row in rows)

    def log(self, step, metrics):
        self.rows.append({"step": step, **metrics})

    def media(self, step, items):
        self.shown.append((step, dict(items)))

    def use(self, artifact):
        pass

    def make(self, artifact):
        self.made.append(artifact)

    def summary(self, values):
        self.summaries.append(dict(values))

    def close(self, status):
        pass


def test_an_episode_is_shown_board_by_board():
    turns = [
        make_turn([1], observation="_P_", response="<answer>Up</answer>"),
        make_turn([1], observation="P__", response="?"),
    ]
    table = episode_table([make_episode(turns, reward=1.5, success=True)])
    (row,) = table.rows
    assert dict(zip(table.columns, row, strict=True)) == {
        "task_id": "t", "success": True, "reward": 1.5, "failure_class": "none", "turns": 2,
        "fault": "",
        "text": "_P_\n\n> <answer>Up</answer>\n= no action\n\nP__\n\n> ?\n= no action",
    }  # fmt: skip


def test_a_table_of_episodes_is_bounded():
    long = make_episode([make_turn([1], observation="x" * 9999)])
    table = episode_table([long] * (EPISODES + 5))
    assert len(table.rows) == EPISODES
    assert {len(row[-1]) for row in table.rows} == {4000}


def test_the_filter_s_choice_is_one_row_a_group():
    episodes = [
        make_episode([make_turn([1])], reward=reward, success=reward > 0) for reward in (1, 0, 0, 0)
    ]
    broken = make_episode([make_turn([1], fault="timeout")], reward=9, success=True)
    chosen = FilterResult(
        keep_N=np.array([True, True, False, False, True, False]),
        drop_N=np.zeros(6, dtype=bool),
        scores_G=np.array([0.5, 0.0, 0.25]),
        kept_ratio=2 / 3,
        zero_count=1,
        scale=1.0,
    )
    table = filter_table([*episodes, episodes[0], broken], chosen)
    assert table.rows == (
        (0, "t", 0.5, 0.5, 0.5, True, 0),  # rewards 1 and 0
        (1, "t", 0.0, 0.0, 0.0, False, 0),
        (2, "t", 0.25, 1.0, 1.0, True, 1),  # the broken one is in no mean
    )


def test_a_histogram_counts_every_value():
    found = value_histogram([torch.tensor([0.0, 1.0]), torch.tensor([[1.0]])])
    assert (sum(found.counts), found.counts[0], found.counts[-1]) == (3, 1, 2)
    assert (found.edges[0], found.edges[-1]) == (0.0, 1.0)
    assert value_histogram([]) is value_histogram([torch.empty(0)]) is None


def test_the_gradient_s_histogram_is_over_all_parameters():
    model = torch.nn.Linear(2, 1)
    assert gradient_histogram(model) is None
    model.weight.grad, model.bias.grad = torch.tensor([[-2.0, 2.0]]), torch.tensor([0.5])
    found = gradient_histogram(model)
    assert (found.edges[0], found.edges[32], found.edges[-1]) == (-2.0, 0.0, 2.0)
    # 64 bins over [-2, 2] are 1/16 wide: 0.5 is the first value of bin 32 + 8.
    assert {i: n for i, n in enumerate(found.counts) if n} == {0: 1, 40: 1, 63: 1}


@pytest.fixture(scope="module")
def watched(tmp_path_factory, make_trial_in, plain):
    plain, _ = plain
    trial, watcher = make_trial_in(tmp_path_factory.mktemp("watched"), **STEPS), Watcher()
    return plain, trial, trial.run(watcher=watcher), watcher


def numbers(rows):
    timed = ("timing_s/", "perf/", "time")
    return [{k: v for k, v in row.items() if not k.startswith(timed)} for row in rows]


def test_being_watched_changes_no_number(watched):
    plain, trial, _, watcher = watched
    assert numbers(plain.rows) == numbers(trial.rows) == numbers(watcher.rows)


def test_gates_show_episodes_and_their_steps_show_what_was_learned_from(watched):
    *_, watcher = watched
    shown = {step: {} for step, _ in watcher.shown}
    for step, items in watcher.shown:
        shown[step] |= items
    learned = {"rollout/groups", "actor/token_entropy", "actor/gradient", "heldout/episodes"}
    assert {step: set(items) for step, items in shown.items()} == {
        0: {"heldout/episodes"}, 2: learned, 4: learned,
    }  # fmt: skip
    entropy = shown[4]["actor/token_entropy"]
    assert isinstance(entropy, Histogram)
    assert entropy.edges[0] >= 0


def test_the_summary_and_the_artifact_are_those_of_the_chosen_step(watched):
    _, trial, result, watcher = watched
    (summary,) = watcher.summaries
    chosen = next(row for row in trial.rows if row["step"] == result.best_step)
    heldout = {name: value for name, value in chosen.items() if name.startswith("heldout/")}
    assert summary == {**heldout, "best_step": result.best_step, "final_step": 4}
    (made,) = watcher.made
    file = trial.folder.checkpoint(result.best_step) / "policy.safetensors"
    assert made.files == {"policy.safetensors": file}
    assert made.name == f"policy-{file_digest(file)[:12]}"


def test_a_resumed_trial_gives_its_tracker_all_rows_once(watched, tmp_path, make_trial_in):
    plain, *_ = watched
    trial = make_trial_in(tmp_path, **STEPS)
    with pytest.raises(Exception, match=r"^$"):  # Killed
        trial.run(die_at=3)
    again = Watcher()
    trial.run(watcher=again)
    assert [row["step"] for row in again.rows] == [0, 1, 2, 3, 4]
    assert numbers(again.rows) == numbers(plain.rows)

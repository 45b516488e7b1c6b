"""Two runs of one trial, bit for bit."""

import json
import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from rltune.errors import StoreError
from rltune.store.compare import compare_trials, first_difference
from rltune.store.jsonl import append_jsonl_many
from rltune.store.rundir import TrialDir

ROWS = [{"step": step, "actor/pg_loss": 0.1 * step, "timing_s/eval": 1.0} for step in range(4)]
GATES = [{"step": 0, "success": [0, 1]}, {"step": 2, "success": [1, 1]}]


@pytest.fixture
def make(tmp_path):
    """Write a trial: metrics, gates, and a checkpoint of step 2."""

    def write(name, rows=ROWS, gates=GATES, policy=(1.0, 2.0)):
        trial = TrialDir(tmp_path / name / "t").create()
        append_jsonl_many(trial.metrics, rows)
        append_jsonl_many(trial.heldout, gates)
        trial.checkpoint(2).mkdir()
        tensors = {"a": np.zeros(2, np.float32), "w": np.array(policy, np.float32)}
        save_file(tensors, trial.checkpoint(2) / "policy.safetensors")
        return trial

    return write


def test_equal_runs_are_equal_whatever_their_clocks(make):
    other = [{**row, "timing_s/eval": 9.0, "time": 5.0, "perf/tokens_per_s": 3.0} for row in ROWS]
    found = compare_trials(make("a"), make("b", rows=other), last=3)
    assert found.difference is None
    assert (found.metric_rows, found.gates, found.checkpoints) == (4, 2, (2,))


def test_the_last_bit_of_a_metric_is_named(make):
    rows = [dict(row) for row in ROWS]
    rows[2]["actor/pg_loss"] = math.nextafter(0.2, 1)
    found = compare_trials(make("a"), make("b", rows=rows), last=3).difference
    assert str(found) == (
        "metrics.jsonl, step 2, actor/pg_loss: 0.2 before, 0.20000000000000004 now"
    )
    assert compare_trials(make("c"), make("d", rows=rows), last=1).difference is None


def test_a_gate_and_a_weight_are_named(make):
    gates = [GATES[0], {"step": 2, "success": [1, 0]}]
    found = compare_trials(make("a"), make("b", gates=gates), last=3).difference
    assert str(found) == "heldout.jsonl, step 2, success: [1, 1] before, [1, 0] now"
    other = make("c", policy=(1.0, 2.5))
    found = compare_trials(make("d"), other, last=3).difference
    assert str(found) == (
        "step-000002/policy.safetensors, step 2, w: 2.0 at [1] before, 2.5 (1 of 2 values differ) "
        "now"
    )


def test_a_missing_file_and_a_missing_row_are_named(make):
    whole, short = make("a"), make("b", rows=ROWS[:3])
    found = compare_trials(whole, short, last=3).difference
    assert (found.where, found.step, found.now) == ("metrics.jsonl", 3, "<absent>")
    less = make("c")
    (less.checkpoint(2) / "policy.safetensors").unlink()
    found = compare_trials(whole, less, last=3).difference
    assert (found.where, found.now) == ("step-000002/policy.safetensors", "<absent>")


def test_nan_equals_nan_and_a_key_may_be_missing():
    assert first_difference("m", [{"step": 1, "a": math.nan}], [{"step": 1, "a": math.nan}]) is None
    found = first_difference("m", [{"step": 1, "a": 1}], [{"step": 1}])
    assert (found.name, found.before, found.now) == ("a", "1", "<absent>")


def test_a_long_value_is_cut_to_its_difference():
    old, new = [{"step": 0, "v": [0] * 500}], [{"step": 0, "v": [0] * 400 + [1] * 100}]
    found = first_difference("m", old, new)
    assert len(found.now) == 63
    assert found.now.endswith("0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ")
    assert found.before.startswith("...")


def test_an_unreadable_record_proves_nothing(make):
    trial = make("a")
    with trial.metrics.open("a") as file:
        file.write('{"step": 4, "act\n')
    with pytest.raises(StoreError, match=r"metrics\.jsonl"):
        compare_trials(make("b"), trial, last=3)
    torn = make("c", policy=(0.0, 2.0))
    path = torn.checkpoint(2) / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StoreError, match=r"cannot be compared"):
        compare_trials(make("d"), torn, last=3)


def test_a_comparison_is_plain_data(make):
    from rltune.store.files import to_json

    found = to_json(compare_trials(make("a"), make("b"), last=3))
    assert json.loads(json.dumps(found))["checkpoints"] == [2]

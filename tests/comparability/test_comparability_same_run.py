"""A7: conditions that were one run to the end."""

from dataclasses import replace

import pytest
from run_folders import finished_sweep

from rltune.comparability.audit_same_run import same_runs
from rltune.store.run_folder import read_folder, read_records


@pytest.fixture
def records(tmp_path):
    """Two conditions, three seeds, 20 steps; all tokens, gradients and gates are equal."""
    found = read_records(read_folder(finished_sweep(tmp_path).run)).records
    return [
        replace(
            r,
            metrics=tuple({**row, "actor/grad_norm": 0.1} for row in r.metrics),
            heldout=found[0].heldout,
        )
        for r in found
    ]


def test_both_conditions_and_their_seeds_are_named(records):
    (finding,) = same_runs(records)
    assert finding.code == "A7"
    assert set(finding.conditions) == {record.spec.condition for record in records}
    assert "in every step (seeds 0, 1, 2)" in finding.message


def test_seeds_that_one_condition_lacks_do_not_count(records):
    condition = records[0].spec.condition
    left = [r for r in records if r.spec.condition != condition or r.spec.seed == 1]
    (finding,) = same_runs(left)
    assert "(seeds 1)" in finding.message


def test_trials_that_still_run_may_part_later(records):
    condition = records[0].spec.condition
    running = [replace(r, result=None) if r.spec.condition == condition else r for r in records]
    assert not list(same_runs(running))


@pytest.mark.parametrize("field", ["actor/grad_norm", "rollout/sampled_hash"])
def test_what_was_not_recorded_proves_nothing(records, field):
    lacking = [
        replace(r, metrics=tuple({k: v for k, v in row.items() if k != field} for row in r.metrics))
        for r in records
    ]
    assert not list(same_runs(lacking))


def test_what_parts_them_in_the_last_update_shows_in_the_last_gate(records):
    """Successes of the last gate differ: another learning rate in the only step, say."""
    *before, last = records[0].heldout
    other = {**last, "success": [1 - one for one in last["success"]]}
    condition = records[0].spec.condition
    parted = [
        replace(r, heldout=(*before, other)) if r.spec.condition == condition else r
        for r in records
    ]
    assert not list(same_runs(parted))

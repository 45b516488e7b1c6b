"""Comparing two sides: which unit, which test, what is said, what is refused."""

import copy
from dataclasses import replace

import pytest
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, finished_sweep

from rltune.analysis.audit import judge_folder
from rltune.analysis.compare_sides import Side
from rltune.errors import InputError
from rltune.report.compare_text import compare_and_say
from rltune.store.run_folder import read_folder, read_records


def side_of(writer, condition, seed=None):
    folder = read_folder(writer.run)
    read = read_records(folder)
    records = [
        record
        for record in read.records
        if record.spec.condition == condition and seed in (None, record.spec.seed)
    ]
    label = condition if seed is None else f"{condition}@{seed}"
    return Side(
        label,
        records,
        seed is not None,
        writer.run.path.name,
        folder.metric_name,
        folder.metric_mode,
        judge_folder(folder, read),
        sweep=() if seed is not None else read.records,
    )


def two_rates(tmp_path, ours, theirs, *, tasks):
    """Return two trials of one seed, each with as many solved at its last gate."""
    writer = FolderWriter(tmp_path, tasks=tasks)
    for label, solved in ((TREATED, ours), (CONTROL, theirs)):
        writer.finish(writer.spec(label, 0), {0: 0, 10: 0, 20: solved})
    return side_of(writer, TREATED, 0), side_of(writer, CONTROL, 0)


@pytest.fixture
def finished(tmp_path):
    return finished_sweep(tmp_path)


def test_case_e3_sixteen_and_eleven_of_125_are_not_separable(tmp_path):
    """reason_over_search: 0.128 vs 0.088 at n = 125, one seed, was luck."""
    found = compare_and_say(*two_rates(tmp_path, 16, 11, tasks=125))
    # the first 11 tasks are solved by both, 5 by one alone: exact McNemar 2 / 2^5
    assert (found.unit, found.n, found.hits) == ("tasks", 125, (16, 11))
    assert (found.p, found.verdict) == (0.0625, "not separable")
    # Bonett and Price: p = 6/127, q = 1/127: 5/127 +- 1.96 sqrt((7/127 - (5/127)^2) / 127)
    # = 0.039370 +- 1.959964 x 0.020538
    assert found.interval == pytest.approx((-0.000883, 0.079623), abs=1e-6)
    # exact McNemar, 0.04 of the tasks solved by one alone: 0.7993 at 196, 0.8031 at 197
    assert found.needed == 197
    assert found.sentence == (
        f"{TREATED}@0 and {CONTROL}@0 are not separable on 125 held-out tasks (16 and 11 "
        "solved): difference +0.04, 95 % interval -0.000883 to +0.0796, exact McNemar test "
        "p = 0.062 unadjusted. About 197 held-out tasks would show one of this size with 80 % "
        "power."
    )
    assert found.notes[0].startswith("One trial per side: this covers the luck of the tasks")
    # Wilson: (0.128 + 0.015366) / 1.030732 +- 1.901527 sqrt(0.000892928 + 0.000061463)
    assert found.a.interval == pytest.approx((0.080347, 0.197836), abs=1e-6)


def test_an_interval_without_zero_is_not_enough_over_few_tasks(tmp_path):
    found = compare_and_say(*two_rates(tmp_path, 10, 5, tasks=20))
    assert found.interval.low > 0
    assert (found.p, found.verdict) == (0.0625, "not separable")


def test_tasks_with_a_fault_on_either_side_are_left_out(tmp_path):
    ours, theirs = two_rates(tmp_path, 5, 3, tasks=10)
    found = compare_and_say(
        with_gate(ours, fault=["", "judge is down"] + [""] * 8),
        with_gate(theirs, fault=[""] * 9 + ["judge is down"]),
    )
    assert (found.n, found.hits) == (8, (4, 2))


def test_the_same_trial_of_another_run_is_another_trial(finished):
    again = replace(side_of(finished, CONTROL), run="other")
    assert compare_and_say(side_of(finished, CONTROL), again).difference == 0.0


def test_keys_that_only_older_records_have_are_no_difference(finished):
    side = side_of(finished, CONTROL)
    (record, *others) = side.records
    correction = {"kind": "none", "cap": 2.0, "band_low": 0.5, "band_high": 5.0}
    config = {**record.spec.config, "rollout_correction": correction}
    older = replace(record, spec=replace(record.spec, config=config))
    found = compare_and_say(side, replace(side, run="older", records=[older, *others]))
    assert not any("configs differ" in note for note in found.notes)


def test_keys_that_only_newer_records_have_are_no_difference(finished):
    side = side_of(finished, CONTROL)
    (record, *others) = side.records
    config = copy.deepcopy(dict(record.spec.config))
    del config["rollout"]["ahead"], config["gate"]["start_kl"]
    older = replace(record, spec=replace(record.spec, config=config))
    found = compare_and_say(side, replace(side, run="older", records=[older, *others]))
    assert not any("configs differ" in note for note in found.notes)


def test_many_more_of_the_tasks_are_a_difference_of_two_trials(tmp_path):
    found = compare_and_say(*two_rates(tmp_path, 60, 20, tasks=125))
    assert found.verdict == "above"
    assert found.sentence.startswith(f"{TREATED}@0 ends above {CONTROL}@0 by 0.32 on 125 held-out")


def test_conditions_are_paired_by_seed(finished):
    found = compare_and_say(side_of(finished, TREATED), side_of(finished, CONTROL))
    assert (found.unit, found.n, found.verdict) == ("paired seeds", 3, "below")
    # -0.4 -0.4 -0.5, s at least one task of ten: half = 4.302653 x 0.1 / sqrt 3
    assert found.interval == pytest.approx((-13 / 30 - 0.248414, -13 / 30 + 0.248414), abs=1e-6)
    assert (found.p_sign_flip, found.p_above) == (0.25, 0.0)
    assert found.sentence.startswith(f"{TREATED} ends below {CONTROL} by 0.433 over 3 paired seeds")
    assert any("cannot go below 0.25" in note for note in found.notes)
    assert "Their configs differ in loss.kl_loss_coef, loss.use_kl_loss." in found.notes


def test_seeds_that_differ_by_luck_say_how_many_are_needed(tmp_path):
    writer = FolderWriter(tmp_path)
    for seed, (ours, theirs) in enumerate(((6, 5), (5, 6), (8, 5))):
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 4, 20: ours})
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 4, 20: theirs})
    found = compare_and_say(side_of(writer, TREATED), side_of(writer, CONTROL))
    # +0.1 -0.1 +0.3: mean 0.1, s = 0.2, an effect of 0.5 s needs 34 pairs (Cohen)
    assert (found.verdict, found.needed) == ("not separable", 34)
    assert found.sentence.endswith(
        "About 34 paired seeds would show one of this size with 80 % power."
    )


def test_two_seeds_make_no_difference(tmp_path):
    writer = FolderWriter(tmp_path, seeds=[0, 1])
    for seed in (0, 1):
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 4, 20: 0})
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 4, 20: 10})
    found = compare_and_say(side_of(writer, TREATED), side_of(writer, CONTROL))
    assert found.p < 0.05  # all tasks against none
    assert found.verdict == "no verdict (2 seeds; at least 3 are needed)"
    assert found.needed == 3


def test_other_seeds_are_independent_samples(finished, tmp_path):
    other = FolderWriter(tmp_path / "other", seeds=[7, 8, 9])
    for seed, last in zip((7, 8, 9), (6, 7, 8), strict=True):
        other.finish(other.spec(CONTROL, seed), {0: 4, 10: 5, 20: last})
    found = compare_and_say(side_of(other, CONTROL), side_of(finished, TREATED))
    assert (found.unit, found.n, found.test) == ("seeds", 3, "Welch's t test")
    assert (found.verdict, found.p_above) == ("above", 1.0)
    # 0.7 - 0.267 = 0.433; both spreads are 0.1: Welch's test of 3 and 3 sees it with power 0.97
    assert found.needed == 3
    assert "over 3 seeds a side" in found.sentence
    assert (
        "They share fewer than two seeds, so they are compared as independent samples."
        in found.notes
    )


def test_one_shared_seed_falls_back_to_its_tasks(finished):
    found = compare_and_say(side_of(finished, TREATED), side_of(finished, CONTROL, 1))
    assert (found.unit, found.n, found.hits) == ("tasks", 10, (3, 7))
    assert found.a.label == f"{TREATED}@1"


def test_equal_trials_have_no_sample_size(tmp_path):
    found = compare_and_say(*two_rates(tmp_path, 5, 5, tasks=10))
    assert (found.verdict, found.p, found.needed) == ("not separable", 1.0, None)
    assert "Both measured the same, so no sample size follows." in found.sentence


def test_equal_differences_of_a_measure_without_a_step_show_nothing(tmp_path):
    text = f"{SWEEP}metric: {{name: heldout/reward_mean, mode: max}}\n"
    writer = FolderWriter(tmp_path, text)
    for seed in range(3):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 4, 20: 4})
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 4, 20: 7})
    found = compare_and_say(side_of(writer, TREATED), side_of(writer, CONTROL))
    assert (found.verdict, found.p, found.interval) == ("not separable", 1.0, None)
    assert found.sentence.endswith("no spread, which bounds no luck, so no sample size follows.")


def test_trials_that_ended_at_other_steps_say_so(finished):
    ours = side_of(finished, TREATED)
    short = replace(ours.records[0], heldout=ours.records[0].heldout[:2])
    ours = replace(ours, records=[short, *ours.records[1:]])
    found = compare_and_say(ours, side_of(finished, CONTROL))
    assert "Their last gates are at different steps: 10, 20." in found.notes


def test_other_code_is_told(finished):
    ours = side_of(finished, TREATED)
    records = [replace(r, provenance={**r.provenance, "source_sha256": "x"}) for r in ours.records]
    found = compare_and_say(replace(ours, records=records), side_of(finished, CONTROL))
    assert "They ran on different versions of rltune's code." in found.notes


def test_measures_that_are_no_rates_are_compared_over_tasks(tmp_path):
    sides = [
        replace(with_gate(side, reward=values), metric="heldout/reward_mean")
        for side, values in zip(
            two_rates(tmp_path, 2, 2, tasks=4), ([4.0, 2.5, 3.0, 2.5], [1.0] * 4), strict=True
        )
    ]
    found = compare_and_say(*sides)
    # 3 1.5 2 1.5: mean 2, s^2 = 0.5, +- 1.959964 sqrt(0.5 / 4)
    assert (found.test, found.hits, found.verdict) == ("paired z test", None, "above")
    assert found.interval == pytest.approx((2 - 0.692952, 2 + 0.692952), abs=1e-6)


def test_a_mean_without_its_tasks_needs_more_seeds(tmp_path):
    sides = [replace(s, metric="heldout/turns") for s in two_rates(tmp_path, 5, 5, tasks=10)]
    with pytest.raises(InputError, match=r"heldout/turns was recorded as a mean only"):
        compare_and_say(*sides)


def test_survivors_are_not_ranked(finished):
    finished.run.trial(finished.spec(TREATED, 2).trial_id).done.unlink()
    ours = side_of(finished, TREATED)
    ours = replace(ours, audit=side_of(finished_again(finished), CONTROL).audit)
    theirs = replace(side_of(finished, CONTROL), audit=ours.audit)
    found = compare_and_say(ours, theirs)
    assert found.verdict == "no verdict (2 of 3 seeds ended)"
    assert found.sentence.startswith(
        f"{TREATED} against {CONTROL}: no verdict (2 of 3 seeds ended). They measured over 2 paired"
    )


def finished_again(writer):
    """Return a whole sweep, whose audit passes."""
    return finished_sweep(writer.root / "whole")


def test_a_confounded_sweep_ranks_nothing(finished):
    sides = [side_of(finished, label) for label in (TREATED, CONTROL)]
    sides = [replace(s, audit=replace(s.audit, confounded="a pilot")) for s in sides]
    found = compare_and_say(*sides)
    assert found.verdict == "no verdict (confounded)"
    assert any("is CONFOUNDED, run anyway: a pilot." in note for note in found.notes)


def with_gate(side, **changes):
    records = [
        replace(record, heldout=tuple({**gate, **changes} for gate in record.heldout))
        for record in side.records
    ]
    return replace(side, records=records)


REFUSED = [
    ({"tasks_sha256": "u"}, r"the held-out tasks differ: u and t\. Their numbers are not"),
    ({"n": 9}, r"the numbers of held-out tasks differ: 9 and 10\."),
    ({"temperature": 0.0}, r"the gate temperatures differ: 0\.0 and 0\.5\."),
    ({"do_sample": False}, r"the sampling modes at the gate differ: False and True\."),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_other_evaluations_are_refused(finished, changes, message):
    with pytest.raises(InputError, match=f"^{TREATED} and {CONTROL}: {message}"):
        compare_and_say(
            with_gate(side_of(finished, TREATED), **changes), side_of(finished, CONTROL)
        )


def test_other_metrics_are_refused(finished):
    ours = replace(side_of(finished, TREATED), metric="heldout/em")
    message = r"the metrics differ: heldout/em \(max\) and heldout/success_rate \(max\)\."
    with pytest.raises(InputError, match=message):
        compare_and_say(ours, side_of(finished, CONTROL))


def test_what_has_no_result_or_is_the_same_is_refused(finished, tmp_path):
    empty = side_of(FolderWriter(tmp_path / "empty"), CONTROL)
    with pytest.raises(InputError, match=f"^{CONTROL}: no trial has finished"):
        compare_and_say(side_of(finished, TREATED), replace(empty, run="other"))
    with pytest.raises(InputError, match="a trial cannot be compared with itself"):
        compare_and_say(side_of(finished, TREATED), side_of(finished, TREATED, 1))


def test_one_seed_against_others_is_refused(finished, tmp_path):
    other = FolderWriter(tmp_path / "other", seeds=[7])
    other.finish(other.spec(CONTROL, 7), {0: 4, 10: 5, 20: 6})
    message = r"seeds \[0, 1, 2\] and \[7\]: one against several, none shared\."
    with pytest.raises(InputError, match=message):
        compare_and_say(side_of(finished, TREATED), side_of(other, CONTROL))

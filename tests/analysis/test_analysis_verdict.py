"""The one verdict: what is ranked, what is not and why, and for how many comparisons."""

from dataclasses import replace

import pytest

from rltune.analysis.ends import End
from rltune.analysis.verdict import adjusted, between, verdicts
from rltune.analysis.verdict_words import is_claim, word_of
from rltune.maths.significance import holm, paired_t_p
from rltune.types import TrialStatus

DONE, EARLY, FAILED = TrialStatus.DONE, TrialStatus.STOPPED_EARLY, TrialStatus.FAILED
DIVERGED, RUNNING, PENDING = TrialStatus.DIVERGED, TrialStatus.RUNNING, TrialStatus.PENDING
CONTROL = (0.50, 0.50, 0.50)


def ends(**conditions):
    """Return ended trials of 80 steps; `c` is the control, values are by seed."""
    return [
        End(label, label == "c", seed, DONE, 80, 80, value)
        for label, values in conditions.items()
        for seed, value in enumerate(values)
    ]


def changed(every, label, seeds, **columns):
    """Return ends with some of them changed."""
    return [
        replace(end, **columns) if end.condition == label and end.seed in seeds else end
        for end in every
    ]


def words(every, **options):
    return {one.condition: one.words for one in verdicts(every, resolution=0.0, **options)}


def test_the_verdict_by_hand():
    # a: 0.3 0.4 0.5, s = 0.1: t = 0.4 sqrt 3 / 0.1 = 6.928, p = 1 - t / sqrt(t^2 + 2) = 0.0202
    found = verdicts(ends(c=CONTROL, a=(0.8, 0.9, 1.0)), resolution=0.0)
    (a,) = found
    assert (a.word, a.n, a.comparisons) == ("above", 3, 1)
    assert a.p == a.p_holm == pytest.approx(0.0202, abs=1e-4)
    assert a.difference.interval == pytest.approx((0.4 - 0.248414, 0.4 + 0.248414), abs=1e-6)
    assert a.sentence == "above the control (n = 3, p = 0.02)"


def test_holm_is_over_the_conditions_of_the_sweep():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.6, 0.5, 0.4), d=(0.2, 0.1, 0.0))
    found = verdicts(every, resolution=0.0)
    p = [paired_t_p(d) for d in ([0.3, 0.4, 0.5], [0.1, 0.0, -0.1], [-0.3, -0.4, -0.5])]
    assert [one.p for one in found] == pytest.approx(p)
    assert [one.p_holm for one in found] == pytest.approx(holm(p))
    assert [one.word for one in found] == ["not separable"] * 3  # 3 x 0.0202 is above 0.05
    assert found[0].sentence.startswith(
        "not separable from the control (n = 3, Holm p = 0.061, unadjusted p = 0.02; "
    )


def test_no_verdict_is_lost_when_another_trial_ends():
    """The family are the planned conditions, not those that happen to have ended."""
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.6, 0.5, 0.4))
    waiting = changed(every, "b", (2,), value=None, status=PENDING, step=0)
    assert words(waiting) == {"a": "above", "b": "no verdict (2 of 3 seeds ended)"}
    p_holm = [verdicts(some, resolution=0.0)[0].p_holm for some in (waiting, every)]
    assert p_holm[0] == p_holm[1] == pytest.approx(2 * 0.0202, abs=1e-4)


@pytest.mark.parametrize(
    ("label", "seeds", "said"),
    [
        ("a", (0, 1, 2), "stopped early at 20"),
        ("a", (1,), "stopped early at 20 (1 of 3 seeds)"),
        ("c", (0, 1, 2), "no verdict (the control stopped early at 20)"),
        ("c", (0, 2), "no verdict (the control stopped early at 20 (2 of 3 seeds))"),
    ],
)
def test_who_stopped_early_is_not_ranked_as_finished(label, seeds, said):
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0))
    assert words(changed(every, label, seeds, status=EARLY, step=20)) == {"a": said}


def test_stops_at_several_steps_are_named():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0))
    for seed in range(3):
        every = changed(every, "a", (seed,), status=EARLY, step=20 + seed)
    assert words(every) == {"a": "stopped early at 20 to 22"}


def test_all_that_stopped_at_one_step_are_ranked_and_it_is_said():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.2, 0.1, 0.0))
    every = [replace(end, status=EARLY, step=20) if end.condition != "b" else end for end in every]
    a, b = verdicts(every, resolution=0.0)
    assert a.sentence == "above the control at step 20 (n = 3, Holm p = 0.04, unadjusted p = 0.02)"
    assert b.words == "no verdict (the control stopped early at 20)"


def test_a_stop_of_one_condition_leaves_the_others_their_verdict():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.2, 0.1, 0.0))
    early = changed(every, "b", (0, 1, 2), status=EARLY, step=20)
    a, b = verdicts(early, resolution=0.0)
    assert (a.word, b.word) == ("above", "stopped early at 20")
    assert (b.n, b.p, b.p_holm) == (0, None, None)


def test_trials_that_were_planned_for_other_lengths_are_not_ranked():
    every = changed(ends(c=CONTROL, a=(0.8, 0.9, 1.0)), "c", (0, 1, 2), step=40, planned=40)
    assert words(every) == {"a": "no verdict (the control ends at step 40)"}


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("a", "no verdict (diverged at 12 in 1 of 3 seeds)"),
        ("c", "no verdict (the control diverged at 12 in 1 of 3 seeds)"),
    ],
)
def test_seeds_that_did_not_diverge_are_a_selection(label, said):
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0))
    bad = changed(every, label, (2,), status=DIVERGED, step=12, value=None)
    assert words(bad) == {"a": said}


def test_a_diverged_trial_with_a_number_is_not_called_stopped_early():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.8, 0.9, 1.0))
    bad = changed(every, "a", (0, 1, 2), status=DIVERGED, step=12)
    bad = changed(bad, "b", (1,), status=DIVERGED, step=40)
    said = {
        "a": "no verdict (diverged at 12)",
        "b": "no verdict (diverged at 40 in 1 of 3 seeds)",
    }
    assert words(bad) == said


def test_a_failed_seed_is_left_out_of_both_and_counted():
    every = ends(c=(0.5, 0.5, 0.5, 0.5), a=(0.8, 0.9, 1.0, 0.0))
    failed = changed(every, "a", (3,), status=FAILED, step=7, value=None)
    (a,) = verdicts(failed, resolution=0.0)
    assert (a.word, a.n, a.planned) == ("above", 3, 4)
    assert a.sentence == "above the control (n = 3 of 4, p = 0.02)"


def test_too_few_seeds_are_left():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0))
    failed = changed(every, "a", (0, 1, 2), status=FAILED, step=7, value=None)
    needed = "at least 3 are needed"
    assert words(failed) == {"a": f"no verdict (0 of 3 seeds, 3 failed; {needed})"}
    failed = changed(every, "c", (0,), status=FAILED, step=7, value=None)
    assert words(failed) == {"a": f"no verdict (2 of 3 seeds, 1 of the control failed; {needed})"}
    nan = changed(every, "a", (0,), value=None)
    assert words(nan) == {"a": f"no verdict (2 of 3 seeds, 1 without a number; {needed})"}
    two = [end for end in every if end.seed < 2]
    assert words(two) == {"a": f"no verdict (2 seeds; {needed})"}


@pytest.mark.parametrize("status", [RUNNING, PENDING, TrialStatus.INTERRUPTED])
def test_nothing_is_ranked_before_all_seeds_have_ended(status):
    every = ends(c=(0.5,) * 4, a=(0.8, 0.9, 1.0, 0.9))
    waiting = changed(every, "a", (3,), status=status, step=7, value=None)
    assert words(waiting) == {"a": "no verdict (3 of 4 seeds ended)"}
    waiting = changed(every, "c", (3,), status=status, step=7, value=None)
    assert words(waiting) == {"a": "no verdict (3 of 4 seeds of the control ended)"}


def test_what_stands_against_the_sweep_stands_in_every_verdict():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0))
    assert words(every, against="audit failed") == {"a": "no verdict (audit failed)"}
    (a,) = verdicts(every, resolution=0.0, against="audit failed")
    assert a.p is not None
    assert a.p_holm is None


def test_a_condition_that_is_the_control_up_to_a_factor_has_no_verdict():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.8, 0.9, 1.01))
    same = {"a": ["c"], "c": ["a"]}
    assert words(every, same_runs=same)["a"] == (
        "no verdict (the same run up to a factor as the control)"
    )
    found = verdicts(every, resolution=0.0, same_runs={"a": ["b"], "b": ["a"]})
    assert found[0].words == "above; the same run up to a factor as b"
    assert found[0].sentence.startswith("above the control; the same run up to a factor as b (n =")
    assert is_claim(found[0].words)
    assert not is_claim(words(every, same_runs=same)["a"])


def test_seeds_that_agree_have_no_measured_spread():
    """Three equal differences: a spread of zero is not known, and claims nothing by itself."""
    every = ends(c=CONTROL, a=(0.7, 0.7, 0.7))
    assert words(every) == {"a": "not separable"}
    # one of ten tasks: t = 0.2 sqrt 3 / 0.1 = 3.46, p = 0.074; one of a hundred: p = 0.0008
    assert verdicts(every, resolution=0.1)[0].word == "not separable"
    assert verdicts(every, resolution=0.01)[0].word == "above"


def test_the_sample_size_is_that_of_the_adjusted_test():
    # b: 0.1 0.0 0.2, s = 0.1, an effect of 1 s: 10 pairs at 0.05 (Cohen), 14 at 0.05 / 3
    alone = verdicts(ends(c=CONTROL, b=(0.6, 0.5, 0.7)), resolution=0.0)
    three = ends(c=CONTROL, b=(0.6, 0.5, 0.7), a=CONTROL, d=CONTROL)
    assert alone[0].needed == 10
    assert verdicts(three, resolution=0.0)[0].needed == 14


def test_between_a_condition_and_the_control_is_the_verdict_of_the_sweep():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.6, 0.5, 0.4))
    for one in verdicts(every, resolution=0.0):
        assert between(one.condition, "c", every, resolution=0.0) == one
        turned = between("c", one.condition, every, resolution=0.0)
        assert (turned.p, turned.p_holm) == (one.p, one.p_holm)
        assert turned.difference.mean == -one.difference.mean


def test_between_two_others_is_adjusted_over_all_pairs():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.1, 0.1, 0.1))
    found = between("a", "b", every, resolution=0.0)
    assert (found.rival, found.comparisons) == ("b", 3)
    assert found.p_holm >= found.p
    early = changed(every, "b", (0, 1, 2), status=EARLY, step=20)
    assert between("a", "b", early, resolution=0.0).word == "no verdict (b stopped early at 20)"


def test_another_test_is_adjusted_over_the_same_family():
    every = ends(c=CONTROL, a=(0.8, 0.9, 1.0), b=(0.6, 0.5, 0.4))
    found = verdicts(every, resolution=0.0)
    assert adjusted(found, {"a": 0.25, "b": 1.0}) == {"a": 0.5, "b": 1.0}
    early = verdicts(changed(every, "b", (0,), status=EARLY, step=20), resolution=0.0)
    assert adjusted(early, {"a": 0.25}) == {"a": 0.5}


def test_words_of_one_test():
    assert [word_of(0.1, 0.04), word_of(-0.1, 0.04)] == ["above", "below"]
    assert word_of(0.1, 0.05) == word_of(0.1, None) == "not separable"


def test_a_sweep_without_a_control_or_without_trials_has_no_verdict():
    assert verdicts([], resolution=0.0) == ()
    (a,) = verdicts(ends(a=(0.8, 0.9, 1.0)), resolution=0.0)
    assert a.words == "no verdict (there is no control)"

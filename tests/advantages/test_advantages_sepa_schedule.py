"""SEPA's schedules: goldens, the gate, the clock of optimiser steps, and state as JSON."""

import json
import math
from dataclasses import asdict, replace

import pytest

from rltune.advantages.sepa import SCHEDULES, SepaState, sepa_lambda, sepa_update

AUTO = {"schedule": "auto", "delay": 0, "steps": 0}
UPDATE = {"ema_decay": 0.5, "warmup": 3}


def seen(state, variance, *, success_rate=0.0, **numbers):
    return sepa_update(state, variance=variance, success_rate=success_rate, **{**UPDATE, **numbers})


def at(n_steps, *, schedule="linear", delay=5, steps=10, **numbers):
    state = SepaState(n_steps=n_steps, is_gate_open=True)
    return sepa_lambda(state, schedule=schedule, delay=delay, steps=steps, **numbers)


def test_linear_golden():
    # 10 steps long, after 5: (6 - 5) / 10, (10 - 5) / 10
    assert [at(n) for n in (0, 5, 6, 10, 15, 16)] == [0, 0, 0.1, 0.5, 1, 1]


def test_no_ramp_and_no_schedule_are_zero():
    assert at(99, steps=0, delay=0) == 0
    assert at(99, schedule="none") == 0


def test_auto_golden():
    state, ema, lam = SepaState(), [], []
    for variance in (1, 1, 1, 0.4, 0.1, 0, 0, 0):
        state = seen(state, variance)
        ema.append(state.ema)
        lam.append(sepa_lambda(state, **AUTO))
    # .5 * 1 + .5 * .4 = .7; .5 * .7 + .5 * .1 = .4; then halves
    assert ema == pytest.approx([1, 1, 1, 0.7, 0.4, 0.2, 0.1, 0.05])
    assert state.reference == 1
    # 1 - (.1 / 1) / .2, 1 - (.05 / 1) / .2
    assert lam == pytest.approx([0, 0, 0, 0, 0, 0, 0.5, 0.75])


def test_auto_falls_when_the_variance_rises_again():
    calm = SepaState(ema=0.05, reference=1.0, n_steps=9, n_observed=9)
    assert sepa_lambda(calm, **AUTO) == pytest.approx(0.75)
    assert sepa_lambda(seen(calm, 1.0), **AUTO) == 0


def test_linear_is_the_floor_of_auto():
    numbers = {**AUTO, "steps": 10}
    state = SepaState(ema=0.1, reference=1.0, n_steps=4)  # auto alone: .5
    assert sepa_lambda(state, **numbers) == 0.5
    assert sepa_lambda(replace(state, n_steps=8), **numbers) == 0.8
    assert sepa_lambda(SepaState(ema=0.0, n_steps=4), **numbers) == 0.4  # during the warm-up


def test_the_first_variance_is_the_average_and_the_reference_stays():
    state = seen(SepaState(), 4.0, warmup=1)
    assert (state.ema, state.reference) == (4, 4)
    state = seen(state, 2.0, warmup=1)
    assert (state.ema, state.reference) == (3, 4)


def test_a_first_average_of_zero_is_an_average():
    assert seen(seen(SepaState(), 0.0), 1.0).ema == 0.5


def test_decay_at_its_ends():
    assert seen(SepaState(ema=1.0), 5.0, ema_decay=1.0).ema == 1
    assert seen(SepaState(ema=1.0), 5.0, ema_decay=0.0).ema == 5


def test_the_reference_has_a_floor():
    state = seen(SepaState(), 0.0, warmup=1)
    assert state.reference == 1e-8
    assert sepa_lambda(state, **AUTO) == 1
    assert seen(SepaState(), 0.0, warmup=1, eps=0.5).reference == 0.5


def test_the_clock_counts_optimiser_steps():
    # Four of them in each batch: the warm-up of 6 is over after the second.
    one = seen(SepaState(), 1.0, n_steps=4, warmup=6)
    assert (one.n_steps, one.n_observed, one.reference) == (4, 4, None)
    two = seen(one, 1.0, n_steps=4, warmup=6)
    assert (two.n_steps, two.n_observed, two.reference) == (8, 8, 1)
    linear = {"schedule": "linear", "delay": 0, "steps": 16}
    assert [sepa_lambda(s, **linear) for s in (one, two)] == [0.25, 0.5]
    assert seen(two, None, n_steps=0) == two  # a step that trained on nothing


def test_a_batch_without_execution_tokens_moves_the_ramp_alone():
    before = SepaState(ema=0.3, n_steps=2, n_observed=2, is_gate_open=True)
    after = seen(before, None, warmup=3)
    assert after == replace(before, n_steps=3)


def test_the_gate_opens_once_and_for_all():
    state = SepaState()
    ramp = {"schedule": "linear", "delay": 0, "steps": 10, "gate": 0.5}
    states = []
    for rate in (0.2, math.nan, 0.49, 0.5, 0.0):
        state = seen(state, 1.0, success_rate=rate, gate=0.5)
        states.append(state)
    assert [s.is_gate_open for s in states] == [False, False, False, True, True]
    # The ramp goes on behind the closed gate.
    assert [sepa_lambda(s, **ramp) for s in states] == pytest.approx([0, 0, 0, 0.4, 0.5])


@pytest.mark.parametrize("schedule", ["linear", "auto"])
def test_a_closed_gate_stops_both_schedules(schedule):
    state = SepaState(ema=0.0, reference=1.0, n_steps=99)
    numbers = {"schedule": schedule, "delay": 0, "steps": 10}
    assert sepa_lambda(state, gate=0.1, **numbers) == 0
    assert sepa_lambda(replace(state, is_gate_open=True), gate=0.1, **numbers) == 1


def test_the_average_goes_on_behind_the_closed_gate():
    state = seen(seen(SepaState(), 1.0, gate=1.0), 0.0, gate=1.0)
    assert (state.ema, state.is_gate_open) == (0.5, False)


def test_a_gate_of_zero_is_open_from_the_start():
    assert sepa_lambda(SepaState(n_steps=5), schedule="linear", delay=0, steps=5) == 1
    assert seen(SepaState(), None, success_rate=math.nan).is_gate_open


def test_var_threshold_is_where_auto_starts():
    state = SepaState(ema=0.25, reference=1.0)
    assert sepa_lambda(state, **AUTO, var_threshold=0.25) == 0
    assert sepa_lambda(state, **AUTO, var_threshold=0.5) == 0.5
    assert sepa_lambda(state, **AUTO, var_threshold=1.0) == 0.75


def test_the_variance_is_compared_with_the_reference():
    state = SepaState(ema=0.2, reference=4.0)  # a share of .05: 1 - .05 / .2
    assert sepa_lambda(state, **AUTO) == pytest.approx(0.75)


def test_state_survives_json_in_the_middle_of_a_run():
    def walk(state, variances):
        for variance in variances:
            state = seen(state, variance, success_rate=variance, gate=0.3)
        return state

    first, second = [0.1, 0.7, 1 / 3], [0.2, 0.013]
    middle = walk(SepaState(), first)
    back = SepaState(**json.loads(json.dumps(asdict(middle))))
    assert back == middle
    assert walk(back, second) == walk(SepaState(), first + second)


def test_the_strength_lies_between_zero_and_one():
    for schedule in SCHEDULES:
        for ema in (None, 0.0, 0.1, 9.0):
            for n in (0, 3, 50):
                state = SepaState(ema=ema, reference=1.0, n_steps=n)
                assert 0 <= sepa_lambda(state, schedule=schedule, delay=2, steps=10) <= 1


@pytest.mark.parametrize(
    "numbers",
    [
        {"ema_decay": 1.1},
        {"ema_decay": math.nan},
        {"gate": -0.1},
        {"gate": 1.5},
        {"warmup": 0},
        {"n_steps": -1},
        {"eps": 0.0},
    ],
)
def test_bad_numbers_of_an_update_are_refused(numbers):
    with pytest.raises(
        ValueError, match=r"^ema_decay .* must lie in \[0, 1\], warmup .*above 0\.$"
    ):
        seen(SepaState(), 1.0, **numbers)


@pytest.mark.parametrize("variance", [math.nan, math.inf, -1.0])
def test_a_bad_variance_is_refused(variance):
    with pytest.raises(ValueError, match=rf"^variance is {variance}; give 0 or more, or None"):
        seen(SepaState(), variance)


@pytest.mark.parametrize("numbers", [{"delay": -1}, {"steps": -1}, {"var_threshold": 0.0}])
def test_bad_numbers_of_the_strength_are_refused(numbers):
    with pytest.raises(ValueError, match=r"^delay .* and steps .* must be 0 or more, and var_thr"):
        at(3, **numbers)


def test_an_unknown_schedule_lists_the_choices():
    with pytest.raises(
        ValueError, match=r"^schedule is 'cosine'; choose one of none, linear, auto"
    ):
        at(3, schedule="cosine")


def test_four_batches_of_one_step_are_one_batch_of_four_for_the_ramp_and_the_warm_up():
    one, four = SepaState(), seen(SepaState(), 0.3, n_steps=4, warmup=4)
    for _ in range(4):
        one = seen(one, 0.3, warmup=4)
    assert (one.n_steps, one.n_observed) == (four.n_steps, four.n_observed) == (4, 4)
    assert one.reference == pytest.approx(0.3)
    assert four.reference == pytest.approx(0.3)


def test_linear_does_not_look_at_the_variance():
    fallen = SepaState(ema=0.0, reference=1.0, n_steps=3)  # auto: 1
    assert sepa_lambda(fallen, schedule="linear", delay=0, steps=10) == pytest.approx(0.3)

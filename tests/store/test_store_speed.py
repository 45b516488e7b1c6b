"""Step times: 2 s and 4 s are 3 s on average; the gate at step 0 counts apart."""

from rltune.store.speed import SPEED_SECTIONS, Speed, speed_key, step_seconds, step_speeds

CONFIG = {**{name: {} for name in SPEED_SECTIONS}, "loss": {"use_kl_loss": False}}
WITH_KL = {**CONFIG, "loss": {"use_kl_loss": True}}


def row(step, **seconds):
    return {"step": step, "actor/lr": 5.0, **{f"timing_s/{k}": v for k, v in seconds.items()}}


def test_a_step_is_the_sum_of_its_parts():
    assert step_seconds(row(1, eval=1.5, update=0.5)) == 2.0


def test_means_by_what_decides_the_speed():
    slow = (WITH_KL, [row(1, update=9.0)])
    mine = (CONFIG, [row(0, eval=5.0), row(1, update=2.0)])
    more = (CONFIG, [row(0, eval=7.0), row(1, update=4.0), row(2)])  # the last was not timed
    assert step_speeds([slow, mine, more]) == {
        speed_key(CONFIG): Speed(3.0, 2, 6.0),
        speed_key(WITH_KL): Speed(9.0, 1, 0.0),
    }


def test_a_trial_without_a_step_is_not_measured():
    assert step_speeds([(CONFIG, [row(0, eval=5.0)])]) == {}

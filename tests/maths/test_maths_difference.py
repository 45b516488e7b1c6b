import pytest

from rltune.maths.difference import paired_interval, unpaired_interval

Z = 1.959963984540054


def test_paired_successes_by_hand():
    ours = [1, 1, 1, 1, 0, 0, 1, 0]
    theirs = [0, 0, 0, 1, 1, 0, 1, 0]
    # b = 3 only ours, c = 1 only theirs, n = 8: p = 4/10, q = 2/10,
    # half = z * sqrt((0.6 - 0.04) / 10) = 1.95996 * 0.236643
    low, high = paired_interval(ours, theirs)
    assert (low, high) == pytest.approx((0.2 - 0.463812, 0.2 + 0.463812), abs=1e-6)


def test_paired_values_by_hand():
    # d = 1, 3, 5: mean 3, s^2 = 4, half = z * sqrt(4 / 3)
    low, high = paired_interval([2, 4, 6], [1, 1, 1])
    assert (low, high) == pytest.approx((3 - Z * (4 / 3) ** 0.5, 3 + Z * (4 / 3) ** 0.5))


def test_unpaired_successes_by_hand():
    # 5 of 8 against 3 of 8: p = 6/10, q = 4/10, half = z * sqrt(2 * 0.24 / 10)
    low, high = unpaired_interval([1] * 5 + [0] * 3, [0] * 5 + [1] * 3)
    half = Z * 0.048**0.5
    assert (low, high) == pytest.approx((0.2 - half, 0.2 + half))


def test_unpaired_values_by_hand():
    # means 3 and 1, variances 2 (of 2, 4) and 8 (of -1, 3): half = z * sqrt(2/2 + 8/2)
    low, high = unpaired_interval([2, 4], [-1, 3])
    assert (low, high) == pytest.approx((2 - Z * 5**0.5, 2 + Z * 5**0.5))


def test_outcomes_that_agree_on_every_task_still_leave_room():
    low, high = paired_interval([1] * 20, [1] * 20)
    assert low < 0 < high
    assert high < 0.15


def test_swapping_the_sides_turns_the_sign():
    ours, theirs = [1, 1, 0, 1], [0, 1, 0, 0]
    for span in (paired_interval, unpaired_interval):
        low, high = span(ours, theirs)
        assert span(theirs, ours) == pytest.approx((-high, -low))


def test_more_confidence_is_wider():
    wide, narrow = (paired_interval([1, 0, 1], [0, 0, 1], confidence=c) for c in (0.99, 0.9))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired_interval([1], [1, 0]), "1 values and 2 of the same tasks cannot be paired"),
        (lambda: paired_interval([], []), "0 tasks give no interval; at least 1 are needed"),
        (
            lambda: paired_interval([0.5], [0.2]),
            "1 tasks give no interval; at least 2 are needed",
        ),
        (lambda: unpaired_interval([1], []), "0 tasks give no interval; at least 1 are needed"),
        (lambda: unpaired_interval([0.5], [0.2, 1]), "1 tasks give no interval; at least 2"),
        (lambda: paired_interval([1], [0], confidence=1.0), r"confidence 1\.0 is outside \(0, 1\)"),
    ],
)
def test_too_little_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()

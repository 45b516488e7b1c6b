import math

import pytest

from rltune.report.spark import ASCII, BLOCKS, heights_for, spark


@pytest.mark.parametrize(
    ("values", "line"),
    [  # eight heights, so 0 is the first, 1 the eighth, 1/7 the second, 0.5 * 7 = 3.5 -> the fifth
        pytest.param([0.0, 1 / 7, 0.5, 1.0], "▁▂▅█", id="rising"),
        pytest.param([-9.0, 9.0], "▁█", id="outside-the-scale"),
        pytest.param([0.5, math.nan, math.inf], "▅??", id="not-finite"),
        pytest.param([], "", id="none"),
    ],
)
def test_each_value_has_its_height(values, line):
    assert spark(values, low=0.0, high=1.0, width=10) == line


def test_equal_values_are_in_the_middle():
    assert spark([0.3, 0.3], low=0.3, high=0.3, width=10) == "▄▄"


def test_of_many_values_the_first_and_the_last_are_kept():
    # 5 of 9: positions 0, 2, 4, 6, 8 of 0/8 ... 8/8; times 7: 0, 1.75, 3.5, 5.25, 7
    values = [i / 8 for i in range(9)]
    assert spark(values, low=0.0, high=1.0, width=5) == "▁▃▅▆█"


@pytest.mark.parametrize(
    ("encoding", "heights"),
    [("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no-such", ASCII)],
)
def test_what_a_console_can_show(encoding, heights):
    assert heights_for(encoding) == heights
    line = spark([0.0, 1.0], low=0.0, high=1.0, width=2, heights=heights)
    assert line == heights[0] + heights[7]

import math

import pytest
import torch
from cases import each

from rltune.signals.step_flags import gold_flags, rows_to_judge, solver_flags, stack_flags
from rltune.types import Distance as D

SOLVER = [
    pytest.param([D(4, 2), D(2, 3), D(3, 3), D(3, 0)], (True, False, False, True), id="moves"),
    pytest.param([D(4, None), D(None, None)], (False, False), id="no-solution-left"),
    pytest.param([D(None, 3)], (False,), id="none-before"),
    pytest.param([D(4, 2), None, D(2, 0)], None, id="a-measure-is-missing"),
    pytest.param([], (), id="no-turns"),
]


@pytest.mark.parametrize(("distances", "want"), SOLVER)
def test_solver_flags(distances, want):
    assert solver_flags(distances) == want


UP, SAME, LOST = D(3, 2), D(3, 3), D(1, None)
GOLD = [
    pytest.param([0.2, None], [SAME, LOST], True, (True, True), id="probability-rose"),
    pytest.param([-0.2, None], [UP, LOST], False, (True, False), id="passage-fetched"),
    pytest.param([-0.2, 9.0], [SAME, LOST], False, (False, False), id="last-gain-is-not-read"),
    pytest.param([0.0, None], [None, None], True, (False, True), id="no-gain-is-bad"),
    pytest.param([None, None], [UP, None], True, (True, True), id="distance-alone"),
    pytest.param([math.nan, None], [SAME, None], False, (False, False), id="nan-is-no-gain"),
    pytest.param([math.nan, None], [None, None], True, None, id="neither"),
    pytest.param([None, 0.1, None], [UP, None, UP], False, (True, True, True), id="cut-off"),
    pytest.param([None], [None], False, (False,), id="one-turn"),
    pytest.param([None], [None], True, (True,), id="one-turn-success"),
    pytest.param([], [], False, (), id="no-turns"),
]


@each(("gains", "distances", "success", "want"), GOLD)
def test_gold_flags(gains, distances, success, want):
    assert gold_flags(gains, distances, is_success=success) == want


def test_gold_flags_min_gain():
    assert gold_flags([0.1, None], [None, None], is_success=True, min_info_gain=0.1) == (
        False,
        True,
    )


def test_stack_flags():
    flags, judged = stack_flags([(True, False), None, (), (True, True, False)], n_turns=3)
    assert flags.tolist() == [[1, 0, -1], [-1, -1, -1], [-1, -1, -1], [1, 1, 0]]
    assert flags.dtype == torch.int8
    assert judged.tolist() == [True, False, True, True]


def test_stack_flags_of_nothing():
    flags, judged = stack_flags([], n_turns=2)
    assert (flags.shape, judged.shape) == ((0, 2), (0,))


ADVANTAGES, SUCCESS = torch.tensor([1.0, -0.5, 1e-9, 0.0]), torch.tensor([True, False, False, True])


@pytest.mark.parametrize(
    ("skip", "want"),
    [
        ("none", [True] * 4),
        ("small_advantage", [True, True, False, False]),
        ("all_negative", [True, False, False, True]),
    ],
)
def test_rows_to_judge(skip, want):
    assert rows_to_judge(ADVANTAGES, SUCCESS, skip=skip).tolist() == want


def test_rows_to_judge_min_advantage_itself_is_judged():
    got = rows_to_judge(ADVANTAGES, SUCCESS, skip="small_advantage", min_advantage=0.5)
    assert got.tolist() == [True, True, False, False]


def test_refusals():
    with pytest.raises(ValueError, match=r"^1 gains and 2 distances were given; expected one of"):
        gold_flags([None], [None, None], is_success=True)
    with pytest.raises(ValueError, match=r"^episode 1 has 3 flags and n_turns is 2; give one flag"):
        stack_flags([None, [True] * 3], n_turns=2)
    with pytest.raises(
        ValueError, match=r"^skip is 'half'; choose one of none, small_advantage, all_negative\.$"
    ):
        rows_to_judge(ADVANTAGES, SUCCESS, skip="half")
    with pytest.raises(ValueError, match=r"^is_success_N has dtype torch\.float32; a mask must be"):
        rows_to_judge(ADVANTAGES, ADVANTAGES, skip="none")

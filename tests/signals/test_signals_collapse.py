import math

import pytest
import torch

from rltune.signals.collapse import collapse_signals


def test_responses_that_name_their_prompt():
    # p(own) = 0.5, p(other's) = 0.25:
    # H(Z|X) = ln 2; the marginal is (0.5 + 0.25) / 2 = 0.375, H(Z) = -ln 0.375; I = ln(0.5 / 0.375)
    logp = torch.tensor([[0.5, 0.25], [0.25, 0.5]], dtype=torch.float64).log()
    found = collapse_signals(logp)
    assert found.retrieval_accuracy == 1.0
    assert found.chance == 0.5
    assert found.conditional_entropy == pytest.approx(math.log(2))
    assert found.reasoning_entropy == pytest.approx(-math.log(0.375))
    assert found.mutual_information == pytest.approx(math.log(4 / 3))


def test_template_collapse_has_entropy_and_no_information():
    """Every response fits every prompt alike."""
    logp = torch.tensor([[0.1, 0.1, 0.1], [0.2, 0.2, 0.2], [0.3, 0.3, 0.3]]).log()
    found = collapse_signals(logp)
    assert found.mutual_information == pytest.approx(0, abs=1e-12)
    # -(ln 0.1 + ln 0.2 + ln 0.3) / 3
    assert found.reasoning_entropy == pytest.approx(-math.log(0.006) / 3, abs=1e-6)
    assert found.retrieval_accuracy == 1.0  # equal fits count


def test_another_prompt_fits_better():
    logp = torch.tensor([[-3.0, -1.0], [-2.0, -1.0]])
    assert collapse_signals(logp).retrieval_accuracy == 0.5


def test_information_is_at_most_the_number_of_prompts():
    logp = torch.full((4, 4), -torch.inf).fill_diagonal_(-1.0)
    assert collapse_signals(logp).mutual_information == pytest.approx(math.log(4))


def test_the_order_of_the_prompts_does_not_matter():
    logp = torch.randn(5, 5, generator=torch.Generator().manual_seed(0)) - 4
    order = torch.tensor([3, 1, 4, 0, 2])
    moved = collapse_signals(logp[order][:, order])
    for name in ("retrieval_accuracy", "mutual_information", "reasoning_entropy"):
        assert getattr(moved, name) == pytest.approx(getattr(collapse_signals(logp), name))


@pytest.mark.parametrize("logp", [torch.zeros(2, 3), torch.zeros(1, 1), torch.zeros(4)])
def test_a_matrix_that_is_not_square(logp):
    with pytest.raises(ValueError, match=r"^logp_NN has shape .*; expected \(N, N\) with N of 2"):
        collapse_signals(logp)


def test_nan_is_refused():
    with pytest.raises(ValueError, match=r"^logp_NN holds NaN or \+inf; .*$"):
        collapse_signals(torch.tensor([[0.0, torch.nan], [0.0, 0.0]]))

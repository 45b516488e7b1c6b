"""Tinker's built-in losses by hand numbers."""

import pytest
import torch
from cases import each

from rltune.remote.server.losses import LOSSES

LN2 = 0.6931471805599453

CASES = [  # loss, bounds, logprobs of now minus given, advantages or weights, loss by hand
    ("cross_entropy", {}, None, [1.0, 2.0], 3 * LN2),  # -(1 * -ln 2 + 2 * -ln 2)
    ("importance_sampling", {}, [LN2, 0.0], [1.0, -3.0], 1.0),  # -(2 * 1 + 1 * -3)
    ("ppo", {}, [LN2, LN2], [1.0, -3.0], 4.8),  # -(min(2, 1.2) + min(-6, -3.6))
    ("ppo", {"clip_low_threshold": 0.5, "clip_high_threshold": 3.0}, [LN2, -LN2], [1, 1], -2.5),
    ("cispo", {}, [0.0, LN2], [1.0, 1.0], 3 * LN2),  # -(1 * -ln 2 + 2 * -ln 2)
    ("cispo", {"clip_high_threshold": 1.5}, [0.0, LN2], [1.0, 1.0], 2.5 * LN2),
]


@each(("kind", "bounds", "gap", "gains", "want"), CASES)
def test_a_loss_is_the_sum_over_tokens(kind, bounds, gap, gains, want):
    logp = torch.full((2,), -LN2)
    inputs = {"weights": torch.tensor(gains)}
    if gap is not None:
        inputs = {"logprobs": logp - torch.tensor(gap), "advantages": torch.tensor(gains)}
    assert LOSSES[kind](logp, inputs, bounds).item() == pytest.approx(want)


def test_the_clipped_ratio_of_cispo_has_no_gradient():
    logp = torch.tensor([-1.0], requires_grad=True)
    inputs = {"logprobs": torch.tensor([-1.5]), "advantages": torch.tensor([2.0])}
    LOSSES["cispo"](logp, inputs, {}).backward()
    assert logp.grad.item() == pytest.approx(-2.0 * 2.718281828459045**0.5)  # -r A

import json
import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.losses.kl import KL_KINDS, AdaptiveKl, full_kl, kl_penalty, update_adaptive_kl

LOGITS = torch.tensor([0.3, -1.2, 0.0, 1.1, 0.6], dtype=torch.float64)
REF_LOGITS = torch.tensor([-0.2, 0.4, 0.1, 0.9, -0.5], dtype=torch.float64)


def value_and_gradient(d, kind, dtype=torch.float64):
    logp = torch.tensor([d], dtype=dtype, requires_grad=True)
    value = kl_penalty(logp, torch.zeros_like(logp), kind=kind)
    value.sum().backward()
    return value.item(), logp.grad.item()


@pytest.mark.parametrize(
    ("kind", "value", "gradient"),  # at d = -.5
    [
        ("k1", -0.5, 1.0),
        ("abs", 0.5, -1.0),
        ("k2", 0.125, -0.5),  # d^2 / 2, d
        ("k3", math.exp(0.5) - 1.5, 1 - math.exp(0.5)),  # e^-d - 1 + d, 1 - e^-d
    ],
)
def test_by_hand(kind, value, gradient):
    assert value_and_gradient(-0.5, kind) == pytest.approx((value, gradient))
    assert value_and_gradient(-0.5, kind + "+") == pytest.approx((value, -0.5))  # k2's gradient


@pytest.mark.parametrize(("alias", "kind"), [("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3")])
@pytest.mark.parametrize("suffix", ["", "+"])
def test_aliases(alias, kind, suffix):
    assert value_and_gradient(0.7, alias + suffix) == value_and_gradient(0.7, kind + suffix)


SHORT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.mark.parametrize("kind", KL_KINDS)
def test_case_c3_value_and_gradient_are_finite(kind):
    for dtype in (*SHORT_DTYPES, torch.float64):
        for d in (0.0, 1e-3, -1e-3, 20.0, -20.0, 100.0, -100.0):
            value, gradient = value_and_gradient(d, kind, dtype)
            assert math.isfinite(value), (dtype, d)
            assert math.isfinite(gradient), (dtype, d)


@pytest.mark.parametrize("kind", ["k1", "abs", "k2", "k3"])
@pytest.mark.parametrize("dtype", SHORT_DTYPES)
def test_case_c3_normal_range_equals_float64(kind, dtype):
    for d in (1e-3, -1e-3, 0.1, -0.1, 1.0, -1.0, 2.5, -2.5):
        rounded = torch.tensor(d, dtype=dtype).item()
        value, gradient = value_and_gradient(d, kind, dtype)
        want_value, want_gradient = value_and_gradient(rounded, kind)
        # k3 at 1e-3: 5e-7 from a difference of 1e-3
        assert value == pytest.approx(want_value, rel=2e-4), d
        # The gradient itself is rounded to dtype on its way to the input.
        rel = max(torch.finfo(dtype).eps, 2e-4)
        assert gradient == pytest.approx(want_gradient, rel=rel), d


def test_k3_is_clamped_to_ten_and_then_has_no_gradient():
    assert value_and_gradient(-2.5, "k3")[1] < -10  # e^2.5 - 3.5 = 8.68, still inside
    assert value_and_gradient(-2.7, "k3") == (10.0, 0.0)  # e^2.7 - 3.7 = 11.2
    assert value_and_gradient(9.0, "k3")[0] == pytest.approx(8 + math.exp(-9))


@settings(deadline=None)
@given(st.floats(-100, 100, width=32))
def test_case_c4_k3_is_never_negative(d):
    assert value_and_gradient(d, "k3", torch.float32)[0] >= 0


def expected(kind, logp, ref_logp):
    return (logp.exp().detach() * kl_penalty(logp, ref_logp, kind=kind)).sum()


def test_case_c4_expected_k1_and_k3_are_the_exact_kl():
    logp, ref_logp = LOGITS.log_softmax(0), REF_LOGITS.log_softmax(0)
    exact = (logp.exp() * (logp - ref_logp)).sum().item()
    assert full_kl(LOGITS, REF_LOGITS).item() == pytest.approx(exact, rel=1e-12)
    assert expected("k1", logp, ref_logp).item() == pytest.approx(exact, rel=1e-12)
    assert expected("k3", logp, ref_logp).item() == pytest.approx(exact, rel=1e-12)
    assert kl_penalty(logp, ref_logp, kind="k1").min() < 0  # one token's k1 may be negative


def test_case_c4_expected_gradients():
    # k2, and every name with +, has the gradient of KL(p || q); k1's is 0; k3's is KL(q || p)'s.
    ref_logp = REF_LOGITS.log_softmax(0)

    def gradient(loss_of):
        logits = LOGITS.clone().requires_grad_()
        loss_of(logits).backward()
        return logits.grad

    reverse = gradient(lambda z: full_kl(z, REF_LOGITS))
    # d KL(q || p) / dz = p - q
    forward = LOGITS.softmax(0) - REF_LOGITS.softmax(0)
    for kind, want in [
        ("k1", torch.zeros(5, dtype=torch.float64)),
        ("k2", reverse),
        ("k3", forward),
        *((f"{kind}+", reverse) for kind in ("k1", "abs", "k2", "k3")),
    ]:
        got = gradient(lambda z, kind=kind: expected(kind, z.log_softmax(0), ref_logp))
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12, msg=f"gradient of {kind}")


def test_full_kl_gradcheck_and_zero_at_the_reference():
    logits = torch.stack([LOGITS, REF_LOGITS]).requires_grad_()
    ref_logits = REF_LOGITS.expand(2, 5)
    kl = full_kl(logits, ref_logits)
    assert kl.shape == (2,)
    assert kl[1].item() == 0
    assert torch.autograd.gradcheck(lambda z: full_kl(z, ref_logits), logits)


def test_the_reference_gets_no_gradient():
    ref = torch.zeros(1, requires_grad=True)
    assert not kl_penalty(torch.zeros(1), ref, kind="k2").requires_grad
    assert not full_kl(torch.zeros(1, 2), torch.zeros(1, 2, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("kl", "coef"),
    [
        (0.1, 0.2),  # on target
        (0.11, 0.2 * (1 + 0.1 * 0.5)),  # error .1, n / horizon = .5
        (1.0, 0.2 * (1 + 0.2 * 0.5)),  # clipped
        (0.0, 0.2 * (1 - 0.2 * 0.5)),
    ],
)
def test_adaptive_coefficient_by_hand(kl, coef):
    state = AdaptiveKl(coef=0.2)
    after = update_adaptive_kl(state, kl, target=0.1, horizon=100, n=50)
    assert after.coef == pytest.approx(coef)
    assert state.coef == 0.2


def test_the_adaptive_state_survives_a_checkpoint_bit_equal():
    kls = [0.0123, 0.3, 0.07, 0.1, 0.0999, 2.0]

    def run(state, kls):
        for kl in kls:
            state = update_adaptive_kl(state, kl, target=0.1, horizon=300, n=7)
        return state

    through = run(AdaptiveKl(coef=0.001), kls)
    middle = run(AdaptiveKl(coef=0.001), kls[:3])
    resumed = AdaptiveKl(**json.loads(json.dumps(asdict(middle))))
    assert resumed == middle
    assert run(resumed, kls[3:]) == through


def test_band_is_an_argument_and_no_samples_change_nothing():
    state = AdaptiveKl(coef=0.2)
    wide = update_adaptive_kl(state, 0.2, target=0.1, horizon=100, n=50, band=0.6)
    assert wide.coef == pytest.approx(0.2 * (1 + 0.6 * 0.5))
    assert update_adaptive_kl(state, 0.2, target=0.1, horizon=100, n=0) == state


def test_refusals():
    zero = torch.zeros(1)
    with pytest.raises(
        ValueError, match=r"^'k4' is not a KL estimator\. Choose one of k1, kl, abs, "
    ):
        kl_penalty(zero, zero, kind="k4")
    with pytest.raises(
        ValueError, match=r"^'full' .* The exact sum over the vocabulary is `full_kl`\.$"
    ):
        kl_penalty(zero, zero, kind="full")
    with pytest.raises(ValueError, match=r"^shapes differ: logp \(1,\), ref_logp \(1, 1\)\."):
        kl_penalty(zero, zero[None], kind="k1")
    with pytest.raises(ValueError, match=r"^target 0 and horizon 1 must be positive\.$"):
        update_adaptive_kl(AdaptiveKl(0.1), 0.1, target=0, horizon=1, n=1)
    with pytest.raises(ValueError, match=r"^kl is NaN; the coefficient would be lost\."):
        update_adaptive_kl(AdaptiveKl(0.1), math.nan, target=1, horizon=1, n=1)
    with pytest.raises(
        ValueError, match=r"^horizon is 10 with n 50 and band 0\.2; one .* a horizon above 10\.$"
    ):
        update_adaptive_kl(AdaptiveKl(0.1), 0.1, target=1, horizon=10, n=50)
    for numbers in ({"n": -1}, {"n": 1, "band": -0.1}):
        with pytest.raises(ValueError, match=r"^n -?1 and band -?0\.[12] must be 0 or more\.$"):
            update_adaptive_kl(AdaptiveKl(0.1), 0.1, target=1, horizon=10, **numbers)

import math

import pytest
import torch

from rltune.losses.entropy import chunked_logprobs_entropy, logprobs_of, token_entropy
from rltune.losses.reduce import aggregate

USES = ("none", "value", "gradient")


def head(dtype=torch.float64, n=11, width=4, vocab=9):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, width, dtype=dtype, generator=generator)
    weight = torch.randn(vocab, width, dtype=dtype, generator=generator)
    return hidden, weight, torch.randint(vocab, (n,), generator=generator)


def test_by_hand():
    # softmax([log 1, log 3]) = [1/4, 3/4]
    logits = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)
    want = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert token_entropy(logits).item() == pytest.approx(want)
    assert logprobs_of(logits, torch.tensor([1]), temperature=1.0).item() == pytest.approx(
        math.log(0.75)
    )


def test_temperature_divides_the_logits():
    # softmax([0, 2 log 3 / 2]) = [1/4, 3/4]
    logits = torch.tensor([[0.0, 2 * math.log(3)]], dtype=torch.float64)
    got = logprobs_of(logits, torch.tensor([0]), temperature=2.0).item()
    assert got == pytest.approx(math.log(0.25))
    assert torch.equal(token_entropy(logits, temperature=2.0), token_entropy(logits / 2))


def test_uniform_logits_have_the_largest_entropy():
    assert token_entropy(torch.full((2, 8), 3.0)).tolist() == pytest.approx([math.log(8)] * 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_computed_in_float32(dtype):
    logits = (torch.randn(5, 50, generator=torch.Generator().manual_seed(0)) * 8).to(dtype)
    ids = torch.arange(5)
    for got, want in [
        (
            logprobs_of(logits, ids, temperature=0.7),
            logprobs_of(logits.double(), ids, temperature=0.7),
        ),
        (token_entropy(logits), token_entropy(logits.double())),
    ]:
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_gradcheck():
    hidden, weight, ids = head(n=3)
    logits = (hidden @ weight.T).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: logprobs_of(z, ids, temperature=0.7), logits)
    assert torch.autograd.gradcheck(token_entropy, logits)


@pytest.mark.parametrize("chunk", [1, 4, 11, 100])
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_chunked_equals_unchunked_in_value_and_gradient(chunk, dtype, tol):
    hidden, weight, ids = head(dtype)
    upstream = torch.linspace(-1, 1, 22, dtype=dtype).view(2, 11)
    outcomes = []
    for is_chunked in (False, True):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if is_chunked:
            scores = chunked_logprobs_entropy(
                h, w, ids, temperature=0.7, chunk=chunk, entropy="gradient"
            )
            both = torch.stack([scores.logprobs_M, scores.entropy_M])
        else:
            logits = h @ w.T
            logprobs = logprobs_of(logits, ids, temperature=0.7)
            both = torch.stack([logprobs, token_entropy(logits, temperature=0.7)])
        (both * upstream).sum().backward()
        outcomes.append((both.detach(), h.grad, w.grad))
    for plain, chunked in zip(*outcomes, strict=True):
        torch.testing.assert_close(chunked, plain, rtol=tol, atol=tol)


def test_chunked_values_are_the_same_with_and_without_gradients():
    hidden, weight, ids = head(torch.float32)
    with torch.no_grad():
        off = chunked_logprobs_entropy(
            hidden, weight, ids, temperature=1.0, chunk=3, entropy="gradient"
        )
    on = chunked_logprobs_entropy(
        hidden.requires_grad_(), weight, ids, temperature=1.0, chunk=3, entropy="gradient"
    )
    assert on.logprobs_M.requires_grad
    assert torch.equal(on.logprobs_M, off.logprobs_M)
    assert torch.equal(on.entropy_M, off.entropy_M)


def test_what_the_entropy_is_for_changes_no_number():
    """Bit-equal entropies where there are some, and bit-equal gradients of the logprobs."""
    scores, gradients = {}, {}
    for use in USES:
        hidden, weight, ids = head(torch.float32)
        hidden.requires_grad_()
        scores[use] = chunked_logprobs_entropy(
            hidden, weight, ids, temperature=0.7, chunk=4, entropy=use
        )
        (gradients[use],) = torch.autograd.grad(scores[use].logprobs_M.square().sum(), hidden)
    assert scores["none"].entropy_M is None
    assert torch.equal(scores["value"].entropy_M, scores["gradient"].entropy_M)
    assert not scores["value"].entropy_M.requires_grad
    assert scores["gradient"].entropy_M.requires_grad
    for use in USES[:2]:
        assert torch.equal(scores[use].logprobs_M, scores["gradient"].logprobs_M)
        assert torch.equal(gradients[use], gradients["gradient"])


@pytest.mark.parametrize("use", USES)
def test_chunked_keeps_no_logits_for_the_backward_pass(use):
    hidden, weight, ids = head()
    saved = []

    def pack(tensor):
        saved.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        chunked_logprobs_entropy(
            hidden.requires_grad_(), weight, ids, temperature=1.0, chunk=4, entropy=use
        )
    assert not [shape for shape in saved if shape[-1:] == (9,)]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        token_entropy(hidden @ weight.T)
    assert [shape for shape in saved if shape[-1:] == (9,)]  # the check can see logits


def test_a_batch_without_tokens_is_empty():
    hidden, weight, ids = head(n=0)
    scores = chunked_logprobs_entropy(
        hidden, weight, ids, temperature=1.0, chunk=4, entropy="gradient"
    )
    assert scores.logprobs_M.shape == scores.entropy_M.shape == (0,)


def entropy_step(coefficient):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 6, dtype=torch.float64, generator=generator).requires_grad_()
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]], dtype=torch.bool)
    policy = logits.square().sum(-1)  # stands for any policy loss
    counts = {"n_tokens": 3, "n_sequences": 2, "mini_batch_size": 2}
    numbers = {"mode": "token-mean", **counts, "sum_norm": 1.0}
    entropy = aggregate(token_entropy(logits), mask, **numbers)
    return logits, mask, aggregate(policy, mask, **numbers), coefficient * entropy


def test_case_c10_the_entropy_bonus_raises_the_entropy():
    logits, mask, _, bonus = entropy_step(0.1)
    (-bonus).backward()
    after = logits.detach() - 0.5 * logits.grad
    assert (token_entropy(after) > token_entropy(logits))[mask].all()
    assert torch.equal(after[~mask], logits.detach()[~mask])


def test_case_c10_coefficient_zero_leaves_the_gradient_bit_equal():
    with_term, _, policy, bonus = entropy_step(0.0)
    (policy - bonus).backward()
    without, _, policy, _ = entropy_step(0.0)
    policy.backward()
    assert torch.equal(with_term.grad, without.grad)


def test_refusals():
    hidden, weight, ids = head()
    with pytest.raises(ValueError, match=r"^temperature is 0; it must be positive\.$"):
        token_entropy(weight, temperature=0)
    with pytest.raises(ValueError, match=r"^shapes differ: logits \(9,\), ids \(11,\)\."):
        logprobs_of(weight, ids, temperature=1.0)
    with pytest.raises(ValueError, match=r"^chunk is 0; it must be at least 1\.$"):
        chunked_logprobs_entropy(hidden, weight, ids, temperature=1.0, chunk=0, entropy="gradient")
    with pytest.raises(ValueError, match=r"^shapes do not fit: hidden_MD \(11, 4\), .* \(9, 3\)\."):
        chunked_logprobs_entropy(
            hidden, weight[:, :3], ids, temperature=1.0, chunk=1, entropy="gradient"
        )

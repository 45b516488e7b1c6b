"""D5: what a row teaches does not depend on the rows that it is computed with."""

from dataclasses import replace

import pytest
import torch

from rltune.policy.logprobs import chunk_of
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.train_state import make_train_state


@pytest.fixture
def learner_and_batch(small_policy, make_config, sample_batch):
    policy, config = small_policy(), make_config()
    return make_train_state(policy, config), sample_batch(config, policy)[1]


def with_other_mates(batch, row):
    """Return the batch with other ids in every row but one; lengths stay."""
    ids = batch.ids_NT.clone()
    others = torch.arange(len(ids)) != row
    ids[others] = (ids[others] + 3) % 16
    return replace(batch, ids_NT=ids)


def gradient_of(row, train_state, batch):
    """Return the gradient of one row's logprobs, computed in a batch with all others."""
    model = train_state.policy.model
    model.zero_grad()
    ids, mask = batch.ids_NT, batch.action_mask_NT
    logprobs_M = score_actions(model, ids, mask, temperature=1.0).tokens.logprobs_M
    of_row = logprobs_M[mask.nonzero()[:, 0] == row]
    torch.autograd.backward(of_row.sum())
    return of_row.detach(), [p.grad.clone() for p in model.parameters()]


def test_other_mates_change_no_bit(learner_and_batch):
    train_state, batch = learner_and_batch
    for row in range(len(batch)):
        want, want_gradient = gradient_of(row, train_state, batch)
        got, got_gradient = gradient_of(row, train_state, with_other_mates(batch, row))
        assert torch.equal(got, want)
        pairs = zip(got_gradient, want_gradient, strict=True)
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in pairs)
        assert sum(float(g.abs().sum()) for g in want_gradient) > 0


def test_a_row_alone_has_the_logprobs_and_the_gradient_that_it_has_among_others(learner_and_batch):
    train_state, batch = learner_and_batch
    for row in range(len(batch)):
        want, want_gradient = gradient_of(row, train_state, batch)
        got, got_gradient = gradient_of(0, train_state, batch.rows(torch.tensor([row])))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        for a, b in zip(got_gradient, want_gradient, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("vocabulary", "chunk"),
    [
        (16, 4096),  # the most, and what the tiny policies have had
        (16_384, 4096),  # 2^14 x 2^12 = 2^26
        (49_152, 1365),  # 2^26 / 49,152 = 1365.3
        (151_936, 441),  # 2^26 / 151,936 = 441.7
        (2**27, 1),
    ],
)
def test_fewer_logits_rows_are_held_the_larger_the_vocabulary(vocabulary, chunk):
    assert chunk_of(vocabulary) == chunk


@pytest.mark.parametrize("entropy", ["value", "gradient"])
def test_chunks_give_what_the_whole_gives(learner_and_batch, monkeypatch, entropy):
    train_state, batch = learner_and_batch
    model = train_state.policy.model
    ids, mask = batch.ids_NT, batch.action_mask_NT
    found = []
    for chunk in (4096, 7):
        monkeypatch.setattr("rltune.trainer.ranks.scoring.head_chunk", lambda _, n=chunk: n)
        model.zero_grad()
        tokens = score_actions(model, ids, mask, temperature=0.7, entropy=entropy).tokens
        torch.autograd.backward((tokens.logprobs_M + 0.1 * tokens.entropy_M).sum())
        found.append([tokens.logprobs_M, tokens.entropy_M, *(p.grad for p in model.parameters())])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)

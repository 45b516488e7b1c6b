"""What the tests of the policy losses share: random rows, rows with rubbish, and their gradient."""

import torch

from rltune.losses.reduce import aggregate, count_trained

TURNS = torch.tensor(
    [
        [0, 0, -1, 1, 1, 1, -1],
        [-1, 0, 0, 0, -1, 1, 2],
        [0, -1, 1, 1, -1, -1, -1],
        [-1, 0, -1, -1, -1, 1, 1],
    ]
)
MASK = TURNS >= 0


def random_rows(n=3, *, seed=0, spread=1.0):
    """Return n random float64 matrices in the shape of `TURNS`."""
    generator = torch.Generator().manual_seed(seed)
    return list(spread * torch.randn(n, *TURNS.shape, dtype=torch.float64, generator=generator))


def gradient(loss_of, logp, *, mask=MASK, n_micro=1, mode="token-mean"):
    """Return d aggregate / d logp, summed over micro-batches of rows: `loss_of(logp, rows)`."""
    logp = logp.clone().requires_grad_()
    counts = count_trained(mask)
    for rows in torch.arange(len(mask)).chunk(n_micro):
        aggregate(
            loss_of(logp[rows], rows).per_token_BT,
            mask[rows],
            mode=mode,
            n_tokens=counts.n_tokens,
            n_sequences=counts.n_sequences,
            mini_batch_size=len(mask),
            sum_norm=7.0,
        ).backward()
    return logp.grad

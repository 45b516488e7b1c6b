"""The collapse signals of RAGEN-2: do responses still depend on their prompts?

With l_ij = log p(response_i | prompt_j), summed over the tokens of response i (arXiv 2604.06268):

retrieval accuracy = share of i with l_ii = max_j l_ij
conditional entropy H(Z|X) = -mean_i l_ii
marginal entropy    H(Z)   = -mean_i log mean_j exp(l_ij)
mutual information  I(X;Z) = H(Z) - H(Z|X)

Template collapse is a high H(Z) with I near 0: responses look diverse and ignore the prompt.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CollapseSignals:
    """The signals of one batch of responses, entropies in nats per response.

    Attributes:
        retrieval_accuracy: Share of responses that fit their own prompt best; equal fits count.
        chance: What that share is when responses ignore the prompt and no two fits are equal.
        mutual_information: Estimate of I(X;Z); at most log N.
        conditional_entropy: Estimate of H(Z|X).
        reasoning_entropy: Estimate of H(Z).

    """

    retrieval_accuracy: float
    chance: float
    mutual_information: float
    conditional_entropy: float
    reasoning_entropy: float


def collapse_signals(logp_NN: Tensor) -> CollapseSignals:
    """Return the signals from cross-scored responses.

    Differs from RAGEN-2, which also reports a version per token: the logsumexp of means over
    tokens does not estimate an entropy.

    Args:
        logp_NN: Row i, column j: log p(response_i | prompt_j), summed over tokens; in nats. Each
            response was sampled for the prompt of the same index.

    Raises:
        ValueError: The matrix is not square, smaller than 2, or holds NaN or +inf.

    """
    if logp_NN.ndim != 2 or logp_NN.shape[0] != logp_NN.shape[1] or len(logp_NN) < 2:
        raise ValueError(
            f"logp_NN has shape {tuple(logp_NN.shape)}; expected (N, N) with N of 2 or more."
        )
    if logp_NN.isnan().any() or (logp_NN == torch.inf).any():
        raise ValueError("logp_NN holds NaN or +inf; a log-probability is a number <= 0, or -inf.")
    logp = logp_NN.detach().double()
    own_N = logp.diagonal()
    marginal_N = logp.logsumexp(dim=1) - math.log(len(logp))
    conditional, marginal = -own_N.mean().item(), -marginal_N.mean().item()
    return CollapseSignals(
        retrieval_accuracy=(own_N >= logp.amax(dim=1)).double().mean().item(),
        chance=1 / len(logp),
        mutual_information=marginal - conditional,
        conditional_entropy=conditional,
        reasoning_entropy=marginal,
    )

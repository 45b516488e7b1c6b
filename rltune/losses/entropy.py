"""Logprobs of sampled tokens and entropy over the whole vocabulary, in float32, at a temperature.

z = logits / temperature,  log p(a) = z_a - logsumexp(z),  H = logsumexp(z) - sum softmax(z) z
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rltune.maths.checks import at_least_float32, require_same_shape


@dataclass(frozen=True, slots=True)
class TokenScores:
    """The result of one pass over the head, for each of M tokens.

    Attributes:
        logprobs_M: Log-probability of the token.
        entropy_M: Entropy of the distribution it was drawn from, in nats; None if not asked for.

    """

    logprobs_M: Tensor
    entropy_M: Tensor | None

    def take(self, index_N: Tensor) -> "TokenScores":
        """Return the scores of the given tokens, in their order; one may be taken several times."""
        entropy_M = self.entropy_M
        return TokenScores(
            self.logprobs_M[index_N], None if entropy_M is None else entropy_M[index_N]
        )


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature!r}; it must be positive.")
    return at_least_float32(logits) / temperature


def _entropy(z: Tensor) -> Tensor:
    return z.logsumexp(-1) - (z.softmax(-1) * z).sum(-1)


def _logprobs(z: Tensor, ids: Tensor) -> Tensor:
    return z.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - z.logsumexp(-1)


def token_entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the entropy of softmax(logits / temperature), vocabulary last, in nats."""
    return _entropy(_scaled(logits, temperature))


def logprobs_of(logits: Tensor, ids: Tensor, *, temperature: float) -> Tensor:
    """Return log softmax(logits / temperature) at the sampled ids.

    Args:
        logits: `(..., V)`, before the temperature.
        ids: `(...)`, int64.
        temperature: The one that the tokens were sampled at; otherwise the first ratio is not 1.

    Raises:
        ValueError: `logits` without its last dimension and `ids` differ in shape.

    """
    require_same_shape(logits=logits[..., 0], ids=ids)
    return _logprobs(_scaled(logits, temperature), ids)


EntropyUse = Literal["none", "value", "gradient"]
"""Not computed; computed and detached; computed with its gradient."""


def chunked_logprobs_entropy(
    hidden_MD: Tensor,
    lm_head_weight_VD: Tensor,
    ids_M: Tensor,
    *,
    temperature: float,
    chunk: int,
    entropy: EntropyUse,
) -> TokenScores:
    """Return logprobs and entropy from hidden states, holding the logits of one chunk at a time.

    The same numbers as `logprobs_of` and `token_entropy` on `hidden @ weight.T`. When a gradient is
    wanted, a chunk's logits are computed again in the backward pass instead of being kept, so the
    memory is O(chunk V) and not O(M V).

    Args:
        hidden_MD: Last hidden state at the place that predicts each token.
        lm_head_weight_VD: Weight of a head without bias.
        ids_M: The sampled tokens, int64.
        temperature: The one that the tokens were sampled at.
        chunk: Tokens per chunk; >= 1.
        entropy: What the entropy is for; as costly as the logprobs, and twice that with a gradient.

    Raises:
        ValueError: The shapes do not fit or `chunk` is not positive.

    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk!r}; it must be at least 1.")
    if hidden_MD.ndim != 2 or hidden_MD.shape[1:] != lm_head_weight_VD.shape[1:]:
        raise ValueError(
            f"shapes do not fit: hidden_MD {tuple(hidden_MD.shape)}, "
            f"lm_head_weight_VD {tuple(lm_head_weight_VD.shape)}. Expected (M, D) and (V, D)."
        )
    require_same_shape(ndim=1, hidden=hidden_MD[:, 0], ids_M=ids_M)

    def score(hidden: Tensor, weight: Tensor, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        z = _scaled(hidden @ weight.T, temperature)
        logprobs = _logprobs(z, ids)
        if entropy == "none":
            return logprobs, None
        return logprobs, _entropy(z if entropy == "gradient" else z.detach())

    wants_gradient = torch.is_grad_enabled() and (
        hidden_MD.requires_grad or lm_head_weight_VD.requires_grad
    )
    logprobs: list[Tensor] = []
    entropies: list[Tensor] = []
    for hidden, ids in zip(torch.split(hidden_MD, chunk), torch.split(ids_M, chunk), strict=True):
        if wants_gradient:
            logprob, entropy_part = checkpoint(
                score, hidden, lm_head_weight_VD, ids, use_reentrant=False, preserve_rng_state=False
            )
        else:
            logprob, entropy_part = score(hidden, lm_head_weight_VD, ids)
        logprobs.append(logprob)
        if entropy_part is not None:
            entropies.append(entropy_part)
    return TokenScores(torch.cat(logprobs), torch.cat(entropies) if entropies else None)

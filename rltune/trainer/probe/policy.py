"""The policy of S6's probe: a table of logits, one row for each token of each probe episode.

No two tokens share a parameter, so the gradient of the table is the gradient of each token. What
an optimiser step does to it is planned in advance and equal in all conditions: conditions are
compared by their gradients at the same policy, and not by what each of them makes of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rltune.policy.load import CausalLM, Policy
from rltune.rollout.tokens import TokenBatch

FILLERS = (" a", " b", " c", " d", " e", " f")
_MOST_LIKELY = 0.97  # probability of a token that a planned step cannot exceed


class Table(nn.Module):
    """Logits of each row and column; the first token of a row says which row it is.

    Args:
        logits_NTV: Logits of the token after each column.

    """

    def __init__(self, logits_NTV: Tensor) -> None:
        super().__init__()
        self.logits_NTV = nn.Parameter(logits_NTV.clone())

    def forward(self, *, input_ids: Tensor, **_: object) -> SimpleNamespace:
        """Return the logits as hidden states: the head is the identity."""
        rows = self.logits_NTV[input_ids[:, 0]]
        return SimpleNamespace(last_hidden_state=rows[:, : input_ids.shape[1]])


class TableModel(nn.Module):
    """A table with the parts of a causal language model that the trainer asks for."""

    def __init__(self, logits_NTV: Tensor) -> None:
        super().__init__()
        self.base_model = Table(logits_NTV)
        n_words = logits_NTV.shape[-1]
        head = SimpleNamespace(weight=torch.eye(n_words, dtype=logits_NTV.dtype), bias=None)
        object.__setattr__(self, "_head", head)  # no part of what is trained

    def get_output_embeddings(self) -> SimpleNamespace:
        """Return the head."""
        return cast(SimpleNamespace, self._head)

    @property
    def dtype(self) -> torch.dtype:
        """The format of the logits."""
        return self.base_model.logits_NTV.dtype

    @property
    def device(self) -> torch.device:
        """Always the CPU."""
        return self.base_model.logits_NTV.device


class TableCritic(nn.Module):
    """A value for each row and column."""

    def __init__(self, values_NT: Tensor) -> None:
        super().__init__()
        self.values_NT = nn.Parameter(values_NT.clone())

    def forward(self, ids_BT: Tensor, action_mask_BT: Tensor, *_: object) -> Tensor:
        """Return the values of the sampled tokens, (M,)."""
        return self.values_NT[ids_BT[:, 0], : ids_BT.shape[1]][action_mask_BT]


class Words:
    """Writes the probe's tokens: a few fillers, then the phrases that mark planning."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self.words = (*FILLERS, *(f" {phrase}" for phrase in phrases))

    def decode(self, ids: Sequence[int], **_: object) -> str:
        """Return the text of some tokens."""
        return "".join(self.words[index] for index in ids)


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Log-probabilities of the probe's policy at each place, and after a planned step."""

    log_p_NTV: Tensor  # log-probabilities of the token after each column
    ids_NT: Tensor  # token ids of the batch
    mask_NT: Tensor  # true on sampled tokens, also of rows with a fault
    temperature: float  # logits are divided by it

    @property
    def logp_NT(self) -> Tensor:
        """Log-probability of each sampled token, 0 elsewhere."""
        return self._read(self.log_p_NTV).where(self.mask_NT, 0)

    def _read(self, values_NTV: Tensor) -> Tensor:
        """Return the entry of each token of the batch; the first column has none."""
        of_next = values_NTV[:, :-1].gather(-1, self.ids_NT[:, 1:, None])[..., 0]
        return torch.nn.functional.pad(of_next, (1, 0))

    def logits(self, log_ratio_NT: Tensor | None = None) -> Tensor:
        """Return the table in which each sampled token's log-probability has moved so far.

        The other tokens of a place keep their shares of the rest.
        """
        if log_ratio_NT is None:
            return self.temperature * self.log_p_NTV
        token_NS = self.ids_NT[:, 1:, None]
        before = self.log_p_NTV[:, :-1].gather(-1, token_NS).exp()
        moved = log_ratio_NT.where(self.mask_NT, 0)[:, 1:, None].exp()
        after = (before * moved).clamp(max=_MOST_LIKELY)
        rest = self.log_p_NTV[:, :-1] + ((1 - after) / (1 - before)).log()
        table = self.log_p_NTV.clone()
        table[:, :-1] = rest.scatter(-1, token_NS, after.log())
        return self.temperature * table


def make_beliefs(batch: TokenBatch, *, n_words: int, temperature: float, seed: int) -> Beliefs:
    """Return random beliefs under which each sampled token has probability 0.02 to 0.25."""
    rng = np.random.Generator(np.random.PCG64(seed))
    ids_NT = batch.ids_NT.where(batch.ids_NT < n_words, 0)
    shape = (*ids_NT.shape, n_words)
    log_p_NTV = torch.from_numpy(rng.normal(0.0, 1.0, shape)).log_softmax(-1)
    wanted_NT = torch.from_numpy(np.log(rng.uniform(0.02, 0.25, ids_NT.shape)))
    plain = Beliefs(log_p_NTV, ids_NT, batch.action_mask_NT, 1.0)
    moved = plain.logits(wanted_NT - plain.logp_NT)
    return Beliefs(moved, ids_NT, plain.mask_NT, temperature)


class PlannedSteps(torch.optim.Optimizer):
    """An optimiser that keeps the gradient of each step, and then makes the step that was planned.

    Args:
        parameter: What is trained.
        plans: Its values after each step; after the last the last stay.

    """

    def __init__(self, parameter: nn.Parameter, plans: Sequence[Tensor]) -> None:
        super().__init__([parameter], {})
        self._parameter, self._plans = parameter, list(plans)
        self.gradients: list[Tensor] = []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Keep the gradient, and move to the next plan."""
        gradient = self._parameter.grad
        assert gradient is not None  # set by the objective before every step
        self.gradients.append(gradient.clone())
        if self._plans:
            self._parameter.copy_(self._plans[min(len(self.gradients), len(self._plans)) - 1])


def as_policy(model: TableModel, words: Words) -> Policy:
    """Return the table as the policy that the trainer knows."""
    return Policy(
        model=cast(CausalLM, model),
        tokenizer=cast(Any, words),
        renderer=cast(Any, None),
        end_ids=(),
        pad_id=0,
        weights_sha256="",
        tokenizer_sha256="",
    )

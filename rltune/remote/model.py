"""An adapter that a training service holds, in the place of a model that is trained here.

Its logprobs are a node of torch's graph: a forward pass of the service, and in the backward pass
the gradient goes back as the advantages of Tinker's loss `importance_sampling`, which at ratio 1 is
linear in the logprobs. So each loss of sampled logprobs is the very one of the torch backend:

    L = -sum exp(log p - log p_now) A,    A = -dC/d log p    =>    dL/d theta = dC/d theta
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rltune.remote.datum import datum, logprobs_in, prompt_logprobs
from rltune.remote.session import Session

_TTL_S = 30 * 24 * 3600  # after which a service may delete a saved state
_EPS = 1e-8  # torch's AdamW; Tinker's default is another


class RemoteScorer(nn.Module):
    """Scores rows somewhere else; without parameters here."""

    device = torch.device("cpu")
    dtype = torch.float32
    generation_config: Any = None

    @property
    def base_model(self) -> nn.Module:
        """Stands where a model's backbone is asked for its number format."""
        return self

    def logprobs(self, ids_BT: Tensor, action_mask_BT: Tensor) -> Tensor:
        """Return the logprobs (M,) of the sampled tokens at temperature 1, row-major."""
        raise NotImplementedError


class RemoteModel(RemoteScorer):
    """A LoRA adapter on a service, made when it is first needed.

    Args:
        session: The connection.
        rank: Columns of its matrices.
        seed: From which the service draws its first A matrices.

    """

    def __init__(self, session: Session, *, rank: int, seed: int) -> None:
        super().__init__()
        self.session, self._rank, self._seed = session, rank, seed
        self._client: Any = None
        self._open: list[Any] = []  # backward passes whose answers are not fetched yet
        self._anchor = torch.zeros((), requires_grad=True)  # for a graph without parameters

    def logprobs(self, ids_BT: Tensor, action_mask_BT: Tensor) -> Tensor:
        """Return the logprobs (M,); their gradient goes to the service in the backward pass."""
        rows = rows_of(ids_BT, action_mask_BT)
        logprobs: Tensor = _Remote.apply(self._anchor, self, rows)  # type: ignore[no-untyped-call]
        return logprobs

    def step(self, *, lr: float, betas: tuple[float, float], decay: float, clip: float) -> float:
        """Make a step of AdamW with the gradient so far; return its norm, NaN where unknown."""
        import tinker

        if not self._open:  # a step with a gradient of 0
            self._backward([([0, 0], [1])], torch.zeros(1), torch.zeros(1))
        adam = tinker.AdamParams(
            learning_rate=lr,
            beta1=betas[0],
            beta2=betas[1],
            eps=_EPS,
            weight_decay=decay,
            grad_clip_norm=clip,
        )
        stepped = self._adapter().optim_step(adam)
        for one in self._open:
            self.session.wait(one, "make a backward pass")
        self._open.clear()
        metrics = self.session.wait(stepped, "make an optimiser step").metrics or {}
        norms = [value for name, value in metrics.items() if name.endswith("grad_norm")]
        return norms[0] if norms else float("nan")

    def sampler(self) -> Any:
        """Return a sampling client with the weights of now."""
        call = self._adapter().save_weights_and_get_sampling_client()
        return self.session.wait(call, "take a snapshot of the weights")

    def save(self, name: str) -> str:
        """Save weights and optimiser on the service; return the state's path."""
        call = self._adapter().save_state(name, ttl_seconds=_TTL_S)
        return str(self.session.wait(call, "save its state").path)

    def restore(self, path: str) -> None:
        """Go on from a saved state."""
        self._client = self.session.saved_adapter(path)
        self._open.clear()

    def forward_pass(self, rows: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        """Return the logprobs (M,) of the sampled tokens."""
        data = [datum(ids, places, weights=np.zeros(len(places))) for ids, places in rows]
        self.session.meter.count(forward_tokens=sum(len(ids) for ids, _ in rows))
        call = self._adapter().forward(data, "cross_entropy")
        outputs = self.session.wait(call, "make a forward pass").loss_fn_outputs
        return torch.cat(
            [
                torch.from_numpy(logprobs_in(one, places))
                for one, (_, places) in zip(outputs, rows, strict=True)
            ]
        )

    def _backward(
        self, rows: Sequence[tuple[list[int], list[int]]], logp_M: Tensor, grad_M: Tensor
    ) -> None:
        sizes = [len(places) for _, places in rows]
        parts = zip(rows, logp_M.split(sizes), grad_M.split(sizes), strict=True)  # type: ignore[no-untyped-call]
        data = [
            datum(ids, places, logprobs=logp.numpy(), advantages=-grad.numpy())
            for (ids, places), logp, grad in parts
        ]
        self.session.meter.count(trained_tokens=sum(len(ids) for ids, _ in rows))
        self._open.append(self._adapter().forward_backward(data, "importance_sampling"))

    def _adapter(self) -> Any:
        if self._client is None:
            self._client = self.session.new_adapter(rank=self._rank, seed=self._seed)
        return self._client


class RemoteStart(RemoteScorer):
    """The policy that training began with: a new adapter changes nothing, so it is the base."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._sampler: Any = None

    def logprobs(self, ids_BT: Tensor, action_mask_BT: Tensor) -> Tensor:
        """Return the logprobs (M,) under the base model."""
        import tinker

        if self._sampler is None:
            self._sampler = self.session.base_sampler()
        rows = rows_of(ids_BT, action_mask_BT)
        self.session.meter.count(prompt_tokens=sum(len(ids) for ids, _ in rows))
        calls = [
            self._sampler.compute_logprobs(tinker.ModelInput.from_ints(ids)) for ids, _ in rows
        ]
        answers = [self.session.wait(call, "score rows by the base model") for call in calls]
        scored = [
            prompt_logprobs(one, len(ids)) for one, (ids, _) in zip(answers, rows, strict=True)
        ]
        return torch.tensor(
            [
                logprobs[place]
                for logprobs, (_, places) in zip(scored, rows, strict=True)
                for place in places
            ]
        )


class RemoteAdamW:
    """Stands where torch's optimiser of the policy is.

    Attributes:
        state: The number of steps, as torch's optimisers keep it.

    """

    def __init__(
        self,
        model: RemoteModel,
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        grad_clip: float,
    ) -> None:
        self._model = model
        self._numbers = {"lr": lr, "betas": betas, "decay": weight_decay, "clip": grad_clip}
        self.state: dict[str, dict[str, int]] = {"adapter": {"step": 0}}

    def step(self) -> float:
        """Make a step; return the norm of its gradient before clipping, NaN where unknown."""
        norm = self._model.step(**self._numbers)  # type: ignore[arg-type]
        self.state["adapter"]["step"] += 1
        return norm


class _Remote(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, model: RemoteModel, rows: Sequence[tuple[list[int], list[int]]]
    ) -> Tensor:
        logp_M = model.forward_pass(rows)
        ctx.model, ctx.rows = model, rows
        ctx.save_for_backward(logp_M)
        return logp_M

    @staticmethod
    def backward(ctx: Any, grad_M: Tensor) -> tuple[None, None, None]:
        (logp_M,) = ctx.saved_tensors
        ctx.model._backward(ctx.rows, logp_M.detach(), grad_M.detach())
        return None, None, None


def rows_of(ids_BT: Tensor, action_mask_BT: Tensor) -> list[tuple[list[int], list[int]]]:
    """Return each row's ids up to its last sampled token, and the places of the sampled ones."""
    rows = []
    for ids, mask in zip(ids_BT.tolist(), action_mask_BT.tolist(), strict=True):
        places = [place for place, is_sampled in enumerate(mask) if is_sampled]
        if places:
            rows.append((ids[: places[-1] + 1], places))
    return rows

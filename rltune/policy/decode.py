"""Incremental decoding of a transformers causal LM, as `rollout.torch_engine` asks for it."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.kv_cache import keeping
from rltune.policy.logprobs import reading
from rltune.policy.precision import computing
from rltune.policy.row_cache import RowCache

COLUMN_BLOCK = 64


class NewTokens(NamedTuple):
    """Inputs of a pass over the first B rows of a cache; a CUDA graph reads them in place."""

    ids_BT: Tensor
    positions_BT: Tensor
    columns_BT: Tensor  # where keys and values are written
    last_B: Tensor  # place of each row's last token


class ModelDecoder:
    """A causal LM that an engine decodes with.

    Args:
        model: The causal LM; it is not copied.
        pad_id: Id for padding.
        end_ids: Ids that end a response.

    """

    def __init__(self, model: PreTrainedModel, *, pad_id: int, end_ids: tuple[int, ...]) -> None:
        self._model = model
        self.pad_id = pad_id
        self.end_ids = end_ids

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self._model.device)

    def _new_tokens(
        self, new: Sequence[Sequence[int]], starts: Sequence[int], *, nobodys: int, rows: int
    ) -> NewTokens:
        """Return the inputs of a pass.

        A place without a token repeats the position before it: with absolute position embeddings,
        one past the context would be an index error.

        Args:
            new: Tokens of each row, at least one.
            starts: Tokens that each row has already.
            nobodys: The column that takes what is computed for padding.
            rows: Rows of the pass; those beyond the last one are padding.

        """
        longest = max(map(len, new))
        padded = [[*ids, *[self.pad_id] * (longest - len(ids))] for ids in new]
        extra = rows - len(new)
        ids_BT = torch.tensor([*padded, *[[self.pad_id] * longest] * extra])
        starts_B1 = torch.tensor([*starts, *[0] * extra])[:, None]
        counts_B1 = torch.tensor([*map(len, new), *[0] * extra])[:, None]
        places_T = torch.arange(longest)
        positions_BT = starts_B1 + places_T.minimum(counts_B1 - 1).clamp(min=0)
        columns_BT = positions_BT.where(places_T < counts_B1, nobodys)
        last_B = (counts_B1[:, 0] - 1).clamp(min=0)
        device = self.device
        return NewTokens(*(t.to(device) for t in (ids_BT, positions_BT, columns_BT, last_B)))

    def _logits(self, hidden_BTD: Tensor, last_B: Tensor) -> Tensor:
        """Return float32 logits (B, V) after column `last_B` of each row."""
        rows_B = torch.arange(len(last_B), device=last_B.device)
        head: Callable[[Tensor], Tensor] = self._model.get_output_embeddings()
        return head(at_least_float32(hidden_BTD[rows_B, last_B]))


class TransformersDecoder(ModelDecoder):
    """Decodes by plain calls of the model; weight updates are seen at once.

    Sliding windows are ignored: `model_check.require_context` keeps rows shorter than a window.
    """

    def empty_cache(self) -> RowCache:
        """Return a cache that holds no tokens."""
        return RowCache(self._model, row_block=1, column_block=COLUMN_BLOCK)

    def reserve(self, cache: RowCache, rows: int) -> None:
        """Make room for so many rows."""
        cache.reserve(rows, 0)

    @torch.no_grad()
    def extend(
        self, cache: RowCache, new: Sequence[Sequence[int]], starts: Sequence[int]
    ) -> Tensor:
        """Add tokens to the first rows; return float32 logits (B, V) after the last of each."""
        width = max(start + len(ids) for start, ids in zip(starts, new, strict=True))
        cache.reserve(len(new), width)
        inputs = self._new_tokens(new, starts, nobodys=cache.shape[1] - 1, rows=len(new))
        cache.place(inputs.columns_BT, width=width)
        backbone = self._model.base_model
        longest = inputs.ids_BT.shape[1]
        is_last_BT = torch.arange(longest, device=inputs.last_B.device) == inputs.last_B[:, None]
        only_last = reading(backbone, is_last_BT) if longest > 1 else nullcontext()
        with computing(backbone), only_last:
            hidden_BTD = backbone(
                input_ids=inputs.ids_BT,
                attention_mask=visible(inputs.positions_BT, width),
                position_ids=inputs.positions_BT,
                **keeping(cache.layers),
            ).last_hidden_state
        return self._logits(hidden_BTD, inputs.last_B)

    def copy(
        self, cache: RowCache, sources: Sequence[int], targets: Sequence[int], *, used: int
    ) -> None:
        """Copy the first `used` tokens of some rows onto other rows, all at once."""
        index = torch.tensor([sources, targets], device=self.device)
        cache.copy(*index, used=used)

    def release(self) -> None:
        """Do nothing: nothing is held here."""


def visible(positions_BT: Tensor, width: int) -> Tensor:
    """Return the mask (B, 1, T, width): a token reads its own row up to itself."""
    columns_S = torch.arange(width, device=positions_BT.device)
    return (columns_S <= positions_BT[..., None])[:, None]

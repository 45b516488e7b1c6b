"""Incremental decoding of a transformers causal LM, as `rollout.torch_engine` asks for it."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.kv_cache import KVCache, keeping, new_kv_cache
from rltune.policy.precision import computing


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

    def _logits(self, hidden_BTD: Tensor, last_B: Tensor) -> Tensor:
        """Return float32 logits (B, V) after column `last_B` of each row."""
        rows_B = torch.arange(len(last_B), device=last_B.device)
        head: Callable[[Tensor], Tensor] = self._model.get_output_embeddings()
        return head(at_least_float32(hidden_BTD[rows_B, last_B]))


class TransformersDecoder(ModelDecoder):
    """Decodes a few tokens at a time over a growing cache; weight updates are seen at once."""

    def empty_cache(self) -> KVCache:
        """Return a cache that holds no tokens.

        Sliding windows are ignored: holes between the columns of a row would push its own tokens
        out of them. `model_check.require_context` keeps rows shorter than a window.
        """
        kinds = set(getattr(self._model.config, "layer_types", None) or ["full_attention"])
        if kinds <= {"full_attention", "sliding_attention"}:
            return DynamicCache()
        return new_kv_cache(self._model)

    def extend(
        self,
        cache: KVCache,
        ids_BT: Tensor,
        positions_BT: Tensor,
        visible_BTS: Tensor,
        last_B: Tensor,
    ) -> Tensor:
        """Append tokens to the cache; return float32 logits (B, V) after new column `last_B`."""
        backbone = self._model.base_model
        with computing(backbone):
            hidden_BTD = backbone(
                input_ids=ids_BT,
                attention_mask=visible_BTS[:, None],
                position_ids=positions_BT,
                **keeping(cache),
            ).last_hidden_state
        return self._logits(hidden_BTD, last_B)

    def select(self, cache: KVCache, rows: Tensor) -> KVCache:
        """Keep the given rows, in their order; a row may be taken several times."""
        cache.batch_select_indices(rows)
        return cache

    def release(self) -> None:
        """Do nothing: nothing is held here."""

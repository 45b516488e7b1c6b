"""An embedding model of transformers, for dense retrieval."""

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModel, AutoTokenizer

from rltune.errors import InputError, Problem

_MAX_TOKENS = 512


class TransformersEmbedder:
    """Means of the last hidden states over a text's tokens, as E5 and most embedding models have.

    Args:
        model: Folder in transformers' format, or a hub id.
        prefixes: Written before each query and before each passage.
        device: Where it runs.

    Raises:
        InputError: The model cannot be loaded.

    """

    def __init__(self, model: str, *, prefixes: tuple[str, str], device: str = "cpu") -> None:
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(model)
            self._model = AutoModel.from_pretrained(model).to(device).eval()
        except (OSError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            action = "Give a folder in transformers' format, a hub id, an http address, or hashing."
            raise InputError(
                Problem(f"--dense {model}", f"cannot be loaded: {first}", action=action)
            ) from error
        self._prefixes = prefixes
        self._lock = threading.Lock()  # a tokenizer that pads and cuts is not for two threads
        self.name = f"{model} {prefixes[0]!r} {prefixes[1]!r}"

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], *, is_query: bool) -> npt.NDArray[np.float32]:
        """Return one vector a text, [texts, hidden size]; what exceeds 512 tokens is cut."""
        prefix = self._prefixes[not is_query]
        with self._lock:
            tokens = self._tokenizer(
                [prefix + text for text in texts],
                padding=True,
                truncation=True,
                max_length=_MAX_TOKENS,
                return_tensors="pt",
            ).to(self._model.device)
        hidden = self._model(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"].unsqueeze(-1)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        vectors: npt.NDArray[np.float32] = mean.cpu().numpy()
        return vectors

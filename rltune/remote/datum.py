"""A row of tokens as the SDK's training calls take it. No torch."""

from typing import Any

import numpy as np


def datum(ids: list[int], places: list[int], **inputs: Any) -> Any:
    """Return a row; inputs of sampled tokens stand where these are predicted.

    Args:
        ids: Tokens of the row.
        places: Where the sampled ones stand in it; none is the first.
        inputs: Name -> one number for each sampled token, or one for all.

    """
    import tinker

    arrays = {}
    for name, values in inputs.items():
        arrays[name] = np.zeros(len(ids) - 1, dtype=np.float32)
        arrays[name][np.array(places) - 1] = values
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": np.array(ids[1:], dtype=np.int64), **arrays},
    )


def logprobs_in(output: Any, places: list[int]) -> np.ndarray:
    """Return the logprobs of the sampled tokens in a row's answer."""
    values: np.ndarray = np.array(output["logprobs"].to_numpy(), np.float32)
    own: np.ndarray = values[np.array(places) - 1]
    return own

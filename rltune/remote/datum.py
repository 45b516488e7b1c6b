"""A row of tokens as the SDK's training calls take it. No torch."""

from typing import Any

import numpy as np

from rltune.errors import RemoteError


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


def prompt_logprobs(scores: Any, n_tokens: int) -> list[float | None]:
    """Return the logprobs of a prompt's tokens, of which the first has none.

    Raises:
        RemoteError: There is not a place for each token, so it cannot be told whose they are.

    """
    found = list(scores)
    if len(found) != n_tokens:
        raise RemoteError(
            f"the training service scored a prompt of {n_tokens} tokens with {len(found)} "
            "logprobs; there must be one for each token, and none for the first. Use a service "
            "that keeps to the Tinker protocol."
        )
    return found

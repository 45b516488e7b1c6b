"""Rows and clients of the Tinker SDK for tests."""

import gc
import warnings

import numpy as np
import tinker

PROMPT = [5, 6, 7, 8, 9]
BASE = "tiny/sokoban"


def forget_open_sockets(service):
    """Open the session: the SDK leaves the connection that reads its settings open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        service.create_sampling_client(base_model=BASE).result()
        gc.collect()


def datum(tokens, **inputs):
    """A row of `PROMPT` and tokens; `inputs` are per sampled token, 0 on the prompt."""
    row, pad = [*PROMPT, *tokens], [0.0] * (len(PROMPT) - 1)
    arrays = {name: np.array([*pad, *values], np.float32) for name, values in inputs.items()}
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(row[:-1]),
        loss_fn_inputs={"target_tokens": np.array(row[1:], np.int64), **arrays},
    )


def new_adapter(client, *, seed=1, rank=4):
    return client.create_lora_training_client(
        BASE, rank=rank, seed=seed, train_unembed=False
    ).result()


def logprobs(adapter, rows):
    """The logprobs of the tokens after `PROMPT`, a list of arrays."""
    data = [datum(row, weights=[1.0] * len(row)) for row in rows]
    out = adapter.forward(data, "cross_entropy").result()
    return [np.array(one["logprobs"].tolist())[len(PROMPT) - 1 :] for one in out.loss_fn_outputs]


def sample(sampler, seed, *, n=1, **knobs):
    params = tinker.SamplingParams(max_tokens=8, seed=seed, stop=[], **knobs)
    return sampler.sample(tinker.ModelInput.from_ints(PROMPT), n, params).result().sequences

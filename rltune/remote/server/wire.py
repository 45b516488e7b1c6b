"""The protocol buffers of the Tinker SDK as plain records, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

PROTOBUF = "application/x-protobuf"


class RefusedError(Exception):
    """A request that this server cannot answer; its text goes to the client."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One row to score or to train on."""

    ids: tuple[int, ...]  # the T tokens of the context
    inputs: dict[str, Tensor]  # `target_tokens` (T,) int64, and what the loss reads, (T,) float32


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward pass, with a backward pass unless it is `forward_only`."""

    model_id: str
    seq_id: int
    data: tuple[Datum, ...]
    loss: str
    bounds: dict[str, float]
    forward_only: bool


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled sequence."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    is_stopped: bool  # by a stop token, and not by the limit


def read_pass(body: bytes) -> Pass:
    """Return a `forward_backward` request.

    Raises:
        RefusedError: It holds something other than text tokens and dense numbers.

    """
    message = _proto().ForwardBackwardRequest()
    message.ParseFromString(body)
    return Pass(
        model_id=message.model_id,
        seq_id=message.seq_id,
        data=tuple(_datum(one) for one in message.data),
        loss=message.loss_fn,
        bounds=dict(message.loss_fn_config),
        forward_only=message.forward_only,
    )


def write_pass(logprobs: Sequence[Tensor], metrics: Mapping[str, float]) -> bytes:
    """Return the answer to a pass: the logprobs of each datum, (T,), and metrics."""
    proto = _proto()
    message = proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics=dict(metrics))
    record = message.loss_fn_outputs.add(num_datums=len(logprobs))
    arrays = [one.detach().cpu().to(torch.float32).numpy() for one in logprobs]
    field = record.fields["logprobs"]
    field.dtype = proto.DTYPE_FLOAT32
    field.offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64).tobytes()
    field.data = b"".join(array.tobytes() for array in arrays)
    return bytes(message.SerializeToString())


def write_samples(
    sequences: Sequence[Sampled], prompt_logprobs: Sequence[float] | None = None
) -> bytes:
    """Return the answer to a sampling request; the first token of a prompt has no logprob."""
    proto = _proto()
    message = proto.SampleResponse()
    for one in sequences:
        message.sequences.add(
            tokens=np.array(one.token_ids, dtype=np.int32).tobytes(),
            logprobs=np.array(one.logprobs, dtype=np.float32).tobytes(),
            stop_reason=proto.STOP_REASON_STOP if one.is_stopped else proto.STOP_REASON_LENGTH,
        )
    if prompt_logprobs is not None:
        message.prompt_logprobs = np.array([np.nan, *prompt_logprobs], dtype=np.float32).tobytes()
    return bytes(message.SerializeToString())


def _datum(message: Any) -> Datum:
    ids: list[int] = []
    for chunk in message.model_input:
        if not chunk.HasField("encoded_text"):
            raise RefusedError("this server reads text tokens only, no images and no audio")
        ids += np.frombuffer(chunk.encoded_text.tokens, dtype=np.int32).tolist()
    inputs = {name: _tensor(name, one) for name, one in message.loss_fn_inputs.items()}
    wrong = [name for name, tensor in inputs.items() if tuple(tensor.shape) != (len(ids),)]
    if "target_tokens" not in inputs or wrong:
        raise RefusedError(
            f"a datum of {len(ids)} tokens needs target_tokens and inputs of that length; "
            f"it has {', '.join(f'{name} {tuple(inputs[name].shape)}' for name in wrong) or 'none'}"
        )
    return Datum(tuple(ids), inputs)


def _tensor(name: str, message: Any) -> Tensor:
    proto = _proto()
    kinds = {proto.DTYPE_FLOAT32: np.float32, proto.DTYPE_INT64: np.int64}
    if message.HasField("sparse_csr") or message.dtype not in kinds:
        raise RefusedError(f"{name} must be a dense tensor of float32 or int64")
    array = np.frombuffer(message.dense, dtype=kinds[message.dtype]).copy()
    return torch.from_numpy(array).reshape(tuple(message.shape) or (-1,))


def _proto() -> Any:
    """Return the SDK's message classes; the SDK is an optional extra."""
    from tinker.proto import tinker_public_pb2

    return tinker_public_pb2

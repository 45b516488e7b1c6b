"""The memory of a forward pass that is kept for its backward pass: a micro-batch of an update.

What a token takes is what torch keeps in a layer of a Qwen2 model. How many go together follows
from it, so that a micro-batch takes a fixed amount of memory.
"""

from collections.abc import Collection

from rltune.forecast.model_shapes import Shape
from rltune.spec.schema.trial import TrialConfig

FLOAT32 = 4
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
PASS_BYTES = 64 * 2**20  # of a micro-batch's activations on a CPU: a layer's fit its cache
DEVICE_PASS_BYTES = 3 * 2**29  # the same on a GPU
UNKNOWN_TOKENS = 4096  # of a micro-batch of a model whose shape is not known


def sampled_tokens(config: TrialConfig) -> int:
    """Return the most tokens that a policy samples in one conversation."""
    rollout, turns = config.rollout, getattr(config.env, "max_turns", None)
    context = rollout.max_context  # a custom env does not say more
    return min(turns * rollout.max_response_tokens, context) if turns else context


def token_budget(config: TrialConfig, shape: Shape | None) -> int:
    """Return the tokens of a micro-batch under `optim.tokens_per_micro_batch: auto`.

    As many as a fixed amount of memory holds, and at least one full conversation. It depends on
    the config and the model alone, not on the memory of the machine: a trial that is repeated
    elsewhere must be cut in the same way.

    Args:
        config: Resolved config.
        shape: Of the model; None where it is not known.

    """
    if shape is None:
        return max(UNKNOWN_TOKENS, config.rollout.max_context)
    most = DEVICE_PASS_BYTES if config.resources.gpus > 0 else PASS_BYTES
    return max(most // sum(token_bytes(config, shape)), config.rollout.max_context)


def cell_share(config: TrialConfig, shape: Shape) -> float:
    """Return the memory of a cell that attention reads in a prefix tree, in tokens of a pass."""
    return _cell_bytes(config, shape) / sum(token_bytes(config, shape))


def tree_bytes(config: TrialConfig, shape: Shape) -> int:
    """Return what attention keeps in a micro-batch of prefix trees beside its tokens, at most.

    The cells of all rows, but no more than the limit of tokens takes: a micro-batch ends where
    either is reached. One row alone is no tree, and dropout computes every row for itself. The mask
    of the pairs of cells, which comes to a tenth of that for short responses, is left out.
    """
    tokens, rows = _pass_limits(config, shape)
    lora = config.policy.lora
    if rows == 1 or (lora.rank and lora.dropout):
        return 0
    cells = rows * config.rollout.max_context
    limit = tokens * sum(token_bytes(config, shape))
    return min(cells * _cell_bytes(config, shape), limit)


def _cell_bytes(config: TrialConfig, shape: Shape) -> int:
    width, again = DTYPE_BYTES[config.policy.dtype], config.optim.gradient_checkpointing
    return cell_bytes(shape, width=width, is_recomputed=again)


def token_bytes(config: TrialConfig, shape: Shape) -> tuple[int, int]:
    """Return what a token of a forward pass keeps for the backward pass, and frees but holds."""
    width, lora = DTYPE_BYTES[config.policy.dtype], config.policy.lora
    again = config.optim.gradient_checkpointing
    kept = activation_bytes(shape, width=width, is_recomputed=again)
    if lora.rank and lora.dropout:
        kept += dropped_bytes(shape, lora.targets, width=width, is_recomputed=again)
    if config.resources.gpus > 0:
        return kept, 0
    return kept, heap_bytes(shape, is_lora=bool(lora.rank), is_recomputed=again)


def pass_tokens(config: TrialConfig, shape: Shape) -> tuple[int, int]:
    """Return the most tokens of a micro-batch, and how many of them may be sampled ones."""
    tokens, rows = _pass_limits(config, shape)
    return min(tokens, rows * config.rollout.max_context), min(
        tokens, rows * sampled_tokens(config)
    )


def _pass_limits(config: TrialConfig, shape: Shape) -> tuple[int, int]:
    """Return the most tokens and rows of a micro-batch; one row may have more than the budget."""
    optim, context = config.optim, config.rollout.max_context
    budget = optim.tokens_per_micro_batch
    tokens = token_budget(config, shape) if budget == "auto" else max(budget, context)
    return tokens, min(optim.mini_batch_size, optim.micro_batch_size or optim.mini_batch_size)


def activation_bytes(shape: Shape, *, width: int, is_recomputed: bool) -> int:
    """Return the bytes that one token's forward pass keeps for its backward pass.

    A layer: two norms keep their input and its normalised form, 4 D in float32; attention keeps
    queries, output, keys and values, 2 Q + 2 K; the gated MLP gate, its activation, up and their
    product, 4 I; the linear maps their input, 2 D, and 5 D under bfloat16, where each of them casts
    it for itself. The last norm keeps 2 D. Rows of attention's probabilities are not kept.

    Args:
        shape: Of the model.
        width: Bytes of a number of the computation.
        is_recomputed: Whether only the layers' inputs are kept, and one layer at a time is rebuilt.

    """
    inputs = 2 if width == FLOAT32 else 5
    parts = inputs * shape.hidden + 2 * shape.queries + 2 * shape.keys + 4 * shape.inner
    layer = 4 * shape.hidden * FLOAT32 + parts * width
    last = 2 * shape.hidden * FLOAT32
    if is_recomputed:
        return shape.layers * shape.hidden * FLOAT32 + layer + last
    return shape.layers * layer + last


def cell_bytes(shape: Shape, *, width: int, is_recomputed: bool) -> int:
    """Return the bytes that attention in a prefix tree keeps of one cell of a row.

    It keeps keys and values of every cell, for all heads: 2 Q in each layer, however few of the
    row's places are its own.

    Args:
        shape: Of the model.
        width: Bytes of a number of the computation.
        is_recomputed: As in `activation_bytes`.

    """
    return 2 * shape.queries * width * (1 if is_recomputed else shape.layers)


def dropped_bytes(
    shape: Shape, targets: Collection[str], *, width: int, is_recomputed: bool
) -> int:
    """Return the bytes that dropout of adapters adds to `activation_bytes`.

    Each adapter keeps a copy of its input, with what was dropped, and a byte for each place of the
    mask; without dropout it shares the input of its layer.

    Args:
        shape: Of the model.
        targets: Last names of the layers with an adapter; unknown ones do not count.
        width: Bytes of a number of the computation.
        is_recomputed: As in `activation_bytes`.

    """
    inputs = {name: inputs for name, (inputs, _) in shape.linear_layers.items()}
    layer = (width + 1) * sum(inputs.get(name, 0) for name in set(targets))
    return layer if is_recomputed else shape.layers * layer


def heap_bytes(shape: Shape, *, is_lora: bool, is_recomputed: bool) -> int:
    """Return the bytes of one token's forward pass that are freed at once and yet stay.

    On Linux torch asks for aligned blocks, and glibc before 2.38 cannot give a freed one to a
    request of its own size, so a pass takes fresh memory for all that it does not keep. A layer:
    squares of two norms and the outputs of attention and MLP, 4 D; queries and keys before their
    rotation and its three products, 4 (Q + K). With adapters the linear layers' own outputs, too.

    Args:
        shape: Of the model.
        is_lora: Whether the linear layers have adapters.
        is_recomputed: Whether one layer at a time is there.

    """
    layer = 4 * shape.hidden + 4 * (shape.queries + shape.keys)
    if is_lora:
        layer += sum(outputs for _, outputs in shape.linear_layers.values())
    return FLOAT32 * layer * (1 if is_recomputed else shape.layers)

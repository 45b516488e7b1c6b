"""The memory that a trial takes, part by part, from its config and the shape of its model.

The sizes of weights, gradients, optimiser and cache follow from the shape. Those of activations and
logits are what torch keeps for the backward pass of a Qwen2 layer and of the vocabulary head.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rltune.spec.credit_checks import CRITIC_KINDS

FLOAT32 = 4
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
MOST_TOKENS, MOST_LOGITS = 4096, 2**26  # held at once: policy.logprobs.chunk_of
LOGITS_COPIES = 4  # logits, log-softmax, their gradients
PROGRAM_BYTES = 510 * 2**20  # Python, torch, transformers and Ray in a worker, measured on Linux
DEVICE_BYTES = 600 * 2**20  # a CUDA context with the libraries' workspaces
PART_NOTES = {
    "weights": "policy, critic and reference",
    "gradients": "of what is trained",
    "optimizer": "AdamW's two moments",
    "kv_cache": "if every conversation fills its context; takes turns with the next two",
    "engine": "vLLM's own weights and cache; with rollout.vllm.sleep in turn with the next two",
    "activations": "of a micro-batch at full length",
    "logits": "of a chunk of tokens",
    "program": "Python and its libraries, or the context of a GPU",
}

PART_NAMES = tuple(PART_NOTES)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that a trial is expected to hold when it holds most.

    Attributes:
        weights: Policy, critic and reference, float32, and a cast copy under bfloat16.
        gradients: Of what is trained.
        optimizer: AdamW's two moments of what is trained.
        kv_cache: Keys and values of all conversations at their full length.
        engine: What vLLM holds beside the trainer: weights of its own, untied, and its cache.
        activations: What is kept for the backward pass of one micro-batch at its full length.
        logits: Of one chunk of tokens over the vocabulary.
        program: What a process holds before it has a model.
        is_engine_asleep: Whether the engine gives its memory back while the trainer updates.

    """

    weights: int
    gradients: int
    optimizer: int
    kv_cache: int
    activations: int
    logits: int
    program: int
    engine: int = 0
    is_engine_asleep: bool = False

    @property
    def parts(self) -> Mapping[str, int]:
        """Every part by its name, those that take nothing left out."""
        found = {name: int(getattr(self, name)) for name in PART_NAMES}
        return {name: amount for name, amount in found.items() if amount}

    @property
    def peak(self) -> int:
        """The most at a time: training and generating take turns."""
        held = self.weights + self.gradients + self.optimizer + self.program
        generating, updating = self.kv_cache + self.engine, self.activations + self.logits
        if not self.is_engine_asleep:
            updating += self.engine
        return held + max(generating, updating)


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a dense decoder decides its memory.

    Attributes:
        layers: Their number.
        hidden: Width D.
        inner: Width I of the MLP.
        queries: Width Q of all queries.
        keys: Width K of all keys, and of all values.
        vocabulary: Number of tokens.

    """

    layers: int
    hidden: int
    inner: int
    queries: int
    keys: int
    vocabulary: int


def shape_of(config: Mapping[str, Any]) -> Shape:
    """Read a shape from the content of a config.json."""
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    head = int(config.get("head_dim") or hidden // heads)
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        inner=int(config["intermediate_size"]),
        queries=heads * head,
        keys=int(config.get("num_key_value_heads") or heads) * head,
        vocabulary=int(config["vocab_size"]),
    )


def memory_plan(
    config: Mapping[str, Any], shape: Shape, *, parameters: int, trained: int
) -> MemoryPlan:
    """Return the memory of a trial.

    weights      4 P (1 + critic + reference), each a copy of its own only of what is trained
    gradients    4 T (1 + critic),  optimizer 8 T (1 + critic)
    kv_cache     2 L K b, for each token of the conversations that are generated together (torch)
    engine       b (P + V D) + rollout.vllm.kv_cache_gib (vllm)

    Args:
        config: Resolved config.
        shape: Of the model.
        parameters: P, of the policy without adapters.
        trained: T, those that training changes.

    """
    rollout, width = config["rollout"], DTYPE_BYTES[config["policy"]["dtype"]]
    is_critic_own = (
        config["advantage"]["kind"] in CRITIC_KINDS and config["critic"]["backbone"] == "own"
    )
    learners = 1 + is_critic_own
    base = parameters if config["policy"]["lora"]["rank"] else 0
    copies = learners + bool(config["loss"]["use_kl_loss"])
    cast = width * parameters if width < FLOAT32 else 0
    rows = max(rollout["groups"] * rollout["group_size"], config["gate"]["tasks"])
    batch = config["optim"]["micro_batch_size"] * rollout["max_context"]
    chunk = min(batch, MOST_TOKENS, max(1, MOST_LOGITS // shape.vocabulary))
    on_device = config["resources"]["gpus"] > 0
    is_vllm = rollout["engine"] == "vllm"
    cache = 2 * shape.layers * shape.keys * width * rows * rollout["max_context"]
    is_recomputed = bool(config["optim"].get("gradient_checkpointing", False))
    token = activation_bytes(shape, width=width, is_recomputed=is_recomputed)
    if config["policy"]["lora"]["rank"] and config["policy"]["lora"]["dropout"]:
        targets = config["policy"]["lora"]["targets"]
        token += dropped_bytes(shape, targets, width=width, is_recomputed=is_recomputed)
    return MemoryPlan(
        weights=FLOAT32 * (base + copies * trained) + cast,
        gradients=FLOAT32 * learners * trained,
        optimizer=2 * FLOAT32 * learners * trained,
        kv_cache=0 if is_vllm else cache,
        engine=_vllm_bytes(rollout["vllm"], shape, parameters, width) if is_vllm else 0,
        activations=batch * token,
        logits=LOGITS_COPIES * FLOAT32 * chunk * shape.vocabulary,
        program=DEVICE_BYTES if on_device else PROGRAM_BYTES,
        is_engine_asleep=is_vllm and on_device and bool(rollout["vllm"]["sleep"]),
    )


def _vllm_bytes(vllm: Mapping[str, Any], shape: Shape, parameters: int, width: int) -> int:
    """Return what vLLM holds: the weights, with the head as a matrix of its own, and the cache."""
    weights = width * (parameters + shape.vocabulary * shape.hidden)
    return weights + int(vllm["kv_cache_gib"] * 2**30)


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
    inputs = {"o_proj": shape.queries, "down_proj": shape.inner}
    inputs |= dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), shape.hidden)
    layer = (width + 1) * sum(inputs.get(name, 0) for name in set(targets))
    return layer if is_recomputed else shape.layers * layer

"""The memory that a trial takes, part by part, from its config and the shape of its model.

The sizes of weights, gradients, optimiser and cache follow from the shape. That of logits is what
torch keeps for the backward pass of the vocabulary head; for activations see `pass_memory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rltune.forecast.model_shapes import Shape
from rltune.forecast.pass_memory import (
    DTYPE_BYTES,
    FLOAT32,
    pass_tokens,
    token_bytes,
    tree_bytes,
)
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.schema.trial import TrialConfig

MOST_TOKENS, MOST_LOGITS = 4096, 2**26  # held at once: policy.logprobs.chunk_of
LOGITS_COPIES = 4  # logits, log-softmax, their gradients
VLLM_ROWS, VLLM_TOKENS = 256, 16_384  # at a time: rollout.vllm_start, and vLLM's own choice
PROGRAM_BYTES = 630 * 10**6  # a worker's interpreter and libraries, by measurement: docs/cluster.md
VLLM_BYTES = 340 * 10**6  # vLLM's libraries and what it works with on a CPU, by measurement
DEVICE_BYTES = 600 * 2**20  # a CUDA context with the libraries' workspaces
GATE_ROWS = 256  # tasks of a gate at a time on a CPU
PART_NOTES = {
    "weights": "policy, critic and reference",
    "gradients": "of what is trained",
    "optimizer": "AdamW's two moments",
    "kv_cache": "if every conversation fills its context",
    "engine": "its own weights and cache, and what it works with",
    "rounded": "weights in bfloat16, of one pass",
    "activations": "of a micro-batch",
    "logits": "of a chunk of tokens",
    "heap": "freed in a pass, too small to be used again",
    "program": "Python and its libraries",
}

PART_NAMES = tuple(PART_NOTES)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that a trial is expected to hold when it holds most."""

    weights: int  # policy, critic and reference, and what the engine `torch` keeps rounded on a GPU
    gradients: int  # of what is trained
    optimizer: int  # AdamW's two moments of what is trained
    kv_cache: int  # keys and values of all conversations at their full length
    activations: int  # what is kept for the backward pass of the largest micro-batch
    logits: int  # of one chunk of tokens over the vocabulary
    program: int  # what a process holds before it has a model
    engine: int = 0  # beside the trainer: its weights and cache, with vLLM or its own process
    rounded: int = 0  # weights in bfloat16 that a pass of one backbone makes of those in float32
    heap: int = 0  # on a CPU, what a forward pass frees: see `heap_bytes`
    is_engine_kept: bool = False  # whether the engine and its cache stay during updates
    is_engine_apart: bool = False  # whether the engine has its own process and GPU
    shared_engine: int = 0  # what all trials share, in none of the sums of one

    @property
    def parts(self) -> Mapping[str, int]:
        """Every part by its name, those that take nothing left out."""
        amounts = {name: int(getattr(self, name)) for name in PART_NAMES}
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def peak(self) -> int:
        """The most at a time in the trial's process: training and generating take turns."""
        held = self.weights + self.gradients + self.optimizer + self.program
        generating = self.kv_cache + (0 if self.is_engine_apart else self.engine)
        updating = self.rounded + self.activations + self.logits + self.heap
        if self.is_engine_kept:
            return held + generating + updating
        return held + max(generating, updating)

    @property
    def fullest(self) -> int:
        """The most that one GPU holds."""
        return max(self.peak, self.engine + self.program) if self.is_engine_apart else self.peak


def body_of(shape: Shape, parameters: int) -> int:
    """Return the parameters of the layers: all but embeddings and head."""
    return parameters - shape.vocabulary * shape.hidden * (1 if shape.is_tied else 2)


def has_own_critic(config: TrialConfig) -> bool:
    """Return whether a critic trains a copy of the policy's backbone."""
    return config.advantage.kind in CRITIC_KINDS and config.critic.backbone == "own"


def memory_plan(config: TrialConfig, shape: Shape, *, parameters: int, trained: int) -> MemoryPlan:
    """Return the memory of a trial.

    weights      F + 4 (A + C), and 4 A more with a copy of the start
    gradients    4 (A + C),  optimizer 8 (A + C)
    kv_cache     2 L K b, for each token of the conversations that are generated together (torch)

    with A trained parameters of the policy and C of the critic, F bytes that are frozen, and b the
    bytes of a number of the computation.

    Args:
        config: Resolved config.
        shape: Of the model.
        parameters: Of the policy without adapters.
        trained: A, those that training changes.

    """
    rollout, width = config.rollout, DTYPE_BYTES[config.policy.dtype]
    is_lora, body = bool(config.policy.lora.rank), body_of(shape, parameters)
    # Frozen linear layers are stored as they are computed with: policy.precision.round_frozen.
    frozen = width * body + FLOAT32 * (parameters - body) if is_lora else 0
    rounded = width * (trained if is_lora else body) if width < FLOAT32 else 0
    learned = trained + _critic_parameters(config, shape, trained)
    references = trained if config.loss.use_kl_loss or config.gate.start_kl else 0
    batch, sampled = pass_tokens(config, shape)
    chunk = min(sampled, MOST_TOKENS, max(1, MOST_LOGITS // shape.vocabulary))
    kept_bytes, freed_bytes = token_bytes(config, shape)
    on_device, is_vllm = config.resources.gpus > 0, rollout.engine == "vllm"
    is_own = config.resources.engine != "shared"
    is_shared = config.resources.engine == "shared_by_sweep"
    adapters = trained if is_lora else 0
    is_here = not (is_vllm or is_own)  # the engine samples with the trainer's weights
    kept = rounded if on_device and is_here else 0
    amounts = {"parameters": parameters, "adapters": adapters, "width": width}
    engine = _engine_bytes(config, shape, **amounts)
    return MemoryPlan(
        weights=frozen + FLOAT32 * (learned + references) + kept,
        gradients=FLOAT32 * learned,
        optimizer=2 * FLOAT32 * learned,
        kv_cache=_cache_bytes(config, shape, width) if is_here else 0,
        engine=0 if is_shared else engine * (1 if on_device else rollout.replicas),
        activations=batch * kept_bytes + tree_bytes(config, shape),
        logits=LOGITS_COPIES * FLOAT32 * chunk * shape.vocabulary,
        program=DEVICE_BYTES if on_device else PROGRAM_BYTES * (1 + _own_processes(config)),
        rounded=rounded,
        heap=batch * freed_bytes,
        # On a CPU both have one machine's memory.
        is_engine_apart=is_own and not is_shared and on_device,
        shared_engine=engine + (DEVICE_BYTES if on_device else PROGRAM_BYTES) if is_shared else 0,
        is_engine_kept=not is_here and not (is_vllm and on_device and rollout.vllm.sleep),
    )


def client_plan() -> MemoryPlan:
    """Return the memory of a trial whose model a service holds: that of its program."""
    return MemoryPlan(0, 0, 0, 0, 0, 0, program=PROGRAM_BYTES)


def _critic_parameters(config: TrialConfig, shape: Shape, trained: int) -> int:
    """Return what a critic trains: a backbone, or D x 2 D and 2 D x 1 on the policy's."""
    if has_own_critic(config):
        return trained
    is_on = config.advantage.kind in CRITIC_KINDS
    return 2 * shape.hidden * (shape.hidden + 1) + 2 * shape.hidden + 1 if is_on else 0


def _rows(config: TrialConfig) -> tuple[int, int]:
    """Return the conversations of a step and of a gate that the engine `torch` plays at once."""
    tasks = config.gate.tasks
    return config.rollout.groups * config.rollout.group_size, min(
        tasks, gate_at_once(config) or tasks
    )


def gate_at_once(config: TrialConfig) -> int | None:
    """Return how many tasks of a gate are played at a time; None plays all.

    On a CPU more are no faster, and their keys and values would be the most that a small trial
    holds.
    """
    is_on_cpu = config.rollout.engine == "torch" and config.resources.gpus == 0
    return GATE_ROWS if is_on_cpu else None


def _cache_bytes(config: TrialConfig, shape: Shape, width: int) -> int:
    """Return the keys and values of full conversations."""
    tokens = max(_rows(config)) * config.rollout.max_context
    return int(2 * shape.layers * shape.keys * width * tokens)


def _graph_bytes(config: TrialConfig, shape: Shape) -> int:
    """Return the logits that CUDA graphs write: all to one place."""
    if config.resources.gpus == 0:
        return 0
    return int(max(_rows(config)) * shape.vocabulary * FLOAT32)


def _own_processes(config: TrialConfig) -> int:
    """Return the processes of engines beside the trial's: of one in parts, one more than parts."""
    rollout = config.rollout
    if config.resources.engine != "own":  # one that trials share is counted once, for all
        return 0
    parts = rollout.vllm.tensor_parallel if rollout.engine == "vllm" else 1
    return rollout.replicas * (1 + parts if parts > 1 else 1)


def _engine_bytes(
    config: TrialConfig, shape: Shape, *, parameters: int, adapters: int, width: int
) -> int:
    """Return what an engine holds beside the trainer, or in a process of its own.

    On GPUs it is what one of them holds, on a CPU what all parts of it do.
    """
    if config.rollout.engine == "vllm":
        return _vllm_bytes(config, shape, parameters=parameters, adapters=adapters, width=width)
    graphs = _graph_bytes(config, shape)
    if config.resources.engine == "shared":
        return graphs
    # A copy of the policy with the head as a matrix of its own; linear layers are rounded.
    body = body_of(shape, parameters)
    rest = parameters - body + (shape.vocabulary * shape.hidden if shape.is_tied else 0)
    copy = width * (body + adapters) + FLOAT32 * rest
    return copy + graphs + _cache_bytes(config, shape, width)


def _vllm_bytes(
    config: TrialConfig, shape: Shape, *, parameters: int, adapters: int, width: int
) -> int:
    """Return what vLLM holds: weights, with the head as a matrix of its own, cache, and work.

    Each of `tensor_parallel` parts holds its share of the weights, and the rest for itself.

    On a GPU it works with the logits of its rows in float32, as they are, scaled and as logprobs,
    and with the widest tensors of a layer for all tokens of a pass: the MLP's gate, up and product.
    """
    head = shape.vocabulary * shape.hidden if shape.is_tied else 0
    weights, parts = width * (parameters + head + adapters), config.rollout.vllm.tensor_parallel
    cache = int(config.rollout.vllm.kv_cache_gib * 2**30)
    if config.resources.gpus == 0:
        return weights + parts * (cache + VLLM_BYTES)
    logits = 3 * FLOAT32 * VLLM_ROWS * shape.vocabulary
    return (weights + 3 * shape.inner * width * VLLM_TOKENS) // parts + cache + logits

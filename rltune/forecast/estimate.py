"""How long a trial would take on a GPU, before any run has measured it.

Two figures. `least` is what the card cannot beat: decoding reads the weights and the cached keys
and values for every token, scoring and training do two operations per parameter and token in each
direction. `about` adds what engines and trainers lost beyond that, measured once (`_SEEN`).

Both are for the longest that the config allows: every response fills `max_response_tokens`, and
every conversation its `max_context`. Left out: environments, optimiser, weight swaps, checkpoints,
the start.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.forecast.gpus import Card
from rltune.forecast.memory import (
    DTYPE_BYTES,
    FLOAT32,
    VLLM_ROWS,
    Shape,
    body_of,
    has_own_critic,
    sampled_tokens,
)


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds.

    Attributes:
        least: By the card's limits.
        about: As measured shares of them say; None where nothing of the kind was measured.

    """

    least: float
    about: float | None

    def __add__(self, other: "Span") -> "Span":
        """Return one after the other."""
        known = self.about is not None and other.about is not None
        about = (self.about or 0.0) + (other.about or 0.0) if known else None
        return Span(self.least + other.least, about)

    def times(self, count: float) -> "Span":
        """Return the span of so many."""
        return Span(count * self.least, None if self.about is None else count * self.about)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time of a trial.

    Attributes:
        card: Name of the card.
        step: A training step.
        gate: A held-out evaluation.
        trial: All steps and gates.

    """

    card: str
    step: Span
    gate: Span
    trial: Span


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was measured of a model of a size, 128 rows with prompts of 300 tokens, on one H200.

    Attributes:
        parameters: Its size.
        vllm_s: Seconds of a pass of vLLM beyond the card's limit, compiled.
        lora_s: The same with an adapter.
        torch_share: The limit's share of a pass that is one CUDA graph.
        train_share: Share of 989 TFLOP/s in forward and backward passes of 16 x 1,024 tokens.

    """

    parameters: float
    vllm_s: float
    lora_s: float
    torch_share: float
    train_share: float


# A pass (one token for each of 128 rows) reads all weights in two bytes and the keys and values of
# 128 x 300 tokens, at 4.8 TB/s:
#   0.5 B: 494.0 M x 2 + 38,400 x 12,288 B = 1.460 GB, 0.304 ms
#   3 B:  3,086 M x 2 + 38,400 x 36,864 B = 7.588 GB, 1.581 ms
# Tokens per second were                0.5 B                        3 B
#   vLLM         15,445: 8.287 ms a pass, 7.98 more    20,444:  6.261 ms,  4.68 more
#   with LoRA    15,775: 8.114 ms,        7.81 more     7,662: 16.706 ms, 15.12 more
#   CUDA graph   14,323: 8.937 ms, the limit is 3.4 %   5,179: 24.715 ms, the limit is 6.4 %
# Beyond the limit vLLM takes a fixed time: at 1,024 tokens of context, 0.5 B, this gives 15,020
# tokens/s, and 13,960 were measured (by a share it would be 8,640). A graph over a cache of fixed
# places keeps its share: 2.9 % there.
# LoRA training does 4 operations per parameter and token, 6 when activations are computed again:
#   0.5 B: 52,800 tokens/s x 4 and 36,500 x 6 x 494.0 M = 104.3 and 108.2 TFLOP/s: 10.7 %
#   3 B:   16,000 x 4 and 11,400 x 6 x 3,086 M = 197.5 and 211.1 TFLOP/s: 20.7 %
_SEEN = (
    _Seen(494.0e6, vllm_s=7.98e-3, lora_s=7.81e-3, torch_share=0.034, train_share=0.107),
    _Seen(3_086e6, vllm_s=4.68e-3, lora_s=15.12e-3, torch_share=0.064, train_share=0.207),
)


@dataclass(frozen=True, slots=True)
class _Model:
    """Sizes that decide the work.

    Attributes:
        body: Parameters of the layers: used for every token.
        head: Those of the vocabulary head: used where a token is sampled. The trainer and the
            engine `torch` compute it in float32, vLLM in the format of the computation.
        token: Bytes of keys and values of a token.
        width: Bytes of a number of the computation.

    """

    body: int
    head: int
    token: int
    width: int


@dataclass(frozen=True, slots=True)
class _Talk:
    """A conversation at its longest.

    Attributes:
        turns: Responses.
        sampled: Tokens of all of them.
        observed: All other tokens.

    """

    turns: int
    sampled: int
    observed: int

    @property
    def length(self) -> int:
        """All tokens."""
        return self.sampled + self.observed

    @property
    def mean_context(self) -> float:
        """Tokens in the cache when one is sampled, the mean over all that are.

        Turn k of K has read k observations of o tokens and k - 1 responses of r, and half its own:
        the mean of k o + (k - 1) r + r / 2 is o (K + 1) / 2 + r K / 2.
        """
        o, r = self.observed / self.turns, self.sampled / self.turns
        return o * (self.turns + 1) / 2 + r * self.turns / 2


def estimate(config: Mapping[str, Any], shape: Shape, *, parameters: int, card: Card) -> Estimate:
    """Return the time of a trial on one card.

    Args:
        config: Resolved config.
        shape: Of the model.
        parameters: Of the policy without adapters.
        card: What it runs on.

    """
    width = DTYPE_BYTES[config["policy"]["dtype"]]
    head = shape.vocabulary * shape.hidden
    token = 2 * shape.layers * shape.keys * width
    model = _Model(body_of(shape, parameters), head, token, width)
    seen = min(_SEEN, key=lambda row: abs(math.log(parameters / row.parameters)))
    rollout, gate, steps = config["rollout"], config["gate"], int(config["budget"]["steps"])
    groups, rows = rollout["groups"], rollout["groups"] * rollout["group_size"]
    collect = _play(config, model, card, seen, rows=rows, prompts=groups)
    learn = _learn(config, model, card, seen, rows=rows)
    step = collect + learn
    heldout = _play(config, model, card, seen, rows=gate["tasks"], prompts=gate["tasks"])
    gates = 1 + math.ceil(steps / gate["every"])
    return Estimate(card.name, step, heldout, step.times(steps) + heldout.times(gates))


def talk_of(config: Mapping[str, Any]) -> _Talk:
    """Return the longest conversation that a config allows."""
    context, response = config["rollout"]["max_context"], config["rollout"]["max_response_tokens"]
    turns = config["env"].get("max_turns", math.ceil(context / response))  # an env of one's own
    sampled = sampled_tokens(config)
    return _Talk(turns, sampled, context - sampled)


def _play(
    config: Mapping[str, Any], model: _Model, card: Card, seen: _Seen, *, rows: int, prompts: int
) -> Span:
    """Return the time of conversations, side by side: reading their tokens, and sampling."""
    talk, is_vllm = talk_of(config), config["rollout"]["engine"] == "vllm"
    speed = card.flops_float32 if model.width == FLOAT32 else card.flops
    at_once = _vllm_rows(config, model, talk) if is_vllm else rows
    each = min(float(rows), at_once)
    # A group's first observation is one text, and computed once.
    read = (prompts + rows * (talk.turns - 1)) * talk.observed / talk.turns
    read_s = read * 2 * model.body / speed
    head_width = model.width if is_vllm else FLOAT32
    moved: float = model.width * model.body + head_width * model.head
    moved += each * talk.mean_context * model.token
    head_speed = speed if is_vllm else card.flops_float32
    computed_s = each * 2 * (model.body / speed + model.head / head_speed)
    pass_s = max(moved / card.bandwidth, computed_s)
    about_s: float | None = pass_s / seen.torch_share
    if is_vllm:
        lost_s = seen.lora_s if config["policy"]["lora"]["rank"] else seen.vllm_s
        about_s = None if config["rollout"]["vllm"]["eager"] else pass_s + lost_s
    passes = Span(pass_s, about_s).times(talk.sampled * rows / each)
    return passes + Span(read_s, read_s / seen.train_share)


def _vllm_rows(config: Mapping[str, Any], model: _Model, talk: _Talk) -> float:
    """Return how many conversations vLLM plays at a time, the mean over their length."""
    cache = float(config["rollout"]["vllm"]["kv_cache_gib"]) * 2**30
    return min(float(VLLM_ROWS), cache / (talk.mean_context * model.token))


def _learn(config: Mapping[str, Any], model: _Model, card: Card, seen: _Seen, *, rows: int) -> Span:
    """Return the time of scoring and training a batch.

    Passes over a weight: 1 forward, 1 for the gradient of its input, 1 for its own, which a frozen
    one has not, 1 to compute its output again; 2 operations each. Logits are always computed again.
    """
    talk, optim = talk_of(config), config["optim"]
    is_frozen = bool(config["policy"]["lora"]["rank"])
    trained = 2 if is_frozen else 3
    again = 1 if optim["gradient_checkpointing"] else 0
    critics = 1 if has_own_critic(config) else 0
    scores = 1 + bool(config["loss"]["use_kl_loss"])  # policy and reference
    body = scores + critics + optim["epochs"] * (1 + critics) * (trained + again)
    head = scores + optim["epochs"] * (trained + 1)
    speed = card.flops_float32 if model.width == FLOAT32 else card.flops
    body_s = 2 * model.body * body * rows * talk.length / speed
    head_s = 2 * model.head * head * rows * talk.sampled / card.flops_float32
    return Span(body_s + head_s, body_s / seen.train_share + head_s)

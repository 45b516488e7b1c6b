"""The published protocol of RAGEN-2's intervention sweeps, stated once, and what differs here.

Source: github.com/mll-lab-nu/RAGEN at 20daedc47558 (config/base.yaml, _2_sokoban.yaml,
_3_frozen_lake.yaml, scripts/runs/run_*_sweep.sh) and its veRL at d62da4950573; the deleted script
run_frozen_lake_rand_top_p_sweep.sh at 8b9d50f.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.spec.identity import flatten, same_value
from rltune.spec.load import load_sweep
from rltune.spec.problems import show

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"
PROFILE = "paper"

COMMON: Mapping[str, Any] = {
    "policy.dtype": "bfloat16",
    "policy.lora.rank": 0,
    "rollout.engine": "vllm",
    "rollout.groups": 8,
    "rollout.group_size": 16,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.top_k": -1,
    "rollout.max_response_tokens": 400,
    "rollout.max_context": 3600,
    "rollout_filter.strategy": "top_p",
    "rollout_filter.type": "largest",
    "rollout_filter.metric": "reward_variance",
    "rollout_filter.ddof": 1,
    "rollout_filter.on_drop": "drop",
    "rollout_filter.loss_scaling": "none",
    "rollout_filter.empty_stop_steps": 5,
    "rollout_correction.kind": "none",
    "advantage.kind": "gae",
    "advantage.gamma": 1.0,
    "advantage.lam": 1.0,
    "loss.kind": "ppo",
    "loss.clip_low": 0.2,
    "loss.clip_high": 0.28,
    "loss.dual_clip": 3.0,
    "loss.aggregation": "token-mean",
    "critic.backbone": "own",
    "critic.lr": 1e-5,
    "critic.value_clip": 0.5,
    "critic.warmup_steps": 0,
    "optim.lr": 1e-6,
    "optim.betas": [0.9, 0.999],
    "optim.weight_decay": 0.01,
    "optim.grad_clip": 1.0,
    "optim.mini_batch_size": 32,
    "optim.minibatch_by": "row",
    "optim.epochs": 1,
    "gate.every": 10,
    "gate.tasks": 512,
    "gate.temperature": 0.5,
    "budget.steps": 400,
    "early_stop.reward_std_share": 0.1,
    "early_stop.reward_std_steps": 10,
    "early_stop.heldout_success": 0.01,
    "early_stop.heldout_gates": 5,
    "collapse.every": 5,
    "collapse.prompts": 8,
    "checkpoint.every": None,
    "env.observation": "grid_coord",
    "env.format_penalty": -0.1,
    "env.min_difficulty": 1,
    "env.max_turns": 5,
    "env.max_actions_per_turn": 2,
    "env.max_actions": 10,
}
"""Of all sweeps below, in our keys; null is off."""

OF_ENV: Mapping[str, Mapping[str, Any]] = {
    "sokoban": {
        "policy.model": "Qwen/Qwen2.5-3B",
        "optim.micro_batch_size": 4,
        "rollout_filter.mode": "softmax",
        "env.size": 6,
        "env.boxes": 1,
        "env.search_depth": 300,
    },
    "frozen_lake": {
        "policy.model": "Qwen/Qwen2.5-3B-Instruct",
        "optim.micro_batch_size": 1,
        "loss.use_kl_loss": False,
        "env.size": 4,
        "env.frozen_probability": 0.9,
    },
}
"""Of the sweeps on one kind of env."""

_NO_FILTER = {"rollout_filter.value": 1.0, "rollout_filter.include_zero": True}
OF_SWEEP: Mapping[str, Mapping[str, Any]] = {
    "kl": {"loss.kl_type": "k1", "loss.entropy_coeff": 0.0, **_NO_FILTER},
    "kl_k1_as_published": {"loss.kl_type": "k1", "loss.entropy_coeff": 0.0, **_NO_FILTER},
    "entropy": {"loss.use_kl_loss": False, "loss.entropy_coeff": 0.0, **_NO_FILTER},
    "rv_filter": {
        "loss.use_kl_loss": True,
        "loss.kl_loss_coef": 0.001,
        "loss.kl_type": "k1",
        "loss.entropy_coeff": 0.001,
        **_NO_FILTER,
    },
    "frozenlake_slip": {
        "policy.model": "Qwen/Qwen2.5-3B",
        "loss.entropy_coeff": 0.0,
        "env.success_rate": 1.0,
        **_NO_FILTER,
    },
    "frozenlake_rv_filter_high_noise": {
        "rollout_filter.mode": "softmax",
        "loss.entropy_coeff": 0.001,
        "env.success_rate": 0.8,
        **_NO_FILTER,
    },
    "frozenlake_rv_filter_low_noise": {
        "rollout_filter.mode": "softmax",
        "loss.entropy_coeff": 0.001,
        "env.success_rate": 0.98,
        **_NO_FILTER,
    },
}
"""Of one sweep, its control."""

WHY: Mapping[str, str] = {
    "policy.model": "the published slip sweep is named after the base model, the filter sweeps "
    "after Instruct, and a profile has one model an env; `--set policy.model=Qwen/Qwen2.5-3B`",
    "loss.kl_type": "k1 as a loss has no expected gradient (S8.k1_loss); `kl_k1_as_published` "
    "runs it",
    "optim.micro_batch_size": "changes nothing but rounding here: a mean is taken over the mini "
    "batch, not over the micro batch",
    "checkpoint.every": "an interrupted trial of a day would be lost; no result depends on it",
}
"""Key -> why it is not as published. A test holds it to what really differs."""

NOT_KEYS: tuple[tuple[str, str, str, str], ...] = (
    (
        "tasks",
        "a fresh level a prompt, from seeds that depend on PYTHONHASHSEED; validation seeds "
        "123 to 634",
        "frozen, disjoint splits from a generator of our own",
        "a held-out rate must be of tasks that were never trained on",
    ),
    (
        "hardest level of Sokoban",
        "no bound: 0.8 % of the train levels need more than the 10 actions of an episode",
        "`env.max_actions`",
        "a level that cannot be solved teaches nothing",
    ),
    (
        "prompt",
        "RAGEN's wording, a legend of symbols with typing errors, `<think>` given",
        "the same parts, rules and limits in wording of our own",
        "the text of the original is not copied",
    ),
    (
        "responses of earlier turns",
        "stored as re-written text; actions past the limit cut without a penalty",
        "the sampled tokens; the same cut",
        "a ratio needs the tokens that were sampled",
    ),
    (
        "token-mean",
        "in each micro batch, then averaged",
        "over the mini batch",
        "the gradient must not depend on how a batch is cut",
    ),
    (
        "a batch after the filter",
        "filled up with copies of random rollouts to a multiple of the mini batch",
        "no copies; a last mini batch that is short",
        "a rollout counts once",
    ),
    (
        "slips within a group",
        "each of the 16 rollouts draws the same slips from the task's seed",
        "one luck a group, drawn anew at each visit of a task",
        "a policy cannot learn the slips of a lake by heart",
    ),
    (
        "collapse probe",
        "64 sampled turns of a step",
        "one episode of each prompt of a step",
        "the same estimators on fewer pairs; it steers nothing",
    ),
    ("seeds", "one run a point", "three", "no claim can be made from one"),
)
"""What is no config key: (what, published, here, why)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that profile `paper` sets otherwise than the published protocol."""

    key: str
    published: Any
    here: Any
    sweeps: tuple[str, ...]


def published(sweep: str, kind: str) -> dict[str, Any]:
    """Return the published value of every key that is stated, for the control of a sweep."""
    return {**COMMON, **OF_ENV[kind], **OF_SWEEP[sweep]}


def differences() -> tuple[Difference, ...]:
    """Return what the resolved configs of the shipped sweeps set otherwise, by key."""
    found: dict[str, Difference] = {}
    for sweep, key, wanted, here in _unequal():
        seen = found.get(key)
        sweeps = (*seen.sweeps, sweep) if seen else (sweep,)
        found[key] = Difference(key, wanted, here, sweeps)
    return tuple(found.values())


def _unequal() -> Iterator[tuple[str, str, Any, Any]]:
    for sweep in OF_SWEEP:
        config = load_sweep(SWEEPS / f"{sweep}.yaml", profile=PROFILE).control.config
        flat = flatten(config)
        for key, wanted in published(sweep, config["env"]["kind"]).items():
            if not same_value(flat[key], wanted):
                yield sweep, key, wanted, flat[key]


def published_table() -> str:
    """Return every difference as one table: keys, as resolved, then what is no key."""
    head = "| what | published | here | in | why |\n|---|---|---|---|---|"
    keys = [
        f"| `{one.key}` | `{show(one.published)}` | `{show(one.here)}` | {_sweeps(one.sweeps)} | "
        f"{WHY[one.key]} |"
        for one in differences()
    ]
    others = [f"| {what} | {then} | {here} | all | {why} |" for what, then, here, why in NOT_KEYS]
    return "\n".join([head, *keys, *others])


def _sweeps(names: tuple[str, ...]) -> str:
    return "all" if len(names) == len(OF_SWEEP) else ", ".join(f"`{name}`" for name in names)


def protocol_table() -> str:
    """Return every published value of the protocol, by where it holds."""
    parts = [("all", COMMON), *OF_ENV.items(), *OF_SWEEP.items()]
    rows = [
        f"| `{key}` | `{show(value)}` | {where} |"
        for where, part in parts
        for key, value in part.items()
    ]
    return "\n".join(["| key | published | where |", "|---|---|---|", *rows])

"""A summary of the seconds of `gpu.py`: shares of the GPU's limits, targets met or missed.

Decoding is bound by memory bandwidth: every token reads the weights and the cached keys and values
once. Training is bound by arithmetic: 6 operations a parameter for each trained token (4 where the
weights are frozen under adapters), the head's for sampled tokens alone. Attention over the context
is left out: a few percent here.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import torch

from rltune.forecast.model_shapes import Shape, shape_of
from rltune.forecast.pass_memory import DTYPE_BYTES, FLOAT32
from rltune.policy.load import Policy
from rltune.trainer.memory import memory_used

PARTS = ("collect", "score", "update", "sync", "eval")
SYNC_SHARE = 0.02  # of a step, at most
STEP_S = {"vllm": 15.0, "torch": 30.0}  # on one H100, 0.5 B parameters, 128 rollouts x 5 turns
TARGET_SIZE = {"model": "Qwen/Qwen2.5-0.5B", "rows": 128, "turns": 5}


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass
class Times:
    """Seconds of each part of the counted steps, and what was done in them."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: int = 0
    sampled: int = 0  # tokens
    trained: int = 0  # tokens of the batches, prompts too
    passes: int = 0  # tokens a row, all rows at once: each reads the weights once
    read: float = 0.0  # cached tokens that those passes read
    gaps: list[tuple[float, float]] = field(default_factory=list)  # mean and largest of each step

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        synchronize()
        began = perf_counter()
        yield
        synchronize()
        self.seconds[name] += perf_counter() - began


def summary(
    times: Times, engine: str, policy: Policy, args: argparse.Namespace, ceilings: dict
) -> dict:
    shape, steps = shape_of(policy.model.config.to_dict()), times.steps
    gb_s = moved_bytes(times, engine, policy, shape, args) / times.seconds["collect"] / 1e9
    tflop_s = train_operations(times, policy, shape) / times.seconds["update"] / 1e12
    step_s = sum(times.seconds[part] for part in PARTS if part != "eval") / steps
    sync_share = times.seconds["sync"] / steps / step_s
    return {
        "parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "step_s": step_s,
        "part_s": {part: times.seconds[part] / steps for part in PARTS},
        "sync_share": sync_share,
        "targets": targets(engine, args, step_s=step_s, sync_share=sync_share),
        "logprob_gap_mean": sum(mean for mean, _ in times.gaps) / steps,
        "logprob_gap_max": max(largest for _, largest in times.gaps),
        "sampled_tokens_s": times.sampled / times.seconds["collect"],
        "trained_tokens_s": times.trained / times.seconds["update"],
        "memory_gib": memory_used(),
        "decode_gb_s": gb_s,
        "decode_share": gb_s / (ceilings["sheet_gb_s"] or ceilings["copy_gb_s"]),
        "train_tflop_s": tflop_s,
        "train_share": tflop_s / (ceilings["sheet_tflop_s"] or ceilings["gemm_tflop_s"]),
    }


def split(policy: Policy, shape: Shape) -> tuple[int, int]:
    """Parameters of the layers, and of the head; a table of embeddings is only looked up."""
    head = shape.vocabulary * shape.hidden
    tables = head if policy.model.config.tie_word_embeddings else 2 * head
    return sum(p.numel() for p in policy.model.parameters()) - tables, head


def moved_bytes(
    times: Times, engine: str, policy: Policy, shape: Shape, args: argparse.Namespace
) -> float:
    """Each pass reads the weights in the format of the computation (the head of the torch engine is
    in float32), and the cached keys and values of every row."""
    layers, head = split(policy, shape)
    width = DTYPE_BYTES[args.dtype]
    weights = width * layers + (width if engine == "vllm" else FLOAT32) * head
    return times.passes * weights + times.read * 2 * shape.layers * shape.keys * width


def train_operations(times: Times, policy: Policy, shape: Shape) -> float:
    """Forward 2 a parameter and token, backward 2 to the inputs and 2 to weights that train."""
    layers, head = split(policy, shape)
    trained = sum(p.numel() for p in policy.model.parameters() if p.requires_grad)
    is_full = trained > layers
    in_layers = (6 * layers if is_full else 4 * layers + 2 * trained) * times.trained
    return in_layers + (6 if is_full else 4) * head * times.sampled


def targets(engine: str, args: argparse.Namespace, *, step_s: float, sync_share: float) -> dict:
    """Name -> whether it is met; those of a step's time hold for one size."""
    met = {f"sync under {SYNC_SHARE:.0%} of the step": sync_share < SYNC_SHARE}
    is_size = all(getattr(args, name) == value for name, value in TARGET_SIZE.items())
    if engine in STEP_S and is_size:
        met[f"step under {STEP_S[engine]:g} s"] = step_s < STEP_S[engine]
    return met


def print_report(report: dict) -> None:
    asked, ceilings = report["asked"], report["ceilings"]
    lora = f", LoRA rank {asked['lora']}" if asked["lora"] else ""
    print(
        f"{report['gpu']}, torch {report['torch']}: {asked['model']} {asked['dtype']}{lora}, "
        f"{asked['rows']} rollouts x {asked['turns']} turns x {asked['response']} tokens"
    )
    sheet = ceilings["sheet_gb_s"]
    known = f"{sheet} GB/s and {ceilings['sheet_tflop_s']} TFLOP/s" if sheet else "not in the table"
    print(
        f"at most: copy {ceilings['copy_gb_s']:.0f} GB/s, GEMM {ceilings['gemm_tflop_s']:.2f} "
        f"TFLOP/s measured; data sheet {known}"
    )
    for name, result in report["engines"].items():
        if "failed" in result:
            print(f"{name}: failed, {result['failed']}")
        else:
            _print_engine(name, result)


def _print_engine(name: str, result: dict) -> None:
    print(f"{name}: {result['step_s']:.2f} s a step, sync {result['sync_share']:.1%} of it", end="")
    print(f"; started in {result['start_s']:.1f} s")
    for target, is_met in result["targets"].items():
        print(f"  target   {target}: {'met' if is_met else 'MISSED'}")
    for part, seconds in result["part_s"].items():
        print(f"  {part:8} {seconds:8.3f} s")
    print(f"  sampled  {result['sampled_tokens_s']:8,.0f} tokens/s", end="")
    print(f"  decode {result['decode_gb_s']:.1f} GB/s, {result['decode_share']:.1%} of the limit")
    print(f"  trained  {result['trained_tokens_s']:8,.0f} tokens/s", end="")
    print(f"  {result['train_tflop_s']:.3f} TFLOP/s, {result['train_share']:.1%} of the limit")
    print(
        f"  logprobs of engine and trainer differ by {result['logprob_gap_mean']:.2g} on average,"
    )
    print(f"           and {result['logprob_gap_max']:.2g} at most")
    for key, gib in result["memory_gib"].items():
        print(f"  {key.removeprefix('perf/')} {gib:.2f} GiB")

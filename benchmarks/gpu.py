"""Time of a step on one GPU by parts, and its distance from the limits of that GPU.

    python benchmarks/gpu.py                         # 0.5 B parameters, 128 rollouts x 5 turns
    python benchmarks/gpu.py --engines torch,growing --json gpu.json
    python benchmarks/gpu.py --engines vllm --lora 32 --graphs
    python benchmarks/gpu.py --model tiny --rows 4 --turns 2 --response 4 --dtype float32  # a CPU

A Qwen2.5-architecture model with random weights plays turns of random tokens with the engine of a
trial, and trains on them as a trial does. The first step warms up and is not counted. Engines:
`torch` as a trial uses it (on CUDA one graph a token over a static cache), `growing` the
same without graphs, `vllm` where it is installed (`--graphs`: compiled, minutes to start). One that
fails does not lose the others. `gpu_session.sh` runs this on a machine that is lent for minutes.
"""

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from gpu_sheets import sheet_of
from gpu_summary import Times, print_report, summary, synchronize
from transformers import Qwen2Config, Qwen2ForCausalLM

from rltune.forecast.model_shapes import SHAPES, shape_of
from rltune.forecast.pass_memory import DTYPE_BYTES
from rltune.policy.decode import TransformersDecoder
from rltune.policy.load import Policy, assemble
from rltune.policy.lora import add_adapter
from rltune.policy.precision import round_frozen, set_compute_dtype
from rltune.policy.tiny import tiny_model, tiny_tokenizer
from rltune.rollout.engine import Completion, Engine, Request, SamplingParams
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.micro_batches import cut_batch, limit_of
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.train_state import TrainState, make_train_state, score_batch
from rltune.types import Episode, Turn

ROOT = Path(__file__).parents[1]


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ceilings = ceilings_of(device)
    report = {"gpu": ceilings["gpu"], "torch": torch.__version__, "ceilings": ceilings}
    report |= {"asked": vars(args) | {"json": str(args.json)}, "engines": {}}
    for engine in args.engines.split(","):
        try:
            report["engines"][engine] = run(engine, args, device, ceilings)
        except Exception as error:  # what the others show must not be lost
            traceback.print_exc()
            report["engines"][engine] = {"failed": f"{type(error).__name__}: {error}"}
        if args.json:
            args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    print_report(report)
    sys.exit(int(any("failed" in result for result in report["engines"].values())))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B", choices=["tiny", *SHAPES])
    parser.add_argument("--engines", default="torch")
    parser.add_argument("--rows", type=int, default=128, help="rollouts a step")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the first observation")
    parser.add_argument("--between", type=int, default=40, help="tokens of each later observation")
    parser.add_argument("--response", type=int, default=100, help="tokens of each response")
    parser.add_argument("--steps", type=int, default=2, help="counted steps")
    parser.add_argument("--micro", type=int, default=8, help="rollouts per forward pass")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--graphs", action="store_true", help="vLLM with CUDA graphs, not eager")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run(name: str, args: argparse.Namespace, device: str, ceilings: dict) -> dict:
    config, policy = config_of(args), policy_of(args, device)
    train_state = make_train_state(policy, config)
    synchronize()
    began = time.perf_counter()
    engine = engine_of(name, policy, config, args)
    synchronize()
    start_s = time.perf_counter() - began
    times = Times()
    try:
        for step in range(args.steps + 1):
            if step == 1:
                times = Times()  # the first one compiled, captured and allocated
            one_step(engine, train_state, config, args, times, step=step + 1)
    finally:
        engine.close()
    return {"start_s": start_s} | summary(times, name, policy, args, ceilings)


def config_of(args: argparse.Namespace) -> TrialConfig:
    """The shipped KL sweep's control at this size, with GRPO: one model is trained."""
    sets = {
        "advantage.kind": "grpo",
        "rollout.groups": max(1, args.rows // 16),
        "rollout.group_size": min(16, args.rows),
        "optim.micro_batch_size": min(args.micro, args.rows),
        "optim.tokens_per_micro_batch": args.micro * context(args),  # as many rows at full length
        "optim.mini_batch_size": min(args.rows, max(args.rows // 4, args.micro)),
        "policy.dtype": args.dtype,
        "policy.lora.rank": args.lora,
        "rollout.max_context": context(args),
    }
    overrides = [f"{key}={value}" for key, value in sets.items()]
    loaded = load_sweep(ROOT / "sweeps" / "kl.yaml", overrides=overrides, seeds=[0])
    return TrialConfig.model_validate(dict(expand(loaded)[0].config))


def context(args: argparse.Namespace) -> int:
    return args.prompt + (args.turns - 1) * args.between + args.turns * args.response


def policy_of(args: argparse.Namespace, device: str) -> Policy:
    if args.model == "tiny":
        model = tiny_model("sokoban")
    else:
        shape = {key: value for key, value in SHAPES[args.model].items() if key != "model_type"}
        with torch.device(device):
            model = Qwen2ForCausalLM(Qwen2Config(**shape, max_position_embeddings=32768))
    if args.lora:
        add_adapter(model, config_of(args).policy.lora, seed=0)
    model.to(device).eval()
    set_compute_dtype(model, args.dtype)
    round_frozen(model)
    return assemble(model, tiny_tokenizer("sokoban"), template="plain", is_bare=True)


def engine_of(name: str, policy: Policy, config: TrialConfig, args: argparse.Namespace) -> Engine:
    if name == "torch":
        return TorchEngine(policy.decoder())
    if name == "growing":
        parts = {"pad_id": policy.pad_id, "end_ids": policy.end_ids}
        return TorchEngine(TransformersDecoder(policy.model, **parts))
    if name != "vllm":
        raise SystemExit(f"--engines: {name!r} is none of torch, growing, vllm")
    from rltune.trainer.engines import make_engine

    shape = shape_of(policy.model.config.to_dict())
    held = args.rows * context(args) * 2 * shape.layers * shape.keys * DTYPE_BYTES[args.dtype]
    sets = {"eager": not args.graphs, "kv_cache_gib": 0.25 + 1.1 * held / 2**30}
    vllm = config.rollout.vllm.model_copy(update=sets)
    rollout = config.rollout.model_copy(update={"engine": "vllm", "vllm": vllm})
    return make_engine(config.model_copy(update={"rollout": rollout}), policy)


def one_step(
    engine: Engine,
    train_state: TrainState,
    config: TrialConfig,
    args: argparse.Namespace,
    times: Times,
    *,
    step: int,
) -> None:
    with times.part("collect"):
        batch = play(engine, train_state.policy, args, times, seed=step)
        engine.release()
    times.steps += 1
    times.trained += int(batch.lengths_N.sum())
    parts = cut_batch(batch, limit_of(train_state.policy, config))
    with times.part("score"):
        signals = score_batch(train_state, batch, temperature=1.0, parts=parts)
    mask_NT = batch.action_mask_NT
    gaps = (batch.rollout_logprobs_NT - signals.old_logp_NT)[mask_NT].abs()
    times.gaps.append((gaps.mean().item(), gaps.max().item()))
    advantages_NT = torch.randn_like(signals.old_logp_NT).masked_fill(~mask_NT, 0.0)
    with times.part("update"):
        update(
            train_state,
            MiniBatch(batch, signals, Credit(advantages_NT)),
            config,
            step=step,
            kl_coef=0,
        )
    with times.part("sync"):
        engine.sync()
        engine.generate([Request(0, [1, 2], 0)], SamplingParams(1.0, 1, config.rollout.max_context))
    with times.part("eval"):
        play(engine, train_state.policy, args, Times(), seed=10_000)


def play(
    engine: Engine, policy: Policy, args: argparse.Namespace, times: Times, *, seed: int
) -> TokenBatch:
    """Play every conversation to its end; all see random observations of the same lengths."""
    rng = np.random.default_rng(seed)
    vocabulary = policy.model.config.vocab_size
    groups = np.arange(args.rows) // min(16, args.rows)
    first = rng.integers(2, vocabulary, (groups.max() + 1, args.prompt)).tolist()
    asked = [first[group] for group in groups]
    so_far = [list(ids) for ids in asked]
    turns: list[list[Turn]] = [[] for _ in asked]
    params = SamplingParams(1.0, args.response, context(args))
    for _ in range(args.turns):
        requests = [Request(i, ids, seed * 1000 + i) for i, ids in enumerate(so_far)]
        completions = engine.generate(requests, params)
        longest = max(len(completion.token_ids) for completion in completions)
        times.sampled += sum(len(completion.token_ids) for completion in completions)
        times.passes += longest
        times.read += (
            sum(len(ids) + len(c.token_ids) / 2 for ids, c in zip(so_far, completions, strict=True))
            * longest
        )
        for i, completion in enumerate(completions):
            turns[i].append(turn_of(asked[i], completion))
            asked[i] = rng.integers(2, vocabulary, args.between).tolist()
            so_far[i] += [*completion.token_ids, *asked[i]]
    episodes = [
        Episode(str(i), 0, int(group), 0, tuple(own), True, False, False, 0.0)
        for i, (group, own) in enumerate(zip(groups, turns, strict=True))
    ]
    return to_batch(episodes, pad_id=policy.pad_id).to(policy.model.device)


def turn_of(asked: list[int], completion: Completion) -> Turn:
    sampled = (completion.token_ids, completion.logprobs, completion.stop_reason)
    return Turn(tuple(asked), *sampled, "", "", (), 0.0, True, 0, 0)


def ceilings_of(device: str) -> dict:
    """The limits of the GPU: by its data sheet where known, and as measured now."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    sheet = sheet_of(gpu)
    big, side = (2**30, 8192) if device == "cuda" else (2**24, 512)
    source = torch.zeros(big, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy_s = fastest(lambda: target.copy_(source))
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    left = torch.ones(side, side, dtype=dtype, device=device)
    gemm_s = fastest(lambda: left @ left)
    return {
        "gpu": gpu,
        "sheet_gb_s": sheet and sheet.gb_s,
        "sheet_tflop_s": sheet and sheet.tflop_s,
        "copy_gb_s": 2 * big / copy_s / 1e9,
        "gemm_tflop_s": 2 * side**3 / gemm_s / 1e12,
    }


def fastest(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(6):
        synchronize()
        began = time.perf_counter()
        work()
        synchronize()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    main()

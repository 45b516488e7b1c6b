"""Time to play episodes with vLLM: turns in lockstep against episodes that go on as they finish.

    python benchmarks/streaming.py [--episodes 64] [--turns 4] [--tokens 64] [--repeats 5]

Needs vLLM's CPU build. An untrained tiny policy, whose responses end by chance: their lengths
differ as those of a real one do. Once the environments only compute; once each call waits, some
longer than others. The ways take turns in one process; each row is the median of their ratios to
lockstep of the same repeat, with the smallest and the largest.

`repeatable` is what vLLM does on a CPU, where a trial repeats to the last bit: environments that
wait are called while others decode, but the next requests go in together. `continuous` is what it
does on a GPU.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from rltune.maths.streams import stream_seed
from rltune.policy.load import Policy, assemble
from rltune.policy.serve import ServedPolicy
from rltune.policy.tiny import tiny_model, tiny_tokenizer
from rltune.rollout.engine import Batching, Completion, Engine, SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.lockstep import Lockstep
from rltune.rollout.vllm_engine import VllmEngine
from rltune.rollout.vllm_start import VllmSettings
from rltune.spec.schema.trial import LoraConfig
from rltune.types import Episode
from rltune_envs.base import Step, Task, TextEnv

CONTEXT = 1024


class Continuous:
    """vLLM as on a GPU: requests join at any time."""

    batching = Batching.CONTINUOUS

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self.generate, self.sync = engine.generate, engine.sync
        self.release, self.close = engine.release, engine.close
        self.submit, self.abandon = engine.submit, engine.abandon

    def advance(self) -> list[tuple[int, Completion]]:
        return self._engine.advance()


class Waits(TextEnv):
    """Some turns that each wait, by chance, up to twice the mean."""

    def __init__(self, *, turns: int, mean_s: float) -> None:
        self._turns, self._mean_s = turns, mean_s

    def reset(self, *, seed: int) -> str:
        self._seed, self._turn = seed, 0
        return "go"

    def step(self, response: str) -> Step:
        self._turn += 1
        draw = stream_seed(self._seed, "wait", self._turn) % 1000 / 1000
        if self._mean_s:
            time.sleep(2 * self._mean_s * draw)
        return Step("go on", 0.0, truncated=self._turn == self._turns)

    def task(self, seed: int) -> Task:
        return Task(f"waits-{seed}", seed, "", "", 0)


class Numbers:
    """Renders observations as a few tokens."""

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        return [4 + n % 12 for n in range(24)]

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        return [5, 6, 7, 8]

    def decode(self, ids: Sequence[int]) -> str:
        return ""


def make_policy() -> Policy:
    torch.manual_seed(0)
    model = tiny_model("sokoban", hidden_size=256, layers=6, heads=4)
    return assemble(model.eval(), tiny_tokenizer("sokoban"), template="plain", is_bare=True)


def played(engine: Engine, args: argparse.Namespace, mean_s: float) -> tuple[float, list[Episode]]:
    engine.sync()
    slots = [Slot(Task(f"t{n}", n, "", "", 0), n, 0, n) for n in range(args.episodes)]
    began = time.monotonic()
    episodes = play(
        slots,
        make_env=lambda: Waits(turns=args.turns, mean_s=mean_s),
        renderer=Numbers(),
        engine=engine,
        params=SamplingParams(1.0, args.tokens, CONTEXT),
        workers=args.episodes if mean_s else 1,
    )
    return time.monotonic() - began, episodes


def ways(engine: VllmEngine) -> dict[str, Engine]:
    return {
        "lockstep": Lockstep(engine),
        "repeatable": engine,
        "continuous": Continuous(engine),
    }


def compare(engine: VllmEngine, args: argparse.Namespace, mean_s: float) -> Iterator[str]:
    seconds: dict[str, list[float]] = {name: [] for name in ways(engine)}
    same: dict[str, bool] = dict.fromkeys(seconds, True)
    for _ in range(args.repeats):
        first: list[Episode] | None = None
        for name, way in ways(engine).items():
            took, episodes = played(way, args, mean_s)
            seconds[name].append(took)
            first = first or episodes
            same[name] = same[name] and sampled(episodes) == sampled(first)
    for name, of_way in seconds.items():
        ratios = [a / b for a, b in zip(seconds["lockstep"], of_way, strict=True)]
        yield (
            f"  {name:<11}{statistics.median(of_way):7.2f} s  {statistics.median(ratios):5.2f} x "
            f"({min(ratios):.2f}-{max(ratios):.2f}), {'equal' if same[name] else 'OTHER'} tokens"
        )


def sampled(episodes: list[Episode]) -> list[list[tuple[int, ...]]]:
    return [[turn.sampled_ids for turn in episode.turns] for episode in episodes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64, help="Of a response, at most.")
    parser.add_argument("--wait-s", type=float, default=0.3, help="Of a call, on average.")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    settings = VllmSettings("float32", "cpu", CONTEXT, 0.5, eager=True, sleep=False)
    engine = VllmEngine(ServedPolicy(make_policy(), LoraConfig()), settings)
    try:
        played(engine, args, 0.0)
        for mean_s in (0.0, args.wait_s):
            kind = f"that wait {mean_s:g} s a turn, 0 to twice that" if mean_s else "that compute"
            print(f"{args.episodes} episodes of {args.turns} turns, environments {kind}:")
            for line in compare(engine, args, mean_s):
                print(line, flush=True)
    finally:
        engine.close()


if __name__ == "__main__":
    main()

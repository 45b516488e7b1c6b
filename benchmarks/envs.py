"""Speed of the grid games, beside gym-sokoban and Gymnasium.

    python benchmarks/envs.py --peer-python PEER/bin/python [--repeats 5]

PEER is a separate virtual environment with gym-sokoban 0.0.6, which needs the old gym:
`python -m venv PEER && PEER/bin/pip install gym-sokoban==0.0.6`. Without it, that column is empty.
Both sides of a row are measured by turns, in seconds of one core, so that other work on the machine
counts little; the medians of the repeats are shown. A peer steps one game at a time: that is what
it offers. The room of gym-sokoban is not made anew between episodes: that would cost far more than
its steps.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rltune_envs.base import TextEnv
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.frozen_lake import generate as lakes
from rltune_envs.frozen_lake.batch import LakeBatch
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban import generate as rooms
from rltune_envs.sokoban.batch import SokobanBatch

SECONDS = 0.6  # of one repeat
BATCH = 1024
INSTALL = (
    "python -m venv PEER && PEER/bin/pip install gym-sokoban==0.0.6, "
    "then --peer-python PEER/bin/python"
)
Rate = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One line of the table: two rates in one unit; `theirs` is None without a peer."""

    name: str
    unit: str
    ours: Rate
    peer: str
    theirs: Rate | None


def per_second(work: Callable[[], int]) -> float:
    """Repeat `work`, which returns how much it did, for `SECONDS` of the processor."""
    n, began = 0, time.process_time()
    while (used := time.process_time() - began) < SECONDS:
        n += work()
    return n / used


def sokoban_batch() -> Rate:
    """Return the rate of steps of 6x6 rooms with one box."""
    made = (
        rooms.generate(seed, height=6, width=6, boxes=1, search_depth=100, max_moves=10)
        for seed in range(BATCH)
    )
    batch = SokobanBatch([one.level for one in made], max_actions=10)
    actions = itertools.cycle(np.random.default_rng(0).integers(4, size=(64, BATCH)))

    def work() -> int:
        batch.step(next(actions))
        return BATCH

    return lambda: per_second(work)


def lake_batch() -> Rate:
    """Return the rate of steps of slippery 4x4 lakes."""
    made = [
        lakes.generate(seed, size=4, frozen_probability=0.8, min_difficulty=1, max_difficulty=10)
        for seed in range(BATCH)
    ]
    batch = LakeBatch(made, success_rate=1 / 3)
    rng = np.random.default_rng(0)
    steps = itertools.cycle(
        zip(rng.integers(4, size=(64, BATCH)), rng.random((64, BATCH)), strict=True)
    )

    def work() -> int:
        batch.step(*next(steps))
        return BATCH

    return lambda: per_second(work)


def text_env(env: TextEnv, names: tuple[str, ...], *, actions: int) -> Rate:
    """Return the rate of actions in turns of `actions` each: parsing and prompts included."""
    rng = np.random.default_rng(0)
    turns = rng.integers(len(names), size=(256, actions)).tolist()
    responses = itertools.cycle([env.format_response([names[i] for i in turn]) for turn in turns])
    seeds = itertools.cycle(range(64))
    for seed in range(64):
        env.reset(seed=seed)  # a level is made once

    def work() -> int:
        env.reset(seed=next(seeds))
        n = 0
        while True:
            step = env.step(next(responses))
            n += len(step.actions)
            if step.has_ended:
                return n

    return lambda: per_second(work)


def our_rooms(*, max_moves: int) -> Rate:
    """Return the rate of certified 8x8 rooms with two boxes; every seed is a new one."""
    seeds = itertools.count()

    def work() -> int:
        rooms.generate(
            next(seeds), height=8, width=8, boxes=2, search_depth=100, max_moves=max_moves
        )
        return 1

    return lambda: per_second(work)


def gymnasium_lake() -> Rate:
    """Return the rate of steps of Gymnasium's slippery 4x4 lake."""
    import gymnasium

    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(4, size=256).tolist()

    def work() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return lambda: per_second(work)


@contextmanager
def gym_sokoban(python: str | None) -> Iterator[Callable[[str], Rate | None]]:
    """Yield what asks gym-sokoban in another interpreter; it gives None when there is none."""
    if python is None:
        print(f"gym-sokoban is not measured: --peer-python is not given. {INSTALL}")
        yield lambda _: None
        return
    script = Path(__file__).with_name("gym_sokoban_peer.py")
    probe = subprocess.run([python, "-c", "import gym_sokoban"], capture_output=True, check=False)
    if probe.returncode:
        raise SystemExit(f"{python} cannot import gym_sokoban. {INSTALL}")
    with subprocess.Popen(
        [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # "ready"

        def ask(request: str) -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            print(request, file=process.stdin, flush=True)
            return float(process.stdout.readline())

        yield lambda request: lambda: ask(request)
        process.stdin.close()


def table(ask: Callable[[str], Rate | None]) -> list[Row]:
    """Return what is compared."""
    sokoban, lake = sokoban_batch(), lake_batch()
    player = SokobanEnv()
    text = text_env(player, player.action_names, actions=2)
    skater = FrozenLakeEnv(success_rate=1 / 3)
    skating = text_env(skater, skater.action_names, actions=2)
    their_lake = gymnasium_lake()
    rgb, tiny, made = ask("rgb_array"), ask("tiny_rgb_array"), ask("rooms")
    return [
        Row("Sokoban batch", "steps/s", sokoban, "gym-sokoban, RGB", rgb),
        Row("Sokoban batch", "steps/s", sokoban, "gym-sokoban, tiny", tiny),
        Row("Sokoban text, 2 a turn", "actions/s", text, "gym-sokoban, RGB", rgb),
        Row("Sokoban text, 2 a turn", "actions/s", text, "gym-sokoban, tiny", tiny),
        Row("8x8, 2 boxes, to 100 moves", "rooms/s", our_rooms(max_moves=100), "gym-sokoban", made),
        Row("8x8, 2 boxes, to 10 moves", "rooms/s", our_rooms(max_moves=10), "gym-sokoban", made),
        Row("FrozenLake batch", "steps/s", lake, "Gymnasium", their_lake),
        Row("FrozenLake text, 2 a turn", "actions/s", skating, "Gymnasium", their_lake),
    ]


def measure(row: Row, repeats: int) -> str:
    """Return a line of the table."""
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(row.ours())
        if row.theirs is not None:
            theirs.append(row.theirs())
    mine = statistics.median(ours)
    line = f"{row.name:<27}{mine:>12,.0f} {row.unit:<10}{row.peer:<18}"
    if not theirs:
        return f"{line}{'-':>10}"
    other = statistics.median(theirs)
    return f"{line}{other:>10,.1f}{mine / other:>9,.1f}x"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", help="Interpreter that has gym-sokoban.")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores, batches of {BATCH}")
    with gym_sokoban(args.peer_python) as ask:
        print(f"{'ours':<50}{'theirs':<28}{'ratio':>10}")
        for row in table(ask):
            print(measure(row, args.repeats), flush=True)
    print(f"load average {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()

"""gym-sokoban's side of benchmarks/envs.py; it runs in an interpreter that has gym-sokoban.

Reads one request a line (`rgb_array`, `tiny_rgb_array`, `rooms`), answers with a rate per second
of the processor.
"""

import contextlib
import copy
import io
import random
import sys
import time
import warnings

SECONDS = 0.6


def main() -> None:
    """Answer requests until the input ends."""
    warnings.simplefilter("ignore")
    answers = sys.stdout
    # gym talks on both streams.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import numpy as np

        random.seed(0)
        np.random.seed(0)
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            request = line.strip()
            rate = rooms() if request == "rooms" else steps(request)
            print(rate, file=answers, flush=True)


def steps(mode: str) -> float:
    """Step a 6x6 room with one box; a finished episode takes the same room again, for free."""
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    env = SokobanEnv(dim_room=(6, 6), max_steps=10, num_boxes=1)
    start, place = env.room_state.copy(), env.player_position.copy()
    actions = [random.randrange(1, 5) for _ in range(100)]
    n, used = 0, 0.0
    while used < SECONDS:
        began = time.process_time()
        for action in actions:
            _, _, done, _ = env.step(action, observation_mode=mode)
            if done:
                env.room_state, env.player_position = start.copy(), copy.copy(place)
                env.num_env_steps = env.boxes_on_target = 0
        used += time.process_time() - began
        n += 100
    return n / used


def rooms() -> float:
    """Make 8x8 rooms with two boxes; a room that it gives up costs time and does not count."""
    from gym_sokoban.envs.room_utils import generate_room

    n, began = 0, time.process_time()
    while n < 6:
        with contextlib.suppress(RuntimeError, RuntimeWarning):
            generate_room(dim=(8, 8), num_steps=int(1.7 * 16), num_boxes=2)
            n += 1
    return n / (time.process_time() - began)


if __name__ == "__main__":
    main()

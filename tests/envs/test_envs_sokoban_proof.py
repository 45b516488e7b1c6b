"""Ten thousand generated rooms: disjoint across splits by content, each with a certificate."""

import pytest

from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban.rules import Level, canonical_hash
from rltune_envs.splits import build_manifest, require_disjoint

SIZES = {"train_tasks": 9000, "heldout_tasks": 500, "test_tasks": 500}


def shortest(level: Level) -> int | None:
    """Return the length of a shortest solution, with no help from the solvers of the package."""
    seen, frontier, length = {level.start}, [level.start], 0
    while frontier:
        if any(level.is_solved(state) for state in frontier):
            return length
        reached = {level.step(state, action) for state in frontier for action in range(4)} - seen
        seen |= reached
        frontier, length = list(reached), length + 1
    return None


@pytest.mark.slow
def test_ten_thousand_tasks_are_certified_and_disjoint():
    env = SokobanEnv(prompt="compact")
    manifest = build_manifest(env, split_seed=0, **SIZES)
    parts = {part: getattr(manifest, part) for part in ("train", "heldout", "test")}
    tasks = [task for part in parts.values() for task in part]

    require_disjoint(manifest)
    assert {f"{part}_tasks": len(found) for part, found in parts.items()} == SIZES
    assert len({task.content_hash for task in tasks}) == 10_000
    for task in tasks:
        env.reset(seed=task.seed)
        # The hash is of the very room that is played, and the certificate is its exact optimum,
        # which an episode is long enough for.
        assert canonical_hash(env.level) == task.content_hash
        assert env.level.start == env.state
        assert 1 <= task.difficulty <= 10
        assert env.distance_to_go() == task.difficulty
    for task in tasks[::20]:
        env.reset(seed=task.seed)
        assert shortest(env.level) == task.difficulty


@pytest.mark.slow
def test_all_ten_thousand_are_solved_by_the_expert_in_as_many_actions():
    env = SokobanEnv(prompt="compact")
    for seed in range(10_000):
        env.reset(seed=seed)
        executed, step = 0, None
        while step is None or not (step.terminated or step.truncated):
            step = env.step(env.format_response(env.expert_actions()))
            executed += len(step.actions)
        assert step.success
        assert executed == env.task(seed).difficulty

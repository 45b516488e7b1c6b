"""What every environment promises, over each one that rltune has."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from rltune_envs.base import TextEnv
from rltune_envs.check_player import Player
from rltune_envs.checks import check_env
from rltune_envs.imports import load_object
from rltune_envs.protocols import HasCeiling, HasFloor, HasGold, supports
from rltune_envs.rewards import Rubric, Term, find_score
from rltune_envs.verified import VerifiedEnv

SOKOBAN = "rltune_envs.sokoban:SokobanEnv"
FROZEN_LAKE = "rltune_envs.frozen_lake:FrozenLakeEnv"
QA = "rltune_envs.multihop_qa:MultihopQaEnv"
ARITHMETIC = "rltune_envs.arithmetic:ArithmeticEnv"
VERIFIED = "rltune_envs.verified_task:VerifiedTaskEnv"
SUMS = {
    "train": str(Path(__file__).with_name("problems.jsonl")),
    "verifier": {"kind": "number"},
    "max_turns": 2,
}
SMALL_WORLD = {"passages": 300}


@dataclass(frozen=True)
class Case:
    """One environment: where it is, its arguments, its rubric, and how many tasks to play.

    The most for the first case of each kind; the others differ from it in one thing.
    """

    path: str
    arguments: dict = field(default_factory=dict)
    rubric: tuple[str, ...] = ()
    n_seeds: int = 24

    def make(self) -> TextEnv:
        env = load_object(self.path)(**self.arguments)
        if not self.rubric:
            return env
        terms = (
            Term(name, 1.0, find_score(name, auxiliary_names=env.auxiliary_names))
            for name in self.rubric
        )
        return VerifiedEnv(env, Rubric(tuple(terms)), format_penalty=-0.1)


CASES = {
    "sokoban-natural": Case(SOKOBAN, {"search_depth": 30}),
    "sokoban-compact": Case(SOKOBAN, {"search_depth": 30, "prompt": "compact"}, n_seeds=12),
    "sokoban-coord": Case(SOKOBAN, {"observation": "coord"}, n_seeds=8),
    "sokoban-one-long-turn": Case(SOKOBAN, {"max_turns": 1, "max_actions_per_turn": 10}, n_seeds=8),
    "sokoban-odd-limits": Case(SOKOBAN, {"max_actions_per_turn": 3, "max_actions": 7}, n_seeds=8),
    "sokoban-two-boxes": Case(SOKOBAN, {"size": 8, "boxes": 2, "prompt": "compact"}, n_seeds=8),
    "sokoban-three-boxes": Case(
        SOKOBAN,
        {"size": 10, "boxes": 3, "max_turns": 10, "max_actions": 20, "prompt": "compact"},
        n_seeds=4,
    ),
    "sokoban-verified": Case(SOKOBAN, {}, ("success", "env_reward", "valid_turns"), n_seeds=8),
    "frozen-lake-dry": Case(FROZEN_LAKE),
    "frozen-lake-slippery": Case(FROZEN_LAKE, {"success_rate": 0.8}),
    "frozen-lake-compact": Case(
        FROZEN_LAKE, {"success_rate": 0.8, "prompt": "compact"}, n_seeds=12
    ),
    "frozen-lake-verified": Case(
        FROZEN_LAKE, {"success_rate": 0.8}, ("success", "valid_turns"), n_seeds=12
    ),
    "qa-natural": Case(QA, SMALL_WORLD, n_seeds=16),
    "qa-compact": Case(QA, SMALL_WORLD | {"prompt": "compact"}, n_seeds=8),
    "qa-verified": Case(QA, SMALL_WORLD | {"prompt": "compact"}, ("success", "f1"), n_seeds=8),
    "arithmetic-natural": Case(ARITHMETIC, n_seeds=16),
    "arithmetic-compact": Case(ARITHMETIC, {"prompt": "compact"}, n_seeds=8),
    "arithmetic-odd": Case(ARITHMETIC, {"terms": [2], "largest": 1, "format_penalty": 0.0}, (), 8),
    "sums": Case(VERIFIED, SUMS, n_seeds=8),
    "sums-verified": Case(VERIFIED, SUMS, ("success", "score"), n_seeds=8),
    "coins": Case("tests.coin_env:CoinEnv"),
    "coins-verified": Case("tests.coin_env:CoinEnv", {}, ("examples.my_reward:score",), 8),
    "example": Case("examples.my_env:MyEnv"),
    "bare": Case("tests.bare_env:BareEnv", n_seeds=8),
    "bare-verified": Case("tests.bare_env:BareEnv", {}, ("success",), 8),
    "example-verified": Case("examples.my_env:MyEnv", {}, ("examples.my_reward:score",), 8),
}


OF_RLTUNE = ("sokoban", "frozen-lake", "qa")


@pytest.mark.parametrize("name", CASES)
def test_every_environment_keeps_the_contract(name):
    check_env(CASES[name].make, seeds=range(CASES[name].n_seeds), threads=8)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(OF_RLTUNE)])
def test_every_environment_of_rltune_knows_its_distance_and_its_gold_response(name):
    # So the clauses about them were really asked: they pass over an environment that does not know.
    env = CASES[name].make()
    for seed in range(4):
        env.reset(seed=seed)
        assert env.distance_to_go() >= env.task(seed).difficulty >= 1
        assert env.gold_response().golds


@pytest.mark.slow
def test_the_interpreters_hash_seed_changes_nothing():
    # cases.md A1: levels that followed from a salted hash differed between processes.
    here = {name: _digest_of_transcripts(case) for name, case in CASES.items()}
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environ = {**os.environ, "PYTHONHASHSEED": other}
    done = subprocess.run([sys.executable, __file__], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert here == dict(line.split() for line in done.stdout.splitlines())


def _digest_of_transcripts(case: Case) -> str:
    """Hash all that some episodes and their tasks say."""
    env = case.make()
    player = Player(case.make, max_turns=1000)
    digest = sha256()
    for seed in range(4):
        odds = tuple(
            getattr(env, name)(seed)
            for name in ("random_success_probability", "optimal_success_probability")
            if supports(env, HasFloor) and supports(env, HasCeiling)
        )
        gold = env.gold(seed) if supports(env, HasGold) else {}
        digest.update(repr((player.play_alone(seed), env.task(seed), gold)).encode())
        digest.update(repr(odds).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    for case_name, case in CASES.items():
        print(case_name, _digest_of_transcripts(case))

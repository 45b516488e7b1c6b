"""What `rltune play` shows, and how it reads a line: plain functions."""

import io

import pytest
from cases import each

from rltune.cli.playing.turns import (
    LEGENDS,
    Outcome,
    Person,
    Solver,
    closing,
    drawn,
    finish,
    hint,
    opening,
    play_by_turns,
    response_of,
    turn,
    turn_line,
)
from rltune_envs.base import FailureClass, Step
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.rewards import SCORES, Rubric, Term
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.verified import VerifiedEnv
from tests.coin_env import CoinEnv

SOKOBAN = SokobanEnv(prompt="compact")
LAKE = FrozenLakeEnv(prompt="compact")
QA = MultihopQaEnv(prompt="compact")
COINS = CoinEnv()
RUBRIC = Rubric((Term("success", 1.0, SCORES["success"]),))
BROKEN = Step("", 0.0, False, False, False, fault="retriever: down")
SOLVED = Step("", 1.0, True, False, True)


class FaultyFirst(CoinEnv):
    """Its first turn fails outside the player, and it does not remember that."""

    def step(self, response):
        step = super().step(response)
        if self.turns == 1:
            return BROKEN
        return step


@pytest.mark.parametrize("env", [SOKOBAN, LAKE], ids=["sokoban", "frozen_lake"])
def test_rows_lose_no_symbol_and_all_are_explained(env):
    for seed in range(30):
        observation = env.reset(seed=seed)
        rows = drawn(env, observation).split("\n")
        assert "".join(rows) == observation
        assert {len(row) for row in rows} == {4}
        assert {f"{symbol} " for symbol in observation} <= {
            f"{part.strip()[0]} " for part in LEGENDS[type(env)].split(",")
        }


def test_rows_follow_the_size():
    env = SokobanEnv(prompt="compact", size=8)
    assert {len(row) for row in drawn(env, env.reset(seed=0)).split("\n")} == {6}
    wide = FrozenLakeEnv(prompt="compact", size=5)
    assert {len(row) for row in drawn(wide, wide.reset(seed=0)).split("\n")} == {5}


@each(
    ("env", "line", "response"),
    [
        (SOKOBAN, "up LEFT", "<answer>Up||Left</answer>"),
        (SOKOBAN, "Up||Left", "<answer>Up||Left</answer>"),
        (SOKOBAN, "Up Fly", None),
        (SOKOBAN, "|", None),
        (SOKOBAN, "<answer>Fly", "<answer>Fly"),
        (SOKOBAN, "Up Up", "<answer>Up||Up</answer>"),
        (COINS, "Five", "<answer>Five</answer>"),
        (COINS, "Five || Two", "<answer>Five||Two</answer>"),
        (COINS, "||", None),
        (QA, "SEARCH:  a b ", "<search>a b</search>"),
        (QA, "answer: x: y", "<answer>x: y</answer>"),
        (QA, "answer:", None),
        (QA, "Paris", None),
    ],
)
def test_a_line_becomes_a_response(env, line, response):
    assert response_of(env, line) == response


def test_the_hint_names_the_actions():
    assert hint(LAKE).startswith("Type one or more of ")
    assert "Left" in hint(LAKE)


def test_faults_are_no_tasks():
    outcomes = [Outcome(0, True, "none"), Outcome(1, False, "fault"), Outcome(2, False, "lost")]
    floor = (LAKE.random_success_probability(0) + LAKE.random_success_probability(2)) / 2
    assert closing(LAKE, outcomes) == (
        f"Solved 1 of 2 tasks: 0.500. On these a random player solves {floor:.3f}, a perfect one "
        "1.000. 1 more had a fault and do not count."
    )


@pytest.mark.parametrize("env", [SOKOBAN, LAKE, QA, COINS], ids=["sokoban", "lake", "qa", "coins"])
def test_a_rubric_changes_nothing_of_how_an_env_is_shown(env):
    judged = VerifiedEnv(env, RUBRIC)
    observation = judged.reset(seed=3)
    assert opening(judged, 3, observation) == opening(env, 3, observation)
    assert hint(judged) == hint(env)
    for line in ("answer: x", "up LEFT", "Five"):
        assert response_of(judged, line) == response_of(env, line)


def test_the_answer_is_told_under_a_rubric_too(capsys):
    judged = VerifiedEnv(QA, RUBRIC)
    judged.reset(seed=3)
    finish(judged, 3, [judged.step("<answer>Nobody</answer>")])
    assert capsys.readouterr().out.endswith(f"\nThe answer: {QA.gold(3)['answers'][0]}\n\n")


def test_one_action_is_no_plural():
    env = FrozenLakeEnv(prompt="compact")
    seed = next(seed for seed in range(99) if env.task(seed).difficulty == 1)
    assert opening(env, seed, env.reset(seed=seed)).split("\n")[0].endswith(", difficulty 1 action")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"actions": ("Up", "Left")}, "-> Up, Left, reward -0.2"),
        ({"is_valid": False}, "-> nothing was executed (the response could not be read, or not "
         "all of it), reward -0.2"),
        ({"actions": ("Up", "Up"), "n_over_limit": 3},
         "-> Up, Up (3 more not executed: over a limit), reward -0.2"),
        ({"actions": ("Up",), "fault": "retriever: down"},
         "-> Up (fault: retriever: down), reward -0.2"),
    ],
)  # fmt: skip
def test_a_turn_says_what_was_done_and_what_was_refused(changes, line):
    step = Step("", reward=-0.2, terminated=False, truncated=False, success=False, **changes)
    assert turn_line(step) == line
    assert turn(COINS, step) == f"{line}\n"


@pytest.mark.parametrize("steps", [[BROKEN, SOLVED], [SOLVED, BROKEN], [BROKEN]])
def test_a_fault_in_any_turn_does_not_count(steps, capsys):
    assert finish(LAKE, 4, steps).failure_class == "fault"
    said = capsys.readouterr().out
    assert said.startswith("It does not count: fault, something outside the player failed; reward ")
    assert "olved" not in said
    # of a policy, the rollout has told the class; a fault stays one
    assert finish(LAKE, 4, steps, failure_class="none").failure_class == "fault"


def test_a_fault_of_the_first_turn_leaves_the_share(capsys):
    env = FaultyFirst(max_amount=9)
    # 7, paid with 5 and 2; the environment calls its last step a success
    outcome = play_by_turns(env, 0, Solver())
    assert outcome == Outcome(0, True, "fault")
    assert closing(env, [outcome]) == (
        "No task was played to its end. 1 more had a fault and do not count."
    )


def test_an_episode_that_was_solved_or_cut_off(capsys):
    assert finish(LAKE, 4, [SOLVED]) == Outcome(4, True, "none")
    assert capsys.readouterr().out == "Solved; reward 1 in 1 turn.\n\n"
    assert finish(LAKE, 4, []) == Outcome(4, False, "none")
    assert capsys.readouterr().out == "Not solved: it was stopped; reward 0 in 0 turns.\n\n"
    cut = Step("", -0.5, False, False, False, auxiliary={"left": 2.0})
    assert finish(COINS, 4, [cut, cut], failure_class=FailureClass.UNFINISHED.value) == (
        Outcome(4, False, "unfinished")
    )
    assert capsys.readouterr().out == (
        "Not solved: unfinished, a limit ended it before any outcome; reward -1 in 2 turns.\n"
        "left 2\n\n"
    )


def test_who_leaves_has_no_outcome(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("Five\nq\n"))
    assert play_by_turns(CoinEnv(), 0, Person()) is None
    assert "olved" not in capsys.readouterr().out

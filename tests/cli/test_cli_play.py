"""`rltune play` with piped input, as a script or a person without a terminal uses it."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rltune.cli.play_screen import LEGENDS, Outcome, closing, drawn
from rltune.cli.players import hint, response_of
from rltune.policy.tiny import SHIPPED
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.sokoban import SokobanEnv

ROOT = Path(__file__).parents[2]
SOKOBAN = SokobanEnv(prompt="compact")
LAKE = FrozenLakeEnv(prompt="compact")
ONE_TURN = ("--set", "max_turns=1", "--set", "max_actions=2")
QA = MultihopQaEnv(prompt="compact")


@pytest.fixture
def typed(rltune, monkeypatch):
    """Run `play` with lines at standard input."""

    def call(text, *arguments):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return rltune("play", *arguments)

    return call


def test_a_person_solves_a_level(typed):
    # seed 3:  #O__     the box stands right of and below the target: push it up from below, then
    #          #_X_     left from its right. (1, 2) -> (0, 2) -> (0, 1)
    #          P___
    result = typed("right RIGHT\nup, right\n\nUp | Left\n", "sokoban", "--seed", "3")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"{SOKOBAN.task(3).task_id} (seed 3), difficulty 6 actions"
    assert lines[3:7] == ["#O__", "#_X_", "P___", "____"]
    assert "> right RIGHT\n-> Right, Right, reward -0.2\n#O__\n#_X_\n__P_\n____\n" in result.out
    # five moves -0.1 and the last one -0.1; +1 on the target and +10 for the end: 11 - 0.6 = 10.4
    assert result.out.endswith("\nSolved; reward 10.4 in 3 turns.\n\n")


def test_why_it_ended_is_said(typed):
    result = typed("<answer>Jump\nUp\n", "sokoban", *ONE_TURN, "--seed", "3")
    assert "-> nothing was executed (the response could not be read, or not all of it), " in (
        result.out
    )
    assert result.out.endswith(
        "\nNot solved: malformed, a limit ended it and the last response could not be read; "
        "reward -0.1 in 1 turn.\n\n"
    )


@pytest.mark.parametrize("text", ["q\n", "", "Up\nQUIT\nUp\n"])
def test_q_or_the_end_of_the_input_stops_with_0(typed, text):
    result = typed(text, "frozen_lake", "--seed", "1")
    assert (result.code, result.err) == (0, "")
    assert "olved" not in result.out


def test_a_word_that_is_none_costs_no_turn(typed):
    result = typed("Jump\nUp Jump\nq\n", "sokoban")
    assert result.out.count("Type one or more of Up, Down, Left, Right, or q to stop.") == 3
    assert "->" not in result.out


def test_a_question_is_played_and_its_answer_told(typed):
    result = typed(
        "what?\nsearch: Finmund Ashbridge\nAnswer:Nobody\n", "multihop_qa", "--seed", "3"
    )
    gold = QA.gold(3)["answers"][0]
    assert result.out.count("Type `search: words`, `answer: words`, or q to stop.") == 2
    assert "-> search: Finmund Ashbridge, reward +0\n<information>" in result.out
    assert "-> answer: Nobody, reward +0\n" in result.out
    assert "Not solved: wrong, the outcome is not the right one; reward 0 in 2 turns." in result.out
    assert result.out.endswith(f"searches 1\nThe answer: {gold}\n\n")


def test_several_tasks_end_with_their_share(typed):
    result = typed("", "frozen_lake", "--solver", "--tasks", "3")
    floor = sum(LAKE.random_success_probability(seed) for seed in range(3)) / 3
    assert result.out.endswith(
        "Solved 3 of 3 tasks: 1.000. On these a random player solves "
        f"{floor:.3f}, a perfect one 1.000.\n"
    )
    assert result.out.count("\nSolved; reward ") == 3


def test_quitting_leaves_the_rest_out_of_the_share(typed):
    result = typed("answer: x\nq\n", "multihop_qa", "--tasks", "3")
    assert "Solved 0 of 1 tasks: 0.000." in result.out
    nothing = typed("q\n", "multihop_qa", "--tasks", "3")
    assert nothing.out.endswith("\nNo task was played to its end.\n")


@pytest.mark.parametrize("kind", ["sokoban", "frozen_lake", "multihop_qa"])
@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_the_solver_solves_every_kind(typed, kind, prompt):
    result = typed("", kind, "--solver", "--seed", "2", "--prompt", prompt)
    assert (result.code, result.err) == (0, "")
    assert "\nSolved; reward " in result.out


def test_a_solver_without_a_solution_counts_as_not_solved(typed):
    # Two actions are too few for the six of seed 3, but the solver plays what it can.
    result = typed("", "sokoban", "--solver", "--seed", "3", "--tasks", "2",
                   *ONE_TURN, "--set", "max_difficulty=10")  # fmt: skip
    assert "Solved 0 of 2 tasks: 0.000." in result.out
    assert "a perfect one 0.000." in result.out


def test_a_policy_is_watched_and_repeats_itself(typed):
    arguments = ("sokoban", "--policy", str(SHIPPED / "sokoban"), "--tasks", "2")
    result = typed("", *arguments)
    assert (result.code, result.err) == (0, "")
    assert result.out.count("difficulty") == 2
    assert "> <answer>" in result.out
    assert "tasks: " in result.out.splitlines()[-1]
    assert typed("", *arguments).out == result.out
    assert typed("", *arguments, "--temperature", "0").out != result.out


def test_a_policy_is_told_what_it_cannot_read(typed):
    result = typed("", "sokoban", "--policy", "tiny", "--prompt", "natural")
    assert result.code == 2
    assert result.err.startswith("error: env.prompt: 'natural' cannot be read by policy.model")
    missing = typed("", "sokoban", "--policy", "nowhere/here")
    assert missing.code == 2
    assert missing.err.startswith("error: policy.model: 'nowhere/here' cannot be loaded: ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("sokobann",), "ENV: 'sokobann' is not an environment. Choose one of sokoban, "
         "frozen_lake, multihop_qa. Did you mean 'sokoban'?"),
        (("sokoban", "--solver", "--policy", "tiny"),
         "--solver, --policy: both were given. Give one."),
        (("sokoban", "--temperature", "1"), "--temperature: only a policy samples. Add --policy."),
        (("frozen_lake", "--set", "boxes=2"), "--set boxes=2: frozen_lake has no such key. Its "
         "keys are format_penalty, min_difficulty, max_turns, max_actions_per_turn, max_actions, "
         "observation, size, frozen_probability, success_rate."),
        (("sokoban", "--set", "size"), "--set size: is not of the form KEY=VALUE. Its keys are "
         "format_penalty, min_difficulty, max_turns, max_actions_per_turn, max_actions, "
         "observation, size, boxes, search_depth, max_difficulty, levels, symbols."),
        (("sokoban", "--set", "levels=[1"), "--set levels=[1: '[1' is not a YAML value."),
    ],
)  # fmt: skip
def test_refused_input_is_one_whole_line(typed, arguments, line):
    result = typed("", *arguments)
    assert (result.code, result.out, result.err) == (2, "", f"error: {line}\n")


def test_a_value_out_of_its_range_names_the_key(typed):
    result = typed("", "sokoban", "--set", "size=3", "--set", "env.boxes=0")
    assert result.code == 2
    assert [line[:18] for line in result.err.splitlines()] == [
        "error: env.size: 3",
        "error: env.boxes: ",
    ]


def test_a_file_that_is_missing_is_one_line(typed):
    result = typed("", "sokoban", "--set", "levels=no.txt")
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "no.txt" in result.err


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


@pytest.mark.parametrize(
    ("env", "line", "response"),
    [
        (SOKOBAN, "up LEFT", "<answer>Up||Left</answer>"),
        (SOKOBAN, "Up||Left", "<answer>Up||Left</answer>"),
        (SOKOBAN, "Up Fly", None),
        (SOKOBAN, "|", None),
        (SOKOBAN, "<answer>Fly", "<answer>Fly"),
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


def test_help_has_an_example(rltune):
    result = rltune("play", "--help")
    assert result.code == 0
    assert "\n  Example:\n    rltune play sokoban\n" in result.out


def test_by_hand_it_needs_no_torch_and_prints_no_codes(tmp_path):
    code = (
        "import sys; from rltune.cli.entry import run; code = run(['play', 'sokoban']);"
        "print(code, sorted({'torch', 'ray', 'transformers', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}", "FORCE_COLOR": "1"},
        input="Up\n",
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []"
    assert "\x1b" not in done.stdout + done.stderr

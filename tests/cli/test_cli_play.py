"""`rltune play` with piped input, as a script or a person without a terminal uses it."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_sweep import small_sweep

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
    measures = f"searches 1, invented_information 0\nThe answer: {gold}\n\n"
    assert result.out.endswith(measures)


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
    assert "Solved 0 of 1 task: 0.000." in result.out
    nothing = typed("q\n", "multihop_qa", "--tasks", "3")
    assert nothing.out.endswith("\nNo task was played to its end.\n")


@pytest.mark.parametrize("kind", ["sokoban", "frozen_lake", "multihop_qa", "arithmetic"])
@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_the_solver_solves_every_kind(typed, kind, prompt):
    result = typed("", kind, "--solver", "--seed", "2", "--prompt", prompt)
    assert (result.code, result.err) == (0, "")
    assert "\nSolved; reward " in result.out


def test_a_solver_is_shown_turn_by_turn(typed):
    result = typed("", "sokoban", "--solver", "--seed", "3")
    assert result.out.splitlines()[3:14] == [
        *("#O__", "#_X_", "P___", "____", ""),
        "> <answer>Right||Right</answer>",
        "-> Right, Right, reward -0.2",
        *("#O__", "#_X_", "__P_", "____"),
    ]


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


def test_a_watched_episode_is_shown_to_its_end(typed):
    # The last two moves of this episode: the box is pushed up onto the target above it.
    result = typed("", "sokoban", "--policy", "tiny", "--seed", "3")
    assert result.out.count("difficulty 6 actions") == 1
    assert result.out.endswith(
        "> <answer>Up</answer>\n-> Up, reward +10.9\n#√__\n#P__\n____\n____\n\n"
        "Solved; reward 10.1 in 5 turns.\n\n"
    )


@pytest.mark.parametrize(("room", "turns"), [(10, 0), (30, 1)])
def test_a_policy_that_runs_out_of_context_is_shown_too(typed, monkeypatch, room, turns):
    monkeypatch.setattr("rltune.cli.playing.policy._MAX_CONTEXT", room)
    result = typed("", "sokoban", "--policy", "tiny", "--seed", "3")
    assert result.out.startswith(f"{SOKOBAN.task(3).task_id} (seed 3), ")
    assert result.out.count("\n-> ") == turns
    assert "\nThe context has no room left for another response.\nNot solved: unfinished, " in (
        result.out
    )


def test_a_policy_is_told_what_it_cannot_read(typed, tmp_path):
    result = typed("", "sokoban", "--policy", "tiny", "--prompt", "natural")
    assert result.code == 2
    assert result.err.startswith("error: env.prompt: 'natural' cannot be read by policy.model")
    empty = typed("", "sokoban", "--policy", str(tmp_path))
    assert empty.code == 2
    assert empty.err.startswith(f"error: policy.model: '{tmp_path}' cannot be loaded: ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("sokobann",), "ENV: 'sokobann' is not an environment. Choose one of sokoban, "
         "frozen_lake, multihop_qa, arithmetic, a sweep file, reasoning_gym:NAME, or "
         "my_pkg.my_mod:MyEnv. "
         "Did you mean 'sokoban'?"),
        (("no.yaml",), "no.yaml: There is no such sweep file."),
        (("examples.my_env:Env",), "ENV: 'examples.my_env:Env': the module 'examples.my_env' has "
         "no 'Env'; did you mean 'MyEnv'?"),
        (("examples.my_env:MyEnv", "--set", "arguments={coin: 1}"), "ENV: MyEnv.__init__() got an "
         "unexpected keyword argument 'coin'"),
        (("examples.my_env:MyEnv", "--policy", "tiny"), "policy.model: 'tiny' exists for sokoban, "
         "frozen_lake, multihop_qa, arithmetic, not for an env of kind 'custom'. Give a "
         "Hugging Face id or a folder."),
        (("sokoban", "--set", "levels=no.txt"), "ENV: no.txt: cannot be read as a level file: "
         "[Errno 2] No such file or directory: 'no.txt'"),
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


def test_a_sweep_is_played_as_its_control_has_it(typed):
    sweep = str(ROOT / "sweeps" / "frozenlake_slip.yaml")
    firm = typed("", sweep, "--solver", "--tasks", "5")
    assert (firm.code, firm.err) == (0, "")
    assert typed("", "frozen_lake", "--solver", "--tasks", "5").out == firm.out
    slippery = typed("", sweep, "--solver", "--tasks", "5", "--set", "env.success_rate=0.5")
    assert slippery.out != firm.out
    natural = typed("q\n", sweep, "--prompt", "natural")
    assert "You're a helpful assistant." in natural.out


def test_a_sweep_is_played_with_questions_of_a_file(typed, tmp_path):
    file, titles = tmp_path / "q.json", ("Alba", "Bruno")
    row = {
        "_id": "q",
        "question": "Where is it?",
        "answer": "Rome",
        "type": "bridge",
        "supporting_facts": [[title, 0] for title in titles],
        "context": [[title, [f"{title} is in Rome."]] for title in titles],
    }
    file.write_text(json.dumps([row]))
    sweep = str(ROOT / "sweeps" / "qa_kl.yaml")
    result = typed("", sweep, "--solver", "--seed", "1", "--set", f"questions={file}")
    assert (result.code, result.err) == (0, "")
    assert "Where is it?" in result.out


def test_problems_of_a_file_are_played_with_responses_as_they_are_typed(typed, rltune, tmp_path):
    text = "".join(
        json.dumps({"question": f"{i} - 9?", "answer": str(i - 9)}) + "\n" for i in range(60)
    )
    (tmp_path / "p.jsonl").write_text(text)
    assert rltune("init", "minus", "--task", "p.jsonl", "--model", "some-model").code == 0
    solved = typed("", "minus.yaml", "--solver", "--tasks", "2")
    assert "Solved 2 of 2 tasks: 1.000." in solved.out
    (gold,) = re.findall(r"^> (.*)$", typed("", "minus.yaml", "--solver").out, re.MULTILINE)
    right = typed(f"It is {gold}.\n", "minus.yaml")
    assert (right.code, right.err) == (0, "")
    assert "Type a response, or q to stop.\n" in right.out
    assert "\nSolved; reward 1 in 1 turn.\n" in right.out
    wrong = typed("1000\n", "minus.yaml")
    assert "\nNot solved: wrong, the outcome is not the right one; reward 0 in 1" in wrong.out
    assert f"\nThe answer: {gold}\n" in wrong.out


def test_a_sweeps_policy_plays_as_in_the_sweep(typed):
    # The laptop profile's questions have two hops, the schema's up to four.
    sweep = (str(ROOT / "sweeps" / "qa_kl.yaml"), "--policy", "tiny", "--seed", "1", "--tasks", "3")
    result = typed("", *sweep)
    assert (result.code, result.err) == (0, "")
    assert result.out.count("difficulty 2 hops\n") == 3
    assert typed("", *sweep, "--temperature", "1").out == result.out  # the sweep's own


@pytest.mark.slow
def test_a_sweeps_own_temperature_and_limits_hold(typed, tmp_path):
    def played(held, *arguments):
        text = small_sweep(policy="tiny").replace("\nhold:\n", f"\nhold:\n  rollout.{held}\n", 1)
        path = tmp_path / "small.yaml"
        path.write_text(text, encoding="utf-8")
        result = typed("", str(path), "--policy", "tiny", "--seed", "3", *arguments)
        assert (result.code, result.err) == (0, "")
        return result.out

    warm = played("temperature: 1.9", "--tasks", "3")
    assert played("temperature: 1.0", "--tasks", "3", "--temperature", "1.9") == warm
    assert played("temperature: 1.0", "--tasks", "3") != warm
    assert "\nThe context has no room left for another response.\n" in played("max_context: 30")
    assert played("max_response_tokens: 1").count(" (the response could not be read, ") == 5


def test_a_sweeps_reward_decides(typed):
    # 7 is paid with the fewest coins as 5 + 2; 5 + 1 + 1 pays it, and earns 2/3 for 2 of 3 coins.
    sweep = (str(ROOT / "examples" / "my_env.yaml"), "--set", "arguments={max_amount: 9}")
    seven = ("--seed", "6")
    assert "\nSolved; reward 1 in 2 turns.\nscore 1\n" in typed("Five\nTwo\n", *sweep, *seven).out
    wasteful = typed("Five\nOne\nOne\n", *sweep, *seven)
    assert "\nNot solved: wrong, " in wasteful.out
    assert wasteful.out.endswith("; reward 0.6667 in 3 turns.\nscore 0.667\n\n")


def test_an_env_of_ones_own_is_played_by_its_import_path(typed):
    result = typed("Five\nTwo\n", "examples.my_env:MyEnv", "--seed", "6",
                   "--set", "arguments={max_amount: 9}")  # fmt: skip
    assert (result.code, result.err) == (0, "")
    assert "\nType a response, or q to stop.\n" in result.out
    assert "\n> Five\n-> read, reward +0\nPay 2\n" in result.out
    assert result.out.endswith("\nSolved; reward 1 in 2 turns.\n\n")


def test_what_a_bare_env_does_not_have_is_said(typed, rltune):
    played = typed("x\ny\n", "tests.bare_env:BareEnv", "--tasks", "2").out
    task = re.search(r"^(add-\w{12}) \(seed 0\)\n\n\d \+ \d = \?$", played, re.M)
    assert task, played
    assert played.endswith("Solved 0 of 2 tasks: 0.000. Its floor and ceiling are unknown.\n")
    refused = rltune("play", "tests.bare_env:BareEnv", "--solver")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error: --solver: BareEnv has no format_response() and no expert_actions(). Play yourself, "
        "or use --policy.\n"
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


@pytest.mark.slow  # starts a process that imports reasoning-gym
def test_a_data_set_is_played_by_its_name(rltune):
    result = rltune("play", "reasoning_gym:gcd", "--solver", "--set", "arguments={max_numbers: 2}")
    assert result.code == 0
    assert "Find the Greatest Common Divisor (GCD)" in result.out
    assert "<answer>" in result.out
    assert "Solved; reward 1 in 1 turn." in result.out

import subprocess
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from patience import HANG_S

import rltune_envs.gym as ours
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.sokoban import SokobanEnv

CLASSES = {
    "rltune/Sokoban-v0": SokobanEnv,
    "rltune/FrozenLake-v0": FrozenLakeEnv,
    "rltune/MultihopQA-v0": MultihopQaEnv,
}
every_env = pytest.mark.parametrize("name", list(CLASSES))


@every_env
@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_gymnasiums_own_checker_has_nothing_to_say(name, prompt):
    check_env(gymnasium.make(name, prompt=prompt).unwrapped)  # warnings are errors here


@every_env
def test_it_plays_as_the_text_env_does(name):
    made = gymnasium.make(name, prompt="compact")
    env = CLASSES[name](prompt="compact")
    observation, info = made.reset(seed=7)
    assert observation == env.reset(seed=7)
    assert info == {
        "task_id": env.task(7).task_id,
        "system_prompt": "",
        "response_prefix": env.response_prefix,
    }
    is_over = False
    while not is_over:
        response = env.format_response(env.expert_actions())
        step = env.step(response)
        observation, reward, terminated, truncated, info = made.step(response)
        assert (observation, reward) == (step.observation, step.reward)
        assert (terminated, truncated) == (step.terminated, step.truncated)
        assert {**info, "task_id": ""} == {
            "task_id": "",
            "system_prompt": "",
            "response_prefix": env.response_prefix,
            "success": step.success,
            "failure_class": step.failure_class.value,
            "auxiliary": dict(step.auxiliary),
            "fault": "",
            "actions": step.actions,
        }
        is_over = terminated or truncated
    assert info["success"] is True


def test_the_last_turn_of_a_failure_names_its_class():
    made = gymnasium.make("rltune/Sokoban-v0", prompt="compact", max_turns=1)
    made.reset(seed=0)
    *_, truncated, info = made.step("rubbish")
    assert truncated is True
    assert (info["failure_class"], info["success"]) == ("malformed", False)


def test_unseeded_resets_go_on_from_the_last_seed():
    made = gymnasium.make("rltune/Sokoban-v0")
    streams = []
    for _ in range(2):
        made.reset(seed=5)
        streams.append([made.reset()[1]["task_id"] for _ in range(4)])
    assert streams[0] == streams[1]
    assert len(set(streams[0])) == 4


def test_an_option_names_the_luck():
    made = gymnasium.make("rltune/FrozenLake-v0", prompt="compact", success_rate=0.5).unwrapped
    ends = []
    for noise_seed in (None, 0, 1, 2, 3, 4):
        options = None if noise_seed is None else {"noise_seed": noise_seed}
        seen = []
        for seed in range(8):
            made.reset(seed=seed, options=options)
            seen.append(made.step("<answer>Right||Down</answer>")[0])
        ends.append(tuple(seen))
    assert ends[0] == ends[1]
    assert len(set(ends)) == 5


def test_ansi_shows_the_observation():
    made = gymnasium.make("rltune/FrozenLake-v0", render_mode="ansi")
    observation, _ = made.reset(seed=1)
    assert made.render() == observation
    observation, *_ = made.step("<think></think> <answer>Up</answer>")
    assert made.render() == observation
    silent = gymnasium.make("rltune/FrozenLake-v0").unwrapped
    silent.reset(seed=1)
    assert silent.render() is None


def test_another_render_mode_is_refused():
    with pytest.raises(ValueError, match=r"^render_mode is 'human'; choose None or 'ansi'$"):
        ours.GymEnv("rltune_envs.sokoban:SokobanEnv", render_mode="human")


def test_a_space_holds_every_text_that_is_not_too_long():
    space = ours.AnyText(5)
    assert all(text in space for text in ("", "a", "√", "中文", "x" * 5))
    assert "x" * 6 not in space
    assert 5 not in space
    space = ours.AnyText()
    space.seed(3)
    samples = [space.sample() for _ in range(50)]
    assert all(len(text) <= 80 for text in samples)
    assert len(set(samples)) > 40
    space.seed(3)
    assert [space.sample() for _ in range(50)] == samples
    assert len(space.sample(mask=(7, None))) == 7


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    ours.register()
    assert dict(gymnasium.registry) == before


def test_gymnasium_finds_it_by_the_module_in_the_name():
    code = (
        "import gymnasium, sys;"
        "assert 'rltune_envs.gym' not in sys.modules;"
        "env = gymnasium.make('rltune_envs.gym:rltune/Sokoban-v0', size=7);"
        "print(env.reset(seed=0)[1]['task_id'], env.unwrapped.text_env.level.width)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    task_id, width = done.stdout.split()
    assert task_id == SokobanEnv(size=7).task(0).task_id
    assert width == "7"


def test_without_gymnasium_one_line_says_how_to_get_it():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "try: import rltune_envs.gym\n"
        "except ModuleNotFoundError as error: print(error.name, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "gymnasium rltune_envs.gym needs gymnasium; install it: pip install 'rltune[gymnasium]'\n"
    )


def test_a_gymnasium_that_is_not_whole_says_what_it_lacks(tmp_path):
    (tmp_path / "gymnasium.py").write_text("import no_such_module")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "try: import rltune_envs.gym\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "No module named 'no_such_module'\n"


def test_nothing_else_imports_gymnasium():
    code = (
        "import sys, rltune_envs.sokoban, rltune_envs.frozen_lake, rltune_envs.multihop_qa;"
        "print('gymnasium' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

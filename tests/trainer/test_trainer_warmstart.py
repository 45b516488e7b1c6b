"""The supervised start: what is shown, what of it is learned, and what is written."""

import itertools
import json
import math
import random
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from rltune.policy.load import load_policy, weights_digest
from rltune.policy.tiny import SHIPPED, tiny_model, tiny_tokenizer
from rltune.spec.warmstart_data import TAUGHT_ENVS
from rltune.trainer import demonstrations as shown_by
from rltune.trainer import warmstart as module
from rltune.trainer.demonstrations import DemonstratedTurn, demonstrations
from rltune.trainer.warmstart import (
    RECIPES,
    Recipe,
    demonstrated_envs,
    encode,
    school_env,
    warmstart,
)
from rltune_envs.errors import ProtocolError
from rltune_envs.protocols import HasExpert, supports
from rltune_envs.verified_task import VerifiedTaskEnv
from tests.bare_env import BareEnv


@pytest.fixture
def env():
    return school_env("sokoban")()


def load(model, env_kind="sokoban"):
    return load_policy(
        str(model),
        dtype="float32",
        template="plain",
        is_bare=True,
        env_kind=env_kind,
        device="cpu",
    )


def test_encode_by_hand():
    # <pad> 0, <unk> 1, <answer> 2, </answer> 3, || 4, Up 5, Down 6, Left 7, Right 8, then # _ O X
    turns = [
        DemonstratedTurn("#_<answer>", "Up||Down</answer>", is_expert=True),
        DemonstratedTurn("OX<answer>", "Left</answer>", is_expert=False),
        DemonstratedTurn("_<answer>", "Right</answer>", is_expert=True),
    ]
    example = encode(tiny_tokenizer("sokoban"), turns)
    parts = [[9, 10, 2], [5, 4, 6, 3], [11, 12, 2], [7, 3], [10, 2], [8, 3]]
    assert example.ids == [token for part in parts for token in part]
    is_answer = [0] * 3 + [1] * 4 + [0] * 3 + [0] * 2 + [0] * 2 + [1] * 2
    is_text = [0] * 3 + [0] * 4 + [1] * 3 + [0] * 2 + [1] * 2 + [0] * 2  # not the first board
    assert [int(value) for value in example.is_answer] == is_answer
    assert [int(value) for value in example.is_text] == is_text


def starts(stream, n):
    return [turns[0].prompt for turns in itertools.islice(stream, n)]


def test_no_held_out_task_is_ever_shown(env):
    seeds = itertools.count(shown_by._DEMONSTRATIONS)
    tasks = [env.task(seed) for seed in itertools.islice(seeds, 40)]
    excluded = {task.content_hash for task in tasks[::3]}
    allowed = [task for task in tasks if task.content_hash not in excluded]
    assert 0 < len(allowed) < len(tasks)
    shown = starts(demonstrations([env], seed=0, excluded=excluded, noise=0.25), len(allowed))
    want = [env.reset(seed=task.seed) + env.response_prefix for task in allowed]
    assert shown == want
    assert starts(demonstrations([env], seed=0, excluded=set(), noise=0.25), 40) != want


def test_demonstrations_of_two_seeds_differ(env):
    one, other = (
        starts(demonstrations([env], seed=seed, excluded=set(), noise=0.0), 8) for seed in (0, 1)
    )
    assert not set(one) & set(other)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_turns_are_noise_as_often_as_asked(env, noise):
    shown = itertools.islice(demonstrations([env], seed=0, excluded=set(), noise=noise), 100)
    turns = [turn for demonstration in shown for turn in demonstration]
    share = sum(not turn.is_expert for turn in turns) / len(turns)
    # four standard errors of some 250 turns
    assert share == pytest.approx(noise, abs=4 * math.sqrt(noise * (1 - noise) / len(turns)))


@pytest.mark.parametrize("haste", [0.0, 0.25, 1.0])
def test_searches_are_given_as_answers_as_often_as_asked_and_learned(haste):
    env = school_env("multihop_qa")()
    shown = demonstrations([env], seed=0, excluded=set(), noise=0.0, haste=haste)
    turns, hasty = 0, 0
    for seed, demonstration in zip(itertools.count(shown_by._DEMONSTRATIONS), shown, strict=False):
        if turns >= 200:
            break
        env.reset(seed=seed)
        for turn in demonstration:
            (right,) = env.expert_actions()
            if right.startswith("search: "):
                words = right.removeprefix("search: ")
                turns += 1
                hasty += turn.response == f"<answer>{words}</answer>"
            else:
                assert turn.response == env.format_response((right,))
            assert turn.is_expert
            env.step(turn.response)
    assert hasty / turns == pytest.approx(haste, abs=4 * math.sqrt(haste * (1 - haste) / turns))


def test_hasty_sums_end_after_their_first_result():
    env = school_env("arithmetic")()
    shown = demonstrations([env], seed=0, excluded=set(), noise=0.0, haste=0.5)
    seeds, hasty = itertools.count(shown_by._DEMONSTRATIONS), 0
    for seed, (turn,) in itertools.islice(zip(seeds, shown, strict=False), 200):
        env.reset(seed=seed)
        results = env.expert_actions()
        is_hasty = turn.response == env.format_response(results[:1])
        assert is_hasty or turn.response == env.format_response(results)
        assert turn.is_expert
        hasty += is_hasty
    assert hasty / 200 == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 200))


def test_an_environment_without_an_expert_shows_its_gold_responses(tmp_path):
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(40)]
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = VerifiedTaskEnv(train=str(file), verifier={"kind": "exact"})
    assert not supports(env, HasExpert)
    shown = demonstrations([env], seed=0, excluded=set(), noise=0.0)
    for (turn,) in itertools.islice(shown, 40):
        assert turn.response == str(int(turn.prompt.split()[0]) + 1)
        assert turn.is_expert


def test_an_environment_with_nothing_to_show_is_named():
    with pytest.raises(ProtocolError, match=r"gold_response\(\)"):
        next(demonstrations([BareEnv()], seed=0, excluded=set(), noise=0.0))


def test_a_turn_that_is_called_expert_is_the_expert_s(env):
    """Replayed: noise moves the box to odd places, and the expert answers from there."""
    seen = set()
    for seed in range(20):
        demonstration = shown_by.demonstrate(env, seed, random.Random(seed), noise=0.5, haste=0.0)
        env.reset(seed=seed)
        for turn in demonstration:
            response = env.response_prefix + turn.response
            is_expert_s = response == env.format_response(env.expert_actions())
            seen.add((turn.is_expert, is_expert_s))
            env.step(response)
    assert seen >= {(True, True), (False, False)}
    assert (True, False) not in seen


def learned(change):
    """Return the gradients of one step on a demonstration, a noise turn's answer changed."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer("sokoban")
    policy = module.assemble(
        tiny_model("sokoban", hidden_size=16, layers=1, heads=2),
        tokenizer,
        template="plain",
        is_bare=True,
    )
    turns = [
        DemonstratedTurn("#<answer>", "Up</answer>", is_expert=True),
        DemonstratedTurn("_<answer>", change, is_expert=False),
    ]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    module._optimizer_step(policy, [encode(tokenizer, turns)], optimizer, RECIPES["sokoban"])
    return [parameter.grad.clone() for parameter in policy.model.parameters()]


def test_the_answer_of_a_noise_turn_is_not_learned():
    # Nothing comes after it, so as context it does not count either.
    one, other = learned("Left</answer>"), learned("Down</answer>")
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(one, other, strict=True))
    assert any(gradient.abs().sum() > 0 for gradient in one)


def test_two_steps_write_a_folder_that_loads_and_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "UNSEEN_TASKS", 8)
    monkeypatch.setattr(module, "PROBE_TASKS", 4)
    said = []
    recipe = Recipe(target=1.0, batch=2)
    reached = warmstart(
        "sokoban",
        tmp_path / "out",
        seed=3,
        max_steps=2,
        threads=1,
        say=said.append,
        recipe=recipe,
    )
    policy = load(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "warmstart.json").read_text()) == {
        "env": "sokoban",
        "seed": 3,
        "steps": 2,
        "threads": 1,
        "reached": reached,
        "recipe": asdict(recipe),
        "weights_sha256": policy.weights_sha256,
    }
    assert len(said) == 1
    torch.manual_seed(3)
    untrained = tiny_model("sokoban")
    assert weights_digest(untrained) != policy.weights_sha256


@pytest.mark.parametrize("folder", sorted(SHIPPED.iterdir()), ids=lambda folder: folder.name)
def test_the_shipped_weights_are_those_that_their_record_names(folder: Path):
    facts = json.loads((folder / "warmstart.json").read_text())
    assert facts["env"] == folder.name
    assert facts["weights_sha256"] == load(folder, folder.name).weights_sha256


def test_each_kind_that_the_checker_knows_as_taught_has_a_recipe_and_weights():
    assert set(RECIPES) == set(TAUGHT_ENVS) == {folder.name for folder in SHIPPED.iterdir()}


def test_all_weights_together_are_small():
    files = [file for file in SHIPPED.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 16e6


def test_questions_are_demonstrated_in_other_worlds_than_the_one_of_the_splits():
    own = {school_env("multihop_qa")().task(seed).task_id for seed in range(200)}
    envs = demonstrated_envs("multihop_qa")
    shown = {env.task(seed).task_id for env in envs[:3] for seed in range(100)}
    assert len(envs) > 3
    assert not own & shown

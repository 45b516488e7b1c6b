"""A response limit below the shortest valid answer is seen by `rltune check` (K10)."""

import shutil
from pathlib import Path

import pytest

from rltune.policy.model_folder import SHIPPED
from rltune.spec.load import load_sweep
from rltune.trainer.preflight.answer_room import answer_problems, count_tokens

SWEEPS = Path(__file__).parents[2] / "sweeps"


def found(sweep, *overrides, base=Path()):
    loaded = load_sweep(SWEEPS / f"{sweep}.yaml", profile="laptop", overrides=overrides)
    return [str(problem) for problem in answer_problems(loaded, base)]


def test_one_token_holds_no_answer():
    assert found("kl", "rollout.max_response_tokens=1") == [
        "--set rollout.max_response_tokens=1: rollout.max_response_tokens: the shortest valid "
        "answer, such as '<answer>Up</answer>', has 2 tokens to be sampled, "
        "rollout.max_response_tokens is 1. Raise it to 2 at least."
    ]
    assert found("kl", "rollout.max_response_tokens=2") == found("kl") == []


def test_a_model_folder_is_asked_by_its_own_tokenizer(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(SHIPPED / "sokoban" / "tokenizer.json", folder)
    short = ("policy.model=model", "rollout.max_response_tokens=1")
    (problem,) = found("kl", *short, base=tmp_path)
    assert "has 2 tokens to be sampled" in problem
    (folder / "tokenizer.json").write_text("torn")
    assert found("kl", *short, base=tmp_path) == []  # the trial refuses it by name


@pytest.mark.parametrize(
    ("kind", "text", "n"),
    [
        ("sokoban", "Up</answer>", 2),
        ("frozen_lake", "Left||Up</answer>", 4),
        ("multihop_qa", "<answer>yes</answer>", 3),
    ],
)
def test_tokens_by_hand(kind, text, n):
    assert count_tokens("tiny", text, env_kind=kind, base=Path()) == n


def test_a_model_that_is_not_here_is_not_counted():
    assert count_tokens("Qwen/Qwen2.5-3B", "x", env_kind="sokoban", base=Path()) is None

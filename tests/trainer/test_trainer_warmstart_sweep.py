"""The supervised start of a sweep's model: what is shown, what is refused, what is written."""

import json

import pytest

from rltune.errors import InputError
from rltune.policy.load import load_policy
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer import warmstart_sweep as module
from rltune.trainer.warmstart import school_env
from rltune.trainer.warmstart_sweep import Lesson, right_responses, warmstart_sweep
from rltune_envs.verified_task import VerifiedTaskEnv
from tests.bare_env import BareEnv


def sums(**sections):
    return TrialConfig.model_validate(
        {
            "env": {"kind": "arithmetic", "prompt": "compact", "train_tasks": 300},
            "policy": {"model": "tiny", "lora": {"rank": 4}},  # which a start does without
            "rollout": {"max_response_tokens": 24, "max_context": 64},
            "gate": {"tasks": 4, "test_tasks": 4},
            **sections,
        }
    )


def test_the_gold_answers_of_a_file_are_shown(tmp_path):
    file = tmp_path / "p.jsonl"
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = VerifiedTaskEnv(train=str(file), verifier={"kind": "boxed"}, system="Add.")
    shown = right_responses(env, [env.task(seed) for seed in env.part_seeds("train")])
    assert 0 < len(shown) < 9
    for one in shown:
        assert one.system == "Add."
        assert one.response == f"\\boxed{{{int(one.prompt.split()[0]) + 1}}}"


def test_tasks_of_several_turns_are_refused():
    env = school_env("sokoban")()
    tasks = [env.task(seed) for seed in range(20)]
    with pytest.raises(InputError, match=r"^env: sokoban-\w+ takes \d turns; one is demonstrated"):
        right_responses(env, tasks)


def test_an_environment_that_knows_no_right_response_is_refused():
    env = BareEnv()
    with pytest.raises(InputError, match=r"gold_response\(\).*Choose a verifier with a form"):
        right_responses(env, [env.task(0)])


def test_too_few_tasks_are_refused(tmp_path):
    env = {"kind": "arithmetic", "terms": [2], "largest": 2, "prompt": "compact"}
    with pytest.raises(InputError, match=r"^env arithmetic: its tasks cannot be frozen: the env"):
        warmstart_sweep(sums(env=env), tmp_path, tmp_path / "o", Lesson(1.0, 2), say=print)


def test_a_start_is_a_whole_model_and_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PROBED", 4)
    said = []
    out = tmp_path / "out"
    reached = warmstart_sweep(sums(), tmp_path, out, Lesson(1.0, 2, seed=3), say=said.append)
    facts = json.loads((out / "warmstart.json").read_text())
    policy = load_policy(
        str(out),
        dtype="float32",
        template="plain",
        is_bare=True,
        env_kind="arithmetic",
        device="cpu",
    )
    assert facts == {
        "env": "arithmetic", "model": "tiny", "seed": 3, "lr": 1e-3, "steps": 2, "threads": 1,
        "reached": reached, "target": 1.0, "weights_sha256": policy.weights_sha256,
    }  # fmt: skip
    assert [line.split("  ")[0] for line in said] == ["step 0", "step 2"]
    assert not (out / "adapter_config.json").exists()


def test_a_model_beyond_the_target_is_not_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PROBED", 32)
    want = r"^--target 0\.05: the model has a success of 0\.\d{3} without it\. Raise it\.$"
    with pytest.raises(InputError, match=want):
        warmstart_sweep(sums(), tmp_path, tmp_path / "out", Lesson(0.05, 2), say=print)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_gold_answers_raise_the_success_and_the_target_ends_it(tmp_path):
    said = []
    reached = warmstart_sweep(
        sums(), tmp_path, tmp_path / "out", Lesson(0.58, 600), say=said.append
    )
    assert reached >= 0.58  # the shipped policy has 0.46
    assert 1 < len(said) < 12

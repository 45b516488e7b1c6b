"""Problems of reasoning-gym: the same in every process, and scored by their own data sets."""

import importlib
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from cases import each

from rltune_envs.bounds import FloorKind
from rltune_envs.checks import check_env
from rltune_envs.errors import CustomCodeError, TaskError, VerifierError
from rltune_envs.files_rows import RowError
from rltune_envs.generated import Dataset, about, entry_of, score_of
from rltune_envs.protocols import HasGoldResponse, HasParts, supports
from rltune_envs.splits import Manifest, Proof, build_manifest, require_same_files
from rltune_envs.verified_task import VerifiedTaskEnv
from rltune_envs.verifiers import Problem, make_verifier
from rltune_envs.verifiers.reasoning_gym import last_tagged


@each(
    ("response", "answer"),
    [
        ("<answer>3</answer>", "3"),
        ("1 <answer>2</answer> no, <answer>\n 3 + 4 \n</answer>.", "3 + 4"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer></answer>", ""),
        ("<answer>3", None),
        ("3", None),
    ],
)
def test_the_answer_is_in_the_last_tags(response, answer):
    assert last_tagged(response) == answer


def test_an_answer_that_no_box_can_hold():
    problem = Problem("?", "{")
    assert make_verifier("reasoning_gym").gold(problem) == "{"
    with pytest.raises(RowError, match=r"'\{' does not come back from .*; choose another extract"):
        make_verifier("reasoning_gym", {"extract": "boxed"}).gold(problem)


@pytest.mark.slow  # starts a process that imports reasoning-gym
def test_the_whole_response_is_an_answer_where_there_are_no_tags():
    env = env_of("countdown", verifier={"kind": "reasoning_gym", "extract": "tags_or_whole"})
    (answer,) = env.gold(0)["answers"]
    scores = {}
    for response in (answer, f"3, or <answer>{answer}</answer>", "<answer>3</answer>", "I guess"):
        env.reset(seed=0)
        scores[response.replace(answer, "A")] = env.step(response).reward
    assert scores == {
        "A": 1.0, "3, or <answer>A</answer>": 1.0, "<answer>3</answer>": 0.05, "I guess": 0.01
    }  # fmt: skip


def test_a_response_without_an_answer_scores_nothing_and_asks_nobody():
    grade = make_verifier("reasoning_gym").grade("3", Problem("?", "3"))
    assert (grade.score, grade.given) == (0.0, None)


def test_a_row_of_a_file_has_no_scorer():
    problem = Problem("?", "3", place="p.jsonl:1")
    with pytest.raises(VerifierError, match=r"p\.jsonl:1: it is a row of a file"):
        make_verifier("reasoning_gym").grade("<answer>3</answer>", problem)


slow = pytest.mark.slow  # starts a process that imports reasoning-gym


MIXED = [{"name": "gcd", "weight": 1, "config": {}}, {"name": "lcm", "weight": 2, "config": {}}]


def env_of(name="chain_sum", **options):
    return VerifiedTaskEnv(source=f"reasoning_gym:{name}", **options)


@slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chain_sum", {}),
        ("countdown", {"verifier": {"kind": "reasoning_gym", "extract": "boxed"}}),
        ("figlet_font", {"verifier": {"kind": "reasoning_gym", "extract": "whole"}}),
        ("gcd", {"verifier": {"kind": "number"}, "max_turns": 2}),
        ("rubiks_cube", {}),
        ("composite", {"arguments": {"datasets": MIXED}}),
    ],
)
def test_the_contract_holds(name, options):
    checked = check_env(lambda: env_of(name, **options), seeds=range(4), threads=2)
    assert "reset" in checked.checked
    assert ("expert" in checked.checked) == (name not in ("figlet_font", "rubiks_cube"))


@slow
def test_a_problem_its_prompt_and_its_score():
    env = env_of(arguments={"min_terms": 3, "max_terms": 3}, template="{question} {{x}} \\boxed{}")
    shown = env.reset(seed=0)
    assert shown.endswith(" = {x} \\boxed{}")
    assert shown.count("+") + shown.count("-") == 2
    (answer,) = env.gold(0)["answers"]
    assert env.step(f"Well: <answer>{answer}.0</answer>").success  # its scorer reads the value
    assert env.gold(0)["row"]["metadata"]["source_dataset"] == "chain_sum"
    env.reset(seed=0)
    longer = env.step(f"<answer>{answer}{answer}</answer>")
    assert (longer.reward, longer.success) == (0.5, False)  # and pays for a part of the text


SCRIPT = """
import json, sys
from rltune_envs.generated import Dataset, entry_of
print(json.dumps([entry_of(Dataset(n), s)["question"] for n in sys.argv[1:] for s in (0, 700, 3)]))
"""
ORDERED = ("isomorphic_strings", "polynomial_multiplication", "ransom_note")
"""Data sets that order sets of texts."""


@slow
def test_problems_are_the_same_in_every_process():
    def asked(hash_seed, names):
        own = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", SCRIPT, *names]
        made = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | own
        )
        return json.loads(made.stdout)

    names = (*ORDERED, "pool_matrix", "list_functions", "word_ladder", "countdown")
    one, other = asked("1", names), asked("2", names[::-1])
    by_name = [other[i : i + 3] for i in range(0, len(other), 3)]
    assert one == [text for texts in by_name[::-1] for text in texts]
    assert len(set(one)) == len(one)


@slow
def test_global_generators_are_left_alone():
    states = random.getstate(), repr(np.random.get_state())
    entry_of(Dataset("pool_matrix"), 0)
    assert (random.getstate(), repr(np.random.get_state())) == states


@slow
def test_the_splits_of_a_generator_are_disjoint_and_proved():
    env = env_of(arguments={"max_terms": 2, "max_digits": 1})  # 10 * 10 * 2 sums
    manifest = build_manifest(env, train_tasks=150, heldout_tasks=20, test_tasks=10, split_seed=4)
    assert not supports(env, HasParts)
    assert manifest.n_duplicates > 0
    assert manifest.proved is Proof.EXPERT
    assert (manifest.heldout_floor.kind, manifest.heldout_ceiling) == (FloorKind.START, 1.0)
    again = build_manifest(env, train_tasks=150, heldout_tasks=20, test_tasks=10, split_seed=4)
    assert again == manifest
    other = build_manifest(env, train_tasks=150, heldout_tasks=20, test_tasks=10, split_seed=5)
    assert {one.content_hash for one in other.heldout} != {
        one.content_hash for one in manifest.heldout
    }


@slow
def test_arguments_and_version_are_in_the_manifest():
    few = env_of(arguments={"max_terms": 2})
    manifest = build_manifest(few, train_tasks=4, heldout_tasks=2, split_seed=0)
    assert dict(manifest.files) == {
        "source: reasoning_gym:chain_sum": about(Dataset("chain_sum", '{"max_terms": 2}')).digest
    }
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    require_same_files(few, manifest)
    with pytest.raises(TaskError, match=r"^source: reasoning_gym:chain_sum: it changed after the"):
        require_same_files(env_of(arguments={"max_terms": 3}), manifest)


@slow
def test_data_sets_without_answers_are_neither_proved_nor_compared():
    env = env_of("rubiks_cube")
    assert not supports(env, HasGoldResponse)
    env.reset(seed=0)
    assert not env.step("<answer>F</answer>").success
    with pytest.raises(TaskError) as caught:
        env_of("rubiks_cube", verifier={"kind": "boxed"})
    assert str(caught.value) == (
        "reasoning_gym:rubiks_cube has no gold answers, which verifier 'boxed' compares with; "
        "choose reasoning_gym, or a function of your own"
    )


@slow
@pytest.mark.parametrize(
    ("name", "arguments", "kind", "message"),
    [
        ("chain_sums", {}, ValueError, "Did you mean 'chain_sum'?"),
        ("chain_sum", {"max_term": 3}, ValueError, "arguments has 'max_term', which chain_sum does "
         "not take; it takes min_terms, max_terms, min_digits, max_digits, allow_negation. Did you "
         "mean 'max_terms'?"),
        ("chain_sum", {"seed": 3}, ValueError, "arguments has 'seed', which is set for each "
         "problem; remove it"),
        ("chain_sum", {"min_terms": 9}, TaskError, "reasoning_gym:chain_sum makes no problem of "
         '{"min_terms": 9}: AssertionError: max_terms must be >= min_terms'),
        ("codeio", {}, TaskError, "codeio runs programs whose results are not always the same"),
        ("countdown", {"min_target": 9000, "max_target": 9000, "max_value": 2}, TaskError,
         "Failed to generate valid expression after 100 attempts"),
    ],
)  # fmt: skip
def test_what_a_data_set_refuses(name, arguments, kind, message):
    with pytest.raises(kind) as caught:
        env_of(name, arguments=arguments)
    assert message in str(caught.value)


@slow
@pytest.mark.parametrize("template", ["{qestion}", "{question} {metadata}", "Solve it."])
def test_a_template_shows_the_question_and_nothing_else(template):
    with pytest.raises(ValueError, match=r"put {question} in it, and no other column") as caught:
        env_of(template=template)
    assert template in str(caught.value)


@slow
def test_a_score_does_not_depend_on_those_before_it(monkeypatch):
    process = importlib.import_module("rltune_envs.generated.process")

    class Drawing:
        def score_answer(self, given, entry):
            return random.random(), np.random.rand(), process.sympy.core.random.rng.random()

    monkeypatch.setattr(process, "_dataset", lambda *_: Drawing())
    first, second = (process.answer(("score", "gcd", "{}", "1", {})) for _ in range(2))
    assert first == second


@slow
def test_a_scorer_that_raises_is_a_fault_and_one_that_hangs_is_ended():
    env = env_of("prime_factorization")
    env.reset(seed=0)
    step = env.step("<answer>two</answer>")
    assert step.fault.startswith(
        "verifier prime_factorization on reasoning_gym:prime_factorization[0]: it raised ValueError"
    )
    entry = entry_of(Dataset("countdown"), 0)
    with pytest.raises(CustomCodeError, match="it did not return within"):
        score_of(Dataset("countdown"), "9**9**9**9", entry, limit_s=1.0)


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TaskError) as caught:
        env_of("gcd", arguments={"size": 1})
    assert str(caught.value) == (
        "source is 'reasoning_gym:gcd', which needs the package reasoning-gym: pip install "
        "'rltune[reasoning-gym]'"
    )

"""Rubrics: hand numbers, the threshold's edge, and scores that fail."""

import math
import pickle
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import each

from rltune_envs.base import FailureClass, Task
from rltune_envs.errors import ImportPathError, VerifierError
from rltune_envs.rewards import (
    SCORES,
    Attempt,
    PlayedTurn,
    Rubric,
    Term,
    Verdict,
    evaluate,
    find_score,
)

ATTEMPT = Attempt(
    task=Task("toy-1", 1, "0" * 64, "0" * 64, difficulty=2),
    turns=(
        PlayedTurn("What is it?", "<answer>who", (), -0.1, is_valid=False),
        PlayedTurn("Once more: gold", "<answer>this</answer>", ("this",), 0.75, is_valid=True),
        PlayedTurn("And now?", "<answer>that</answer>", ("that",), 0.0, is_valid=True),
    ),
    success=False,
    reward=0.65,  # -0.1 + 0.75
    auxiliary={"em": 0.0, "f1": 0.8},
    gold={"answers": ["gold"]},
)


def constant(value):
    return lambda attempt: value


def rubric(*values, threshold=1.0):
    """Make a rubric of constant scores, all with weight 1, named a, b, c."""
    terms = (Term(name, 1.0, constant(v)) for name, v in zip("abc", values, strict=False))
    return Rubric(tuple(terms), threshold)


def test_the_reward_is_the_weighted_sum():
    terms = (
        Term("f1", 1.0, find_score("f1", auxiliary_names=("em", "f1"))),
        Term("valid", 0.3, find_score("valid_turns")),
        Term("env", -2.0, find_score("env_reward")),
    )
    verdict = Rubric(terms, threshold=0.8).judge(ATTEMPT)

    # 1 x 0.8  +  0.3 x 2/3  -  2 x 0.65  =  0.8 + 0.2 - 1.3
    assert verdict.reward == pytest.approx(-0.3)
    assert verdict.success  # 0.8 reaches 0.8
    assert verdict.auxiliary == {"f1": 0.8, "valid": 2 / 3, "env": 0.65}


NAMED = [("success", 0.0), ("env_reward", 0.65), ("valid_turns", 2 / 3), ("em", 0.0), ("f1", 0.8)]


@pytest.mark.parametrize(("name", "score"), NAMED)
def test_named_scores(name, score):
    assert find_score(name, auxiliary_names=("em", "f1"))(ATTEMPT) == score


def test_success_as_a_score():
    assert SCORES["success"](replace(ATTEMPT, success=True)) == 1.0


def test_only_the_first_score_decides_success():
    assert rubric(1.0, 0.0).judge(ATTEMPT) == Verdict(
        reward=1.0, success=True, failure_class=FailureClass.NONE, auxiliary={"a": 1.0, "b": 0.0}
    )
    assert rubric(0.0, 1.0).judge(ATTEMPT) == Verdict(
        reward=1.0, success=False, failure_class=FailureClass.WRONG, auxiliary={"a": 0.0, "b": 1.0}
    )


@each(
    ("score", "threshold", "success"),
    [
        (1.0, 1.0, True),
        (math.nextafter(1, 0), 1.0, False),
        (0.5, 0.5, True),
        (math.nextafter(0.5, 0), 0.5, False),
        (-1.0, -1.0, True),
        (0.0, -1.0, True),
    ],
)
def test_the_edge_of_the_threshold(score, threshold, success):
    assert rubric(score, threshold=threshold).judge(ATTEMPT).success is success


@each("value", [1, True, 1.0, np.float64(1), np.float32(1), Fraction(1)])
def test_every_kind_of_number_is_a_score(value):
    number = evaluate(Term("a", 1.0, constant(value)), ATTEMPT)

    assert number == 1.0
    assert type(number) is float


BAD_VALUES = [
    (math.nan, "nan, a float"),
    (math.inf, "inf, a float"),
    (-math.inf, "-inf, a float"),
    ("1.0", "'1.0', a str"),
    (None, "None, a NoneType"),
    (1j, "1j, a complex"),
    ([1.0], "[1.0], a list"),
    ("x\n" * 500, "'x\\n" + "x\\n" * 25 + "x, a str"),  # cut after 80 characters
]


@each(("value", "text"), BAD_VALUES, ids=[str(type(v)) for v, _ in BAD_VALUES])
def test_a_score_that_is_no_finite_number(value, text):
    message = f"verifier b: it returned {text}, not a finite number"
    with pytest.raises(VerifierError, match=f"^{re.escape(message)}$"):
        rubric(1.0, value).judge(ATTEMPT)


def test_a_score_that_raises_is_named_in_one_line():
    def score(attempt):
        raise KeyError("answers\nof 3\tpeople")

    with pytest.raises(VerifierError) as caught:
        Rubric((Term("em", 1.0, score),)).judge(ATTEMPT)
    assert str(caught.value) == r"verifier em: it raised KeyError: 'answers\nof 3\tpeople'"
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_long_story_is_cut():
    def score(attempt):
        raise ValueError("one\ntwo " * 1000)

    with pytest.raises(VerifierError) as caught:
        evaluate(Term("em", 1.0, score), ATTEMPT)
    assert str(caught.value).startswith("verifier em: it raised ValueError: one two one two")
    assert len(str(caught.value)) < 250


def test_a_number_too_large_for_a_float():
    with pytest.raises(VerifierError, match=r"^verifier a: it raised OverflowError: "):
        rubric(10**400).judge(ATTEMPT)


def test_a_sum_that_is_not_finite():
    with pytest.raises(VerifierError, match=r"^verifier rubric: its weighted sum of .* is inf$"):
        rubric(1e308, 1e308).judge(ATTEMPT)


def test_an_interrupt_is_no_failure_of_a_score():
    def score(attempt):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Term("a", 1.0, score), ATTEMPT)


def test_a_verifier_error_crosses_processes():
    error = pickle.loads(pickle.dumps(VerifierError("em", "it is down")))

    assert str(error) == "verifier em: it is down"


def test_responses_are_the_policys_own_text():
    # The observation of turn 2 holds the gold answer; what a score reads does not.
    assert ATTEMPT.responses == ("<answer>who", "<answer>this</answer>", "<answer>that</answer>")
    assert not any("gold" in response for response in ATTEMPT.responses)


WRONG_RUBRICS = [
    ((), 1.0, "the terms are none; give one or more with different names"),
    ("aba", 1.0, "the terms are a, b, a; give one or more with different names"),
    ("a", math.nan, "the threshold is nan; a finite number is needed"),
    ("a", math.inf, "the threshold is inf; a finite number is needed"),
]


@pytest.mark.parametrize(("names", "threshold", "message"), WRONG_RUBRICS)
def test_a_wrong_rubric_is_refused(names, threshold, message):
    terms = tuple(Term(name, 1.0, constant(1)) for name in names)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Rubric(terms, threshold)


def test_a_weight_is_finite():
    with pytest.raises(ValueError, match=r"^the weight of b is inf; a finite number is needed$"):
        Rubric((Term("a", 1.0, constant(1)), Term("b", math.inf, constant(1))))


def test_an_unknown_score_lists_the_choices():
    message = (
        "'succes' is not a score. Choose one of success, env_reward, valid_turns, em, f1, or an "
        "import path such as my_pkg.my_mod:score. Did you mean 'success'?"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        find_score("succes", auxiliary_names=("em", "f1"))


def test_a_measure_of_another_environment_is_no_score():
    with pytest.raises(ValueError, match=r"^'em' is not a score\..*:score\.$"):
        find_score("em")


def test_an_import_path_is_a_score():
    from examples.my_reward import score

    assert find_score("examples.my_reward:score") is score
    with pytest.raises(ImportPathError, match=r"did you mean 'score'\?$"):
        find_score("examples.my_reward:scores")

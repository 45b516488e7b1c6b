"""`boxed` with `compare: math_verify`: answers that are the same mathematics."""

import pytest

from rltune_envs.errors import VerifierError
from rltune_envs.verifiers import Problem, make_verifier
from rltune_envs.verifiers.math_verify import are_equal

EQUAL = [
    ("2x+4", "2(x+2)"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"),
    (r"\{2, 1\}", r"\{1, 2\}"),
    (r"5\text{ cm}", "5"),  # it drops units, which `value` does not
    ("x = 3", "3"),
]
DIFFERENT = [
    ("2x+4", "2x"),
    ("0.333", r"\frac{1}{3}"),
    ("(1, 2)", "[1, 2]"),
    ("}", "1"),
    ("?", "1"),
]


def scores(pairs, compare):
    verifier = make_verifier("boxed", {"compare": compare})
    return [verifier.grade(rf"\boxed{{{one}}}", Problem("?", gold)).score for one, gold in pairs]


@pytest.mark.slow  # starts a process that imports math-verify
def test_what_is_the_same_mathematics():
    assert scores(EQUAL, "math_verify") == [1.0] * len(EQUAL)
    assert scores(EQUAL, "value") == [0.0] * len(EQUAL)
    assert scores(DIFFERENT, "math_verify") == [0.0] * len(DIFFERENT)
    assert scores([("0.5", r"\frac12")], "math_verify") == [1.0]


@pytest.mark.slow
def test_a_comparison_that_does_not_end_is_a_fault(monkeypatch):
    monkeypatch.setattr("rltune_envs.verifiers.math_verify.LIMIT_S", 2.0)
    with pytest.raises(VerifierError, match=r"^verifier math-verify on '.*it did not return with"):
        scores([("9^{9^{9^{9}}}", "1")], "math_verify")


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^compare is 'math_verify', which needs the package"):
        make_verifier("boxed", {"compare": "math_verify"})


@pytest.mark.slow  # imports math-verify
def test_a_comparison_does_not_depend_on_those_before_it():
    import sympy.core.random as draws

    states = []
    for seed in (1, 2):
        draws.seed(seed)
        assert are_equal(("2x+4", "2(x+2)"))
        states.append(draws.rng.getstate())
    assert states[0] == states[1]

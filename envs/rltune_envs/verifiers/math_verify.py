r"""Whether two answers are the same mathematics, by the package math-verify; called in a process.

The package has time limits of its own that work in no thread; here the process is ended instead.
"""

import importlib.util
import logging

from rltune_envs.errors import CustomCodeError, VerifierError
from rltune_envs.guard import call_in_process

LIMIT_S = 10.0
"""Time limit of one comparison, in seconds; most take a tenth of one."""

_PROCESS = "rltune_envs.verifiers.math_verify:are_equal"


def require_math_verify() -> None:
    """Refuse to compare without the package.

    Raises:
        ValueError: It is not installed.

    """
    if importlib.util.find_spec("math_verify") is None:
        raise ValueError(
            "compare is 'math_verify', which needs the package math-verify: pip install "
            "'rltune[math-verify]'"
        )


def is_equivalent(given: str, gold: str) -> bool:
    """Return whether an answer is mathematically equal to the gold one.

    Raises:
        VerifierError: The comparison raised, or took too long.

    """
    try:
        return bool(call_in_process("math-verify", _PROCESS, (given, gold), limit_s=LIMIT_S))
    except CustomCodeError as error:
        raise VerifierError(f"math-verify on {given!r:.60}", error.cause) from error


def are_equal(answers: tuple[str, str]) -> bool:
    """Return whether two LaTeX answers are equal; False where one cannot be read."""
    import sympy.core.random
    from math_verify import parse, verify

    sympy.core.random.seed(0)  # it tries random numbers: no result depends on those before it
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time limit
    given, gold = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in answers)
    return bool(verify(gold, given, timeout_seconds=None))

r"""The answer is the content of the last whole \boxed{}."""

import re

from rltune_envs.choices import require_choice
from rltune_envs.files_rows import RowError
from rltune_envs.verifiers.base import Problem, TextVerifier, Verifier
from rltune_envs.verifiers.exact import normal_text
from rltune_envs.verifiers.math_verify import is_equivalent, require_math_verify
from rltune_envs.verifiers.number import read_number

COMPARE = ("text", "value", "math_verify")
_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_MAX_DEPTH = 8  # of fractions and texts in each other
_SPACING = re.compile(r"\\[ ,;:!]|\\(?:left|right|quad|qquad|displaystyle)(?![A-Za-z])|~")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt\s*(\w)")
_FRACTION = re.compile(r"\\frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree|°")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,)(?=\d{3}(?!\d))")


def last_boxed(response: str) -> str | None:
    r"""Return the content of the last \boxed{} whose braces are balanced; None without one.

    A box in a box counts as the outer one. One that was cut off does not count. Escaped braces
    (`\{`) are text.
    """
    content = None
    opened: list[tuple[bool, int]] = []  # whether it is a box, and where its content starts
    for match in _TOKEN.finditer(response):
        if match[0] == "}":
            is_box, start = opened.pop() if opened else (False, 0)
            if is_box:
                content = response[start : match.start()].strip()
        elif match[0].endswith("{") and match[0] != "\\{":
            opened.append((match[0] != "{", match.end()))
    return content


def normal_latex(text: str) -> str:
    r"""Return an answer in the form in which boxed answers are compared.

    Dropped are: `$`, spacing (`\,` `\left` `~`), the command around words (`\text{cm}`), degree
    signs, thousands (`1,234` `1{,}234`), a point at the end, blanks. Unicode minus becomes `-`,
    `\frac12`, `\dfrac{1}{2}` and `\tfrac{1}{2}` become `1/2` (in parentheses where a part is longer
    than one number, letter or symbol, or something stands beside it: `1(1/2)`), `\sqrt3` becomes
    `\sqrt{3}`, `50\%` becomes `50%`. Units that are left count: `5cm` is not `5`.
    """
    out = normal_text(text).replace("\\$", "$").replace("$", "").replace("\\%", "%")
    out = out.replace("\u2212", "-").replace("\u2013", "-")
    out = _DEGREES.sub("", _SPACING.sub("", out))
    out = _ROOT.sub(r"\\sqrt{\1}", re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", out))
    for _ in range(_MAX_DEPTH):
        out = _FRACTION.sub(_ratio, _TEXT.sub(r"\1", out))
    return re.sub(r"\s+", "", _THOUSANDS.sub("", out)).rstrip(".")


def _ratio(match: re.Match[str]) -> str:
    above, below = match[1] or match[2] or "", match[3] or match[4] or ""
    ratio = f"{_term(above)}/{_term(below)}"
    start, end = match.span()
    around = (match.string[max(0, start - 2) : start].strip()[-1:], match.string[end : end + 2])
    beside = around[0] + around[1].strip()[:1]
    return f"({ratio})" if re.search(r"[\w\\]", beside) else ratio


def _term(text: str) -> str:
    return text if re.fullmatch(r"-?\d+|[A-Za-z]|\\[A-Za-z]+", text.strip()) else f"({text})"


def boxed(*, compare: str = "value") -> Verifier:
    r"""Return the verifier that compares the content of the last whole \boxed{} with the answer.

    Args:
        compare: `text` compares `normal_latex` of both; `value` also takes numbers of equal value
            (`0.5` and `\frac{1}{2}`) for equal; `math_verify` also what the package math-verify
            finds equal (`2x+4` and `2(x+2)`).

    Raises:
        ValueError: `compare` is none of these, or its package is not installed.

    """
    require_choice("compare", compare, COMPARE)
    if compare == "math_verify":
        require_math_verify()

    def is_equal(given: str, gold: str) -> bool:
        one, other = normal_latex(given), normal_latex(gold)
        if one == other or (compare != "text" and _same_value(one, other)):
            return True
        return compare == "math_verify" and is_equivalent(given, gold)

    return TextVerifier(last_boxed, is_equal, frame=("\\boxed{", "}"), check=_checked)


def _same_value(one: str, other: str) -> bool:
    """Return whether both are nothing but numbers, of one value."""
    if not all(re.fullmatch(r"[-+]?[\d.]+(/\d+)?%?", text) for text in (one, other)):
        return False
    value = read_number(one)
    return value is not None and value == read_number(other)


def _checked(problem: Problem) -> str:
    """Return the gold answer: the content of its own last box, where it has one."""
    box = last_boxed(problem.answer)
    answer = problem.answer.strip() if box is None else box
    if last_boxed(f"\\boxed{{{answer}}}") != answer:
        raise RowError(f"the answer {answer!r} has braces that are not balanced; repair it")
    if not normal_latex(answer):
        raise RowError(f"the answer {answer!r} is empty once spacing is dropped")
    return answer

"""The tiny expression language of coupled keys: one name, `value`, and nothing else.

Literals, comparison, and/or/not, + - * / // %, and `a if condition else b`. The text is parsed to
a syntax tree and walked over a whitelist; Python's eval never sees it.
"""

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

from rltune.types import Json

MAX_LENGTH = 200

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_LITERALS = {"true": True, "false": False, "null": None}


class RuleError(ValueError):
    """A rule is not in the language, or has no value for one axis value."""


def evaluate_rule(rule: str, value: Json) -> Json:
    """Return what a coupled key must be when the axis has `value`.

    Raises:
        RuleError: The text is not in the language, or fails for this value.

    """
    if len(rule) > MAX_LENGTH:
        raise RuleError(f"it is longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(rule, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuleError("it is not an expression") from error
    try:
        result = _walk(tree.body, value)
        if isinstance(result, int) and abs(result) > sys.float_info.max:
            raise OverflowError("too large")
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise RuleError(f"it has no value for {value!r} ({error})") from error
    if not isinstance(result, bool | int | float | str | None):
        raise RuleError(f"its result for {value!r} is not a plain value")
    return result


def _walk(node: ast.expr, value: Json) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.Name(id="value"):
            return value
        case ast.Name(id=name) if name in _LITERALS:
            return _LITERALS[name]
        case ast.UnaryOp(op=op, operand=operand):
            return _operator(_UNARY, op)(_walk(operand, value))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _walk(left, value), _walk(right, value))
        case ast.BoolOp(op=op, values=values):
            wanted = isinstance(op, ast.Or)
            # any/all would lose the operand; a rule asks for a truth value only.
            return (
                any(_walk(v, value) for v in values)
                if wanted
                else all(_walk(v, value) for v in values)
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _walk(body if _walk(test, value) else orelse, value)
        case ast.Compare():
            return _compare(node, value)
        case _:
            name = ast.unparse(node)
            raise RuleError(f"{name!r} is not allowed in a rule")


def _operator(table: dict[Any, Callable[..., Any]], op: ast.AST) -> Callable[..., Any]:
    found = table.get(type(op))
    if found is None:
        raise RuleError(f"operator {type(op).__name__} is not allowed in a rule")
    return found


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    for side in (left, right):
        if isinstance(side, bool) or not isinstance(side, int | float):
            raise TypeError(f"arithmetic needs numbers, not {side!r}")
    return _operator(_BINARY, op)(left, right)


def _compare(node: ast.Compare, value: Json) -> bool:
    left = _walk(node.left, value)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _walk(comparator, value)
        if not _operator(_COMPARE, op)(left, right):
            return False
        left = right
    return True

import pytest
from cases import each

from rltune.spec.rule import RuleError, evaluate_rule


@each(
    ("rule", "value", "expected"),
    [
        ("value > 0", 0.0, False),
        ("value > 0", 0.01, True),
        ("0 < value <= 1", 1, True),  # chained, as in Python
        ("0 < value <= 1", 0, False),
        ("value == 'nofilter'", "nofilter", True),
        ("128 // value", 16, 8),
        ("-value + 3 % 2", 1, 0),  # -1 + 1
        ("'a' if value else 'b'", False, "b"),
        ("not value or value", True, True),
        ("value == true and value != false", True, True),
        ("null", 3, None),
        ("value", "text", "text"),
    ],
)
def test_value_of_rule(rule, value, expected):
    assert evaluate_rule(rule, value) == expected
    assert type(evaluate_rule(rule, value)) is type(expected)


@each(
    "rule",
    [
        "__import__('os').system('true')",
        "value.__class__",
        "other > 0",
        "[v for v in value]",
        "lambda: 1",
        "value[0]",
        "value ** 9",  # powers can take all memory
        "value @ 1",
        "value if value",
        "f'{value}'",
        "(value := 1)",
        "b'x'",
        "1j",
        "value in (1, 2)",
        "value is None",
        "~value",
        "",
        "value\n+1; 2",
        "1+" * 200 + "1",
        "\0",
    ],
)
def test_anything_else_is_refused(rule):
    with pytest.raises(RuleError):
        evaluate_rule(rule, 1)


@pytest.mark.parametrize(
    ("rule", "value"),
    [("1 / value", 0.0), ("value > 0", "text"), ("value * 9", "text"), ("value + 1", True)],
)
def test_rule_without_a_value_for_this_axis_value(rule, value):
    with pytest.raises(RuleError, match=r"^it has no value for "):
        evaluate_rule(rule, value)

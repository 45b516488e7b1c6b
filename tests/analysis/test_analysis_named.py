"""Which condition a text or a value names, for every kind of axis value."""

from cases import each

from rltune.analysis.named import of_condition, of_seed
from rltune.types import TrialSpec


def spec(value, seed=0, key="env.arguments.x"):
    text = value if isinstance(value, str) else {None: "null", True: "true"}.get(value, str(value))
    return TrialSpec(
        trial_id=f"x={text}-s{seed}",
        sweep="s",
        axis_key=key,
        condition=f"x={text}",
        axis_value=value,
        is_control=False,
        seed=seed,
        config={},
        config_hash="",
    )


@each(
    ("value", "given"),
    [
        (0.01, "1e-2"),
        (0.01, "1.0e-02"),
        (1e-05, "0.00001"),
        (5, "5.0"),
        (5.0, 5),
        (-0.1, "-.1"),
        (True, "true"),
        (True, True),
        (None, "null"),
        (None, "~"),
        (None, None),
        ("nofilter", "nofilter"),
        ("nofilter", "'nofilter'"),
        ("010", "010"),
        ("my_pkg.my_mod:Env", "my_pkg.my_mod:Env"),
        ("a=b@c", "a=b@c"),
        ("a=b@c", "x=a=b@c"),
    ],
)
def test_a_value_names_its_condition(value, given):
    specs = [spec(value), spec("other"), spec(2)]
    assert of_condition(specs, given) == specs[:1]


@each(
    ("value", "given"),
    [(1, "true"), (True, 1), (True, "1"), (0, False), (None, ""), (0.1, "0.1000001"), ("0.1", 0.1)],
)
def test_values_of_another_kind_are_others(value, given):
    assert of_condition([spec(value)], given) == []


def test_what_is_written_goes_before_what_it_means():
    text, number = spec("0.10"), spec(0.1)
    assert of_condition([number, text], "0.10") == [text]
    assert of_condition([number, text], "1e-1") == [number]


def test_the_last_at_sign_stands_before_the_seed():
    specs = [spec("a@1", 0), spec("a@1", 1), spec("a", 1)]
    assert of_seed(specs, "a@1@1") == specs[1:2]
    assert of_seed(specs, "a@1") == specs[2:]
    assert of_seed(specs, "a@one") == []

"""What is due next, by hand."""

from cases import each

from rltune.study.queue import Limits, Used, beyond, due
from rltune.study.schema import StudySweep


def sweeps(*given):
    return [StudySweep(name=n, file=f"{n}.yaml", **more) for n, more in given]


CHAIN = sweeps(("a", {}), ("b", {"control": "best kept of a"}), ("c", {"after": ("a",)}), ("d", {}))


@each(
    ("finished", "left_alone", "expected"),
    [
        ((), (), "a"),
        (("a",), (), "b"),
        (("a", "b"), (), "c"),
        (("a", "b", "c", "d"), (), None),
        ((), ("a",), "d"),  # what needs it waits, the rest goes on
        (("a",), ("b",), "c"),
        (("d",), ("a",), None),
    ],
)
def test_the_first_whose_needs_are_finished_is_due(finished, left_alone, expected):
    found = due(CHAIN, finished=finished, left_alone=left_alone)
    assert (None if found is None else found.name) == expected


def test_needs_are_named_once():
    (one,) = sweeps(("x", {"after": ("a", "b"), "control": "best kept of a"}))
    assert (one.source, one.needs) == ("a", ("a", "b"))


@each(
    ("used", "limits", "expected"),
    [
        (Used(9e9, 10**12), Limits(), ""),
        (Used(59.0, 0), Limits(seconds=60.0), ""),
        (Used(60.0, 0), Limits(seconds=60.0), "its trials ran for 60 s of 60 s"),
        (Used(0.0, 1000), Limits(tokens=1000), "its trials generated 1,000 of 1,000 tokens"),
        (Used(0.0, 0, {"EUR": 9.0}), Limits(amount=5.0, currency="USD"), ""),
        (
            Used(0.0, 0, {"USD": 5.0}),
            Limits(amount=5.0, currency="USD"),
            "its trials cost 5.00 USD of 5.00 USD",
        ),
    ],
)
def test_a_limit_is_reached_when_it_is_used_up(used, limits, expected):
    assert beyond(used, limits) == expected
    assert limits.is_any == (limits != Limits())

"""`each`: every case is run, those that fail are named, and the rest of a test is as it was."""

import inspect

import pytest
from cases import each


def test_every_case_is_run_and_each_that_fails_is_named():
    seen = []

    @each("a, b", [(1, 1), pytest.param(1, 2), (2, 3)], ids=["same", "one", "other"])
    def check(a, b):
        seen.append((a, b))
        if a != b:
            pytest.fail("they differ")

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases failed") as caught:
        check()
    assert [error.__notes__ for error in caught.value.exceptions] == [["case one"], ["case other"]]
    assert seen == [(1, 1), (1, 2), (2, 3)]


def test_a_case_without_a_name_is_named_by_its_values():
    @each("a", [0, 1])
    def check(a):
        assert not a

    with pytest.raises(ExceptionGroup) as caught:
        check()
    assert caught.value.exceptions[0].__notes__ == ["case (1,)"]


@each("n", [1, 2])
@each(("a", "b"), [(1, 2), (3, 4)])
def test_tables_multiply_and_fixtures_are_given(tmp_path_factory, n, a, b):
    (tmp_path_factory.getbasetemp() / f"{n}{a}{b}").touch()
    assert list(inspect.signature(test_tables_multiply_and_fixtures_are_given).parameters) == [
        "tmp_path_factory"
    ]


def test_a_table_without_cases_is_refused():
    with pytest.raises(AssertionError, match="no case of a, b"):
        each("a, b", [])

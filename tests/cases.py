"""Tables of cases that take microseconds each, as one test: as tests they take milliseconds."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps

import pytest

_PARAM = type(pytest.param())


def each(
    names: str | Sequence[str],
    cases: Iterable[object],
    ids: Iterable[str] | Callable[[object], str] | None = None,
) -> Callable[[Callable], Callable]:
    """Run a test for every case of a table, as `pytest.mark.parametrize` does, but as one test.

    Every case is run, and each one that fails is named. For cases that change nothing: what a
    fixture gives is the same for all.

    Args:
        names: Parameters of the test that the table gives, as `parametrize` takes them.
        cases: A value for each name, or `pytest.param` without a mark.
        ids: Names of the cases; without them a case is named by its values.

    """
    is_one = isinstance(names, str) and "," not in names
    keys = [key.strip() for key in names.split(",")] if isinstance(names, str) else list(names)
    rows = [_values(case, is_one) for case in cases]
    assert rows, f"no case of {', '.join(keys)}"
    titles = [repr(row) for row in rows] if ids is None or callable(ids) else list(map(str, ids))
    arguments = [dict(zip(keys, row, strict=True)) for row in rows]

    def decorate(test: Callable) -> Callable:
        signature = inspect.signature(test)

        @wraps(test)
        def run_all(**given: object) -> None:
            failed = [
                error
                for title, own in zip(titles, arguments, strict=True)
                if (error := _error_of(test, title, own | given))
            ]
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(rows)} cases failed", failed)

        left = [one for name, one in signature.parameters.items() if name not in keys]
        run_all.__signature__ = signature.replace(parameters=left)
        return run_all

    return decorate


def _values(case: object, is_one: bool) -> Sequence[object]:
    if isinstance(case, _PARAM):
        assert not case.marks, case
        return case.values
    return (case,) if is_one else tuple(case)


def _error_of(test: Callable, title: str, arguments: dict[str, object]) -> BaseException | None:
    try:
        test(**arguments)
    except (Exception, pytest.fail.Exception) as error:
        error.add_note(f"case {title}")
        return error
    return None

"""Rows of a cache: nothing that is still needed is lost, and little is copied."""

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from rltune.rollout.cached_rows import lay_out

CASES = [  # parents, kept, rows, moved, copies
    pytest.param([0, 1, 2], [], [0, 1, 2], {0: 0, 1: 1, 2: 2}, [], id="all-go-on"),
    pytest.param([None, None], [], [0, 1], {}, [], id="all-begin"),
    pytest.param([0, 0, 1], [], [0, 2, 1], {0: 0, 1: 1}, [(0, 2)], id="one-branches"),
    # row 0 ended: 2 takes its place, and it stands behind
    pytest.param([1, 2], [0], [1, 0], {1: 1, 2: 0, 0: 2}, [(0, 2), (2, 0)], id="one-ended"),
    pytest.param([1, 2], [], [1, 0], {1: 1, 2: 0}, [(2, 0)], id="one-is-gone"),
    # one response ended in row 0 and another goes on in it: what ended is its beginning
    pytest.param([0, 1], [0], [0, 1], {0: 0, 1: 1}, [], id="ended-inside"),
    pytest.param([0], [1, 5], [0], {0: 0, 1: 1, 5: 5}, [], id="what-stands-behind-stays"),
    pytest.param([5], [0, 1], [0], {5: 0, 0: 2, 1: 1}, [(0, 2), (5, 0)], id="a-gap-is-filled"),
    pytest.param([3, None], [], [0, 1], {3: 0}, [(3, 0)], id="a-newcomer"),
]


@each(("parents", "kept", "rows", "moved", "copies"), CASES)
def test_by_hand(parents, kept, rows, moved, copies):
    assert lay_out(parents, kept) == (rows, moved, copies)


@given(
    st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=16),
    st.sets(st.integers(0, 12)),
)
def test_every_context_finds_its_row_and_none_is_written_twice(parents, kept):
    layout = lay_out(parents, kept)
    assert sorted(layout.rows) == list(range(len(parents)))
    before = {row: f"row {row}" for row in range(13)}
    after = before | {target: before[source] for source, target in layout.copies}
    assert len({target for _, target in layout.copies}) == len(layout.copies)
    for parent, row in zip(parents, layout.rows, strict=True):
        assert parent is None or after[row] == before[parent]
    for row in kept:
        assert after[layout.moved[row]] == before[row]
    alone = kept - set(parents)
    behind = [layout.moved[row] for row in alone]
    assert len(set(behind)) == len(behind)
    assert all(row >= len(parents) for row in behind)
    needed = len(parents) + len(alone)
    assert max([0, *behind]) < max(needed, *(row + 1 for row in [*kept, 0]))

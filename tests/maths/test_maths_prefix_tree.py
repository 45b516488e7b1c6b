"""Rows packed as prefix trees: every row is a path, and sees itself alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.maths.prefix_tree import added_tokens, pack, tree_order, visible_places

ROWS = st.lists(
    st.tuples(
        st.integers(0, 9),  # a row before it, whose beginning it repeats
        st.integers(0, 9),  # how much of it
        st.lists(st.integers(0, 3), max_size=6),
    ),
    min_size=1,
    max_size=9,
)


def padded(recipe):
    """Return ids with rubbish behind what is read, and the lengths."""
    rows = []
    for source, n, tail in recipe:
        start = rows[source % len(rows)][:n] if rows else []
        rows.append([*start, *tail])
    width = max(1, *map(len, rows)) + 1
    ids = torch.full((len(rows), width), 2)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
    return ids, torch.tensor([len(tokens) for tokens in rows])


@settings(max_examples=200, deadline=None)
@given(recipe=ROWS, pair_cost=st.sampled_from([0.0, 0.01, 1.0]))
def test_every_row_is_the_path_that_its_places_see(recipe, pair_cost):
    ids, read = padded(recipe)
    if not read.any():
        with pytest.raises(ValueError, match="no token of these rows is read"):
            pack(ids, read, pair_cost=pair_cost)
        return
    packed = pack(ids, read, pair_cost=pair_cost)
    width = packed.ids_RW.shape[1]
    visible = visible_places(packed.end_RW)
    assert visible.diagonal(dim1=1, dim2=2).all()  # attention over nothing would be NaN
    for row, n in enumerate(read.tolist()):
        places = packed.place_BT[row]
        assert (places[n:] == -1).all()
        assert packed.ids_RW.flatten()[places[:n]].tolist() == ids[row, :n].tolist()
        assert packed.depth_RW.flatten()[places[:n]].tolist() == list(range(n))
        for column in range(n):
            r, w = divmod(int(places[column]), width)
            seen = r * width + visible[r, w].nonzero()[:, 0]
            assert seen.tolist() == places[: column + 1].tolist()
    used = packed.place_BT[packed.place_BT >= 0].unique()
    assert packed.n_distinct == len(used)


@settings(max_examples=100, deadline=None)
@given(recipe=ROWS, order=st.randoms(use_true_random=False))
def test_free_attention_packs_every_prefix_once_whatever_the_order(recipe, order):
    ids, read = padded(recipe)
    prefixes = {
        tuple(row[:n])
        for row, end in zip(ids.tolist(), read, strict=True)
        for n in range(1, end + 1)
    }
    if not prefixes:
        return
    index = list(range(len(ids)))
    order.shuffle(index)
    one, other = (pack(ids[i], read[i], pair_cost=0.0) for i in (slice(None), index))
    assert one.n_distinct == len(prefixes) == one.ids_RW.numel()
    assert torch.equal(one.ids_RW, other.ids_RW)
    assert torch.equal(one.end_RW, other.end_RW)


def test_a_tree_by_hand():
    """Rows 1 2 3, 1 2 4 5 and 1 2: after 1 2 comes a fork; the third row adds nothing."""
    ids = torch.tensor([[1, 2, 4, 5], [1, 2, 3, 0], [1, 2, 0, 0]])
    packed = pack(ids, torch.tensor([4, 3, 2]), pair_cost=0.0)
    assert packed.ids_RW.tolist() == [[1, 2, 3, 4, 5]]
    assert packed.depth_RW.tolist() == [[0, 1, 2, 2, 3]]
    assert packed.end_RW.tolist() == [[5, 5, 3, 5, 5]]
    assert packed.place_BT.tolist() == [[0, 1, 3, 4], [0, 1, 2, -1], [0, 1, -1, -1]]
    assert visible_places(packed.end_RW)[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]


def test_dear_attention_repeats_a_prefix():
    """Two rows of 2 + 8 tokens: one tree of 18 places costs 18 (1 + 18 c), two rows 20 (1 + 10 c).

    They are equal at c = 2 / 124.
    """
    ids = torch.cat([torch.zeros(2, 2, dtype=torch.int64), torch.arange(16).view(2, 8)], 1)
    read = torch.tensor([10, 10])
    assert pack(ids, read, pair_cost=0.016).ids_RW.shape == (1, 18)
    assert pack(ids, read, pair_cost=0.017).ids_RW.shape == (2, 10)


def test_trees_that_do_not_fit_a_row_lie_side_by_side():
    """Three pairs of equal rows of 10 tokens, nothing else in common."""
    ids = torch.arange(30).view(3, 10).repeat(2, 1)
    packed = pack(ids, torch.full((6,), 10), pair_cost=1.0)
    assert packed.ids_RW.tolist() == torch.arange(30).view(3, 10).tolist()
    assert packed.n_distinct == 30


def test_what_rows_add_to_the_tree_of_their_group():
    """Two groups: rows 7 7 8 and 7 7 9 share two tokens; the third is of another group."""
    ids = torch.tensor([[7, 7, 9, 0], [7, 7, 8, 0], [7, 7, 8, 3]])
    read, group = torch.tensor([3, 3, 4]), torch.tensor([0, 0, 1])
    assert tree_order(ids, read, group).tolist() == [1, 0, 2]
    assert added_tokens(ids, read, group).tolist() == [1, 3, 4]


@settings(max_examples=100, deadline=None)
@given(recipe=ROWS)
def test_added_tokens_count_every_prefix_of_a_group_once(recipe):
    ids, read = padded(recipe)
    group = torch.arange(len(ids)) % 2
    added = added_tokens(ids, read, group)
    for one in (0, 1):
        rows = [ids[row, : read[row]].tolist() for row in (group == one).nonzero()[:, 0].tolist()]
        prefixes = {tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)}
        assert int(added[group == one].sum()) == len(prefixes)

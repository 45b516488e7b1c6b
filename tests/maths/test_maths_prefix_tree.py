"""Rows as a prefix tree: every row is a path, and each of its cells sees that path alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.maths.prefix_tree import added_tokens, prefix_tree, tree_order

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
@given(recipe=ROWS)
def test_every_place_is_asked_for_once_and_sees_its_path(recipe):
    ids, read = padded(recipe)
    if not read.any():
        with pytest.raises(ValueError, match="no token of these rows is read"):
            prefix_tree(ids, read)
        return
    tree = prefix_tree(ids, read)
    paths = {}
    for row, n in enumerate(read.tolist()):
        places = tree.place_BT[row]
        assert (places[n:] == -1).all()
        assert tree.ids_P[places[:n]].tolist() == ids[row, :n].tolist()
        assert tree.depth_P[places[:n]].tolist() == list(range(n))
        paths |= {int(place): places[: column + 1] for column, place in enumerate(places[:n])}
    assert sorted(paths) == list(range(len(tree.ids_P)))
    seen = [
        row[visible]
        for block in tree.blocks
        for row, mask in zip(block.seen_RK, block.visible_RQK, strict=True)
        for visible in mask
    ]
    asking = torch.cat([block.asking_RQ.flatten() for block in tree.blocks])
    assert tree.n_pairs == sum(block.visible_RQK.numel() for block in tree.blocks)
    assert asking[tree.answer_P].tolist() == list(range(len(tree.ids_P)))
    for place, path in paths.items():
        assert seen[tree.answer_P[place]].tolist() == path.tolist()
    assert all(len(cells) for cells in seen)  # attention over nothing would be NaN


@settings(max_examples=100, deadline=None)
@given(recipe=ROWS, order=st.randoms(use_true_random=False))
def test_every_prefix_has_one_place_whatever_the_order(recipe, order):
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
    one, other = (prefix_tree(ids[i], read[i]) for i in (slice(None), index))
    assert len(one.ids_P) == len(prefixes)
    assert torch.equal(one.ids_P, other.ids_P)
    assert torch.equal(one.answer_P, other.answer_P)


def test_a_tree_by_hand():
    """Rows 1 2 3, 1 2 4 5 and 1 2: sorted 1 2, 1 2 3, 1 2 4 5, which add two, one and two places.

    Two blocks of widths 2 and 1 compute 2 x 2 + 1 x 1 askers, one block would compute 3 x 2.
    """
    ids = torch.tensor([[1, 2, 4, 5], [1, 2, 3, 0], [1, 2, 0, 0]])
    tree = prefix_tree(ids, torch.tensor([4, 3, 2]))
    assert tree.ids_P.tolist() == [1, 2, 3, 4, 5]
    assert tree.depth_P.tolist() == [0, 1, 2, 2, 3]
    assert tree.place_BT.tolist() == [[0, 1, 3, 4], [0, 1, 2, -1], [0, 1, -1, -1]]
    many, few = tree.blocks
    assert many.asking_RQ.tolist() == [[0, 1], [3, 4]]
    assert many.seen_RK[1].tolist() == [0, 1, 3, 4]
    assert many.visible_RQK.int().tolist() == [
        [[1, 0, 0, 0], [1, 1, 0, 0]],
        [[1, 1, 1, 0], [1, 1, 1, 1]],
    ]
    assert few.asking_RQ.tolist() == [[2]]
    assert few.seen_RK.tolist() == [[0, 1, 2]]
    assert tree.answer_P.tolist() == [0, 1, 4, 2, 3]


def test_rows_of_one_width_are_one_block():
    ids = torch.arange(20).view(4, 5)
    tree = prefix_tree(ids, torch.full((4,), 5))
    assert [block.asking_RQ.shape for block in tree.blocks] == [(4, 5)]
    assert tree.n_pairs == 4 * 5 * 5


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

"""Rows dealt to ranks: all of them once, by tokens, in equally many passes."""

import pytest
import torch
from rank_cases import rows

from rltune.trainer.batches.dealing import Share, deal, own_micro_batches
from rltune.trainer.batches.micro_batches import Limit, micro_batches

LIMIT = Limit(tokens=64)


def test_the_longest_first_each_to_the_rank_with_the_fewest_tokens():
    dealt = deal(rows(), torch.arange(8), 3, is_by_group=False)
    # 40 | 35 | 31, then 27 to the third, 23 to the second, 17 and 11 to the first, 0 to the second
    assert [own.tolist() for own in dealt] == [[0, 3, 5], [1, 4, 6], [2, 7]]


def test_rows_that_share_prefixes_stay_together_where_there_are_groups_enough():
    batch = rows()
    two = deal(batch, torch.arange(8), 2, is_by_group=True)
    assert [own.tolist() for own in two] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    three = deal(batch, torch.arange(8), 3, is_by_group=True)
    assert sorted(torch.cat(three).tolist()) == list(range(8))
    assert all(len(own) for own in three)


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("pair_cost", [None, 0.01])
def test_every_rank_makes_as_many_passes_and_each_row_is_computed_once(ranks, pair_cost):
    batch, limit = rows(), Limit(tokens=64, pair_cost=pair_cost)
    passes = [
        own_micro_batches(batch, torch.arange(8), limit, Share(rank, ranks))
        for rank in range(ranks)
    ]
    assert len({len(own) for own in passes}) == 1
    computed = [int(row) for own in passes for part in own if not part.is_idle for row in part.rows]
    assert sorted(computed) == [0, 1, 2, 3, 4, 5, 7]  # row 6 has nothing to train on


def test_a_rank_without_rows_runs_the_shortest_of_the_others():
    batch = rows((40, 0, 0, 23, 0, 0, 0, 0))
    third = own_micro_batches(batch, torch.arange(8), LIMIT, Share(2, 3))
    assert [(part.rows.tolist(), part.is_idle) for part in third] == [([3], True)]
    nothing = own_micro_batches(rows((12, 0)), torch.tensor([1]), LIMIT, Share(0, 2))
    assert nothing == ()


def test_alone_they_are_the_micro_batches_of_all_rows():
    batch = rows()
    alone = own_micro_batches(batch, torch.arange(8), LIMIT, Share(0, 1))
    whole = micro_batches(batch, torch.arange(8), LIMIT)
    assert [part.rows.tolist() for part in alone] == [part.rows.tolist() for part in whole]

"""`benchmarks/limit.py` counts by hand; rltune's side of `benchmarks/peers.py` makes its steps."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("limit")


def rows(*given):
    """Rows of (group, ids, sampled tokens at the end)."""
    width = max(len(ids) for _, ids, _ in given)
    ids_NT = torch.tensor([[*ids, *[0] * (width - len(ids))] for _, ids, _ in given])
    columns = torch.arange(width)
    lengths_N = torch.tensor([len(ids) for _, ids, _ in given])
    starts_N = lengths_N - torch.tensor([sampled for _, _, sampled in given])
    mask_NT = (columns >= starts_N[:, None]) & (columns < lengths_N[:, None])
    group_N = torch.tensor([group for group, _, _ in given])
    return SimpleNamespace(
        ids_NT=ids_NT, action_mask_NT=mask_NT, lengths_N=lengths_N, group_N=group_N
    )


def test_a_prefix_counts_once_in_its_group(limit):
    batch = rows((0, [5, 6, 7, 8], 2), (0, [5, 6, 9], 1), (1, [5, 6, 7], 1))
    # read: 5 6 7, 5 6 and 5 6; distinct: 5 6 7 of group 0 and 5 6 of group 1
    # pairs: 1 + 2 + 3 of group 0, 1 + 2 of group 1
    assert limit.count(batch) == limit.Tokens(all=7, distinct=5, distinct_pairs=9, sampled=4)


def test_a_row_without_sampled_tokens_is_not_read(limit):
    batch = rows((0, [5, 6], 1), (0, [7, 8, 9], 0))
    batch.lengths_N[1] = 0
    assert limit.count(batch) == limit.Tokens(all=1, distinct=1, distinct_pairs=1, sampled=1)


def test_operations_of_a_pass(limit):
    config = SimpleNamespace(
        hidden_size=4, num_attention_heads=2, head_dim=3, num_hidden_layers=1, vocab_size=10
    )
    model = nn.Module()
    model.base_model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    model.config = config
    tokens = limit.Tokens(all=9, distinct=5, distinct_pairs=7, sampled=3)
    # linear 2 x 5 x (24 + 24), attention 4 x 7 x 6 x 1, head 2 x 3 x 4 x 10
    assert limit.forward_flops(model, tokens) == 480 + 168 + 240
    assert limit.shapes_of(model)[:3] == [(1024, 4, 6), (1024, 6, 4), (6, 1024, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("work", ["single-turn", "multi-turn"])
def test_the_side_of_a_peer_counts_its_steps(work, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    shapes = importlib.import_module("peer_work.work")
    shapes.make_model(tmp_path / "model")
    command = [sys.executable, "-m", "peer_work.rltune_side", str(tmp_path / "model")]
    done = subprocess.run(
        [*command, work, "2", "128"],
        cwd=BENCHMARKS,
        input="step\nstep\n",
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    counts = [shapes.Count(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(counts) == 2
    shape = shapes.WORKS[work]
    most = shape.rows * shape.turns * shape.sampled
    for count in counts:
        assert count.optimizer_steps == 1
        assert 0.9 * most < count.sampled <= most
        assert count.trained > 0
        assert count.seconds > 0

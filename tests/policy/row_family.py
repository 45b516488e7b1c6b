"""Families of token rows that begin alike, made by Hypothesis."""

import torch
from hypothesis import strategies as st

ROWS = st.lists(
    st.tuples(
        st.integers(0, 7),  # a row before it, whose beginning it repeats
        st.integers(0, 12),  # how much of it
        st.lists(st.integers(2, 4), min_size=2, max_size=12),
        st.integers(0, 2**12 - 1),  # which of its tokens were sampled, in bits; 0: a fault
    ),
    min_size=1,
    max_size=8,
)


def batch_of(recipe):
    rows = []
    for source, n, tail, _ in recipe:
        rows.append([*(rows[source % len(rows)][:n] if rows else []), *tail])
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, (tokens, (*_, bits)) in enumerate(zip(rows, recipe, strict=True)):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        for column in range(1, len(tokens)):
            mask[row, column] = bits >> (column % 12) & 1
    return ids, mask

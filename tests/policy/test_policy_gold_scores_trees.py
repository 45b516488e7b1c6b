"""Gold answers in the prefix tree of their rows: the numbers of row by row, each place once."""

import pytest
import torch
from exact_norms import double
from foreign_models import foreign
from hypothesis import given, settings
from hypothesis import strategies as st
from row_family import ROWS, batch_of

from rltune.policy.gold import GoldCopy
from rltune.policy.gold_scores import gold_logprobs, hidden_with_gold
from rltune.policy.logprobs import action_hidden

KINDS = ["llama", "qwen3", "mixtral", "opt", "gpt2"]  # of full attention
IN_FLOAT64 = ["llama", "qwen3", "opt", "gpt2"]

ANSWERS = st.lists(
    st.tuples(
        st.integers(0, 7),  # the row
        st.integers(0, 23),  # where its context ends
        st.lists(st.tuples(st.integers(2, 4), st.booleans()), min_size=1, max_size=5),
    ),
    max_size=12,
)


def copies_of(recipe, ids):
    """Return answers for rows of a family; the last token of each is scored, so that one is."""
    copies = [[] for _ in ids]
    for row, end, tokens in recipe:
        said, scored = zip(*tokens, strict=True)
        own = ids[row % len(ids)]
        length = int((own != 0).sum())
        copies[row % len(ids)].append(GoldCopy(end % length + 1, said, (*scored[:-1], True)))
    return copies


def by_row(model, ids, mask, copies):
    return action_hidden(model.base_model, ids, mask), gold_logprobs(model, ids, copies)


def require_equal(got, want, tolerance):
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape
        close = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
        torch.testing.assert_close(one, other, check_dtype=bool(other.numel()), **close)


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_any_family_of_rows_and_answers_in_float64(name):
    model = double(foreign(name))

    @settings(max_examples=25, deadline=None)
    @given(recipe=ROWS, answers=ANSWERS)
    def check(recipe, answers):
        ids, mask = batch_of(recipe)
        if mask.any():
            copies = copies_of(answers, ids)
            with torch.no_grad():
                want = by_row(model, ids, mask, copies)
            require_equal(hidden_with_gold(model, ids, mask, copies), want, 1e-10)

    check()


def group():
    """Return a group of 4 rows of 24 tokens and their answers.

    The question is 6 tokens; the first turn of the first two rows is the same up to token 12. Each
    row has two answers of 3 and 4 tokens, which begin alike, after 6 and after 12 tokens.
    """
    ids = torch.randint(4, 16, (4, 24), generator=torch.Generator().manual_seed(0))
    ids[1:, :6], ids[1, :12] = ids[0, :6], ids[0, :12]
    ids[:, 6] = torch.tensor([4, 4, 5, 6])
    ids[2:, 11] = torch.tensor([7, 8])
    ids[:, 12] = torch.tensor([4, 5, 6, 7])
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, 6:9] = mask[:, 14:] = True
    no, yes = False, True
    answers = [
        GoldCopy(end, said, scored)
        for end in (6, 12)
        for said, scored in (((1, 2, 3), (no, yes, yes)), ((1, 0, 2, 3), (no, yes, yes, no)))
    ]
    return ids, mask, [answers] * 4


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_in_float32(name):
    model = foreign(name)
    want = by_row(model, *group())
    require_equal(hidden_with_gold(model, *group()), want, 1e-5)
    assert len(set(want[1].flatten().tolist())) > 4  # the model tells the answers apart


def test_each_place_is_computed_once(monkeypatch):
    """23 tokens of each row are read: 6 are the question's, and 12 the same in the first two rows.

    Rows: 23 + 11 + 17 + 17. An answer reads all but its last scored token: 1 2, and after the same
    1 a 0. So 3 tokens at each of 1 + 3 distinct contexts.
    """
    model, (ids, mask, copies) = foreign("llama"), group()
    forward, seen = model.base_model.forward, []

    def watched(*given, input_ids, **keywords):
        seen.append(input_ids.numel())
        return forward(*given, input_ids=input_ids, **keywords)

    monkeypatch.setattr(model.base_model, "forward", watched)
    hidden_with_gold(model, ids, mask, copies)
    assert seen == [23 + 11 + 17 + 17 + 3 * (1 + 3)]


def test_rows_without_any_answer():
    model, (ids, mask, _) = foreign("llama"), group()
    hidden_MD, gold_BJ = hidden_with_gold(model, ids, mask, [[]] * 4)
    assert gold_BJ.shape == (4, 0)
    torch.testing.assert_close(
        hidden_MD, action_hidden(model.base_model, ids, mask).detach(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("chunk", [1, 3])
def test_the_chunk_changes_nothing(chunk):
    model = foreign("llama")
    want = hidden_with_gold(model, *group())
    require_equal(hidden_with_gold(model, *group(), chunk=chunk), want, 1e-5)


def test_an_answer_reads_its_context_alone():
    """What the row says after a context changes no answer there, and the context does."""
    model, (ids, mask, copies) = foreign("llama"), group()
    _, want = hidden_with_gold(model, ids, mask, copies)
    ids[0, 12:] = ids[0, 12:].flip(0)
    _, after = hidden_with_gold(model, ids, mask, copies)
    require_equal([after], [want], 1e-5)
    ids[0, 10] += 1
    _, moved = hidden_with_gold(model, ids, mask, copies)
    gap = (moved - want).abs()
    assert gap[0, 2:].min() > 5e-5
    assert max(gap[0, :2].max(), gap[1:].max()) < 1e-5


def test_a_context_beyond_its_row_is_refused():
    ids, mask, _ = group()
    copies = [[GoldCopy(25, (1,), (True,))], [], [], []]
    with pytest.raises(ValueError, match=r"^a context of 25 tokens in rows of 24\.$"):
        hidden_with_gold(foreign("llama"), ids, mask, copies)

"""Where each token stands in the decoded text: sub-words, bytes, odd sequences."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rltune.policy.spans import token_spans
from rltune.policy.tiny import tiny_tokenizer


@pytest.fixture(scope="module")
def byte_level():
    """Return a tokenizer over bytes, with one merge: `th`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, "th"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def pieces(text, spans):
    return [text[start:end] for start, end in spans]


def test_no_tokens(byte_level):
    assert token_spans(byte_level, []) == ("", [])


def test_sub_words(byte_level):
    ids = byte_level.encode("the path")
    text, spans = token_spans(byte_level, ids)
    assert text == "the path"
    assert pieces(text, spans) == ["th", "e", " ", "p", "a", "th"]


def test_a_sequence_that_the_tokenizer_would_not_make(byte_level):
    ids = [byte_level.convert_tokens_to_ids(token) for token in ("t", "h", "e")]
    assert byte_level.encode("the") != ids
    assert token_spans(byte_level, ids) == ("the", [(0, 1), (1, 2), (2, 3)])


def test_the_last_byte_of_a_character_has_it(byte_level):
    ids = byte_level.encode("a’√b")  # three bytes each in the middle
    assert len(ids) == 8
    text, spans = token_spans(byte_level, ids)
    assert text == "a’√b"
    assert spans == [(0, 1), (1, 1), (1, 1), (1, 2), (2, 2), (2, 2), (2, 3), (3, 4)]


def test_a_character_that_is_never_completed(byte_level):
    ids = byte_level.encode("a√")[:-1]
    assert token_spans(byte_level, ids) == ("a", [(0, 1), (1, 1), (1, 1)])
    broken = [*ids, *byte_level.encode("b")]
    text, spans = token_spans(byte_level, broken)
    assert text.endswith("b")
    assert text[slice(*spans[-1])].endswith("b")


@pytest.mark.parametrize(
    ("kind", "said", "want"),
    [
        ("sokoban", "<answer>Up||Left</answer>", ["<answer>", "Up", "||", "Left", "</answer>"]),
        # Words stand apart: the space belongs to the token that brought it.
        (
            "multihop_qa",
            "<search>Faleth yes</search>",
            ["<search>", " Faleth", " yes", " </search>"],
        ),
    ],
)
def test_the_tiny_tokenizers(kind, said, want):
    tokenizer = tiny_tokenizer(kind)
    text, spans = token_spans(tokenizer, tokenizer.encode(said))
    assert pieces(text, spans) == want
    assert "".join(want) == text
    assert text == tokenizer.decode(tokenizer.encode(said))


def test_special_tokens_are_text_here():
    """An end tag is one; a phrase may hold it."""
    tokenizer = tiny_tokenizer("sokoban")
    ids = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert token_spans(tokenizer, ids) == ("</answer><pad>", [(0, 9), (9, 14)])

"""Planning tokens: phrases in text, and which tokens they are made of."""

import pytest
from cases import each

from rltune.policy.spans import token_spans
from rltune.policy.tiny import tiny_tokenizer
from rltune.signals.planning import DEFAULT_GRAMS, planning_spans, planning_tokens


def found(text, grams=DEFAULT_GRAMS):
    return [text[start:end] for start, end in planning_spans(text, grams)]


def marked(bars, grams=DEFAULT_GRAMS):
    """Return the marked tokens of a text; a token is what stands between two bars."""
    tokens, offsets, at = bars.split("|"), [], 0
    for token in tokens:
        offsets.append((at, at + len(token)))
        at += len(token)
    marks = planning_tokens(offsets, planning_spans("".join(tokens), grams))
    assert len(marks) == len(tokens)
    return [token for token, is_marked in zip(tokens, marks, strict=True) if is_marked]


def test_the_default_phrases():
    assert len(DEFAULT_GRAMS) == len(set(DEFAULT_GRAMS)) == 18
    for gram in DEFAULT_GRAMS:
        assert gram in found(f"so, {gram}: yes")


@each(
    "text",
    [
        "wait let me",
        "Wait, let me",
        "WAIT LET ME",
        "wait\n\nlet\tme",
        "Wait... let me",
        "Wait \N{EM DASH} let me",
        "wait\N{EM DASH}let me",
        "Wait\N{HORIZONTAL ELLIPSIS} let me",
        "wait,let\N{NO-BREAK SPACE}me",
    ],
)
def test_one_phrase_is_written_in_many_ways(text):
    assert found(f"Hm. {text} see", ["wait let me"]) == [text]


def test_a_hyphen_stands_for_a_space():
    assert found("I double-check it") == ["double-check"]


@pytest.mark.parametrize("mark", ["'", "\N{RIGHT SINGLE QUOTATION MARK}"])
@pytest.mark.parametrize("written", ["'", "\N{RIGHT SINGLE QUOTATION MARK}"])
def test_apostrophes_are_one(mark, written):
    gram = f"that{mark}s not right"
    assert found(f"No, That{written}s not right.", [gram]) == [f"That{written}s not right"]


@each(
    "text",
    [
        "the monkey insight",  # "key insight" inside a longer word
        "the key insights",
        "key_insight",
        "key of insight",
        "keyinsight",
        "key\N{LATIN SMALL LETTER E WITH ACUTE} insight",
    ],
)
def test_only_whole_words_match(text):
    assert found(text, ["key insight"]) == []


def test_characters_of_a_phrase_mean_themselves():
    assert found("a+b c?", ["a+b c?"]) == ["a+b c?"]
    assert found("aab c", ["a+b c?"]) == []


def test_a_tag_is_a_phrase():
    text = "x<search>who</search>y <SEARCH>"
    assert found(text, ["<search>"]) == ["<search>", "<SEARCH>"]
    assert found(text, ["</search>"]) == ["</search>"]
    assert found("<search>what if we", ["<search> what if we"]) == []  # a space was asked for


def test_phrases_come_in_order_once_and_may_overlap():
    text = "The key is: wait, let me check. Let me check"
    want = ["The key is", "wait, let me", "let me check", "Let me check"]
    assert found(text) == want
    assert found(text, DEFAULT_GRAMS + DEFAULT_GRAMS) == want


def test_nothing_to_find():
    assert found("") == []
    assert found("let me think", ()) == []
    assert found("nothing of the kind") == []
    assert planning_tokens([], [(0, 3)]) == []


@pytest.mark.parametrize("gram", ["", "  "])
def test_an_empty_phrase_is_refused(gram):
    with pytest.raises(ValueError, match=r"is not a phrase; give at least one word\.$"):
        planning_spans("let me think", [gram])


@each(
    ("bars", "want"),
    [
        # The original marks "foo" and " bar" too.
        ("foo| bar| let| me| think| now", [" let", " me", " think"]),
        # It misses all of these.
        ("try| an|other| ap|proach|.", ["try", " an", "other", " ap", "proach"]),
        ("So| that|'s| not| right|!", [" that", "'s", " not", " right"]),
        ("Wait|,| let| me", ["Wait", ",", " let", " me"]),
        ("let|\n|me|\n| think|\n", ["let", "\n", "me", "\n", " think"]),
        # A token that is partly a phrase belongs to it; one that only touches it does not.
        ("(let| me| check)| (|what if we|)", ["(let", " me", " check)", "what if we"]),
        ("start over", ["start over"]),
    ],
)
def test_exactly_the_tokens_of_a_phrase(bars, want):
    assert marked(bars) == want


def test_tokens_without_characters():
    # The first bytes of a character add nothing; they belong to the phrase they stand inside of.
    offsets = [(0, 0), (0, 4), (4, 4), (4, 5), (5, 6), (6, 6)]
    assert planning_tokens(offsets, [(0, 5)]) == [False, True, True, True, False, False]
    assert planning_tokens(offsets, [(4, 6)]) == [False, False, False, True, True, False]


def test_the_tokens_of_a_real_tokenizer():
    tokenizer = tiny_tokenizer("sokoban")
    ids = tokenizer("<answer>Up</answer>", add_special_tokens=False)["input_ids"]
    text, offsets = token_spans(tokenizer, ids)
    marks = planning_tokens(offsets, planning_spans(text, ["up"]))
    assert [text[a:b] for (a, b), is_in in zip(offsets, marks, strict=True) if is_in] == ["Up"]
    assert len(marks) == len(ids) > 1
    tags = planning_tokens(offsets, planning_spans(text, ["<answer>"]))
    assert tags == [True] + [False] * (len(ids) - 1)


def test_a_byte_level_tokenizer_splits_words_and_apostrophes():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    phrase = "that\N{RIGHT SINGLE QUOTATION MARK}s not right"
    ids = tokenizer(f"So {phrase}, \N{EM DASH}")["input_ids"]
    text, offsets = token_spans(tokenizer, ids)
    marks = planning_tokens(offsets, planning_spans(text, DEFAULT_GRAMS))
    # One token for each byte: three for the apostrophe and for the dash.
    assert marks == [False] * 3 + [True] * len(phrase.encode()) + [False] * len(", ---")

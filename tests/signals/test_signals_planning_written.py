"""Planning tokens: the ways in which all default phrases are written, and words set apart."""

from cases import each

from rltune.policy.spans import token_spans
from rltune.policy.tiny import tiny_tokenizer
from rltune.signals.planning import DEFAULT_GRAMS, planning_spans, planning_tokens

WAYS = {
    "upper": str.upper,
    "title": str.title,
    "lines": lambda gram: gram.replace(" ", "\n"),
    "paragraphs": lambda gram: gram.replace(" ", " \n\n\t"),
    "commas": lambda gram: gram.replace(" ", ", "),
    "commas-apart": lambda gram: gram.replace(" ", " , "),
    "curly": lambda gram: gram.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}"),
    "apostrophe-apart": lambda gram: gram.replace("'", " ' "),
    "clitic-apart": lambda gram: gram.replace("'", " '"),
}


def found(text, grams=DEFAULT_GRAMS):
    return [text[start:end] for start, end in planning_spans(text, grams)]


def marked(tokenizer, said, grams):
    """Return the marked tokens of what a tokenizer reads in a text, as they are decoded."""
    text, offsets = token_spans(tokenizer, tokenizer(said, add_special_tokens=False)["input_ids"])
    marks = planning_tokens(offsets, planning_spans(text, grams))
    return [text[a:b].strip() for (a, b), is_in in zip(offsets, marks, strict=True) if is_in]


def test_there_are_eighteen_in_five_families():
    families = {
        "hesitation": ("wait let me", "let me think", "on second thought"),
        "verification": ("let me check", "let me verify", "is this right", "double check"),
        "backtracking": (
            *("try another approach", "go back and", "start over"),
            *("that's not right", "that doesn't work"),
        ),
        "alternatives": ("another way to", "or we could", "what if we"),
        "metacognition": ("notice that", "the key is", "the key insight"),
    }
    assert tuple(gram for family in families.values() for gram in family) == DEFAULT_GRAMS


@each("way", WAYS)
@each("gram", DEFAULT_GRAMS)
def test_every_default_phrase_is_found_as_it_is_written(gram, way):
    written = WAYS[way](gram)
    text = f"Hm. {written}? No."
    assert written in found(text)
    # One token for each character: those of the phrase are marked, and no other.
    offsets = [(at, at + 1) for at in range(len(text))]
    marks = planning_tokens(offsets, planning_spans(text, [gram]))
    assert marks == [4 <= at < 4 + len(written) for at in range(len(text))]


@each(
    "text",
    [
        "forgo back and",
        "go back andante",
        "go backs and",
        "restart over",
        "start overs",
        "start_over",
        "the key isn",
        "thats not right",
        "let me, rethink",
        "let mecheck",
        "let (me) think",
    ],
)
def test_parts_of_longer_words_and_other_words_between_do_not_match(text):
    assert found(text) == []


def test_phrases_that_share_words_or_repeat_inside_themselves():
    assert found("let me think let me check") == ["let me think", "let me check"]
    assert found("Wait let me think") == ["Wait let me", "let me think"]
    assert found("go go go", ["go go"]) == ["go go", "go go"]
    assert planning_tokens([(0, 2), (3, 5), (6, 8)], planning_spans("go go go", ["go go"])) == [
        True,
        True,
        True,
    ]


def test_a_tag_beside_words():
    assert found("x<search>who", ["<search> who", "<search>"]) == ["<search>"]
    assert found("<search> who", ["<search> who"]) == ["<search> who"]
    assert found("<search> whoever", ["<search> who"]) == []


def test_words_of_a_tokenizer_that_sets_them_apart():
    """That of the multi-hop QA policy decodes "Elba, is" as "Elba , is"."""
    tokenizer = tiny_tokenizer("multihop_qa")
    said = "Who is it? <search>Elba Birchford</search> Its seat."
    assert marked(tokenizer, said, ["who is"]) == ["Who", "is"]
    assert marked(tokenizer, said, ["<search>", "</search>"]) == ["<search>", "</search>"]
    assert marked(tokenizer, said, ["<search> elba"]) == ["<search>", "Elba"]
    assert marked(tokenizer, said, ["its seat"]) == ["Its", "seat"]
    assert marked(tokenizer, "Who is? Elba, is Its.", ["elba is"]) == ["Elba", ",", "is"]

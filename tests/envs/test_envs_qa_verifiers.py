"""The scores of answers: numbers by hand, in the documented order of normalisation."""

import pytest
from cases import each

from rltune_envs.multihop_qa.verifiers import (
    exact_match,
    f1,
    normalize_answer,
    sub_em,
)

NORMALIZED = [
    ("The  Eiffel\tTower.\n", "eiffel tower"),
    ("U.S.A.", "usa"),  # punctuation is removed, not replaced by a blank
    ("A-ha", "aha"),  # ... and before articles: the A is no article any more
    ("a.", ""),  # ... and the other way round: without its point it is one
    ("THE", ""),  # lower case comes first
    ("an A the", ""),
    ("theatre anthem", "theatre anthem"),  # articles are whole words
    ("O'Brien", "obrien"),
    ("“quoted”", "“quoted”"),  # string.punctuation is ASCII
    ("Étude", "étude"),
    ("Beyonce\u0301", "beyonc\u00e9"),  # one text on the screen is one answer
    ("", ""),
    (" \n", ""),
    ("1,834", "1834"),
    ("\ud800", "\ud800"),
]


@each(("text", "expected"), NORMALIZED)
def test_normal_form(text, expected):
    assert normalize_answer(text) == expected
    assert normalize_answer(expected) == expected


EM = [  # (prediction, gold answers, exact match, contained)
    ("the Amber Guild!", ["Amber Guild"], 1, 1),
    ("amber guild", ["x", "The Amber Guild"], 1, 1),  # any alias
    ("Guild Amber", ["Amber Guild"], 0, 0),
    ("It is Amber Guild", ["Amber Guild"], 0, 1),
    ("Amber", ["Amber Guild"], 0, 0),
    ("paris", ["pari"], 0, 0),  # words, not characters
    ("born in 1834", ["34"], 0, 0),
    ("the U.S.A. team", ["usa"], 0, 1),
    ("Amber, the Guild", ["Amber Guild"], 1, 1),  # what normalising removes does not part words
    ("I do not know", ["no"], 0, 0),
    ("there is no answer", ["no"], 0, 0),  # a closed answer is said or not said
    ("yes it is", ["yes"], 0, 0),
    ("No.", ["no"], 1, 1),
    ("yesterday", ["yes"], 0, 0),
    ("no man", ["no man"], 1, 1),  # a gold of two words is no closed one
    ("", ["yes"], 0, 0),
    ("the", ["a"], 0, 0),  # nothing is left on both sides
    ("anything", ["the"], 0, 0),  # an empty alias is contained in nothing
    ("yes", [], 0, 0),
]


@each(("prediction", "answers", "em", "contained"), EM)
def test_exact_match_and_containment(prediction, answers, em, contained):
    assert exact_match(prediction, answers) == em
    assert sub_em(prediction, answers) == contained


F1 = [
    ("Alba Corvin", ["Alba Corvin"], 1.0),
    ("Alba", ["Alba Corvin"], 2 / 3),  # shared 1, words 1 + 2: 2 * 1 / 3
    ("the painter Alba Corvin", ["Alba Corvin"], 4 / 5),  # shared 2, words 3 + 2
    ("red red blue", ["red blue blue"], 4 / 6),  # as multisets red and blue once each
    ("red red", ["red red blue"], 4 / 5),  # both are shared: 2 * 2 / (2 + 3)
    ("red red", ["red"], 2 / 3),  # the second red is not shared: 2 * 1 / (2 + 1)
    ("x y", ["a b", "x z", "x y z"], 4 / 5),  # the best alias: x and y of 2 + 3
    ("green", ["red"], 0.0),
    ("yes", ["yes"], 1.0),
    ("yes", ["no"], 0.0),
    ("yes it is", ["yes"], 0.0),  # the gold side is closed: only equality counts
    ("no", ["no man"], 0.0),  # and so is the other side
    ("noanswer", ["noanswer really"], 0.0),
    ("not yes", ["yes sir"], 1 / 2),  # neither side is exactly yes: 2 * 1 / 4
    ("", ["yes"], 0.0),
    ("the", ["an"], 0.0),
    ("yes", [], 0.0),
]


@each(("prediction", "answers", "expected"), F1)
def test_f1(prediction, answers, expected):
    assert f1(prediction, answers) == pytest.approx(expected)


@pytest.mark.parametrize("score", [exact_match, sub_em, f1])
def test_scores_are_floats(score):
    assert type(score("yes", ["yes"])) is float
    assert type(score("", ["yes"])) is float

"""Scores of an answer against the gold answers.

They look at text that the caller took from the policy's own response, and at nothing else.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from unicodedata import normalize

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = ("yes", "no", "noanswer")  # answers that are right or wrong, never partly right


def normalize_answer(text: str) -> str:
    """Return a text in the form in which answers are compared, as SQuAD does it.

    In this order: composed characters (an e and an accent are an é: many tokenizers write no
    other); lower case; punctuation is removed (not replaced by a blank); the articles a, an
    and the are removed; white space is collapsed.
    """
    composed = normalize("NFC", text).lower()
    return " ".join(_ARTICLES.sub(" ", composed.translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 where the prediction equals a gold answer once both are normalised, else 0.

    A prediction of which nothing is left matches nothing.
    """
    said = normalize_answer(prediction)
    return float(bool(said) and said in map(normalize_answer, answers))


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 where the prediction contains a gold answer once both are normalised, else 0.

    Whole words in a row count. Where the gold answer is yes, no or noanswer, anything but equality
    gives 0, as in `f1`: "there is no answer" does not say no. Search-R1 compares characters
    instead, so that "I do not know" contains "no".
    """
    said = normalize_answer(prediction)
    return float(
        any(
            said == gold if gold in _CLOSED else contains_words(said, gold)
            for gold in map(normalize_answer, answers)
        )
    )


def contains_words(text: str, words: str) -> bool:
    """Return whether words stand in a row in a text, both with single blanks; no words never do."""
    return bool(words) and f" {words} " in f" {text} "


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best overlap of words with a gold answer, from 0 to 1.

    F1 = 2 * shared / (words said + gold words), where a word is shared as often as it stands on
    both sides. Where either side is yes, no or noanswer, anything but equality gives 0.
    """
    said = normalize_answer(prediction)
    return max((_overlap(said, normalize_answer(gold)) for gold in answers), default=0.0)


def _overlap(said: str, gold: str) -> float:
    if said != gold and (said in _CLOSED or gold in _CLOSED):
        return 0.0
    words, gold_words = said.split(), gold.split()
    shared = (Counter(words) & Counter(gold_words)).total()
    return 2 * shared / (len(words) + len(gold_words)) if shared else 0.0

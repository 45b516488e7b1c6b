"""Scores of an answer against the gold answers.

They look only at text that the caller took from the policy's own response.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from unicodedata import category, normalize

from rltune_envs.multihop_qa.words import has_unspaced, units, without_inner_blanks

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = ("yes", "no", "noanswer")  # answers that are never partly right


def normalize_answer(text: str) -> str:
    """Return a text in the form in which answers are compared, as SQuAD does it.

    In this order: characters are composed (e and accent become é, as many tokenizers write it) and
    lowered; punctuation is removed, not replaced by a blank; the articles a, an and the are
    removed; white space is collapsed.

    Punctuation is ASCII's, as SQuAD has it. A text that holds characters of a script without blanks
    (Chinese, Japanese, Thai) loses all of Unicode's, and the blanks beside such characters.
    """
    composed = normalize("NFC", text).lower()
    if has_unspaced(composed):
        kept = "".join(one for one in composed if not category(one).startswith("P"))
        composed = without_inner_blanks(kept)
    return " ".join(_ARTICLES.sub(" ", composed.translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 where the prediction equals a gold answer once both are normalised, else 0.

    A prediction that is empty once normalised matches nothing.
    """
    predicted = normalize_answer(prediction)
    return float(bool(predicted) and predicted in map(normalize_answer, answers))


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 where the prediction contains a gold answer once both are normalised, else 0.

    Whole consecutive words count. Where the gold answer is yes, no or noanswer, anything but
    equality gives 0, as in `f1`: "there is no answer" does not say no. Search-R1 compares
    characters instead, so that "I do not know" contains "no".
    """
    predicted = normalize_answer(prediction)
    return float(
        any(
            predicted == gold if gold in _CLOSED else contains_words(predicted, gold)
            for gold in map(normalize_answer, answers)
        )
    )


def contains_words(text: str, words: str) -> bool:
    """Return whether a text contains consecutive words (`units`); never no words."""
    text, words = (" ".join(units(one)) for one in (text, words))
    return bool(words) and f" {words} " in f" {text} "


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best overlap of words with a gold answer, from 0 to 1.

    F1 = 2 * shared / (predicted words + gold words), where a word is shared as often as both sides
    have it. In a script without blanks each character is a word. Where either side is yes, no or
    noanswer, anything but equality gives 0.
    """
    predicted = normalize_answer(prediction)
    return max((_overlap(predicted, normalize_answer(gold)) for gold in answers), default=0.0)


def _overlap(predicted: str, gold: str) -> float:
    if predicted != gold and (predicted in _CLOSED or gold in _CLOSED):
        return 0.0
    words, gold_words = units(predicted), units(gold)
    shared = (Counter(words) & Counter(gold_words)).total()
    return 2 * shared / (len(words) + len(gold_words)) if shared else 0.0

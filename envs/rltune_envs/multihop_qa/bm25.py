"""BM25 over passages held in memory.

Variant: Lucene's, exact (no rounded lengths), with k1 = 1.5 and b = 0.75. For a passage of `l`
words in a corpus of `N` with mean length `m`, a query word that occurs `tf` times in it and in
`df` passages adds

    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * l / m))

once for each time it occurs in the query.

Words are runs of letters, digits and underscores, in Unicode form NFKC with case folded; where a
script writes no blanks, pairs of neighbouring characters (`words.terms`). There is no stemming and
there are no stop words: "Arthur's" is the words `arthur` and `s`.
"""

from collections.abc import Sequence

import numpy as np

from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.words import terms

K1 = 1.5
B = 0.75


class Bm25Retriever:
    """Ranks passages by their title and text; equal scores keep the order of the passages.

    It is immutable and may be shared by threads.

    Args:
        passages: What is searched; the index is built at once.

    Raises:
        ValueError: There is no passage with a word in it.

    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        from bm25s import BM25

        self.passages = tuple(passages)
        texts = [terms(f"{passage.title} {passage.text}") for passage in self.passages]
        # Our own numbering: the library's depends on the interpreter's hash seed.
        self._ids: dict[str, int] = {}
        ids = [[self._ids.setdefault(word, len(self._ids)) for word in text] for text in texts]
        if not self._ids:
            raise ValueError(
                f"passages: there is no word in the {len(self.passages)} given; "
                "BM25 needs at least one passage with text"
            )
        self._index = BM25(k1=K1, b=B, method="lucene", dtype="float64")
        self._index.index((ids, self._ids), create_empty_token=False, show_progress=False)

    def search(self, query: str, *, k: int) -> tuple[Passage, ...]:
        """Return at most `k` passages that share a word with the query, best first."""
        return tuple(self.passages[number] for number, _ in self.rank(query, k=k))

    def rank(self, query: str, *, k: int) -> list[tuple[int, float]]:
        """Return the indices and scores of what `search` finds.

        Raises:
            ValueError: `k` is below 1.

        """
        if k < 1:
            raise ValueError(f"k: {k} is below 1; ask for at least one passage")
        # Sorted: the order of the words must not change a last bit, and with it a tie.
        ids = sorted(self._ids[word] for word in terms(query) if word in self._ids)
        if not ids:
            return []
        scores = self._index.get_scores_from_ids(ids)
        matches = np.flatnonzero(scores)
        if len(matches) > k:
            least = np.partition(scores[matches], -k)[-k]
            matches = matches[scores[matches] >= least]
        best = matches[np.argsort(-scores[matches], kind="stable")][:k]
        return [(int(number), float(scores[number])) for number in best]

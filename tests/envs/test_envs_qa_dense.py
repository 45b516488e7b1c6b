"""Dense retrieval: against brute force, built once, kept on disk, served by the same protocol."""

import json

import numpy as np
import pytest

from rltune_envs.errors import RetrieverError, TaskError
from rltune_envs.multihop_qa import dense
from rltune_envs.multihop_qa.dense import DenseRetriever, text_of, unit
from rltune_envs.multihop_qa.embedders import HashingEmbedder
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.server import RequestError, RetrievalServer, answer

pytest.importorskip("faiss", reason="pip install 'rltune[dense]'")

WORDS = ["amber", "bell", "castle", "dawn", "elm", "forge", "guild", "harbour", "iris", "jade"]
PASSAGES = tuple(
    Passage(
        f"{WORDS[i % 10]} {WORDS[i // 10 % 10]}", " ".join(WORDS[j % 10] for j in range(i, i * 2))
    )
    for i in range(1, 200)
)


class Counting(HashingEmbedder):
    """Counts the texts that it embeds; may break off."""

    def __init__(self, most=10**9):
        self.n, self.most = 0, most

    def embed(self, texts, *, is_query):
        self.n += len(texts)
        if self.n > self.most:
            raise RetrieverError("the model is gone")
        return super().embed(texts, is_query=is_query)


def brute_force(query, k):
    """All cosines in float64, best first."""
    embedder = HashingEmbedder()
    passages = embedder.embed(list(map(text_of, PASSAGES)), is_query=False).astype(float)
    vector = embedder.embed([query], is_query=True)[0].astype(float)
    lengths = np.linalg.norm(passages, axis=1) * np.linalg.norm(vector)
    return np.sort(passages @ vector / lengths)[::-1][:k]


@pytest.mark.parametrize("query", ["amber castle", "Jade, jade and IRIS?", "elm", *WORDS[:3]])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_it_ranks_as_brute_force_does(tmp_path, query, k):
    retriever = DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    ranked = retriever.rank(query, k=k)
    scores = [score for _, score in ranked]
    np.testing.assert_allclose(scores, brute_force(query, k), atol=1e-6)
    assert ranked == sorted(ranked, key=lambda one: (-one[1], one[0]))
    assert len({number for number, _ in ranked}) == min(k, len(PASSAGES))
    assert retriever.search(query, k=k) == tuple(PASSAGES[number] for number, _ in ranked)


def test_a_query_without_a_word_finds_nothing(tmp_path):
    assert DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path).search("?", k=3) == ()


def test_the_index_is_built_once_and_mapped(tmp_path):
    first, again, told = Counting(), Counting(), []
    one = DenseRetriever(PASSAGES, first, tmp_path, progress=lambda *done: told.append(done))
    assert first.n == len(PASSAGES) + 1  # the first one also tells the dimension
    assert told == [(0, 199), (64, 199), (128, 199), (192, 199), (199, 199)]
    other = DenseRetriever(PASSAGES, again, tmp_path)
    assert again.n == 0
    assert other.rank("amber", k=9) == one.rank("amber", k=9)
    assert isinstance(other._vectors, np.memmap)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.json", "vectors.f32"]


def test_an_interrupted_build_goes_on(tmp_path):
    with pytest.raises(RetrieverError, match="the model is gone"):
        DenseRetriever(PASSAGES, Counting(most=100), tmp_path / "a")
    with (tmp_path / "a" / "vectors.part").open("ab") as file:
        file.write(b"torn")
    rest = Counting()
    DenseRetriever(PASSAGES, rest, tmp_path / "a")
    assert rest.n == len(PASSAGES) - dense.BATCH
    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path / "b")
    files = [(tmp_path / name / "vectors.f32").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_the_index_of_something_else_is_refused(tmp_path):
    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    changed = (*PASSAGES[:-1], Passage("x", "y"))
    with pytest.raises(
        TaskError, match=r"index\.json: corpus_sha256 is '.*it is the index of some"
    ):
        DenseRetriever(changed, HashingEmbedder(), tmp_path)
    other = HashingEmbedder()
    other.name = "e5"
    with pytest.raises(TaskError, match=r"model is 'hashing-512', not 'e5': .* delete this one"):
        DenseRetriever(PASSAGES, other, tmp_path)


@pytest.mark.parametrize("damage", ["", "[]", json.dumps({"dimension": "x"})])
def test_a_damaged_header_is_refused(tmp_path, damage):
    (tmp_path / "index.json").write_text(damage)
    with pytest.raises(TaskError, match="is not the header of an index; delete the folder"):
        DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)


def test_a_cut_file_is_refused(tmp_path):
    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    path = tmp_path / "vectors.f32"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(TaskError, match=r"has 407544 bytes, not 407552; delete the folder"):
        DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)


@pytest.mark.parametrize("name", ["vectors.f32", "vectors.part"])
def test_vectors_without_a_header_are_refused(tmp_path, name):
    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    (tmp_path / "index.json").unlink()
    (tmp_path / "vectors.f32").rename(tmp_path / name)
    with pytest.raises(TaskError, match=rf"{name}: has no index\.json beside it; delete the fo"):
        DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)


def test_an_index_is_built_by_one_process_at_a_time(tmp_path):
    class Nosy(HashingEmbedder):
        """Opens the same index while it is built."""

        def embed(self, texts, *, is_query):
            if (tmp_path / "vectors.part").exists():
                with pytest.raises(TaskError, match="another process builds this index; wait"):
                    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
                asked.append(len(texts))
            return super().embed(texts, is_query=is_query)

    asked = []
    nosy = DenseRetriever(PASSAGES, Nosy(), tmp_path)
    assert sum(asked) == len(PASSAGES)
    scores = [score for _, score in nosy.rank("amber", k=9)]
    np.testing.assert_allclose(scores, brute_force("amber", 9), atol=1e-6)


def test_a_vector_that_is_not_finite_finds_nothing_and_is_never_stored(tmp_path):
    class Overflowing(HashingEmbedder):
        def embed(self, texts, *, is_query):
            vectors = super().embed(texts, is_query=is_query)
            vectors[["jade jade" in text for text in texts], 7] = np.nan
            return vectors

    message = r"hashing-512: it made a vector with numbers that are not finite of 'jade jade"
    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path / "sound")
    retriever = DenseRetriever(PASSAGES, Overflowing(), tmp_path / "sound")
    with pytest.raises(RetrieverError, match=message):
        retriever.rank("jade jade", k=3)
    with pytest.raises(RetrieverError, match=message):
        DenseRetriever(PASSAGES, Overflowing(), tmp_path / "new")
    assert not (tmp_path / "new" / "vectors.f32").exists()


def test_unit_vectors():
    np.testing.assert_allclose(unit(np.array([[3, 4], [0, 0]], np.float32)), [[0.6, 0.8], [0, 0]])


def test_hashing_is_the_same_everywhere():
    (row,) = HashingEmbedder().embed(["Ulm ulm Bonn"], is_query=True)
    assert {int(i): float(row[i]) for i in np.flatnonzero(row)} == {
        206: -1.0,
        217: pytest.approx(-(2**0.5)),
    }


def test_it_is_served_by_the_same_protocol(tmp_path):
    retriever = DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    with RetrievalServer(retriever) as server, HttpRetriever(server.url, retries=0) as client:
        assert client.search("amber castle", k=5) == retriever.search("amber castle", k=5)


def test_a_model_that_is_gone_is_status_503(tmp_path):
    DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    retriever = DenseRetriever(PASSAGES, Counting(most=0), tmp_path)
    with pytest.raises(RequestError) as caught:
        answer(retriever, b'{"queries": ["amber"]}')
    assert (caught.value.status, caught.value.text) == (503, "the model is gone")


def test_a_query_with_half_a_character_is_refused(tmp_path):
    retriever = DenseRetriever(PASSAGES, HashingEmbedder(), tmp_path)
    with pytest.raises(RequestError) as caught:
        answer(retriever, b'{"queries": ["amber \\ud83d"]}')
    text = "queries holds U+D83D, half of a character"
    assert (caught.value.status, caught.value.text) == (400, text)

"""Where questions and passages come from: files, servers, and what cannot be used."""

import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Barrier

import pytest
from cases import each
from patience import HANG_S

from rltune_envs.checks import check_env
from rltune_envs.errors import TaskError
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.guess import guess_probability, guesses
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
from rltune_envs.multihop_qa.records import Question
from rltune_envs.multihop_qa.server import RetrievalServer
from rltune_envs.multihop_qa.sources import search
from rltune_envs.multihop_qa.world import World

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "qa"
T = "<think></think>"


def row(number, answer="Rome", titles=("Alba", "Bruno"), has_passages=True):
    context = [[title, [f"{title} is here.", f" Row {number}."]] for title in titles]
    return {
        "_id": f"q{number}",
        "question": f"Question number {number}?",
        "answer": answer,
        "type": "bridge",
        "supporting_facts": [[title, 0] for title in titles],
        "context": context if has_passages else [],
    }


def at_once(ask, n=4):
    """Return what threads get that ask at the same time."""
    barrier = Barrier(n)

    def wait_and_ask():
        barrier.wait(HANG_S)
        return ask()

    with ThreadPoolExecutor(n) as pool:
        return [answer.result(HANG_S) for answer in [pool.submit(wait_and_ask) for _ in range(n)]]


@pytest.fixture
def file_of(tmp_path):
    def write(*rows, name="questions.json"):
        path = tmp_path / name
        path.write_text(json.dumps(rows), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def impatient(monkeypatch):
    """Ask a server that failed again at once."""
    monkeypatch.setattr(HttpRetriever, "_wait", lambda *_: 0.0)


def test_consecutive_seeds_visit_each_row_once(file_of):
    env = MultihopQaEnv(questions=file_of(*(row(i) for i in range(10))))
    ids = [env.task(seed).facts["source"] for seed in range(30)]
    assert set(ids[:10]) == {f"q{i}" for i in range(10)}
    assert ids[:10] == ids[10:20] == ids[20:]
    assert len(set(ids[7:17])) == 10
    assert ids[:10] != sorted(ids[:10])  # so that any split is a mixture
    assert env.task(2**63 - 1).facts["source"] == ids[(2**63 - 1) % 10]


def test_what_is_searched(file_of, tmp_path):
    rows = row(0), row(1, titles=("Carla", "Dario"))
    passages = tmp_path / "passages.jsonl"
    passages.write_text('{"title": "Emma", "text": "Emma is here."}\n', encoding="utf-8")
    found = {}
    for corpus in ("own", "all", str(passages)):
        env = MultihopQaEnv(
            questions=file_of(*rows), corpus=corpus, k=9, prompt="compact", format_penalty=0.0
        )
        seed = next(seed for seed in range(2) if env.task(seed).facts["source"] == "q1")
        env.reset(seed=seed)
        shown = env.step("<search>here</search>").observation
        found[corpus] = [name for name in ("Alba", "Bruno", "Carla", "Dario", "Emma")
                         if name in shown]  # fmt: skip
    assert list(found.values()) == [
        ["Carla", "Dario"],
        ["Alba", "Bruno", "Carla", "Dario"],
        ["Emma"],
    ]


def test_the_expert_reads_the_gold_passages_of_a_file(file_of):
    env = MultihopQaEnv(questions=file_of(row(0)), k=1)
    env.reset(seed=0)
    for title in ("Alba", "Bruno"):
        (action,) = env.expert_actions()
        assert action == f"search: {title}"
        env.step(env.format_response([action]))
    last = env.step(env.format_response(env.expert_actions()))
    assert last.success
    assert last.auxiliary["supporting_recall"] == 1.0


def test_the_expert_does_not_search_for_what_it_has_read_or_tried(file_of, tmp_path):
    passages = tmp_path / "passages.jsonl"
    passages.write_text('{"title": "Emma", "text": "Emma is here."}\n', encoding="utf-8")
    env = MultihopQaEnv(questions=file_of(row(0)), corpus=str(passages))
    env.reset(seed=0)
    asked = [env.expert_actions()[0]]
    while asked[-1].startswith("search"):
        env.step(env.format_response(asked[-1:]))
        asked += env.expert_actions()
    assert asked == ["search: Alba", "search: Bruno", "answer: Rome"]  # each once, though in vain
    env = MultihopQaEnv(questions=file_of(row(0)), k=9)
    env.reset(seed=0)
    env.step(f"{T}<search>here</search>")  # finds both
    assert env.expert_actions() == ("answer: Rome",)
    env = MultihopQaEnv(questions=file_of(row(0)), k=1)
    env.reset(seed=0)
    env.step(f"{T}<search> Alba </search>")
    env.step(f"{T}<search>unheard</search>")
    assert env.expert_actions() == ("search: Bruno",)


@pytest.mark.parametrize(
    ("name", "n_rows"),
    [
        ("hotpotqa_train_100.json", 100),
        ("hotpotqa_dev_distractor_100.json", 100),
        ("musique_train_100.json", 100),
        ("2wiki_dev_silver.jsonl", 150),
        ("bamboogle_125.json", 125),
    ],
)
@pytest.mark.skipif(not SHARED.exists(), reason="needs the shared question files")
def test_published_files_keep_the_contract(name, n_rows, file_of, tmp_path):
    passages = tmp_path / "passages.jsonl"
    passages.write_text('{"title": "Emma", "text": "Emma is here."}\n', encoding="utf-8")
    corpus = str(passages) if "bamboogle" in name else "own"

    def make():
        return MultihopQaEnv(questions=str(SHARED / name), corpus=corpus)

    check_env(make, seeds=range(8))
    env = make()
    tasks = [env.task(seed) for seed in range(n_rows)]  # each proves itself, or raises
    assert len({task.facts["source"] for task in tasks}) == n_rows
    assert len({task.content_hash for task in tasks}) == n_rows


def test_a_server_of_the_same_passages_shows_the_same():
    world = World(seed=0, passages=100)
    with RetrievalServer(Bm25Retriever(world.passages)) as server:
        local = MultihopQaEnv(passages=100)
        remote = MultihopQaEnv(passages=100, retriever=server.url)
        for seed in range(10):
            assert local.reset(seed=seed) == remote.reset(seed=seed)
            while True:
                response = local.format_response(local.expert_actions())
                step = local.step(response)
                assert remote.step(response) == step
                if step.terminated:
                    break


@pytest.mark.usefixtures("impatient")
def test_a_server_that_comes_back_is_asked_again():
    retriever = Bm25Retriever(World(seed=0, passages=100).passages)
    with RetrievalServer(retriever) as server:
        port = server.server_address[1]
    env = MultihopQaEnv(passages=100, retriever=f"http://127.0.0.1:{port}", max_turns=3)
    env.reset(seed=0)
    response = env.format_response(env.expert_actions())
    assert env.step(response).fault
    with RetrievalServer(retriever, port=port):
        assert "<information>" in env.step(response).observation


@pytest.mark.usefixtures("impatient")
def test_passages_are_needed_unless_something_else_is_searched(file_of):
    path = str(SHARED / "bamboogle_125.json") if SHARED.exists() else None
    if path is None:
        path = file_of({"Question": "Who?", "Answer": "Rome"})
    for corpus in ("own", "all"):
        with pytest.raises(TaskError, match=r"comes without passages to search; set env\.corpus"):
            MultihopQaEnv(questions=path, corpus=corpus).task(0)
    env = MultihopQaEnv(questions=path, retriever="http://127.0.0.1:9")
    env.reset(seed=0)
    assert env.expert_actions()[0].startswith("answer: ")  # it knows of nothing to search for
    assert "http://127.0.0.1:9" in env.step(f"{T}<search>x</search>").fault


@pytest.mark.parametrize("answer", ["a </answer> b", "</answer>"])
def test_a_gold_answer_that_does_not_score_itself_is_refused(answer, file_of):
    env = MultihopQaEnv(questions=file_of(row(7, answer=answer)))
    with pytest.raises(TaskError, match=r"^question q7: its own gold answer '.*' does not score"):
        env.task(0)
    with pytest.raises(TaskError, match=r"^question q7: "):
        env.reset(seed=0)


def guess_of(answers, candidates):
    return Question("x", "?", answers, "bridge", 2, (), candidates=candidates)


GUESSES = [  # (gold answers, candidates, probability of a right guess)
    (("Rome",), ("Rome", "Oslo", "Bern", "Lima"), 1 / 4),
    (("Rome", "Oslo"), ("the Rome!", "oslo", "Bern", "Lima"), 2 / 4),
    (("Rome", "the Rome"), ("Rome", "rome", "Bern", "Lima"), 2 / 4),
    (("Rome", "the"), ("the", "Rome"), 1 / 2),  # what is empty once normalised never matches
    (("Rome",), ("Oslo", "Bern"), 0.0),
    (("Rome",), (), 0.0),
    (("nothing",), (), 0.0),
    (("nothing", "Nothing nothing"), (), 0.0),
]


@each(("answers", "candidates", "probability"), GUESSES)
def test_guesses_by_hand(answers, candidates, probability):
    question = guess_of(answers, candidates)
    assert guess_probability(question) == pytest.approx(probability)
    assert guesses(question) == (candidates or guesses(question))
    assert len(guesses(question)) == max(1, len(candidates))


def test_a_guess_without_candidates_is_wrong(file_of):
    env = MultihopQaEnv(questions=file_of(row(0, answer="nothing")))
    env.reset(seed=0)
    assert env.random_actions(random.Random(0)) == ("answer: nothing nothing",)
    assert env.random_success_probability(0) == 0.0


REFUSED = {
    "prompt='short'": "prompt is 'short'; choose one of natural, compact.",
    "k=0": "k: 0 is too small; give 1 or more",
    "max_turns=0": "max_turns: 0 is too small; give 1 or more",
    "max_searches=-1": "max_searches: -1 is too small; give 0 or more",
    "max_information_words=0": "max_information_words: 0 is too small; give 1 or more",
    "format_penalty=0.1": "format_penalty is 0.1; give 0 or a negative number",
    "format_penalty=float('nan')": "format_penalty is nan; give 0 or a negative number",
    "format_penalty=float('-inf')": "format_penalty is -inf; give 0 or a negative number",
    "hops=(2, 5)": "hops: [2, 5]; give one or more of 2, 3, 4",
    "hops=()": "hops: []; give one or more of 2, 3, 4",
    "kinds=('bridge', 'chain')": "kinds: ['bridge', 'chain']; give one or more of bridge, "
    "comparison",
    "passages=99": "passages: 99; give 100 to 7000",
    "passages=7001": "passages: 7001; give 100 to 7000",
    "world_seed=-1": "world_seed: -1 is negative; give 0 or more",
    "corpus='all'": "corpus: 'all' cannot be searched for the closed world, which has one corpus; "
    "leave it at 'own', or give questions a file",
    "retriever='bm52'": "retriever: 'bm52' is not a retriever. Give bm25, or a URL such as "
    "http://127.0.0.1:8000/retrieve. Did you mean 'bm25'?",
    "retriever='http://'": "retriever: 'http://' is not an address; write it as "
    "http://127.0.0.1:8000/retrieve",
    "questions='x', file_format='hotpot'": "file_format is 'hotpot'; choose one of "
    "auto, hotpotqa, musique, 2wiki, bamboogle, golden_answers, hotpotqa_fullwiki. "
    "Did you mean 'hotpotqa'?",
}


@each("arguments", REFUSED)
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match=f"^{re.escape(REFUSED[arguments])}$"):
        eval(f"MultihopQaEnv({arguments})")


def test_making_an_environment_opens_no_file():
    env = MultihopQaEnv(questions="/nowhere/at/all.json")
    with pytest.raises(TaskError, match=r"^/nowhere/at/all\.json: cannot be read"):
        env.reset(seed=0)


def test_threads_share_what_one_of_them_makes(file_of, tmp_path, monkeypatch):
    """Each would read a file or a corpus of its own: as many copies as there are workers."""
    made = []

    def slow(make):
        def count(*arguments, **options):
            made.append(arguments[0])
            time.sleep(0.05)  # the others ask meanwhile
            return make(*arguments, **options)

        return count

    for where in ("files.load_questions", "files_corpus.load_corpus"):
        module, name = where.split(".")
        path = f"rltune_envs.multihop_qa.{module}.{name}"
        monkeypatch.setattr(path, slow(getattr(import_module(path.rpartition(".")[0]), name)))
    questions = file_of(row(0), row(1), row(2))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Alba", "text": "Alba is here."}\n')
    env = MultihopQaEnv(questions=questions, corpus=str(corpus))
    source = env._source
    assert len(set(at_once(lambda: source.question(0).question_id))) == 1
    queries = iter(["Alba", "here", "Alba here", "is"])
    at_once(lambda: search(source.corpus(0), next(queries), k=1))
    assert made == [questions, str(corpus)]

"""The real files of the data sets, where they are at hand. The two IRCoT files are prompts: no."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from rltune_envs.base import SET
from rltune_envs.errors import TaskError
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.multihop_qa.dense import DenseRetriever
from rltune_envs.multihop_qa.embedders import HashingEmbedder
from rltune_envs.multihop_qa.files import load_questions
from rltune_envs.splits import build_manifest

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "qa"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the data are not at hand")
QUESTION_FILES = (
    "2wiki_dev_silver.jsonl",
    "bamboogle_125.json",
    "hotpotqa_dev_distractor_100.json",
    "hotpotqa_train_100.json",
    "musique_train_100.json",
)


def test_no_file_is_left_out():
    assert sorted(path.name for path in DATA.glob("*.json*") if path.suffix != ".jsonnet") == list(
        QUESTION_FILES
    )


@pytest.mark.parametrize(
    ("name", "n", "hops", "passages"),
    [
        ("2wiki_dev_silver.jsonl", 150, {2: 150}, {10: 150}),
        ("bamboogle_125.json", 125, {2: 125}, {0: 125}),
        ("hotpotqa_dev_distractor_100.json", 100, {2: 100}, {10: 99, 2: 1}),
        ("hotpotqa_train_100.json", 100, {2: 100}, {10: 99, 4: 1}),
        ("musique_train_100.json", 100, {2: 68, 3: 27, 4: 5}, {20: 100}),
    ],
)
def test_every_file_loads_whole(name, n, hops, passages):
    questions = load_questions(DATA / name)
    assert len(questions) == len({one.question_id for one in questions}) == n
    assert Counter(one.hops for one in questions) == hops
    assert Counter(len(one.passages) for one in questions) == passages


def test_kinds_are_the_words_of_the_source():
    kinds = {name: Counter(one.kind for one in load_questions(DATA / name))
             for name in QUESTION_FILES}  # fmt: skip
    assert kinds == {
        "2wiki_dev_silver.jsonl": {"compositional": 100, "comparison": 50},
        "bamboogle_125.json": {"compositional": 125},
        "hotpotqa_dev_distractor_100.json": {"bridge": 79, "comparison": 21},
        "hotpotqa_train_100.json": {"bridge": 78, "comparison": 22},
        "musique_train_100.json": {"2hop": 68, "3hop1": 24, "3hop2": 3, "4hop1": 3, "4hop3": 2},
    }


def test_a_real_decomposition_with_the_answers_put_in():
    questions = load_questions(DATA / "musique_train_100.json")
    found = next(one for one in questions if one.question_id.startswith("4hop1__709382"))
    assert [(hop.question, hop.answer, hop.title) for hop in found.decomposition] == [
        ("Hello Love >> performer", "Hank Snow", "Hello Love (song)"),
        ("What city did Hank Snow live when he died?", "Tennessee", "Hank Snow"),
        ("Which state borders Tennessee to the east?", "North Carolina", "Tennessee"),
        ("how many publix stores are in North Carolina", "35", "Publix"),
    ]
    assert found.supporting == ("Hello Love (song)", "Hank Snow", "Tennessee", "Publix")
    assert not any("#" in hop.question for one in questions for hop in one.decomposition)


def test_yes_and_no_questions_offer_both():
    questions = load_questions(DATA / "hotpotqa_train_100.json")
    chosen = [one for one in questions if one.candidates == ("yes", "no")]
    assert len(chosen) == 9  # as the description of the data counts them
    assert {one.answers for one in chosen} <= {("yes",), ("no",)}


@pytest.mark.parametrize("name", ["ircot_2wiki_gold3distr.txt", "ircot_2wiki_annotations.jsonnet"])
def test_prompt_files_are_refused(name):
    with pytest.raises(TaskError, match=r"not JSON|is not one"):
        load_questions(DATA / name)


def test_a_real_benchmark_is_measured_apart_from_what_is_trained_on(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    passages = {
        one: None
        for name in QUESTION_FILES[2:4]
        for question in load_questions(DATA / name)
        for one in question.passages
    }
    corpus.write_text("".join(json.dumps(asdict(one)) + "\n" for one in passages))
    sets = {
        "hotpotqa": ("hotpotqa_dev_distractor_100.json", "hotpotqa_fullwiki"),
        "bamboogle": ("bamboogle_125.json", "auto"),
    }
    env = MultihopQaEnv(
        questions=str(DATA / "hotpotqa_train_100.json"),
        corpus=str(corpus),
        eval={
            name: {"file": str(DATA / file), "file_format": form}
            for name, (file, form) in sets.items()
        },
    )
    tasks = build_manifest(env, train_tasks=100, heldout_tasks=101, test_tasks=20, split_seed=0)
    assert Counter(task.facts[SET] for task in tasks.heldout) == {"bamboogle": 51, "hotpotqa": 50}
    assert Counter(task.facts[SET] for task in tasks.test) == {"hotpotqa": 10, "bamboogle": 10}
    assert tasks.proved == "expert"  # each verifier pays for the gold answer
    assert tasks.heldout_ceiling == 1.0


def test_dense_retrieval_finds_a_question_s_own_passages(tmp_path):
    pytest.importorskip("faiss", reason="pip install 'rltune[dense]'")
    questions = load_questions(DATA / "hotpotqa_dev_distractor_100.json")
    passages = tuple(dict.fromkeys(one for question in questions for one in question.passages))
    retriever = DenseRetriever(passages, HashingEmbedder(), tmp_path)
    found = [
        bool(set(retriever.search(question.text, k=10)) & set(question.evidence))
        for question in questions
    ]
    assert sum(found) >= 75  # words alone; a trained model finds more
    title = passages[7].title
    assert passages[7] in retriever.search(f"{title}\n{passages[7].text}", k=1)

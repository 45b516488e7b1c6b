"""Evidence is a passage: several paragraphs of one title are not one (HippoRAG issue 57)."""

import json
from dataclasses import replace

import pytest
from cases import each

from rltune_envs.checks import check_env
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.multihop_qa.evidence import missing, queries, supporting_recall
from rltune_envs.multihop_qa.questions import near_hash
from rltune_envs.multihop_qa.records import Passage, Question

RIVER = Passage("Ulm", "Ulm lies on the Danube, opposite of Neu-Ulm, in the south of Germany.")
MAYOR = Passage("Ulm", "The mayor of the town was Bo Kay for many years until the end of the war.")
BELL = Passage("Ada Bell", "Ada Bell wrote Red Dawn while she lived in Ulm.")
QUESTION = Question(
    question_id="q",
    text="Who is mayor where Ada Bell lived?",
    answers=("Bo Kay",),
    kind="2hop",
    hops=2,
    evidence=(BELL, MAYOR),
    passages=(RIVER, MAYOR, BELL),
)
ROW = {
    "id": "2hop__1_2",
    "paragraphs": [
        {"idx": 0, "title": "Ulm", "paragraph_text": RIVER.text},
        {"idx": 1, "title": "Ulm", "paragraph_text": MAYOR.text},
        {"idx": 2, "title": "Ada Bell", "paragraph_text": BELL.text},
    ],
    "question": QUESTION.text,
    "question_decomposition": [
        {"id": 1, "question": "Where did Ada Bell live?", "answer": "Ulm",
         "paragraph_support_idx": 2},
        {"id": 2, "question": "Who is mayor of #1?", "answer": "Bo Kay",
         "paragraph_support_idx": 1},
    ],
    "answer": "Bo Kay",
    "answerable": True,
}  # fmt: skip


@pytest.fixture
def file_of(tmp_path):
    def write(*rows):
        path = tmp_path / "musique.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("corpus", ["own", "all"])
@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_another_paragraph_of_the_title_is_no_evidence(file_of, corpus, prompt):
    env = MultihopQaEnv(questions=file_of(ROW), corpus=corpus, k=1, prompt=prompt)
    found = []
    for query in ("Danube Germany", "mayor"):
        env.reset(seed=0)
        for one in ("Ada Bell", query):
            env.step(env.format_response([f"search: {one}"]))
        distance = env.distance_to_go()
        last = env.step(env.format_response(["answer: nobody"]))
        found.append((distance, last.auxiliary["supporting_recall"]))

    assert found == [(2, 0.5), (1, 1.0)]


def test_two_paragraphs_of_one_title_are_two_pieces_of_evidence(file_of):
    steps = [dict(one) for one in ROW["question_decomposition"]]
    steps[0]["paragraph_support_idx"] = 0
    env = MultihopQaEnv(questions=file_of({**ROW, "question_decomposition": steps}), k=1)
    env.reset(seed=0)

    assert env.distance_to_go() == 3
    env.step(env.format_response(["search: mayor"]))
    assert env.distance_to_go() == 2


def test_the_expert_finds_a_paragraph_that_its_title_does_not_lead_to(file_of):
    env = MultihopQaEnv(questions=file_of(ROW), k=1, max_searches=5)
    env.reset(seed=0)
    asked = []
    while not asked or asked[-1].startswith("search"):
        (action,) = env.expert_actions()
        last = env.step(env.format_response([action]))
        asked.append(action)

    assert asked[:2] == ["search: Ada Bell", "search: Ulm"]
    assert asked[2].startswith("search: Ulm The mayor of the town")
    assert asked[3:] == ["answer: Bo Kay"]
    assert last.auxiliary["supporting_recall"] == 1.0
    check_env(lambda: MultihopQaEnv(questions=file_of(ROW), k=1), seeds=range(2))


def test_a_verifier_is_told_titles_and_passages(file_of):
    env = MultihopQaEnv(questions=file_of(ROW))
    gold = env.gold(0)

    assert gold["supporting"] == ["Ada Bell", "Ulm"]
    assert [one["text"] for one in gold["evidence"]] == [BELL.text, MAYOR.text]


def test_questions_on_two_paragraphs_of_a_title_are_not_near():
    other = replace(QUESTION, evidence=(BELL, RIVER))

    assert near_hash(other) != near_hash(QUESTION)
    assert near_hash(replace(QUESTION, text="?", evidence=(MAYOR, BELL))) == near_hash(QUESTION)


SAME = [  # what was read, of the two passages of the evidence; how much where the corpus is its own
    pytest.param([], 0, 0, id="nothing"),
    pytest.param([MAYOR, BELL, RIVER], 1, 1, id="all"),
    pytest.param([RIVER], 0, 0, id="another-paragraph"),
    pytest.param([Passage("ULM ", MAYOR.text.replace(" ", "\n"))], 0.5, 0.5, id="white-space"),
    pytest.param([Passage("Neu-Ulm", MAYOR.text)], 0, 0, id="another-title"),
    pytest.param([Passage("Ulm", MAYOR.text[:60])], 0.5, 0, id="cut-elsewhere"),
    pytest.param([Passage("Ulm", "Long before, " + MAYOR.text)], 0.5, 0, id="more-text"),
    pytest.param([Passage("Ulm", "The mayor of this town is Al Kay.")], 0, 0, id="other-words"),
    pytest.param([Passage("Ulm", "")], 0, 0, id="empty"),
]


@each(("read", "foreign", "own"), SAME)
def test_a_corpus_of_other_origin_may_hold_another_edition(read, foreign, own):
    assert supporting_recall(read, QUESTION, is_exact=False) == foreign
    assert supporting_recall(read, QUESTION, is_exact=True) == own


def test_a_paragraph_that_is_known_is_no_edition_of_another():
    census = [
        Passage("Ulm", f"As of the census of {year} there were {n} people in the town of Ulm.")
        for year, n in ((2000, 10), (2010, 12))
    ]
    question = replace(QUESTION, evidence=(census[0],), passages=tuple(census))

    assert missing([census[1]], question, is_exact=False) == [census[0]]
    assert missing([census[0]], question, is_exact=False) == []


def test_without_evidence_nothing_is_missing_and_nothing_recalled():
    question = replace(QUESTION, evidence=())

    assert missing([MAYOR], question, is_exact=True) == []
    assert supporting_recall([MAYOR], question, is_exact=True) == 0.0


def test_queries_by_hand():
    assert list(queries([MAYOR], by_text=False)) == ["Ulm"]
    assert list(queries([MAYOR], by_text=True)) == ["Ulm", f"Ulm {MAYOR.text}"]

"""Distance to go and gold responses of the multi-hop environment."""

from dataclasses import replace

import pytest
from cases import each

from rltune_envs.base import GoldResponse
from rltune_envs.errors import RetrieverError
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.multihop_qa import env as qa
from rltune_envs.multihop_qa.gold import gold_answer


def make(**arguments):
    return MultihopQaEnv(**{"passages": 300, "prompt": "compact", **arguments})


def asked(env, *names, seed=0):
    """Return the distance at the start and after each named action."""
    env.reset(seed=seed)
    found = [env.distance_to_go()]
    for name in names:
        env.step(env.format_response([name]))
        found.append(env.distance_to_go())
    return found


def bridge():
    """Return a question of two hops with the titles of its evidence."""
    env = make(hops=[2], kinds=["bridge"], k=1)
    env.reset(seed=0)
    return env, *env.question.supporting


def test_the_distance_by_hand():
    env, first, second = bridge()
    searches = f"search: {first}", f"search: {second}"
    right, wrong = f"answer: {env.question.answers[0]}", "answer: nobody at all"

    # Two passages and the answer are missing; then one and the answer; then the answer.
    assert asked(env, *searches, right) == [3, 2, 1, 0]
    assert asked(env, *reversed(searches), wrong) == [3, 2, 1, None]
    assert asked(env, searches[0], searches[0], "search: nothing like it") == [3, 2, 2, 2]
    # A right answer ends it, whatever was not read.
    assert asked(env, right) == [3, 0]
    assert asked(env, wrong) == [3, None]


def test_a_response_that_cannot_be_read_leaves_the_distance_and_so_do_limits():
    env, first, _ = bridge()
    env.reset(seed=0)
    env.step("what?")
    assert env.distance_to_go() == 3
    tight = make(hops=[2], kinds=["bridge"], k=1, max_turns=1, max_searches=1)
    assert asked(tight, f"search: {first}") == [3, 2]  # it is over, and one passage nearer


def test_a_question_without_evidence_lacks_the_answer_alone():
    env, *_ = bridge()
    env._question = replace(env.question, evidence=(), decomposition=())

    assert env.distance_to_go() == 1


def test_after_a_fault_no_answer_is_right(monkeypatch):
    def search(*arguments, **keywords):
        raise RetrieverError("down")

    env, first, _ = bridge()
    monkeypatch.setattr(qa, "search", search)

    assert asked(env, f"search: {first}", f"answer: {env.question.answers[0]}") == [3, 3, None]


def test_the_gold_response_by_hand():
    answers = bridge()[0].question.answers
    expected = {
        "compact": GoldResponse("<answer>", answers, "</answer>"),
        "natural": GoldResponse("</think> <answer> ", answers, " </answer>"),
    }
    for prompt, gold in expected.items():
        env = make(hops=[2], kinds=["bridge"], prompt=prompt)
        env.reset(seed=0)
        assert env.gold_response() == gold
        env.step(env.format_response(["search: something"]))
        assert env.gold_response() == gold  # at every turn it is the answer, never a search
        env.step(env.format_response(["answer: something"]))
        assert env.gold_response() is None


@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_every_gold_response_is_a_success_at_every_turn(prompt):
    env = make(prompt=prompt)
    n_forms = 0
    for seed in range(60):
        env.reset(seed=seed)
        golds = env.gold_response().golds
        n_forms += len(golds)
        for index in range(len(golds)):
            for n_searches in range(3):
                env.reset(seed=seed)
                for title in env.question.supporting[:n_searches]:
                    env.step(env.format_response([f"search: {title}"]))
                gold = env.gold_response()
                said = env.response_prefix + gold.before + gold.golds[index] + gold.after
                step = env.step(said)
                assert step.success
                assert step.actions == (f"answer: {golds[index]}",)
    assert n_forms > 60  # some have aliases


def test_the_first_gold_is_what_the_expert_answers():
    env = make(max_searches=0)
    for seed in range(30):
        env.reset(seed=seed)
        gold = env.gold_response()
        assert gold.before + gold.golds[0] + gold.after == env.format_response(env.expert_actions())


FORMS = [  # (answers, golds by hand)
    pytest.param(("answer",), ("answer",), id="the-word-of-the-tag"),
    pytest.param(("s", "<"), ("s",), id="a-letter-of-the-tag"),  # of "<" nothing is left
    pytest.param(("Ann  Lee", "Ann Lee", "A. Lee"), ("Ann Lee", "A. Lee"), id="one-line"),
    pytest.param(("Ann\nLee",), ("Ann Lee",), id="line-break"),
    pytest.param(("The", "Who"), ("Who",), id="nothing-is-left-of-an-article"),
    pytest.param(("x</answer>y", "xy"), ("xy",), id="closing-tag"),
    pytest.param(("<search>x</search>",), ("<search>x</search>",), id="a-block-inside"),
    pytest.param(("", " ", "x"), ("x",), id="empty"),
    pytest.param(("the", " "), None, id="none"),
]


@each("is_compact", [True, False])
@each(("answers", "golds"), FORMS)
def test_only_forms_that_score_are_gold(answers, golds, is_compact):
    found = gold_answer(answers, is_compact=is_compact)

    assert (found and found.golds) == golds
    if golds:
        assert found.before == ("<answer>" if is_compact else "</think> <answer> ")
        assert found.after == ("</answer>" if is_compact else " </answer>")

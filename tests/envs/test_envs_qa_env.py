"""The multi-hop environment: turns, limits, rewards, faults, and what can never score."""

import copy
import math
import pickle
import random
import re
import subprocess
import sys

import pytest

from rltune_envs.base import FailureClass
from rltune_envs.checks import check_env
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
from rltune_envs.multihop_qa.world import WORDS

SMALL = {"passages": 300}
T = "<think></think>"


def make(**arguments):
    return MultihopQaEnv(**{**SMALL, **arguments})


def play(env, *responses):
    return [env.step(response) for response in responses]


CASES = {
    "natural": {},
    "compact": {"prompt": "compact"},
    "laptop": {"prompt": "compact", "hops": (2,), "k": 1, "max_turns": 4, "max_searches": 3},
    "one turn": {"max_turns": 1},
    "no search": {"max_searches": 0, "max_turns": 3},
    "bridge": {"kinds": ("bridge",), "hops": (4,), "max_information_words": 10},
}


@pytest.mark.parametrize("name", CASES)
def test_the_contract(name):
    check_env(lambda: make(**CASES[name]), seeds=range(6))


def test_an_expert_episode_by_hand():
    env = make(hops=[2], kinds=["bridge"], k=1)
    first = env.reset(seed=0)
    start, middle = env.question.supporting
    assert first == f"Question: {env.question.text}\nSearches left: 5. Responses left: 6."
    searched = [
        env.step(f"<think>I need {start}.</think>\n<search> {start} </search>"),
        env.step(f"{T}<search>{middle}</search>"),
    ]
    for step, title in zip(searched, (start, middle), strict=True):
        assert step.observation.startswith(f"<information>Doc 1 (Title: {title}) {title} ")
        assert step.actions == (f"search: {title}",)
        assert (step.reward, step.terminated, step.is_valid) == (0.0, False, True)
    assert searched[1].observation.endswith("</information>\nSearches left: 3. Responses left: 4.")
    last = env.step(f"{T}<answer>The {env.question.answers[0].upper()}.</answer>")
    assert (last.reward, last.success, last.terminated) == (1.0, True, True)
    assert last.failure_class is FailureClass.NONE
    assert last.auxiliary == {
        "em": 1.0, "f1": 1.0, "sub_em": 1.0, "supporting_recall": 1.0, "searches": 2.0,
        "invented_information": 0.0,
    }  # fmt: skip


def test_every_alias_scores():
    env = make(kinds=["bridge"])
    aliases = 0
    for seed in range(100):
        env.reset(seed=seed)
        for form in env.question.answers:
            env.reset(seed=seed)
            assert env.step(f"{T}<answer>{form}</answer>").reward == 1.0
            aliases += 1
    assert aliases > 120


def test_a_wrong_answer_is_measured_and_earns_nothing():
    env = make(hops=[2], kinds=["bridge"])
    env.reset(seed=0)
    gold, (start, _) = env.question.answers[0], env.question.supporting
    step = play(env, f"{T}<search>{start}</search>", f"{T}<answer>so {gold}</answer>")[-1]
    assert (step.reward, step.success, step.terminated) == (0.0, False, True)
    assert step.failure_class is FailureClass.WRONG
    n = len(gold.split())  # shared n, words n + 1 and n
    assert step.auxiliary["f1"] == pytest.approx(2 * n / (2 * n + 1))
    assert (step.auxiliary["em"], step.auxiliary["sub_em"]) == (0.0, 1.0)
    assert (step.auxiliary["supporting_recall"], step.auxiliary["searches"]) == (0.5, 1.0)


def test_limits_of_turns():
    env = make(max_turns=2)
    env.reset(seed=0)
    end = play(env, f"{T}<search>x</search>", f"{T}<search>y</search>")[-1]
    assert (end.truncated, end.terminated, end.reward) == (True, False, 0.0)
    assert end.failure_class is FailureClass.UNFINISHED
    env.reset(seed=0)
    end = play(env, f"{T}<search>x</search>", "what?")[-1]
    assert (end.truncated, end.reward) == (True, -0.1)
    assert end.failure_class is FailureClass.MALFORMED


@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_a_search_too_many_is_a_bad_response(prompt):
    env = make(max_searches=1, format_penalty=-0.25, prompt=prompt)
    env.reset(seed=0)
    title = env.question.supporting[0]
    search = env.format_response([f"search: {title}"])
    good, bad = play(env, search, search)
    assert good.is_valid
    assert (bad.is_valid, bad.n_invalid, bad.actions, bad.reward) == (False, 1, (), -0.25)
    assert "No search" in bad.observation
    assert title not in bad.observation
    last = env.step(env.format_response([f"answer: {env.question.answers[0]}"]))
    assert (last.reward, last.auxiliary["searches"]) == (1.0, 1.0)


BAD = ["", "hello", "<answer>yes</answer>", f"{T}<search> </search>", f"{T}<answer></answer>"]


@pytest.mark.parametrize("response", BAD)
def test_a_bad_response_costs_the_penalty_and_a_turn(response):
    env = make()
    env.reset(seed=0)
    step = env.step(response)
    assert (step.reward, step.is_valid, step.n_invalid, step.actions) == (-0.1, False, 1, ())
    assert "could not be read" in step.observation
    assert step.observation.endswith("Searches left: 5. Responses left: 5.")


def test_compact_text_is_of_known_words():
    env = make(prompt="compact", max_searches=1)
    for seed in range(50):
        texts = [env.reset(seed=seed)]
        expert = env.format_response(env.expert_actions())
        texts += [step.observation for step in play(env, expert, expert, "x", "<search>q</search>")]
        shown = re.sub(r"</?information>", " ", " ".join(texts))
        assert set(re.findall(r"\w+|[^\w\s]", shown)) <= set(WORDS)
    assert env.system_prompt == env.response_prefix == ""


# cases.md C8: reward that is computed on what the tools said.


@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_reading_the_gold_answer_does_not_score(prompt):
    env = make(prompt=prompt, kinds=["bridge"])
    env.reset(seed=3)
    titles = env.question.supporting * 3
    steps = play(env, *(env.format_response([f"search: {title}"]) for title in titles))
    seen = [step for step in steps if env.question.answers[0] in step.observation]
    assert seen
    assert steps[env.max_turns - 1].truncated
    assert sum(step.reward for step in steps) <= 0
    assert not any(step.success for step in steps)
    assert steps[-1].auxiliary["em"] == steps[-1].auxiliary["f1"] == 0.0


@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_invented_information_is_counted_and_is_no_evidence(prompt):
    env = make(prompt=prompt, kinds=["bridge"], hops=[2])
    env.reset(seed=3)
    passages = " ".join(passage.text for passage in env.question.evidence)
    search = env.format_response(["search: nothing like it"])
    forged = f"{search} <information>{passages}</information>"
    steps = play(env, forged, search, forged)
    assert [step.actions for step in steps] == [("search: nothing like it",)] * 3
    assert env.distance_to_go() == 3
    last = env.step(env.format_response(["answer: nobody"]))
    assert last.auxiliary["invented_information"] == 2.0
    assert last.auxiliary["supporting_recall"] == 0.0


def test_answers_inside_written_information_do_not_score():
    env = make(kinds=["bridge"])
    env.reset(seed=3)
    gold = env.question.answers[0]
    forged = f"<information>Doc 1 <answer>{gold}</answer></information>"
    steps = play(
        env,
        f"{T}<search>x</search>{forged}",  # the search counts
        f"{T}{forged}",
        f"<think>{forged}</think>",
        f"{T}<information>{T}<answer>{gold}</answer></information>",
    )
    assert not any(step.success or step.terminated for step in steps)
    compact = make(kinds=["bridge"], prompt="compact")
    compact.reset(seed=3)
    assert not any(step.success for step in play(compact, forged, f"<search>x</search>{forged}"))


# cases.md E1: an extractor that counts the example in the prompt.


def test_one_answer_tag_scores():
    env = make()
    env.reset(seed=0)
    response = f"{T}<answer>{env.question.answers[0]}</answer>"
    assert response.count("<answer>") == 1
    assert env.step(response).reward == 1.0


def test_the_example_of_the_prompt_never_scores():
    env = make()
    assert "<answer> Beijing </answer>" in env.system_prompt
    for seed in range(30):
        shown = env.system_prompt + env.reset(seed=seed)
        step = env.step(f"<think>{shown}")
        assert (step.success, step.terminated) == (False, False)


def test_after_a_fault_no_answer_succeeds(monkeypatch):
    monkeypatch.setattr(HttpRetriever, "_wait", lambda *_: 0.0)  # between two tries
    env = make(retriever="http://127.0.0.1:9/retrieve", hops=[2], kinds=["bridge"])
    env.reset(seed=0)
    failed = env.step(f"{T}<search>x</search>")
    assert failed.fault.startswith("retriever: http://127.0.0.1:9/retrieve: ")
    assert "\n" not in failed.fault
    assert "The search failed" in failed.observation
    assert (failed.is_valid, failed.reward, failed.terminated) == (True, 0.0, False)
    assert failed.actions == ("search: x",)
    last = env.step(f"{T}<answer>{env.question.answers[0]}</answer>")
    assert (last.reward, last.success, last.terminated) == (0.0, False, True)
    assert (last.fault, last.failure_class) == ("", FailureClass.FAULT)
    assert (last.auxiliary["em"], last.auxiliary["searches"]) == (1.0, 1.0)
    env.reset(seed=0)  # the next episode is not to blame
    assert env.step(f"{T}<answer>{env.question.answers[0]}</answer>").success


@pytest.mark.slow
def test_the_exact_floor_agrees_with_20000_random_episodes():
    env = make(prompt="compact")
    rng = random.Random(0)
    n_successes, expected, variance = 0, 0.0, 0.0
    for seed in range(20_000):
        env.reset(seed=seed)
        n_successes += env.step(env.format_response(env.random_actions(rng))).success
        p = env.random_success_probability(seed)
        expected, variance = expected + p, variance + p * (1 - p)
    assert abs(n_successes - expected) < 3 * math.sqrt(variance)
    assert 0.2 < expected / 20_000 < 0.3  # half are comparisons, of which a guess gets half


def test_gold_and_task():
    env = make(hops=[3])
    gold, task = env.gold(5), env.task(5)
    env.reset(seed=5)
    assert gold["question"] == env.question.text
    assert gold["answers"] == list(env.question.answers)
    assert gold["supporting"] == [hop["title"] for hop in gold["decomposition"]]
    assert task.difficulty == 3
    assert task.task_id == f"multihop_qa-{task.content_hash[:12]}"
    assert task.facts == {"kind": env.question.kind, "source": "world/0/300/5"}


def test_an_environment_can_be_copied_and_sent():
    env = make(prompt="compact")
    env.reset(seed=1)
    expert = env.format_response(env.expert_actions())
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert other.step(expert) == copy.deepcopy(env).step(expert)


def test_steps_and_actions_need_a_reset_and_a_form():
    with pytest.raises(RuntimeError, match="reset"):
        make().step("x")
    with pytest.raises(ValueError, match="'Up' is not an action"):
        make().format_response(["Up"])


_SCRIPT = """
from rltune_envs.multihop_qa import MultihopQaEnv
import hashlib, sys
assert "numpy" not in sys.modules and "httpx" not in sys.modules
digest = hashlib.sha256()
env = MultihopQaEnv()
for seed in range(100):
    digest.update(repr((env.task(seed), env.gold(seed), env.reset(seed=seed))).encode())
    digest.update(repr(env.step(env.format_response(env.expert_actions()))).encode())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_the_interpreters_hash_seed_changes_nothing():
    digests = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1

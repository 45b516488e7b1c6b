"""Multi-hop question answering as a text environment.

Reward: 1 for an answer that equals a gold answer (both normalised), 0 for any other, and
`format_penalty` for each turn whose response cannot be read. Only the policy's own answer is
scored, never what it was shown.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv
from rltune_envs.choices import PROMPTS, require_at_least, require_choice, require_penalty
from rltune_envs.errors import RetrieverError
from rltune_envs.multihop_qa import protocol, verifiers
from rltune_envs.multihop_qa.arguments import require_source
from rltune_envs.multihop_qa.evidence import missing, queries, supporting_recall
from rltune_envs.multihop_qa.gold import gold_answer, gold_facts
from rltune_envs.multihop_qa.guess import guess_probability, guesses
from rltune_envs.multihop_qa.outcome import Outcome, failure_class
from rltune_envs.multihop_qa.protocol import ANSWER, SEARCH, Action
from rltune_envs.multihop_qa.questions import HOPS, KINDS, content_hash, near_hash
from rltune_envs.multihop_qa.records import Passage, Question
from rltune_envs.multihop_qa.sources import (
    BM25,
    OWN,
    question_of,
    search,
    set_fact,
    set_offsets,
)

_NO_SETS: Mapping[str, Mapping[str, str]] = MappingProxyType({})


class MultihopQaEnv(TextEnv):
    """A question whose facts are in several passages, to be found by searching.

    Args:
        questions: File of questions; None for the closed world.
        file_format: Layout of that file; `auto` looks at its keys.
        eval: Name -> `file` and `file_format` of questions to be measured on.
        world_seed: Names the closed world.
        passages: Size of the closed world.
        hops: Numbers of facts that closed-world questions combine, out of 2, 3, 4.
        kinds: Kinds of closed-world questions, out of `bridge`, `comparison`.
        corpus: `own` searches the question's passages (the closed world has one corpus), `all`
            those of all questions of the file; else the path of a file of passages.
        retriever: `bm25`, or the URL of a `/retrieve` server, which has its own corpus.
        k: Passages per search.
        max_turns: Responses per episode.
        max_searches: Searches per episode; one more is a bad response.
        max_information_words: Words shown after a search.
        format_penalty: Added to the reward of a turn whose response cannot be read.
        prompt: `natural` explains the protocol and asks for thoughts; `compact` shows the question
            and the retrieved texts, and asks for the action alone.

    Raises:
        ValueError: An argument is out of its range; it is named.

    """

    difficulty_unit = "hops"
    auxiliary_names = (
        *("em", "f1", "sub_em", "supporting_recall", "searches", "invented_information"),
    )

    def __init__(
        self,
        *,
        questions: str | None = None,
        file_format: str = "auto",
        eval: Mapping[str, Mapping[str, str]] = _NO_SETS,
        world_seed: int = 0,
        passages: int = 3000,
        hops: Sequence[int] = HOPS,
        kinds: Sequence[str] = KINDS,
        corpus: str = OWN,
        retriever: str = BM25,
        k: int = 3,
        max_turns: int = 6,
        max_searches: int = 5,
        max_information_words: int = 300,
        format_penalty: float = -0.1,
        prompt: str = "natural",
    ) -> None:
        require_at_least(1, k=k, max_turns=max_turns, max_information_words=max_information_words)
        require_at_least(0, max_searches=max_searches)
        require_penalty(format_penalty)
        require_choice("prompt", prompt, PROMPTS)
        self._source = require_source(
            questions=questions,
            file_format=file_format,
            evaluation=eval,
            world_seed=world_seed,
            passages=passages,
            hops=hops,
            kinds=kinds,
            corpus=corpus,
            retriever=retriever,
        )
        self.k = k
        self.max_turns = max_turns
        self.max_searches = max_searches
        self.max_information_words = max_information_words
        self.format_penalty = format_penalty
        self.is_compact = prompt == "compact"
        self._seed = 0
        self._question: Question | None = None
        self._begin()

    def _begin(self) -> None:
        self._turns = self._searches = self._inventions = 0
        self._retrieved: set[Passage] = set()
        self._tried: set[str] = set()  # queries; the expert repeats none
        self._has_fault = False
        self._last: Step | None = None

    @property
    def system_prompt(self) -> str:
        """The protocol in words; empty for the compact prompt."""
        if self.is_compact:
            return ""
        return protocol.instruction(max_turns=self.max_turns, max_searches=self.max_searches)

    @property
    def response_prefix(self) -> str:
        """The opening tag of the thoughts; empty in the compact prompt: the policy chooses."""
        return "" if self.is_compact else protocol.THINK

    @property
    def question(self) -> Question:
        """The question that is being played."""
        if self._question is None:
            raise RuntimeError("call reset(seed=...) first")
        return self._question

    def reset(self, *, seed: int) -> str:
        """Start the question of `seed` and ask it."""
        self._seed, self._question = seed, question_of(self._source, seed)
        self._begin()
        text = self.question.text
        return text if self.is_compact else self._with_limits(f"Question: {text}")

    def step(self, response: str) -> Step:
        """Carry out the first action of a response."""
        question = self.question
        if self._last is not None and self._last.has_ended:
            return self._last.repeated()
        self._turns += 1
        self._inventions += protocol.invents_information(response)
        outcome = self._act(protocol.parse_response(response, needs_think=not self.is_compact))
        self._has_fault |= bool(outcome.fault)
        action = outcome.action
        answer = action.text if action is not None and action.kind == ANSWER else None
        is_last = answer is not None or self._turns >= self.max_turns
        measures = self._measures(question, answer) if is_last else {}
        success = bool(measures.get("em")) and not self._has_fault
        failure = failure_class(action, success=success, has_fault=self._has_fault)
        self._last = Step(
            outcome.observation,
            reward=float(success) + (0.0 if action else self.format_penalty),
            terminated=answer is not None,
            truncated=is_last and answer is None,
            success=success,
            actions=(action.name,) if action else (),
            is_valid=action is not None,
            n_invalid=int(action is None),
            failure_class=failure if is_last else FailureClass.NONE,
            auxiliary=measures,
            fault=outcome.fault,
        )
        return self._last

    def task(self, seed: int) -> Task:
        """Describe the question of `seed`."""
        question = question_of(self._source, seed)
        content = content_hash(question)
        facts = {"kind": question.kind, "source": question.question_id}
        return Task(
            task_id=f"multihop_qa-{content[:12]}",
            seed=seed,
            content_hash=content,
            near_hash=near_hash(question),
            difficulty=question.hops or None,
            facts=facts | set_fact(self._source, seed),
        )

    def eval_sets(self) -> Mapping[str, int]:
        """Return the named sets; none unless `eval` names some."""
        return set_offsets(self._source)

    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as a response, after an empty thought where the prompt asks for one.

        A turn has one action, `search: QUERY` or `answer: TEXT`; further ones are ignored.

        Raises:
            ValueError: A name has neither form.

        """
        blocks = [
            protocol.format_action(protocol.parse_name(name), is_compact=self.is_compact)
            for name in actions
        ]
        return "".join(blocks) if self.is_compact else protocol.NO_THOUGHT + " ".join(blocks)

    def shortest_responses(self) -> tuple[str, ...]:
        """Return a search, where one is allowed, and an answer, each of one word."""
        thought = "" if self.is_compact else protocol.NO_THOUGHT.strip()
        kinds = (SEARCH, ANSWER) if self.max_searches else (ANSWER,)
        return tuple(f"{thought}<{kind}>yes</{kind}>" for kind in kinds)

    def expert_actions(self) -> tuple[str, ...] | None:
        """Search for the next passage of the gold evidence; then answer."""
        if self._searches < self.max_searches and self._turns < self.max_turns - 1:
            by_text = self._source.is_own_corpus
            for query in queries(self._missing(), by_text=by_text):
                if query not in self._tried:
                    return (Action(SEARCH, query).name,)
        return (protocol.answer_name(self.question.answers[0]),)

    def distance_to_go(self) -> int | None:
        """Return the number of supporting passages still to be found, and 1 for the answer.

        0 after a right answer, None after a wrong one. Where the evidence is unknown only the
        answer counts.
        """
        if self._last is not None and self._last.terminated:
            return 0 if self._last.success else None
        return len(self._missing()) + 1

    def gold_response(self) -> GoldResponse | None:
        """Return a response for each gold answer; None after the end."""
        if self._has_ended:
            return None
        return gold_answer(self.question.answers, is_compact=self.is_compact)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Answer at once, with one of the candidates."""
        return (protocol.answer_name(rng.choice(guesses(self.question))),)

    def random_success_probability(self, seed: int) -> float:
        """Return the share of the candidates that are right; 0 where none are known."""
        return guess_probability(question_of(self._source, seed))

    def optimal_success_probability(self, seed: int) -> float:
        """Return 1: the gold answer always scores, and every episode has a turn for it."""
        return 1.0

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return the question of `seed` with its answers and its evidence."""
        return gold_facts(question_of(self._source, seed))

    def _missing(self) -> list[Passage]:
        """Return the evidence that has not been retrieved yet."""
        return missing(self._retrieved, self.question, is_exact=self._source.is_own_corpus)

    @property
    def _has_ended(self) -> bool:
        return self._last is not None and self._last.has_ended

    def _act(self, action: Action | None) -> Outcome:
        if action is None:
            return self._notice(protocol.INVALID)
        if action.kind == ANSWER:
            return Outcome(action=action)
        if self._searches >= self.max_searches:
            return self._notice(protocol.NO_SEARCH_LEFT)
        return self._search(action)

    def _search(self, action: Action) -> Outcome:
        self._searches += 1
        self._tried.add(action.text)
        try:
            passages = search(self._source.corpus(self._seed), action.text, k=self.k)
        except RetrieverError as error:
            failed = self._notice(protocol.SEARCH_FAILED)
            fault = protocol.one_line(f"retriever: {error}")
            return replace(failed, action=action, fault=fault)
        block, shown = protocol.information(
            passages, max_words=self.max_information_words, is_compact=self.is_compact
        )
        self._retrieved.update(shown)
        return Outcome(self._with_limits(block), action)

    def _notice(self, text: str) -> Outcome:
        return Outcome(self._with_limits(protocol.notice(text, is_compact=self.is_compact)))

    def _with_limits(self, text: str) -> str:
        if self.is_compact:
            return text
        return protocol.with_limits(
            text,
            searches_left=self.max_searches - self._searches,
            turns_left=self.max_turns - self._turns,
        )

    def _measures(self, question: Question, answer: str | None) -> dict[str, float]:
        """Score the episode; a missing answer scores as an empty one."""
        text, answers = answer or "", question.answers
        return {
            "em": verifiers.exact_match(text, answers),
            "f1": verifiers.f1(text, answers),
            "sub_em": verifiers.sub_em(text, answers),
            "supporting_recall": supporting_recall(
                self._retrieved, question, is_exact=self._source.is_own_corpus
            ),
            "searches": float(self._searches),
            "invented_information": float(self._inventions),
        }

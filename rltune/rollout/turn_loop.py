"""The loop over the episodes of a batch: which sample, and which wait for their environment.

Each goes on as soon as the engine allows it (`Batching`). Which was faster changes no result: what
an environment returns is placed by episode and turn.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from rltune.rollout.engine import Batching, Completion, Request, SamplingParams, StreamingEngine
from rltune.rollout.env_calls import Outcome
from rltune.rollout.pool import Pool
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard_batch import current_batch


class Playing(Protocol):
    """An episode that is played."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sampled in it."""

    @property
    def n_turns(self) -> int:
        """How many turns were played, of which the environment has returned the outcome."""

    def request(self, conversation: int) -> Request:
        """Return the request for the next response."""

    def answered(self, completion: Completion) -> Callable[[], Outcome] | None:
        """Take a response; return the call of its environment. None: the context is full."""

    def observed(self, outcome: Outcome) -> None:
        """Take what the environment made of the last response."""

    def cut(self, turn: int, outcome: Outcome) -> None:
        """End with a turn whose outcome was another after all; forget those after it."""


class TurnLoop:
    """Plays episodes to their end.

    Args:
        episodes: None is over. Their numbers name their conversations and their work in the pool.
        engine: Samples.
        params: Of all responses.
        pool: Makes the calls of environments.

    """

    def __init__(
        self,
        episodes: dict[int, Playing],
        engine: StreamingEngine,
        params: SamplingParams,
        pool: Pool,
    ) -> None:
        self._episodes = episodes
        self._engine = engine
        self._params = params
        self._pool = pool
        self._batch = current_batch()
        self._places: list[range] = []  # of the calls in each turn, one per episode number
        self._sampling: set[int] = set()
        self._stepping: set[int] = set()
        may_be_late = engine.batching is Batching.REPEATABLE and pool.is_concurrent
        self._is_lockstep = engine.batching is Batching.LOCKSTEP or may_be_late

    def play(self) -> None:
        """Play all episodes to their end; nothing is left under way, whatever is raised."""
        try:
            self._play()
        except BaseException:
            self._engine.abandon()
            raise

    def _play(self) -> None:
        ready = list(self._episodes)
        while ready or self._sampling or self._stepping:
            if not (self._is_lockstep and (self._sampling or self._stepping)):
                self._ask(ready)
                ready = []
            if self._sampling:
                for number, completion in self._engine.advance():
                    self._answer(number, completion)
            ready += self._observe()
            if not self._sampling and not self._stepping:
                self._cut_refused()
                ready = [number for number in ready if not self._episodes[number].is_over]

    def _ask(self, numbers: Sequence[int]) -> None:
        """Have the next responses of some episodes sampled."""
        if numbers:
            requests = [self._episodes[number].request(number) for number in sorted(numbers)]
            self._sampling.update(numbers)
            self._engine.submit(requests, self._params)

    def _answer(self, number: int, completion: Completion) -> None:
        """Pass a response on to its environment."""
        self._sampling.remove(number)
        episode = self._episodes[number]
        call = episode.answered(completion)
        if call is not None:
            self._stepping.add(number)
            self._pool.submit(number, self._place(number, episode.n_turns), call)

    def _observe(self) -> list[int]:
        """Take the outcomes that are there; return the episodes that go on.

        Where nothing else is left to do, it waits for one.
        """
        if not self._stepping:
            return []
        going_on = []
        for number, outcome in self._pool.finished(wait=not self._sampling):
            self._stepping.remove(number)
            self._episodes[number].observed(outcome)
            if not self._episodes[number].is_over:
                going_on.append(number)
        return going_on

    def _place(self, number: int, turn: int) -> int:
        """Return the place of an environment's call: by turn, and by number within a turn."""
        while len(self._places) <= turn:
            self._places.append(self._batch.take_places(max(self._episodes) + 1))
        return self._places[turn][number]

    def _cut_refused(self) -> None:
        """End episodes at the first call that does not count.

        One may have been made before a call at an earlier place hung, the last that may. Ask once
        nothing is under way, and all such calls are known.
        """
        if not self._batch.has_refused:
            return
        for number, episode in self._episodes.items():
            for turn in range(episode.n_turns):
                refusal: CustomCodeError | None = self._batch.refusal(self._place(number, turn))
                if refusal is not None:
                    episode.cut(turn, Outcome.of_fault(refusal))
                    break

"""The source of a step's rollouts: sampled when it begins, or while the step before it trains."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rltune.trainer.ahead.rollouts import Rollouts, as_restored
from rltune.trainer.stopwatch import Stopwatch
from rltune.types import Episode
from rltune_envs.guard import release_worker

Sample = Callable[[int], Sequence[Episode]]
"""Samples the rollouts of a training step, with the weights that the engine has."""


class Sampler:
    """Gives each training step its rollouts.

    Args:
        sample: Called in a thread of its own for rollouts ahead. The engine must have weights of
            its own then, which nobody syncs meanwhile.
        ahead: Steps that sampling is ahead of training: 0 or 1.
        steps: Training steps of the trial; nothing is sampled beyond the last.
        watch: `collect` counts what a step waits for rollouts.
        give_up: Has a call of `sample` under way in another thread end soon, by an error.

    """

    def __init__(
        self,
        sample: Sample,
        *,
        ahead: int,
        steps: int,
        watch: Stopwatch,
        give_up: Callable[[], None],
    ) -> None:
        self._sample, self._ahead, self._steps, self._watch = sample, ahead, steps, watch
        self._give_up = give_up
        self.next: Rollouts | None = None  # those of the step to come, where they are there already

    def take(self, step: int) -> Rollouts:
        """Return the rollouts of a step, sampled now if they are not there."""
        ready, self.next = self.next, None
        began = time.monotonic()
        with self._watch.timed("collect"):
            if ready is not None and ready.step == step:
                return ready
            episodes = self._sample(step)
        return Rollouts(step, step - 1, tuple(episodes), time.monotonic() - began)

    @contextmanager
    def beside(self, step: int) -> Iterator[None]:
        """Sample the next step's rollouts while the block trains a step.

        Both have ended at the block's end, however it ends: where nobody will learn from what is
        sampled, it is given up.

        Raises:
            BaseException: What sampling raised, once the block has ended well.

        """
        if not self._ahead or step >= self._steps:
            yield
            return
        sampling = _Sampling(self._sample, step + 1)
        try:
            yield
            with self._watch.timed("collect"):
                sampling.join()
        except BaseException:  # an interrupt of the wait, too
            self._give_up()
            sampling.join()
            raise
        self.next = sampling.result()


class _Sampling(threading.Thread):
    """A thread that samples the rollouts of one step."""

    def __init__(self, sample: Sample, step: int) -> None:
        super().__init__(name=f"rollouts of step {step}", daemon=True)
        self._sample, self._step = sample, step
        self._made: Rollouts | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Sample; keep what comes of it for `result`."""
        began = time.monotonic()
        try:
            episodes = self._sample(self._step)
            seconds = time.monotonic() - began
            # The engine has the weights with which the step before this one began.
            self._made = as_restored(self._step, self._step - 2, episodes, seconds=seconds)
        except BaseException as error:  # a supervisor's, too: it ends the trial, not this thread
            self._error = error
        finally:
            release_worker()

    def result(self) -> Rollouts:
        """Return the rollouts, when the thread has ended; raise what it raised."""
        if self._error is not None:
            raise self._error
        assert self._made is not None
        return self._made

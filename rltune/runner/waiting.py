"""Trials of a launch that wait for a machine, and whether any machine left can hold them."""

import time
from collections.abc import Callable, Mapping, Sequence

from rltune.runner.environment import fits

LOOK_S = 5.0  # between two looks at the machines
GRACE_S = 60.0  # a machine that comes back sooner is waited for

Amounts = Mapping[str, float]


class Waiting:
    """Trials that wait. Machines may go while a launch runs, and Ray would wait for ever.

    Args:
        needs: Trial id -> its `CPU` and `GPU`.
        living: Returns those of each living machine.

    """

    def __init__(
        self, needs: Mapping[str, Amounts], living: Callable[[], Sequence[Amounts]]
    ) -> None:
        self._needs = dict(needs)
        self._living = living
        self._next_look = 0.0
        self._since: float | None = None

    @property
    def trials(self) -> frozenset[str]:
        """Ids of the trials that have not started."""
        return frozenset(self._needs)

    def start(self, trial_id: str) -> None:
        """Note that a trial waits no more."""
        self._needs.pop(trial_id, None)

    def is_hopeless(self) -> bool:
        """Tell whether for some time no machine could hold any of them. Ask while none runs."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            nodes = self._living()
            has_room = any(fits(need, node) for need in self._needs.values() for node in nodes)
            if has_room or not self._needs:
                self._since = None
            elif self._since is None:
                self._since = now
        return self._since is not None and now - self._since >= GRACE_S

"""Training steps that lost too many episodes to faults: not trained on, and three end a trial."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rltune.errors import FaultsError
from rltune.types import Episode
from rltune_envs.faults import FAULT_SHARE, MAX_LOST_STEPS, too_many_faults


class LostSteps:
    """Watches the steps of an attempt and warns of each lost one; a new attempt counts from 0."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._lost: list[str] = []

    def usable(self, episodes: Sequence[Episode], *, step: int) -> list[Episode]:
        """Return the episodes as training may see them: all with a fault where the step is lost.

        The others of such a step are no fair sample: a verifier may fail on wrong answers alone.

        Raises:
            FaultsError: It is the last of so many lost steps in a row that the trial ends.

        """
        faults = [episode.fault for episode in episodes if episode.fault]
        if not too_many_faults(len(faults), len(episodes)):
            self._lost = []
            return list(episodes)
        counts = f"step {step}: {len(faults)} of {len(episodes)}"
        self._lost.append(counts)
        if len(self._lost) == MAX_LOST_STEPS:
            raise FaultsError(
                f"too_many_faults: more than {FAULT_SHARE:.0%} of the episodes of "
                f"{MAX_LOST_STEPS} steps in a row had a fault ({', '.join(self._lost)}); the "
                f"last: {faults[-1]}. Repair it; the same command goes on from the last checkpoint"
            )
        self._warn(
            f"{counts} episodes had a fault, more than {FAULT_SHARE:.0%}: the step trains on "
            "nothing"
        )
        reason = f"not trained on: {counts} episodes had a fault"
        return [e if e.fault else replace(e, early_fault=reason) for e in episodes]

"""A process that dies in the middle of a trial, for tests of what is left of it."""


class Killed(Exception):
    """Stands for SIGKILL: nothing after it is written."""


class Dying:
    """A tracker in front of another that dies after it recorded a step."""

    def __init__(self, tracker, die_at):
        self._tracker, self._die_at = tracker, die_at

    def __getattr__(self, name):
        return getattr(self._tracker, name)

    def log(self, step, metrics):
        self._tracker.log(step, metrics)
        if step == self._die_at:
            raise Killed

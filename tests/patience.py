"""How long a test waits for another process: until it has happened, however slow the machine is."""

import time

HANG_S = 900.0  # only a process that hangs takes as long


def wait_until(condition, *, every_s=0.01):
    """Return what a condition gives, as soon as it holds."""
    deadline = time.monotonic() + HANG_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it has not happened within {HANG_S:g} s"
        time.sleep(every_s)
    return value


def wait_while_it_runs(process, condition, *, every_s=0.02):
    """Do the same; fail as soon as the process has ended without it."""

    def holds():
        has_ended = process.poll() is not None
        value = condition()
        assert value or not has_ended, f"it ended early: {process.communicate()}"
        return value

    return wait_until(holds, every_s=every_s)

"""Ctrl-C, SIGTERM and SIGHUP: the first asks for a clean stop, the second is the usual end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt() -> None:
    """Raise KeyboardInterrupt: given to `stop_on_signal`, every signal ends a block as Ctrl-C does.

    Without it SIGTERM and SIGHUP end the process on the spot, and nothing is given back.
    """
    raise KeyboardInterrupt


@contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first signal; raise KeyboardInterrupt at the second.

    Handlers belong to the main thread, so elsewhere nothing is installed. A signal that is
    ignored stays ignored: `nohup` and background jobs ask for that. The previous
    handlers come back at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt(f"second signal ({signal.Signals(number).name})")
        asked = True
        stop()

    previous = {
        number: signal.signal(number, handle)
        for number in STOP_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

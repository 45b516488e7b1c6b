"""The line of custom code where something happened: the deepest of its own package."""

import sys
import threading
import traceback
from pathlib import Path

_OUR_FOLDER = Path(__file__).resolve().parent


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an exception in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a custom exception may fail to print itself
        text = ""
    kind = type(error).__name__
    return f"{kind}: {text[:200]}" if text else kind


def in_brackets(place: str) -> str:
    """Return a place as the end of a sentence; nothing where it is unknown."""
    return f" ({place})" if place else ""


def place_of(error: BaseException, module: str) -> str:
    """Return where an exception came from: `FILE:LINE, in NAME`.

    Args:
        error: Raised by custom code.
        module: Module of that code. The deepest line of its package counts, else the deepest of
            all.

    """
    return deepest(traceback.extract_tb(error.__traceback__), module)


def place_of_thread(thread: threading.Thread, module: str) -> str:
    """Return where a thread is, in the same form."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else deepest(traceback.extract_stack(frame), module)


def deepest(frames: list[traceback.FrameSummary], module: str) -> str:
    """Return the deepest of these places that counts, outermost first: `FILE:LINE, in NAME`."""
    outside = [frame for frame in frames if Path(frame.filename).resolve().parent != _OUR_FOLDER]
    outside = [frame for frame in outside if frame.filename != threading.__file__]
    roots = _roots(module)
    in_package = [
        frame
        for frame in outside
        if any(Path(frame.filename).resolve().is_relative_to(root) for root in roots)
    ]
    chosen = in_package or outside
    if not chosen:
        return ""
    return f"{chosen[-1].filename}:{chosen[-1].lineno}, in {chosen[-1].name}"


def _roots(module: str) -> list[Path]:
    """Return the file, or the folders, of the package that holds custom code."""
    top = sys.modules.get(module.partition(".")[0])
    if top is None or top.__name__ in ("rltune", "rltune_envs"):
        return []
    paths = [*getattr(top, "__path__", ())] or [getattr(top, "__file__", None) or ""]
    return [Path(path).resolve() for path in paths if path]

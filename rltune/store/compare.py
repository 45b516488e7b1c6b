"""Two runs of one trial, bit for bit: the first place where their records differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, starmap, zip_longest
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from rltune.errors import Problem, StoreError
from rltune.store.digest import deterministic_row
from rltune.store.files import dumps, sha256_file
from rltune.store.jsonl import JsonlRead, Row, read_jsonl
from rltune.store.rundir import TrialDir

ABSENT = "<absent>"


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first place where two runs of one trial differ."""

    where: str  # `metrics.jsonl`, `heldout.jsonl`, or a checkpoint's file
    step: int  # training step
    name: str  # metric, key of the held-out record, or tensor
    before: str  # value in the original, as JSON text
    now: str  # value in the rerun, as JSON text

    def __str__(self) -> str:
        """Return it as a sentence's end."""
        return f"{self.where}, step {self.step}, {self.name}: {self.before} before, {self.now} now"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and the first difference."""

    metric_rows: int  # rows of metrics.jsonl that were compared, step 0 included
    gates: int  # held-out records that were compared
    checkpoints: tuple[int, ...]  # steps of the checkpoints whose files were compared
    difference: FirstDifference | None  # the first difference; None when all of it is bit-equal


def compare_trials(before: TrialDir, now: TrialDir, *, last: int) -> Comparison:
    """Compare an original with its rerun up to a last training step.

    Metrics without clocks and rates, held-out records, and checkpoints that both have.

    Raises:
        StoreError: A line or a checkpoint of either cannot be read: the rest would prove nothing.

    """
    files = [(trial.metrics, trial.heldout) for trial in (before, now)]
    metrics = [_until(read_jsonl(metric), last, metric) for metric, _ in files]
    gates = [_until(read_jsonl(heldout), last, heldout) for _, heldout in files]
    steps = [step for step in _checkpoints(now) if before.checkpoint(step).is_dir()]
    rows = ([deterministic_row(row) for row in side] for side in metrics)
    pairs = ((before.checkpoint(step), now.checkpoint(step), step) for step in steps)
    parts = chain(
        (first_difference("metrics.jsonl", *rows), first_difference("heldout.jsonl", *gates)),
        starmap(_weights_difference, pairs),
    )
    first = next((part for part in parts if part is not None), None)
    return Comparison(len(metrics[1]), len(gates[1]), tuple(steps), first)


def first_difference(
    where: str, before: Sequence[Row], now: Sequence[Row]
) -> FirstDifference | None:
    """Return the first difference of two lists of records; None when they are the same.

    Numbers are compared by their shortest text that reads back as the same bits; NaN equals NaN.
    """
    for old, new in zip_longest(before, now):
        if old is None or new is None:
            there = old if new is None else new
            texts = (ABSENT, "a record") if old is None else ("a record", ABSENT)
            return FirstDifference(where, int(there["step"]), "the whole record", *texts)
        for name in sorted(old.keys() | new.keys(), key=lambda name: (name != "step", name)):
            a, b = (dumps(row[name]) if name in row else ABSENT for row in (old, new))
            if a != b:
                return FirstDifference(where, int(old["step"]), name, *_parted(a, b))
    return None


def _parted(a: str, b: str, room: int = 60) -> tuple[str, str]:
    """Cut two long texts to the part around their first difference."""
    if max(len(a), len(b)) <= room:
        return a, b
    pairs = enumerate(zip(a, b, strict=False))
    at = next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
    start = max(0, at - room // 2)
    head = "..." if start else ""
    return head + a[start : start + room], head + b[start : start + room]


def _until(read: JsonlRead, last: int, path: Path) -> list[Row]:
    if read.problems:
        raise StoreError(read.problems)
    if any(not isinstance(row.get("step"), int) for row in read.rows):
        raise StoreError(Problem(str(path), "a record names no step.", action="Restore the file."))
    return [row for row in read.rows if row["step"] <= last]


def _checkpoints(trial: TrialDir) -> list[int]:
    return sorted(int(path.name[5:]) for path in trial.checkpoints.glob("step-*"))


def _weights_difference(before: Path, now: Path, step: int) -> FirstDifference | None:
    """Compare the tensors of two checkpoints: policy, critic, and both optimisers."""
    names = sorted({path.name for folder in (before, now) for path in folder.glob("*.safetensors")})
    for name in sorted(names, key=lambda name: (name != "policy.safetensors", name)):
        paths = before / name, now / name
        where = f"{now.name}/{name}"
        there = [path.is_file() for path in paths]
        if not all(there):
            texts = ("a file" if is_there else ABSENT for is_there in there)
            return FirstDifference(where, step, "the whole file", *texts)
        if sha256_file(paths[0]) == sha256_file(paths[1]):
            continue
        if tensor := _first_tensor(*paths):
            return FirstDifference(where, step, *tensor)
    return None


def _first_tensor(before: Path, now: Path) -> tuple[str, str, str] | None:
    """Return name, value before, value now of the first tensor element that differs."""
    try:
        old, new = load_file(before), load_file(now)
    except (SafetensorError, OSError, ValueError) as error:
        what = f"cannot be compared with {now}: {error}."
        raise StoreError(Problem(str(before), what, action="Restore the checkpoint.")) from error
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            a, b = ("a tensor" if name in tensors else ABSENT for tensors in (old, new))
            return name, a, b
        was, now_ = old[name], new[name]
        if was.shape != now_.shape or was.dtype != now_.dtype:
            return name, f"{was.dtype}{was.shape}", f"{now_.dtype}{now_.shape}"
        if was.tobytes() != now_.tobytes():
            return (name, *_first_element(was, now_))
    return None


def _first_element(a: np.ndarray, b: np.ndarray) -> tuple[str, str]:
    flat = [x.reshape(-1) for x in (a, b)]
    words = [np.ascontiguousarray(x).view(np.uint8).reshape(x.size, x.itemsize) for x in flat]
    places = np.flatnonzero((words[0] != words[1]).any(axis=1))
    at, count = int(places[0]), len(places)
    return f"{flat[0][at]!s} at [{at}]", f"{flat[1][at]!s} ({count} of {a.size} values differ)"

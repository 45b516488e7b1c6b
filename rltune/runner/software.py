"""Changes of software and hardware since a trial ran."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rltune.runner.provenance import code_state, cpu_model, versions
from rltune.store.inputs import digests_now, recorded_inputs

_DECIDES = (
    *("source_sha256", "device", "cpu_model", "dtype", "engine", "threads"),
    *("weights_sha256", "tokenizer_sha256", "prompt_sha256", "manifest_sha256"),
)
_TOLD = ("commit", "dirty", "diff_sha256")
_NAMES = {
    "source_sha256": "rltune's Python files",
    "cpu_model": "processor",
    "weights_sha256": "weights at the start",
    "tokenizer_sha256": "tokenizer",
    "prompt_sha256": "prompt",
    "manifest_sha256": "frozen tasks",
    "dirty": "uncommitted changes",
    "diff_sha256": "the uncommitted changes",
    "inputs": "files that the trial reads",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was.

    Attributes:
        name: What: a package, `commit`, `processor`.
        before: As recorded.
        now: As it is.
        decides: Whether a result may depend on it: with such a change, two runs that differ do not
            show that a trial cannot be reproduced.
        is_input: Whether it is a file that the trial reads: with other inputs, a run is no
            repetition.

    """

    name: str
    before: str
    now: str
    decides: bool
    is_input: bool = False

    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.name}: {self.before} then, {self.now} now"


def software_now(before: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the current software, processor and input files, before anything is loaded.

    Args:
        before: provenance.json of the trial.
        base: Folder to which relative paths refer.

    """
    own = versions(before.get("versions") or ())
    software = {**asdict(code_state()), "versions": own, "cpu_model": cpu_model()}
    return {**software, "inputs": digests_now(recorded_inputs(before), base)}


def changes_since(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return what differs between two provenances; keys that `now` lacks are not looked at.

    Args:
        before: provenance.json of the original; its earlier attempts count, too.
        now: provenance.json of the rerun, or what `software_now` says.

    """
    return tuple(dict.fromkeys([*_changes(before, now), *_of_earlier(before)]))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    for name in (*_TOLD, *_DECIDES):
        if name in now and before.get(name) != now[name]:
            texts = _text(before.get(name)), _text(now[name])
            yield Change(_NAMES.get(name, name), *texts, name in _DECIDES)
    for section in ("versions", "inputs"):
        is_input = section == "inputs"
        if section in now and (section in before or not is_input):
            old, new = before.get(section) or {}, now[section]
            for name in sorted({*old, *new}):
                if old.get(name) != new.get(name):
                    yield Change(name, _text(old.get(name)), _text(new.get(name)), True, is_input)


def _of_earlier(before: Mapping[str, Any]) -> Iterator[Change]:
    """Yield differences between the original's own attempts: its records mix software."""
    for attempt in before.get("earlier", ()):
        if not attempt.get("weights_sha256"):
            continue  # it ended before it trained anything
        for name in ("source_sha256", "versions", "device", "threads", "inputs"):
            if attempt.get(name) != before.get(name):
                what = f"{_NAMES.get(name, name)} of the original's attempt {attempt['attempt']}"
                yield Change(what, "one", "another in its last attempt", True)


def _text(value: object) -> str:
    text = "none" if value in (None, "") else str(value)
    return text[:12] if len(text) == 64 or len(text) == 40 else text

"""Identity of a trial: the same identity means the same run.

The identity is sha256 over the canonical JSON of the full resolved config, minus the keys below,
which cannot change a result. Values are hashed, never differences from a default: changing a
default in the code must not make an old result pass for a new one.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from rltune.spec.paths import is_open, quoted
from rltune.types import Json

EXCLUDED = {
    "tracking": "where metrics are mirrored and how much is logged",
    "checkpoint.every": "a trial taken up from a checkpoint is bit-equal to an uninterrupted one",
    "checkpoint.keep_last": "old checkpoints are only deleted, never read",
    "budget.train_wall_s": "a trial that exceeds it has no result, and no other is changed by it",
    "budget.eval_wall_s": "likewise",
    "rollout.workers": "results are placed by episode, whichever comes first",
    "trainer.timeout_s": "an answer that comes is the same, however long it took",
    "trainer.prices": "what an answer costs does not change it",
    "trainer.max_requests": "a trial that exceeds it has no result, and no other is changed by it",
    "trainer.max_cost": "likewise",
    "resources.cpus": "a reservation; the numerics follow resources.threads",
    "resources.engine": "the engine computes the same in a process of its own, and in one that "
    "trials share: it computes the rows of one trial at a time",
    "resources.gpus": "a reservation; the device that was really used is in provenance.json",
}
"""Keys (or whole sections) outside the identity, each with the reason."""

ADDED: Mapping[str, Any] = {
    "trainer.backend": "torch",
    "gate.start_kl": False,
    "resources.ranks": 1,
    "rollout.ahead": 0,
    "rollout.replicas": 1,
    "rollout.vllm.tensor_parallel": 1,
}
"""Keys that came later -> the value that all trials before had. With it a key is outside the
identity, so that those trials are still found."""

CONFIG_VERSION = 2
"""Of the keys that a config has; part of every identity."""

HEX_IN_ID = 10
SLUG_LENGTH = 60
_UNSAFE = re.compile(r"[^A-Za-z0-9.=_+-]+")
_PLAIN = frozenset((str, int, float, bool, type(None), list, tuple))  # known to be no mappings


@lru_cache(4096)
def is_excluded(key: str) -> bool:
    """Return whether a dotted key is outside the identity."""
    return any(key == excluded or key.startswith(excluded + ".") for excluded in EXCLUDED)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted leaf key -> value; lists and empty mappings are leaves.

    No two leaves have one dotted key: a key of an open section that holds a dot is in quotes.
    """
    flat: dict[str, Any] = {}
    _flatten_into(flat, config, (), prefix)
    return flat


def _flatten_into(
    flat: dict[str, Any], config: Mapping[str, Any], at: tuple[Any, ...], prefix: str
) -> None:
    """Add the leaves of a section to flat: `rltune.spec.paths.dotted` of each, part by part."""
    name = quoted if is_open(at) else str
    for key, value in config.items():
        if type(value) not in _PLAIN and isinstance(value, Mapping) and value:
            _flatten_into(flat, value, (*at, key), f"{prefix}{name(key)}.")
        else:
            flat[prefix + name(key)] = value


def _normal(value: Any) -> Any:
    """Return value with string keys, lists for tuples, and no minus zero; refuse NaN."""
    if isinstance(value, Mapping):
        return {str(key): _normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} has no canonical JSON; give a finite number")
        return value + 0.0  # -0.0 + 0.0 is 0.0
    return value


def canonical_json(obj: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, shortest round-trip floats.

    Raises:
        ValueError: A number is NaN or infinite.
        TypeError: A value is not JSON.

    """
    return json.dumps(
        _normal(obj), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_hex(text: str) -> str:
    """Return the sha256 of a text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_as_before(key: str, value: Any) -> bool:
    """Return whether a dotted key has the value that trials had before there was such a key."""
    return key in ADDED and same_value(value, ADDED[key])


def identity_view(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted keys and values that the identity covers."""
    return {
        key: value
        for key, value in flatten(config).items()
        if not is_excluded(key) and not is_as_before(key, value)
    }


def config_hash(config: Mapping[str, Any], *, start: str = "") -> str:
    """Return the identity of a resolved config, as 64 hex digits.

    Args:
        config: Resolved config.
        start: Digest of the weights that the trial starts from, where those are not the ones that
            `policy.model` holds; empty otherwise.

    """
    return _hash({**identity_view(config), "config_version": CONFIG_VERSION}, start)


def is_of_version_1(config: Mapping[str, Any], digest: str, *, start: str = "") -> bool:
    """Return whether an identity is that of a config of before loss and filter had variants."""
    return digest == _hash(identity_view(config), start)


def _hash(view: Mapping[str, Any], start: str) -> str:
    return sha256_hex(canonical_json({**view, "start": start} if start else view))


def trial_id(slug: str, digest: str) -> str:
    """Return `slug-<10 hex>` of a `config_hash`: readable, safe as a folder name, unique."""
    return f"{safe_slug(slug)}-{digest[:HEX_IN_ID]}"


def safe_slug(text: str) -> str:
    """Return text as part of a folder name: no separators, no spaces, at most 60 characters."""
    return _UNSAFE.sub("_", text).strip("._-")[:SLUG_LENGTH].rstrip("._-") or "trial"


def value_text(value: Json) -> str:
    """Return an axis value as people write it: `0.01`, `true`, `nofilter`."""
    return value if isinstance(value, str) else json.dumps(value)


def diff_configs(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return dotted key -> (value in a, value in b) where they differ; MISSING for an absent key.

    Works on any nested mapping, not only on trial configs. Numbers compare by value, but true is
    not 1 and text is not a number. A config from before a key of `ADDED` has its value of then.
    """
    return dict(_differences(flatten(a), flatten(b)))


MISSING = "<absent>"


def _differences(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for key in sorted(a.keys() | b.keys()):
        absent = ADDED.get(key, MISSING)
        left, right = a.get(key, absent), b.get(key, absent)
        if not same_value(left, right):
            yield key, (left, right)


def same_value(a: Any, b: Any) -> bool:
    """Return whether two JSON values are one: 1 and 1.0 are, true and 1 are not."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b)

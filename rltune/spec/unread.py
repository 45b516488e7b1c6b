"""Settings of base and profile that a later layer switches off.

Profile `laptop` sets the hops of the questions that its closed world asks. Whoever names a file of
questions says nothing of hops, and must not be refused for what the profile says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rltune.spec.resolve import Layer


@dataclass(frozen=True, slots=True)
class Switch:
    """A key of env with values under which nothing reads some of its neighbours."""

    key: str  # key of the section env
    is_off: Callable[[Any], bool]  # whether a value leaves the neighbours unread
    unread: tuple[str, ...]  # the neighbours


SWITCHES = (
    Switch(
        "questions", lambda value: value is not None, ("world_seed", "passages", "hops", "kinds")
    ),
    Switch("levels", lambda value: value is not None, ("size", "boxes", "search_depth")),
    Switch("prompt", lambda value: value == "compact", ("observation", "symbols")),
)
"""As in `rltune.spec.env_checks`, which refuses settings of them in later layers."""


def without_unread(presets: Sequence[Layer], later: Sequence[Layer]) -> list[Layer]:
    """Return base and profile without what a layer after them leaves unread.

    What hold, an axis or the command line says stays: it was said of this sweep.
    """
    layers = list(presets)
    for switch in SWITCHES:
        setters = [i for i, one in enumerate((*presets, *later)) if switch.key in _env(one)]
        last = setters[-1] if setters else 0
        if setters and switch.is_off(_env((*presets, *later)[last])[switch.key]):
            layers = [
                _without(layer, switch.unread) if i < last else layer
                for i, layer in enumerate(layers)
            ]
    return [
        _without(layer, _replaced(layer, (*layers[i + 1 :], *later)))
        for i, layer in enumerate(layers)
    ]


def _replaced(layer: Layer, after: Sequence[Layer]) -> list[str]:
    """Return the keys of env that mean nothing where later layers name other things.

    They are the options of another verifier, and the arguments of another generator.
    """
    keys = []
    for name_of, key in ((_verifier, "verifier"), (_source, "arguments")):
        own, named = name_of(layer), [name_of(one) for one in after]
        last = next((name for name in reversed(named) if name is not None), own)
        if own is not None and last != own:
            keys.append(key)
    return keys


def _verifier(layer: Layer) -> str | None:
    """Return the name of the verifier that a layer names; None where it names none."""
    verifier = _env(layer).get("verifier")
    kind = verifier.get("kind") if isinstance(verifier, Mapping) else None
    return None if kind is None else str(kind)


def _source(layer: Layer) -> str | None:
    """Return the generator that a layer names, empty for files; None where it says nothing."""
    env = _env(layer)
    return str(env["source"] or "") if "source" in env else None


def _env(layer: Layer) -> Mapping[str, Any]:
    env = layer.data.get("env")
    return env if isinstance(env, Mapping) else {}


def _without(layer: Layer, keys: Sequence[str]) -> Layer:
    env = _env(layer)
    kept = {key: value for key, value in env.items() if key not in keys}
    return replace(layer, data={**layer.data, "env": kept}) if len(kept) < len(env) else layer

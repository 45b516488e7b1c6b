"""A condition that a sweep shows to be better becomes part of what the next sweep holds.

Never on a single seed: what decides is the sweep's own verdict, which ranks nothing below three
paired seeds, and which counts every condition of the sweep (Holm).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rltune.analysis.audit import judge_folder
from rltune.analysis.table_rows import trial_rows
from rltune.analysis.table_summary import verdicts_of
from rltune.analysis.tables import TrialRow, mark_of
from rltune.analysis.verdict_words import ABOVE, BELOW, Verdict
from rltune.errors import Problem, SpecError
from rltune.report.export import lineage_ids
from rltune.spec.conditions import axis_values, condition_layers
from rltune.spec.identity import flatten, same_value
from rltune.spec.load import LoadedSweep
from rltune.spec.paths import key_path
from rltune.spec.shortforms import config_tree
from rltune.spec.yamlfile import YamlFile, read_yaml
from rltune.store.run_folder import read_folder, read_records
from rltune.store.rundir import RunDir

_PLAIN = re.compile(r"[^/\s]+")


@dataclass(frozen=True, slots=True)
class Promotion:
    """What a finished sweep hands on."""

    run: str  # name of its run folder
    condition: str  # the condition that is promoted; its control where none is better
    is_control: bool  # whether its control stays
    why: str  # the verdict, in a sentence
    keys: Mapping[str, Any] = field(default_factory=dict)  # dotted key -> value
    seeds: Sequence[int] = ()  # that were looked at: the sweep may get more later

    @property
    def row(self) -> str:
        """The row that the next control departs from; empty where its name is no plain word."""
        return f"{self.run}/{self.condition}" if _PLAIN.fullmatch(self.condition) else ""

    @property
    def sentence(self) -> str:
        """What is promoted, and why."""
        if self.is_control:
            return f"{self.condition} of {self.run} stays: {self.why}"
        return f"{self.condition} of {self.run} is promoted: {self.why}"


def promotion_of(
    run: str, rows: Sequence[TrialRow], loaded: LoadedSweep, inherited: Mapping[str, Any]
) -> Promotion:
    """Return what a finished sweep hands on: its best condition that beats the control, if any.

    Args:
        run: Name of its run folder; nothing of it is left to run.
        rows: Of its trials, those that are looked at.
        loaded: The sweep as it ran.
        inherited: What was promoted into it: that is handed on, too.

    """
    looked_at = tuple(sorted({row.seed for row in rows}))
    chosen = best_claim(verdicts_of(rows), loaded.spec.metric.mode)
    if chosen is None:
        why = "no condition is shown to be better"
        return Promotion(run, loaded.control.label, True, why, dict(inherited), looked_at)
    keys = {**inherited, **_keys_of(loaded, chosen.condition)}
    return Promotion(run, chosen.condition, False, chosen.sentence, keys, looked_at)


def best_kept(verdicts: Sequence[Verdict], loaded: LoadedSweep) -> str:
    """Return the condition that a finished sweep hands on; its control where none is better."""
    chosen = best_claim(verdicts, loaded.spec.metric.mode)
    return loaded.control.label if chosen is None else chosen.condition


def best_claim(verdicts: Sequence[Verdict], mode: str) -> Verdict | None:
    """Return the verdict of the condition that is furthest on the better side of the control.

    None where none is claimed to be better. `mode`: max or min.
    """
    word, sign = (ABOVE, 1.0) if mode == "max" else (BELOW, -1.0)
    better = [one for one in verdicts if one.word == word]
    return max(better, key=lambda one: sign * one.difference.mean, default=None)


def verdicts_of_run(run: RunDir) -> Sequence[Verdict]:
    """Return the verdict about each condition of a run but its control."""
    return verdicts_of(rows_of_run(run))


def rows_of_run(run: RunDir) -> Sequence[TrialRow]:
    """Return one row per planned trial of a run."""
    folder = read_folder(run)
    read = read_records(folder)
    mark = mark_of(judge_folder(folder, read))
    return trial_rows(folder, read.records, mark=mark, lineage_ids=lineage_ids(run))


def _keys_of(loaded: LoadedSweep, condition: str) -> dict[str, Any]:
    """Return the keys that a condition writes: its axis value, and the coupled keys."""
    file = read_yaml(loaded.path, kind="sweep file")
    if isinstance(file, Problem):
        raise SpecError(file)
    value = next(one for one in axis_values(loaded.spec.axis) if one.label == condition)
    layers = condition_layers(file, loaded.spec.axis, value, [])
    return {key: item for layer in layers for key, item in flatten(layer.data).items()}


def promoted_data(file: YamlFile, original: LoadedSweep, promotion: Promotion) -> dict[str, Any]:
    """Return the content of a sweep file over which a condition was promoted.

    Args:
        file: The sweep file.
        original: The same, resolved.
        promotion: What is held in it from now on; its row becomes the parent of the control.

    Raises:
        SpecError: The file's own axis moves a promoted key, and its control has another value.

    """
    own = {*original.axis_keys, *original.coupled_keys}
    control = flatten(original.control.config)
    problems = []
    for key, value in promotion.keys.items():
        if key in own and not same_value(control.get(key), value):
            what = f"{key} is {control.get(key)!r} in the control, and {promotion.run} promotes "
            what += f"{value!r} ({promotion.condition})."
            problems.append(Problem(f"{file.path}: axis", what, action="Make that the control."))
    if problems:
        raise SpecError(problems)
    hold = config_tree(file.data.get("hold") or {})
    for key, value in promotion.keys.items():
        if key not in own:
            put(hold, key, value)
    return {"parent": promotion.row, **file.data, "hold": hold}


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in a tree, whose sections are copied on the way."""
    *sections, last = key_path(key)
    branch = tree
    for name in sections:
        branch[name] = dict(branch.get(name) or {})
        branch = branch[name]
    branch[last] = value

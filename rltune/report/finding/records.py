"""A finding in memory: everything that its page is made from, as its folder holds it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rltune.analysis.tables import GateRow, HistoryRow, MeasureRow, PairRow, SummaryRow, TrialRow
from rltune.lineage.row import LineageRow
from rltune.report.figures.source import FORM, About, Tables, about_of, trials_by_condition
from rltune.spec.identity import flatten
from rltune.spec.paths import key_path
from rltune.types import TrialSpec

FORMAT = "rltune-finding-1"
"""Stands in manifest.json; another one is another version's."""

PAGE_FORM = FORM
"""Stands in manifest.json as `page`; form 1 has no such key. Pages and figures of an earlier form
stay as they are until they are drawn again."""

PRIVATE = frozenset({"host", "node", "pid", "base", "argv"})
"""Keys of provenance.json that name a machine or its folders, and that no comparison needs."""

_SPEC = (
    *("trial_id", "sweep", "axis_key", "condition", "axis_value", "is_control"),
    *("seed", "config_hash", "expected_delta"),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What it takes to run one trial again, and to tell whether the same came out."""

    spec: TrialSpec  # with its whole config
    provenance: Mapping[str, Any]  # provenance.json without `PRIVATE`
    metrics_sha256: str  # over its metrics without clocks and rates; empty without a result
    weights_sha256: str = ""  # of the checkpoint that its gate chose; empty where not recorded


@dataclass(frozen=True, slots=True)
class Finding:
    """The evidence of one sweep."""

    manifest: Mapping[str, Any]  # manifest.json without `outputs`
    sweep: str  # the sweep file as it was run
    trials: tuple[TrialRow, ...]  # one a planned trial
    gates: tuple[GateRow, ...]  # the sweep's metric at every gate
    pairs: tuple[PairRow, ...]  # of a rate: tasks solved by a seed and by the control's
    measures: tuple[MeasureRow, ...]  # measures of training that were asked for
    summary: tuple[SummaryRow, ...]  # estimates, differences and tests at start, choice and end
    recorded: tuple[Recorded, ...]  # one a planned trial
    lineage: tuple[LineageRow, ...]  # rows of the run's table
    lineage_text: str  # that table as it was; empty where `--lineage` keeps it elsewhere
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name of a table that was read -> its columns: tables of an earlier rltune have fewer."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return str(self.manifest["name"])

    @property
    def about(self) -> About:
        """What the figures say of the sweep."""
        return about_of(self.manifest, form=self.page_form)

    @property
    def metric(self) -> str:
        """The held-out metric that decides."""
        return self.trials[0].metric

    @property
    def metrics(self) -> tuple[str, ...]:
        """The other measures that it shows."""
        return tuple(self.manifest["metrics"])

    @property
    def conditions(self) -> dict[str, list[TrialRow]]:
        """Label of a condition -> its trials, in the order of the plan."""
        return trials_by_condition(self.trials)

    @property
    def control(self) -> str:
        """Label of the control; empty without one."""
        return next((row.condition for row in self.trials if row.is_control), "")

    @property
    def page_form(self) -> int:
        """The form of its page."""
        return int(self.manifest.get("page", 1))

    @property
    def tables(self) -> Tables:
        """What the figures are made from."""
        return Tables(self.about, self.trials, tuple(_history(self)), self.summary)


def _history(finding: Finding) -> Iterable[HistoryRow]:
    """Yield the values over training as rows of a history: the gates, and the other measures."""
    names = {(row.condition, row.seed): row.trial_id for row in finding.trials}
    known: list[tuple[str, int, int, str, float | None]] = [
        (row.condition, row.seed, row.step, row.metric, row.value) for row in finding.gates
    ]
    known += [(r.condition, r.seed, r.step, r.metric, r.value) for r in finding.measures]
    for condition, seed, step, metric, value in known:
        trial_id = names.get((condition, seed), "")
        yield HistoryRow(trial_id, condition, seed, step, None, None, None, metric, value, "", "")


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys as the nested config that `flat` was given."""
    config: dict[str, Any] = {}
    for key, value in keys.items():
        *sections, last = key_path(key)
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return config


def packed(recorded: Sequence[Recorded]) -> dict[str, Any]:
    """Return trials.json: what all trials share once, and of each what is its own."""
    configs = [flatten(one.spec.config) for one in recorded]
    shared_config = _shared(configs)
    shared_provenance = _shared([one.provenance for one in recorded])
    return {
        "format": FORMAT,
        "shared": {"config": shared_config, "provenance": shared_provenance},
        "trials": [
            {
                **{name: getattr(one.spec, name) for name in _SPEC},
                "metrics_sha256": one.metrics_sha256,
                **({"weights_sha256": one.weights_sha256} if one.weights_sha256 else {}),
                "config": _own(config, shared_config),
                "provenance": _own(one.provenance, shared_provenance),
            }
            for one, config in zip(recorded, configs, strict=True)
        ],
    }


def unpacked(content: Mapping[str, Any]) -> tuple[Recorded, ...]:
    """Return the trials of a trials.json.

    Raises:
        KeyError: A key is missing.

    """
    shared = content["shared"]
    return tuple(
        Recorded(
            TrialSpec(
                **{name: one[name] for name in _SPEC},
                config=nested({**shared["config"], **one["config"]}),
            ),
            {**shared["provenance"], **one["provenance"]},
            str(one["metrics_sha256"]),
            str(one.get("weights_sha256", "")),
        )
        for one in content["trials"]
    )


def _shared(all_keys: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys that all have with one value and one type."""
    first, *others = all_keys
    return {
        key: value
        for key, value in sorted(first.items())
        if all(key in one and _is_same(one[key], value) for one in others)
    }


def _own(keys: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sorted(keys.items()) if key not in shared}


def _is_same(a: Any, b: Any) -> bool:
    """Tell whether two JSON values are written alike: 1 and 1.0 are not."""
    return repr(a) == repr(b)

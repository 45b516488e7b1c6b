"""Read everything the page shows from a run folder; write nothing and read no clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.analysis.audit import Audit, judge_folder
from rltune.analysis.status import read_state
from rltune.analysis.tables import HistoryRow
from rltune.analysis.trial_states import SweepState
from rltune.errors import InputError, Problem, StoreError
from rltune.gate import set_metric
from rltune.lineage.read import ReadResult, read_if_there
from rltune.report.export import tables_of
from rltune.report.figures.data_curves import CHANCE, TRIO
from rltune.report.figures.source import Tables
from rltune.report.html.replays import Replay, replays_of
from rltune.report.manifest import digests, input_files
from rltune.spec.identity import canonical_json, sha256_hex
from rltune.spec.yamlfile import read_yaml
from rltune.store.files import read_json
from rltune.store.proof import read_proof
from rltune.store.run_folder import RecordsRead, SweepFolder, read_records

TIMINGS = "timing_s/"
TRAINING = (
    "rollout/success_rate",
    "rollout/in_group_reward_std",
    "actor/entropy",
    "actor/ppo_kl",
    "actor/kl_loss",
    "actor/grad_norm",
    "response_length/mean",
    "rollout/filter_kept_ratio",
)
"""Measures of training that are drawn where trials have them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a page is made from."""

    folder: SweepFolder  # the run folder
    sweep: Mapping[str, Any]  # its sweep file
    proof: Mapping[str, Any]  # what the check before the run found; empty without one
    plan: Mapping[str, Any]  # what was planned, without the trials
    read: RecordsRead  # the records of its trials
    audit: Audit  # what the records prove
    tables: Tables  # the exported tables, as far as the page needs them
    state: SweepState  # where every trial is
    replays: tuple[Replay, ...]  # episodes to look at
    lineage: ReadResult | None  # rows of results.tsv; None without one
    inputs: int  # how many files all this was read from
    inputs_sha256: str  # digest over their names and digests


def gather(folder: SweepFolder) -> Evidence:
    """Read a run folder.

    Raises:
        StoreError: It plans no trial, or a file of it cannot be read.

    """
    if not folder.specs:
        what = "no trial is planned here."
        action = "Run the sweep again: `rltune sweep FILE`."
        raise StoreError(Problem(str(folder.run.path), what, action=action))
    read = read_records(folder)
    audit = judge_folder(folder, read)
    replays = replays_of(folder)
    files = input_files(folder)
    files += [
        trial.replays
        for spec in folder.specs
        if (trial := folder.run.trial(spec.trial_id)).replays.is_file()
    ]
    inputs = digests(folder.run, files)
    sweep = read_yaml(folder.run.sweep, kind="sweep file")
    plan = _object(folder.run.plan)
    return Evidence(
        folder=folder,
        sweep={} if isinstance(sweep, Problem) else sweep.data,
        proof=read_proof(folder.run),
        plan={key: value for key, value in plan.items() if key != "trials"},
        read=read,
        audit=audit,
        tables=tables_of(folder, read, audit, keep=lambda row: _is_drawn(row, folder.metric_name)),
        state=read_state(folder, now=0.0),
        replays=replays,
        lineage=read_if_there(folder.run.results),
        inputs=len(inputs),
        inputs_sha256=sha256_hex(canonical_json(inputs)),
    )


def _object(path: Any) -> Mapping[str, Any]:
    """Return what a JSON file holds; nothing where there is none, or no object in it."""
    try:
        content = read_json(path) if path.is_file() else {}
    except InputError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_drawn(row: HistoryRow, metric: str) -> bool:
    is_named = row.metric in {metric, CHANCE, *TRIO, *TRAINING} or row.metric.startswith(TIMINGS)
    return is_named or set_metric(row.metric) is not None

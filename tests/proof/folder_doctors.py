"""What is done to a clean run folder (two conditions, three seeds, 20 steps): the doctors.

Most change what one trial recorded: the treated condition's of seed 1.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from run_folders import CONTROL, TREATED, FolderWriter

from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.spec.identity import config_hash, trial_id
from rltune.store.digest import rows_digest
from rltune.store.files import read_json, write_json_atomic
from rltune.store.jsonl import append_jsonl_many, read_metrics
from rltune.store.rundir import TrialDir
from rltune.types import RowStatus, TrialStatus

RATE = "heldout/success_rate"
COUPLED = """  coupled:
    - key: loss.use_kl_loss
      rule: "value > 0"
      why: with coefficient 0 no reference forward pass is run
"""
Doctor = Callable[[FolderWriter], None]
Row = dict[str, Any]


def trial(writer: FolderWriter, label: str = TREATED, seed: int = 1) -> TrialDir:
    return writer.run.trial(writer.spec(label, seed).trial_id)


def all_trials(writer: FolderWriter) -> list[TrialDir]:
    return [writer.run.trial(spec.trial_id) for spec in writer.specs]


def provenance(**fields: Any) -> Doctor:
    """One trial recorded something else."""
    return lambda writer: _edit_json(trial(writer).provenance, fields)


def provenance_everywhere(**fields: Any) -> Doctor:
    def doctor(writer: FolderWriter) -> None:
        for each in all_trials(writer):
            _edit_json(each.provenance, fields)

    return doctor


def both(first: Doctor, second: Doctor) -> Doctor:
    """Return the doctor that does two things."""

    def doctor(writer: FolderWriter) -> None:
        first(writer)
        second(writer)

    return doctor


def metrics(change: Callable[[Row], Mapping[str, Any] | None]) -> Doctor:
    """Each line of one trial's metrics is updated; None removes it."""
    return lambda writer: _edit_lines(trial(writer).metrics, change)


def metrics_of_seed(seed: int, change: Callable[[Row], Mapping[str, Any] | None]) -> Doctor:
    """Each line of both conditions' metrics of one seed is updated."""

    def doctor(writer: FolderWriter) -> None:
        for label in (CONTROL, TREATED):
            _edit_lines(trial(writer, label, seed).metrics, change)

    return doctor


def heldout(change: Callable[[Row], Mapping[str, Any] | None]) -> Doctor:
    return lambda writer: _edit_lines(trial(writer).heldout, change)


def gradients(*, parted_by: float = 0.0) -> Doctor:
    """All trials have the same gates and gradients; one, in its last step, another by so much."""

    def doctor(writer: FolderWriter) -> None:
        half = {RATE: 0.5}
        for each in all_trials(writer):
            _edit_lines(each.heldout, lambda row: {"success": [0, 1], "reward": [0.0, 1.0]})
            _edit_lines(each.metrics, lambda row: {"actor/grad_norm": 0.1} if row["step"] else {})
            _edit_lines(each.metrics, lambda row: half if RATE in row else {})
            _claims(each, 0.5)
        own = {"actor/grad_norm": 0.1 + parted_by}
        _edit_lines(trial(writer).metrics, gate_row(20, **own))

    return doctor


def updates(factor: float, *counters: str, after: int = -1) -> Doctor:
    """One condition counts fewer updates after a step, by default of every kind."""
    named = counters or ("budget/optimizer_steps", "budget/policy_updates")

    def fewer(row: Row) -> Row:
        return {key: row[key] * factor for key in named if key in row and row["step"] > after}

    def doctor(writer: FolderWriter) -> None:
        for seed in (0, 1, 2):
            _edit_lines(trial(writer, seed=seed).metrics, fewer)

    return doctor


def all_ended(status: TrialStatus, reason: str) -> Doctor:
    """Every trial of both conditions ends at step 10."""

    def doctor(writer: FolderWriter) -> None:
        for label in (CONTROL, TREATED):
            for seed in (0, 1, 2):
                ended(status, reason, label=label, seed=seed)(writer)

    return doctor


def ended(
    status: TrialStatus, reason: str, *, step: int = 10, label: str = TREATED, seed: int = 1
) -> Doctor:
    """One trial ends at an earlier step."""

    def doctor(writer: FolderWriter) -> None:
        own = trial(writer, label, seed)
        result = own.read_done()
        assert result is not None
        rows = [json.loads(line) for line in own.metrics.read_text("utf-8").splitlines()]
        final = next(row["heldout/success_rate"] for row in rows if row["step"] == step)
        changed = replace(result, status=status, reason=reason, final_step=step, best_step=step)
        own.write_done(replace(changed, final_metric=final))
        for path in (own.metrics, own.heldout):
            _edit_lines(path, lambda row: {} if row["step"] <= step else None)

    return doctor


def one_more_step(writer: FolderWriter) -> None:
    own = trial(writer)
    result = own.read_done()
    assert result is not None
    own.write_done(replace(result, final_step=21))
    _edit_lines(own.metrics, lambda row: {"step": 21} if row["step"] == 20 else {})


def claims(writer: FolderWriter, value: float) -> None:
    _claims(trial(writer), value)


def _claims(own: TrialDir, value: float) -> None:
    result = own.read_done()
    assert result is not None
    own.write_done(replace(result, final_metric=value))


def faulty(writer: FolderWriter) -> None:
    """Two of the tasks that one trial solved at its last gate had a fault: one of eight is left."""
    heldout(gate_row(20, fault=["verifier f: down"] * 2 + [""] * 8))(writer)
    metrics(gate_row(20, **{RATE: 0.125}))(writer)
    claims(writer, 0.125)


def no_marker(writer: FolderWriter) -> None:
    trial(writer).done.unlink()


def planned(label: str = TREATED, seed: int = 1, **fields: Any) -> Doctor:
    """One trial of the plan is another."""

    def doctor(writer: FolderWriter) -> None:
        plan = read_json(writer.run.plan)
        name = writer.spec(label, seed).trial_id
        rows = [{**row, **fields} if row["trial_id"] == name else row for row in plan["trials"]]
        write_json_atomic(writer.run.plan, {**plan, "trials": rows})

    return doctor


def another_config(**sections: Mapping[str, Any]) -> Doctor:
    """One trial of the plan has other values in its config, under the name that it had."""

    def doctor(writer: FolderWriter) -> None:
        config = writer.spec(TREATED, 1).config
        own = {name: {**config[name], **keys} for name, keys in sections.items()}
        planned(config={**config, **own})(writer)

    return doctor


def asks(old: str, new: str) -> Doctor:
    """Return the doctor that edits the sweep file of the run folder."""

    def doctor(writer: FolderWriter) -> None:
        text = writer.run.sweep.read_text("utf-8")
        assert old in text
        writer.run.sweep.write_text(text.replace(old, new), "utf-8")

    return doctor


def one_undigested(writer: FolderWriter) -> None:
    """Every marker but one has the digest of its trial's metrics."""
    for each in all_trials(writer):
        result = each.read_done()
        assert result is not None
        digest = rows_digest(read_metrics(each.metrics).rows)
        each.write_done(replace(result, metrics_sha256=digest))
    own = trial(writer)
    own.write_done(replace(own.read_done(), metrics_sha256=""))  # type: ignore[type-var]


def added_seed(writer: FolderWriter) -> None:
    """Three seeds are planned and end; then a fourth is."""
    launches([0, 1, 2])(writer)
    spec = replace(writer.spec(TREATED, 2), seed=3)
    config = {**spec.config, "seed": 3}
    digest = config_hash(config)
    spec = replace(spec, config=config, config_hash=digest, trial_id=trial_id("late-s3", digest))
    writer.run.trial(spec.trial_id).create().write_spec(spec)
    append_jsonl_many(writer.run.ledger, [_event(spec.trial_id, "planned", "15")])


def no_proof(writer: FolderWriter) -> None:
    writer.run.comparability.unlink()


def recorded(status: RowStatus = RowStatus.KEEP, *, seed: int = 1, metric: float = 0.5) -> Doctor:
    """The lineage has the result of one trial, which is 0.5 at step 10."""

    def doctor(writer: FolderWriter) -> None:
        spec = writer.spec(TREATED, seed)
        row = LineageRow(
            exp_id=spec.trial_id,
            status=status,
            core_metric=metric,
            best_step=10,
            sweep=spec.sweep,
            condition=spec.condition,
            seed=seed,
            trial_id=spec.trial_id,
            metric_name=RATE,
            metric_mode="max",
        )
        LineageStore(writer.run.results, RATE, "max").record(lambda rows: row)

    return doctor


def removed(writer: FolderWriter) -> None:
    """The trials of one seed are gone from the plan, with their folders."""
    plan = read_json(writer.run.plan)
    left = [row for row in plan["trials"] if row["seed"] != 2]
    write_json_atomic(writer.run.plan, {**plan, "trials": left})
    for label in (CONTROL, TREATED):
        rmtree(trial(writer, label, 2).path)


def launches(*seeds: Sequence[int], plans_all: bool = False) -> Doctor:
    """Each launch plans the trials of its seeds, or the first those of all, and ends its own."""

    def doctor(writer: FolderWriter) -> None:
        rows = []
        for number, own in enumerate(seeds):
            due = [spec for spec in writer.specs if spec.seed in own]
            new = (writer.specs if number == 0 else ()) if plans_all else due
            rows += [_event(spec.trial_id, "planned", f"{number}0") for spec in new]
            rows += [_event(spec.trial_id, "done", f"{number}9") for spec in due]
        append_jsonl_many(writer.run.ledger, rows)

    return doctor


def _event(name: str, event: str, minute: str) -> Row:
    time = f"2026-01-01T00:{minute}:00Z"
    return {"time": time, "event": event, "trial_id": name, "attempt": 1, "launch": "launch-0001"}


def gate_row(step: int, **fields: Any) -> Callable[[Row], Row]:
    return lambda row: fields if row["step"] == step else {}


def _edit_json(path: Path, fields: Mapping[str, Any]) -> None:
    write_json_atomic(path, {**read_json(path), **fields})


def _edit_lines(path: Path, change: Callable[[Row], Mapping[str, Any] | None]) -> None:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    changed = [
        {key: value for key, value in {**row, **new}.items() if value is not None}
        for row in rows
        if (new := change(row)) is not None
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in changed), encoding="utf-8")


def unrecorded(writer: FolderWriter) -> None:
    """One trial did not record its tasks."""
    path = trial(writer).provenance
    content = read_json(path)
    content.pop("manifest_sha256")
    write_json_atomic(path, content)

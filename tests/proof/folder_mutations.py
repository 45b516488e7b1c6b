"""Doctored run folders, with what the audit must say of each.

Every case starts from a clean folder (two conditions, three seeds, 20 steps, gates at 0, 10 and
20) and changes what one trial recorded. Each fault has a near miss that must pass. The table of
docs/comparability.md is made from this list.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from run_folders import CONTROL, TREATED, FolderWriter

from rltune.store.files import read_json, write_json_atomic
from rltune.store.rundir import TrialDir
from rltune.types import TrialStatus

Doctor = Callable[[FolderWriter], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class FolderMutation:
    """One doctored folder.

    Attributes:
        code: The rule, or the rule with the kind of its finding.
        what: What was done to the folder, in words.
        doctor: Does it.
        is_fault: Whether the rule must find it; a near miss must pass.
        is_named: Whether the rule names a near miss in a warning.
        also: Codes of other rules that name a near miss in a warning, too.

    """

    code: str
    what: str
    doctor: Doctor
    is_fault: bool = True
    is_named: bool = False
    also: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """`A3` of `A3.judged`."""
        return self.code.partition(".")[0]


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
        for each in all_trials(writer):
            _edit_lines(each.heldout, lambda row: {"success": [0, 1], "reward": [0.0, 1.0]})
            _edit_lines(each.metrics, lambda row: {"actor/grad_norm": 0.1} if row["step"] else {})
        own = {"actor/grad_norm": 0.1 + parted_by}
        _edit_lines(trial(writer).metrics, gate_row(20, **own))

    return doctor


def updates(factor: float, *counters: str) -> Doctor:
    """One condition counts fewer updates, by default of every kind."""
    named = counters or ("budget/optimizer_steps", "budget/policy_updates")

    def fewer(row: Row) -> Row:
        return {key: row[key] * factor for key in named if key in row}

    def doctor(writer: FolderWriter) -> None:
        for seed in (0, 1, 2):
            _edit_lines(trial(writer, seed=seed).metrics, fewer)

    return doctor


def updates_after(step: int, factor: float) -> Doctor:
    """One condition makes fewer optimiser steps from some step on."""

    def fewer(row: Row) -> Row:
        counters = ("budget/optimizer_steps", "budget/policy_updates")
        own = {key: row[key] for key in counters if key in row and row["step"] > step}
        return {key: value * factor for key, value in own.items()}

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
    own = trial(writer)
    result = own.read_done()
    assert result is not None
    own.write_done(replace(result, final_metric=value))


def no_marker(writer: FolderWriter) -> None:
    trial(writer).done.unlink()


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


def fault(code: str, what: str, doctor: Doctor) -> FolderMutation:
    return FolderMutation(code, what, doctor)


def near_miss(
    code: str, what: str, doctor: Doctor, *, is_named: bool = False, also: tuple[str, ...] = ()
) -> FolderMutation:
    return FolderMutation(code, what, doctor, is_fault=False, is_named=is_named, also=also)


FOLDER_MUTATIONS = (
    # A1: what ran.
    fault("A1", "one trial ran another commit", provenance(commit="beef")),
    fault("A1", "one trial ran another torch",
          provenance(versions={"python": "3.11.0", "torch": "2.7"})),
    fault("A1", "one trial started from other weights", provenance(weights_sha256="x")),
    fault("A1", "one trial did not record its task manifest",
          lambda writer: _drop(trial(writer).provenance, "manifest_sha256")),
    fault("A1", "an earlier attempt of a trial ran on another device",
          provenance(earlier=[{"attempt": 1, "device": "cuda", "weights_sha256": "w"}])),
    fault("A1", "one trial read another corpus under the same name",
          both(provenance_everywhere(inputs={"corpus.jsonl": "c" * 64}),
               provenance(inputs={"corpus.jsonl": "d" * 64}))),
    fault("A1", "an earlier attempt of a trial ran another module of one's own",
          both(provenance_everywhere(inputs={"my_env.py": "c" * 64}),
               provenance(earlier=[{"attempt": 1, "weights_sha256": "w",
                                    "inputs": {"my_env.py": "d" * 64}}]))),
    fault("A1", "a file changed while a trial ran",
          provenance(inputs_changed=["corpus.jsonl"])),
    near_miss("A1", "one trial read a file of its own besides",
              both(provenance_everywhere(inputs={"corpus.jsonl": "c" * 64}),
                   provenance(inputs={"corpus.jsonl": "c" * 64, "more.txt": "d" * 64}))),
    near_miss("A1", "all trials ran another commit", provenance_everywhere(commit="beef")),
    near_miss("A1", "one trial ran on another host", provenance(host="b", time="later")),
    # A2: the same tasks, and the same luck.
    fault("A2", "one trial drew other tasks at step 7",
          metrics(gate_row(7, **{"rollout/task_hash": "other"}))),
    fault("A2", "one trial did not record the tasks of step 3",
          metrics(lambda row: None if row["step"] == 3 else {})),
    fault("A2", "one trial sampled other tokens in step 1, before any update",
          metrics(gate_row(1, **{"rollout/sampled_hash": "other"}))),
    fault("A2.luck", "one trial sampled other tokens in step 1, on another processor",
          both(provenance(cpu_model="other"),
               metrics(gate_row(1, **{"rollout/sampled_hash": "other"})))),
    fault("A2.not_recorded", "one trial did not record what it sampled in step 1",
          metrics(gate_row(1, **{"rollout/sampled_hash": ""}))),
    near_miss("A2", "one trial sampled other tokens in step 2, after an update",
              metrics(gate_row(2, **{"rollout/sampled_hash": "other"}))),
    near_miss("A2", "one trial ran on another processor and sampled the same tokens",
              provenance(cpu_model="other")),
    near_miss("A2", "both conditions of a seed drew the same other tasks at step 7",
              metrics_of_seed(1, gate_row(7, **{"rollout/task_hash": "other"}))),
    # A3: what was consumed.
    fault("A3", "one condition made 30 % fewer optimiser steps", updates(0.7)),
    fault("A3", "one condition made 10 % fewer optimiser steps", updates(0.9)),
    fault("A3", "the policy of one condition moved in half of its optimiser steps",
          updates(0.5, "budget/policy_updates")),
    near_miss("A3", "one condition went through fewer mini-batches, its policy moved as often",
              updates(0.5, "budget/optimizer_steps")),
    fault("A3", "one trial stopped early; after that the others of its condition made fewer steps",
          both(ended(TrialStatus.STOPPED_EARLY, "no spread of rewards"), updates_after(10, 0.6))),
    fault("A3.ends", "one trial stopped early, and made fewer steps than its control by then",
          ended(TrialStatus.STOPPED_EARLY, "no spread of rewards")),
    fault("A3.not_recorded", "one trial did not record its updates at its last step",
          metrics(gate_row(20, **{"budget/optimizer_steps": None, "budget/policy_updates": None}))),
    near_miss("A3", "one condition made 4 % fewer optimiser steps", updates(0.96)),
    # A4: the last step.
    fault("A4", "a trial is done at step 10 of 20", ended(TrialStatus.DONE, "")),
    fault("A4", "a trial stopped early without a reason",
          ended(TrialStatus.STOPPED_EARLY, "")),
    fault("A4", "a trial has no marker, and nobody drives it", no_marker),
    fault("A4", "a result claims more steps than its metrics have",
          metrics(lambda row: None if row["step"] > 18 else {})),
    fault("A4", "a trial trained for one step more than was planned", one_more_step),
    near_miss("A4", "a trial stopped early, with its reason: named, and no success",
              ended(TrialStatus.STOPPED_EARLY, "no spread of rewards"), is_named=True,
              also=("A3.ends",)),
    near_miss("A4", "every trial stopped at step 10, with its reason: named, and of equal length",
              all_ended(TrialStatus.STOPPED_EARLY, "no spread of rewards"), is_named=True),
    # A5: the held-out gate.
    fault("A5", "one trial was evaluated on other tasks",
          heldout(gate_row(10, tasks_sha256="other"))),
    fault("A5", "one trial was evaluated at another temperature",
          heldout(gate_row(20, temperature=1.0))),
    fault("A5", "one trial left out a gate", heldout(lambda r: None if r["step"] == 10 else {})),
    fault("A5", "one trial has a result, though faults took 4 of the 10 tasks of its last gate",
          heldout(gate_row(20, fault=["verifier f: down"] * 4 + [""] * 6))),
    fault("A5", "one trial was evaluated by greedy decoding",
          heldout(lambda r: {"do_sample": False})),
    fault("A5", "one result claims a metric that its last gate did not measure",
          lambda writer: claims(writer, 0.9)),
    near_miss("A5", "one result has the metric of its last gate up to rounding",
              lambda writer: claims(writer, 0.3 + 1e-9)),
    near_miss("A5", "faults took 2 of the 10 tasks of one gate: named",
              heldout(gate_row(20, fault=["verifier f: down"] * 2 + [""] * 8)), is_named=True),
    near_miss("A5", "one trial solved other tasks",
              heldout(gate_row(10, success=[1] * 10, reward=[1.0] * 10))),
    # A6: the age of rollouts.
    fault("A6", "one trial learned from rollouts that were a step old",
          metrics(lambda row: {"rollout/staleness": 1.0})),
    fault("A6", "one step of one trial did", metrics(gate_row(10, **{"rollout/staleness": 1.0}))),
    near_miss("A6", "one trial records that its rollouts were new",
              metrics(lambda row: {"rollout/staleness": 0.0})),
    # A7: one run under two names.
    fault("A7", "both conditions sampled the same tokens and had the same gradients", gradients()),
    fault("A7", "the same in the seeds that both finished; one trial has no marker",
          both(gradients(), no_marker)),
    near_miss("A7", "in the last step of one trial the gradient differs in its last bit",
              gradients(parted_by=2e-17)),
    near_miss("A7", "one trial sampled other tokens in step 15",
              both(gradients(), metrics(gate_row(15, **{"rollout/sampled_hash": "other"})))),
    near_miss("A7", "one trial solved another task at its last gate",
              both(gradients(), heldout(gate_row(20, success=[1, 0])))),
)  # fmt: skip


def _drop(path: Path, field: str) -> None:
    content = read_json(path)
    write_json_atomic(path, {key: value for key, value in content.items() if key != field})

"""Doctored run folders, with what the audit must say of each.

Every case starts from a clean folder (two conditions, three seeds, 20 steps, gates at 0, 10 and
20) and changes what one trial recorded. Each fault has a near miss that must pass. The table of
docs/comparability.md is made from this list.
"""

from dataclasses import dataclass

from folder_doctors import (
    COUPLED,
    Doctor,
    added_seed,
    all_ended,
    another_config,
    asks,
    both,
    claims,
    ended,
    faulty,
    gate_row,
    gradients,
    heldout,
    launches,
    metrics,
    metrics_of_seed,
    no_marker,
    no_proof,
    one_more_step,
    one_undigested,
    planned,
    provenance,
    provenance_everywhere,
    recorded,
    removed,
    unrecorded,
    updates,
)

from rltune.types import RowStatus, TrialStatus


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
          unrecorded),
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
          both(ended(TrialStatus.STOPPED_EARLY, "no spread of rewards"), updates(0.6, after=10))),
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
    fault("A5", "the tasks of one gate give another rate than was recorded",
          heldout(gate_row(10, success=[1] * 10))),
    fault("A5", "one result claims another metric of its last gate",
          both(metrics(gate_row(20, **{"heldout/reward_mean": 0.9})),
               lambda writer: claims(writer, 0.9))),
    fault("A5", "one marker alone has no digest of its metrics", one_undigested),
    near_miss("A5", "faults took 2 of the 10 tasks of one gate: named", faulty, is_named=True),
    near_miss("A5", "one trial solved other tasks",
              heldout(gate_row(10, success=[0] * 5 + [1] * 5))),
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
    # A8: proved and planned before; nothing removed, repeated or added.
    fault("A8", "the proof was deleted", no_proof),
    fault("A8", "the plan has another config under one trial's name",
          another_config(loss={"entropy_coeff": 0.1})),
    fault("A8", "the plan calls a trial of the treated condition the control",
          planned(is_control=True)),
    fault("A8", "the coupling of a key that moved was removed from the sweep file",
          asks(COUPLED, "")),
    fault("A8", "the rule of the coupled key was turned round",
          asks("value > 0", "value <= 0")),
    fault("A8", "the sweep file asks for the lowest reward in place of the highest success",
          asks("seeds:", "metric: {name: heldout/reward_mean, mode: min}\nseeds:")),
    fault("A8", "the trials of one seed were removed after their result was recorded",
          both(recorded(seed=2), removed)),
    fault("A8", "the trials of one seed were removed after one was recorded as diverged",
          both(recorded(RowStatus.DIVERGED, seed=2), removed)),
    fault("A8.run_again", "one trial has another result than was recorded of it",
          recorded(metric=0.2)),
    fault("A8.proved_later", "a row says disqualified, and the proof holds",
          recorded(RowStatus.DISQUALIFIED)),
    fault("A8.seeds_added", "a seed was planned when three had ended", added_seed),
    near_miss("A8", "the trials of one seed were removed before they had a result", removed),
    near_miss("A8", "one trial has the result that was recorded of it", recorded()),
    near_miss("A8", "the title of the sweep file was edited", asks("title: KL", "title: A KL")),
    near_miss("A8", "all seeds were planned at once, and ended in three launches",
              launches([0], [1], [2], plans_all=True)),
    near_miss("A8", "seeds were planned when fewer than three had ended",
              launches([0], [1], [2])),
)  # fmt: skip

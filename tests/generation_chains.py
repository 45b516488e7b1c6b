"""Hand-made generations of a model: run folders with one row each, and no training."""

from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.store.files import write_json_atomic
from rltune.store.jsonl import append_jsonl
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialSpec

METRIC = "heldout/success_rate"


def gate(step, successes, *, tasks="frozen", **more):
    """Return one line of heldout.jsonl."""
    return {"step": step, "tasks_sha256": tasks, "success": list(successes), **more}


def add_generation(
    runs, run, name, gates, *, best=2, model="tiny", parent="", trial_id="", init=None
):
    """Write a trial and its row.

    Args:
        runs: Runs dir.
        run: Name of the run folder.
        name: Id of the row.
        gates: Lines of heldout.jsonl.
        best: The step that the gate chose.
        model: `policy.model` of its config.
        parent: Row that it departs from.
        trial_id: Of its trial; the row's id where empty.
        init: `policy.lora.init`; a trial with it trains an adapter.

    """
    folder = RunDir(runs / run).create()
    folder.sweep.write_text("name: kl\n")
    trial = folder.trial(trial_id or name).create()
    lora = {"rank": 4 if init else 0, "init": init}
    config = {"policy": {"model": model, "lora": lora}}
    trial.write_spec(TrialSpec(trial.trial_id, "kl", "k", "k=0", 0, True, 0, config, "h" * 64))
    for one in gates:
        append_jsonl(trial.heldout, one)
    weights = trial.checkpoint(best) / "policy.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    trial.best_heldout.symlink_to(weights.parent.name)
    write_json_atomic(trial.done, {})
    row = LineageRow(
        exp_id=name,
        status=RowStatus.KEEP,
        parent_exp=parent,
        trial_id=trial.trial_id,
        best_step=best,
        core_metric=0.5,
        metric_name=METRIC,
        metric_mode="max",
    )
    LineageStore(folder.results, METRIC, "max").append(row)
    return folder.results

"""Tables of made-up sweeps, for the figures: plain numbers, no run folder."""

from rltune.analysis.table_summary import summary_rows
from rltune.analysis.tables import GateRow, HistoryRow, TrialRow
from rltune.report.figures.source import About, Tables

SUCCESS = "heldout/success_rate"
TASKS = 10


def trial(condition, seed, **changes):
    """Return the row of a finished trial; the first condition of a plan is its control."""
    columns = {
        "sweep": "kl", "run": "kl-0", "axis": "loss.kl_loss_coef", "condition": condition,
        "is_control": False, "axis_value": "0", "seed": seed, "trial_id": f"{condition}-s{seed}",
        "attempt": 1, "config_sha256": "c", "code_rev": "r", "code_dirty": False,
        "source_sha256": "s", "tasks_sha256": "t", "weights_sha256": "w", "env_sha256": "e",
        "device": "cpu", "cpu_model": "", "gpus": 0.0, "status": "done", "reason": "",
        "started": "", "ended": "", "wall_s": 40.0, "train_s": 30.0, "gpu_s": 0.0,
        "rollouts": 160.0, "tokens": 4000.0, "optimizer_steps": 40.0, "policy_updates": 30.0,
        "critic_updates": 40.0, "planned_steps": 20,
        "final_step": 20, "metric": SUCCESS, "mode": "max", "heldout_tasks": TASKS, "base": 0.4,
        "selected": 0.5, "best_step": 20, "selected_tasks": TASKS, "final": 0.5,
        "final_tasks": TASKS, "floor": 0.184, "floor_kind": "exact",
        "floor_low": None, "floor_high": None, "ceiling": 0.95,
        "wandb_id": "", "lineage_id": "", "same_run_as": "", "seeds_until": "", "look": None,
        "mark": "ok",
    }  # fmt: skip
    return TrialRow(**{**columns, **changes})


def history(row, metric, values):
    """Return the values of one measure of one trial; values is step -> value."""
    return [
        HistoryRow(row.trial_id, row.condition, row.seed, step, None, None, None, metric,
                   value, "" if value is not None else "nan", row.mark)
        for step, value in values.items()
    ]  # fmt: skip


def about(trials, **changes):
    """Return what the manifest of a sound sweep says."""
    columns = {
        "title": "KL constraint", "verdict": "passed", "failed_rules": (), "confounded": "",
        "warnings": (), "open_warnings": (), "planned": len(trials),
        "finished": sum(row.final is not None for row in trials), "estimator": "mean",
    }  # fmt: skip
    return About(**{**columns, **changes})


def tables(curves, *, extra=(), trials=None, **changes):
    """Return the tables of a sweep whose trials have these curves.

    Args:
        curves: (condition, seed) -> step -> held-out success; the first condition is the control,
            and the last value is the trial's result.
        extra: (metric, curves) of further measures.
        trials: (condition, seed) -> changed columns of the trial.
        changes: Of `about`.

    """
    control = next(iter(curves))[0]
    rows = {}
    for (condition, seed), values in curves.items():
        ends = list(values.values())
        changed = {"is_control": condition == control, "base": ends[0], "final": ends[-1]}
        changed |= (trials or {}).get((condition, seed), {})
        rows[condition, seed] = trial(condition, seed, **changed)
    found = [h for key, values in curves.items() for h in history(rows[key], SUCCESS, values)]
    for metric, more in extra:
        found += [h for key, values in more.items() for h in history(rows[key], metric, values)]
    gates = [
        GateRow(h.trial_id, h.condition, h.seed, h.step, h.metric, TASKS, 0, h.value, None, None,
                h.mark)
        for h in found if h.metric == SUCCESS
    ]  # fmt: skip
    done = tuple(rows.values())
    return Tables(about(done, **changes), done, tuple(found), tuple(summary_rows(done, gates)))

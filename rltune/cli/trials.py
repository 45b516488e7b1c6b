"""A trial with its records, as `rltune rerun` and `rltune continue` start from it."""

from typing import Literal

from rltune.analysis.lookup import run_of
from rltune.errors import Problem, StoreError
from rltune.runner.single import Source, open_source
from rltune.store.origin import read_origin
from rltune.store.run_folder import confounded_reason, read_folder
from rltune.store.rundir import TrialDir


def read_source(trial: TrialDir) -> Source:
    """Return a trial with its records and the metric of its sweep.

    Raises:
        StoreError: It has not started, its records were edited, or it is a repetition.

    """
    run = run_of(trial)
    if run is None:
        raise StoreError(Problem(str(trial.path), "is not a trial folder inside a run folder."))
    origin = read_origin(trial)
    if origin is not None and origin.kind == "rerun":
        what = f"is a repetition of {origin.parent}."
        raise StoreError(Problem(str(trial.path), what, action="Give the original."))
    sweep = read_folder(run)
    reason = confounded_reason(run)
    mode: Literal["max", "min"] = "min" if sweep.metric_mode == "min" else "max"
    return open_source(
        run,
        trial,
        metric=(sweep.metric_name, mode),
        disqualified=f"confounded, run anyway: {reason}" if reason else "",
    )

r"""Weights & Biases, offline or online. A failure warns once and never ends the trial.

Facts behind the choices (wandb 0.31): run ids may not contain `:;,#?/'` and projects not
`/\#?%:`; a step given to `log` that goes backwards is dropped silently, so `step` is logged
as a metric and declared the axis; an offline run that is killed leaves nothing, so the
metrics file and not W&B is the record, and a resumed trial logs all of it again: the newest
session of an id holds the whole history, and equal points of one step lie on each other;
`finish` waits for uploads without limit unless told; `use_artifact` raises when offline.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from rltune.track.base import (
    Artifact,
    Histogram,
    Media,
    Metrics,
    Table,
    Tracker,
    Warn,
    require_step,
)
from rltune.track.inherited import forget_caller
from rltune.track.sync import OFFLINE, mark_whole, offline_problem
from rltune.types import TrialStatus

_ILLEGAL_IN_ID = re.compile(r"[^A-Za-z0-9._=+-]")
_ILLEGAL_IN_PROJECT = re.compile(r"[/\\#?%:]")
_MAX_ID = 100
_MAX_TAG = 64
_ARTIFACT_S = 60  # until an uploaded input has its version
_UPLOAD_BYTES = 2**30  # a larger file is named, not uploaded
_CLEAN = frozenset({TrialStatus.DONE, TrialStatus.STOPPED_EARLY})


def wandb_run_id(trial_id: str) -> str:
    """Return the legal run id of a trial: always the same, different for different trials."""
    clean = _ILLEGAL_IN_ID.sub("-", trial_id)
    if clean == trial_id and len(clean) <= _MAX_ID:
        return clean
    digest = hashlib.sha256(trial_id.encode()).hexdigest()[:8]
    return f"{clean[: _MAX_ID - 9]}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbRun:
    """What a W&B run is called and holds."""

    trial_id: str  # gives the run its id and name
    project: str  # W&B project
    group: str  # the sweep; W&B draws the runs of a group together
    tags: tuple[str, ...]  # short labels to filter by
    config: Mapping[str, Any]  # resolved config and identity; nested mappings are shown with dots
    folder: Path  # the trial's folder; W&B writes into `wandb/` below it
    mode: Literal["offline", "online"]  # `offline` writes files for a later `wandb sync`
    init_timeout_s: float = 60.0  # how long starting may take
    finish_timeout_s: float = 120.0  # how long the end waits for uploads


class WandbTracker(Tracker):
    """Mirror the numbers of a trial to W&B.

    The first failure, at whatever call, is passed to `warn` and ends the mirroring.

    Args:
        run: Names and settings.
        warn: Takes the one warning.

    """

    def __init__(self, run: WandbRun, warn: Warn) -> None:
        self.run_id = wandb_run_id(run.trial_id)
        self._mode: Literal["offline", "online"] = run.mode
        self._warn = warn
        self._run: Any = None
        self._has_failed = False
        self._step = -1
        self._guard("start", lambda: self._start(run))

    @property
    def shows_media(self) -> bool:
        """Until W&B fails."""
        return self._is_on

    def resume(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Log what earlier attempts logged: a killed session may hold a part of it, or nothing."""
        for row in rows:
            self._tell("log", partial(self._log, _numbers(row)))

    def log(self, step: int, metrics: Metrics) -> None:
        """Log the numbers; text is left out."""
        require_step(step, metrics)
        self._tell("log", partial(self._log, {"step": step, **_numbers(metrics)}))

    def media(self, step: int, items: Media) -> None:
        """Log tables and histograms at a step."""
        self._tell("log", lambda: self._log({"step": step, **_drawn(items)}))

    def use(self, artifact: Artifact) -> None:
        """Record an input of the run; offline W&B knows no inputs, and the config names it."""
        self._tell("record an artifact", lambda: self._use(artifact))

    def make(self, artifact: Artifact) -> None:
        """Record an output of the run."""
        self._tell("record an artifact", lambda: self._made(artifact))

    def _log(self, values: Mapping[str, object]) -> None:
        self._run.log(dict(values))
        self._step = int(str(values["step"]))

    def _use(self, artifact: Artifact) -> None:
        self._run.config.update({f"input_{artifact.kind}": artifact.name}, allow_val_change=True)
        logged = self._made(artifact)
        if self._mode == "online":
            logged.wait(timeout=_ARTIFACT_S)
            self._run.use_artifact(logged)

    def _made(self, artifact: Artifact) -> Any:
        return self._run.log_artifact(_wandb_artifact(artifact), aliases=list(artifact.aliases))

    def summary(self, values: Metrics) -> None:
        """Set the run's summary, text included."""
        self._tell("write the summary", lambda: self._run.summary.update(dict(values)))

    def close(self, status: TrialStatus) -> None:
        """Finish. W&B shows a stopped trial as preempted, one that ended badly as failed."""
        run, self._run = self._run, None
        if run is not None:
            self._guard("finish", lambda: self._end(run, status))

    def _end(self, run: Any, status: TrialStatus) -> None:
        _finish(run, status)
        if not self._has_failed:
            mark_whole(Path(run.dir).parent, step=self._step)

    @property
    def _is_on(self) -> bool:
        return self._run is not None and not self._has_failed

    def _start(self, run: WandbRun) -> None:
        if run.mode == "online" and (problem := offline_problem()) is not None:
            self._go_offline(f"{problem.where}: {problem.what}")
        try:
            self._run = _init(replace(run, mode=self._mode), self.run_id)
        except Exception as error:
            if self._mode == "offline":
                raise
            self._go_offline(f"{type(error).__name__}: {error}")
            end_service()  # the service of this process still holds the id
            self._run = _init(replace(run, mode="offline"), self.run_id)

    def _go_offline(self, why: str) -> None:
        """Write files instead: nothing is lost, and `rltune sync` uploads them later."""
        self._mode = "offline"
        self._warn(f"W&B cannot be used online. {why} {OFFLINE}")

    def _tell(self, doing: str, call: Callable[[], object]) -> None:
        """Run `call` while there is a run that works."""
        if self._is_on:
            self._guard(doing, call)

    def _guard(self, doing: str, call: Callable[[], object]) -> None:
        """Run `call`; warn of the first error and stop mirroring."""
        try:
            call()
        except Exception as error:  # whatever W&B raises must not end a trial
            if self._has_failed:
                return
            self._has_failed = True
            self._warn(
                f"W&B could not {doing}: {type(error).__name__}: {error}. The trial goes on "
                "without it and metrics.jsonl has everything; `tracking.wandb: disabled` leaves "
                "W&B out."
            )


def _numbers(metrics: Mapping[str, object]) -> dict[str, int | float]:
    """Return what W&B can draw: numbers of any library, no text and no booleans."""
    return {key: number for key, value in metrics.items() if (number := _number(value)) is not None}


def _number(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        return None
    return value if isinstance(value, int) else float(value)


def _drawn(items: Media) -> dict[str, object]:
    import wandb

    def drawn(item: Table | Histogram) -> object:
        if isinstance(item, Table):
            rows = [list(row) for row in item.rows]
            return wandb.Table(columns=list(item.columns), data=rows)
        return wandb.Histogram(np_histogram=(list(item.counts), list(item.edges)))

    return {name: drawn(item) for name, item in items.items()}


def _wandb_artifact(artifact: Artifact) -> Any:
    """Return W&B's artifact; its files are read where they lie, and not copied."""
    import wandb

    made = wandb.Artifact(artifact.name, artifact.kind, metadata=dict(artifact.metadata))
    for name, path in artifact.files.items():
        if path.stat().st_size > _UPLOAD_BYTES:
            made.add_reference(path.as_uri(), name=name, checksum=False)
        else:
            made.add_file(str(path), name=name, policy="immutable", skip_cache=True)
    return made


def _init(run: WandbRun, run_id: str) -> Any:
    forget_caller()
    # Tables wait for their upload in a staging folder, by default in the home.
    os.environ.setdefault("WANDB_DATA_DIR", str(run.folder / "wandb" / "data"))
    os.environ.setdefault("WANDB_CACHE_DIR", str(run.folder / "wandb" / "cache"))
    import wandb

    started = wandb.init(
        id=run_id,
        name=run.trial_id[:128],
        project=_ILLEGAL_IN_PROJECT.sub("-", run.project),
        group=run.group,
        job_type="train",
        tags=[tag[:_MAX_TAG] for tag in run.tags],
        config=dict(run.config),
        dir=run.folder,
        mode=run.mode,
        # Offline sessions of one id are put together by `wandb sync`; asking to resume only warns.
        resume="allow" if run.mode == "online" else None,
        reinit="create_new",
        settings=wandb.Settings(
            silent=True,
            console="off",
            init_timeout=run.init_timeout_s,
            finish_timeout=run.finish_timeout_s,
            login_timeout=run.init_timeout_s,
            x_disable_stats=True,
            save_code=False,
            disable_git=True,
        ),
    )
    started.define_metric("step")
    started.define_metric("*", step_metric="step")
    return started


def end_service() -> None:
    """End W&B's own process, which writes what is left of the sessions to their files."""
    import wandb

    wandb.teardown(exit_code=1)


def _finish(run: Any, status: TrialStatus) -> None:
    run.summary["trial/status"] = status.value
    if status is TrialStatus.INTERRUPTED:
        run.mark_preempting()  # then W&B shows a run with an exit code as preempted
    run.finish(exit_code=0 if status in _CLEAN else 1)

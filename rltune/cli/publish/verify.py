"""`rltune verify`: prove a finding from its own tables, and by running its trials again."""

import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from rltune.analysis.named import of_seed
from rltune.analysis.rates import counts_tasks
from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, NoCustomCode, RunsDir
from rltune.errors import InputError, Problem
from rltune.gate import difference_interval
from rltune.report.bundle.archive import LIST, kind_of, unpack
from rltune.report.bundle.run import verify_bundle
from rltune.report.finding import verify as links
from rltune.report.finding.records import Finding, Recorded
from rltune.report.finding.verify import Check
from rltune.report.render import indent, line, plural, short_path
from rltune.runner.machine import socket_folder
from rltune.runner.process import set_environment
from rltune.runner.provenance import source_digest_at
from rltune.runner.repeat import Published, Repeated, repeat
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.derive import recorded_config
from rltune.spec.schema.sweep import Metric
from rltune.store.rundir import RunDir
from rltune.study.bundle import KIND as OF_STUDY
from rltune.study.verify import verify_study
from rltune.types import TrialStatus

_Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FINDING",
        help="Folder of a finding, or a bundle (.zip, or unpacked).",
        show_default=False,
    ),
]


def verify(
    folder: _Folder,
    count: Annotated[
        int,
        typer.Option("--rerun", min=0, metavar="N", help="Run N trials, drawn at random, again."),
    ] = 0,
    trial: Annotated[
        str | None,
        typer.Option(
            "--trial", metavar="TRIAL", help="Run this trial again: condition@seed or id."
        ),
    ] = None,
    runs_dir: RunsDir = RUNS,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Recompute every number, verdict and figure of a finding from its tables, and compare.

    Of a bundle, the audit, the tables and charts of generations are made again from the records
    first; of that of a study, also what was promoted from sweep to sweep, what was proposed, and
    what it used.

    With --rerun or --trial it also trains trials again and compares them bit for bit. On another
    machine or other software the bits may differ; then the result at the last gate has to agree
    within the luck of its held-out tasks, and what differs is named. Exit code 1 if anything does
    not agree.

    Example:
      rltune verify docs/findings/kl
      rltune verify docs/findings/kl --rerun 2
      rltune verify docs/findings/kl --trial 0.1@3
      rltune verify paper.zip

    """
    findings, checks = _verified(folder)
    if not as_json:
        show(Group(*map(_shown, checks)))
    if findings and (count or trial is not None):
        for finding, one in _chosen(findings, count, trial):
            checks.append(_again(finding, one, runs_dir, no_custom_code=no_custom_code))
            if not as_json:
                show(_shown(checks[-1]))
    failed = [one for one in checks if not one.ok]
    if as_json:
        emit_json({"ok": not failed, "checks": [{**asdict(one), "ok": one.ok} for one in checks]})
    else:
        show(line(_verdict(folder, failed), "bold red" if failed else "green"))
    raise typer.Exit(1 if failed else 0)


def _verified(folder: Path) -> tuple[Sequence[Finding], list[Check]]:
    """Return the findings that could be read, and what was verified."""
    if folder.is_file():
        with tempfile.TemporaryDirectory(prefix="rltune-verify-") as place:
            return _of_bundle(unpack(folder, Path(place).resolve()))
    if (folder / LIST).is_file():
        return _of_bundle(folder.resolve())
    finding, checks = links.verify(folder, sources_at=source_digest_at)
    return [finding] if finding is not None else [], checks


def _of_bundle(root: Path) -> tuple[Sequence[Finding], list[Check]]:
    """Return the findings of an unpacked bundle that could be read, and what was verified."""
    if kind_of(root) == OF_STUDY:
        findings, checks = verify_study(root, sources_at=source_digest_at)
        return list(findings.values()), checks
    finding, checks = verify_bundle(root, sources_at=source_digest_at)
    return [finding] if finding is not None else [], checks


def _shown(one: Check) -> Group:
    mark = ("DIFFERS", "bold red") if not one.ok else ("ok", "green")
    mark = ("not seen", "yellow") if one.ok and one.unseen else mark
    head = Text.assemble((f"{mark[0]:<8}", mark[1]), " ", one.name)
    if one.unseen:
        head.append(f": {one.unseen}")
    return Group(head, *(indent(line(text), 9) for text in one.problems))


def _verdict(folder: Path, failed: Sequence[Check]) -> str:
    if failed:
        return f"{short_path(folder)} does not hold: {plural(len(failed), 'check')} failed."
    return f"{short_path(folder)} holds."


Chosen = tuple[Finding, Recorded]


def _chosen(findings: Sequence[Finding], count: int, trial: str | None) -> list[Chosen]:
    """Return the trials to run again: the one that is named, and so many at random.

    Raises:
        InputError: The name is of no trial, or of several.

    """
    known = [(finding, one) for finding in findings for one in finding.recorded]
    chosen = [] if trial is None else [_named(known, trial)]
    rest = [pair for pair in known if pair[1].metrics_sha256 and pair not in chosen]
    return [*chosen, *random.SystemRandom().sample(rest, min(count, len(rest)))]


def _named(known: Sequence[Chosen], trial: str) -> Chosen:
    specs = [one.spec for _, one in known]
    found = of_seed(specs, trial) or [s for s in specs if trial and s.trial_id.startswith(trial)]
    if len(found) != 1:
        what = (
            f"{trial!r} is {'no trial' if not found else f'{len(found)} trials'} of this finding."
        )
        allowed = f"It has {specs[0].trial_id} and {len(specs) - 1} more."
        raise InputError(Problem("--trial", what, allowed, "Give condition@seed, or an id."))
    return next(pair for pair in known if pair[1].spec is found[0])


def _again(finding: Finding, one: Recorded, runs_dir: Path, *, no_custom_code: bool) -> Check:
    """Run a trial again and return how it compares. Its folder stays only where it differs."""
    spec = one.spec
    if no_custom_code:
        paths = import_paths(spec.config)
        refuse_paths((f"trials.json: {key}", path) for key, path in paths)
    socket_folder()  # refuses before anything is written
    set_environment(recorded_config(spec.config, source="trials.json"))
    runs_dir.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"verify-{finding.name}-", dir=runs_dir))
    warn(f"Running {spec.trial_id} again in {short_path(place)}")
    row = next(row for row in finding.trials if row.trial_id == spec.trial_id)
    metric = Metric.model_validate({"name": row.metric, "mode": row.mode})
    published = Published(
        spec, dict(one.provenance), one.metrics_sha256, row.final, metric, one.weights_sha256
    )
    again = repeat(published, RunDir(place), argv=tuple(sys.argv), base=Path.cwd())
    check = _compared(spec.trial_id, published, again, tasks=row.final_tasks or 0)
    if check.ok:
        shutil.rmtree(place, ignore_errors=True)
        return check
    return Check(check.name, (*check.problems, f"kept in {short_path(place)}"), check.unseen)


def _compared(name: str, published: Published, again: Repeated, *, tasks: int) -> Check:
    """Return the verdict on a repetition."""
    label = f"{name} again"
    if again.status is TrialStatus.INTERRUPTED:
        raise typer.Exit(3)
    if again.is_equal and again.has_other_weights:
        what = "every metric is the same, and the weights that its gate chose are others"
        return Check(label, (what,))
    if again.is_equal:
        return Check(f"{label}: bit-equal in every metric but clocks{_changed(again, 'since')}")
    numbers = f"{published.metric.name} {published.final} then, {again.final} now"
    if files := [change.name for change in again.changes if change.is_input]:
        return Check(label, (f"{numbers}; it read other files: {', '.join(files)}",))
    if not again.deciding:
        return Check(label, (f"{numbers}, on the same software and machine",))
    if why := _out_of_bounds(published, again, tasks):
        return Check(label, (f"{numbers}: {why}{_changed(again, 'changed since')}",))
    unseen = f"not bit-equal, {numbers}: within the luck of {tasks} tasks"
    return Check(label, (), f"{unseen}{_changed(again, 'changed since')}")


def _out_of_bounds(published: Published, again: Repeated, tasks: int) -> str:
    """Return why two results on different software do not agree; empty when they do."""
    then, now = published.final, again.final
    if then is None or now is None or not counts_tasks(published.metric.name) or not tasks:
        return "there are no bounds for such a difference"
    low, high = difference_interval((round(then * tasks), tasks), (round(now * tasks), tasks))
    return "" if low <= 0.0 <= high else f"beyond the luck of {tasks} tasks [{low:.3f}, {high:.3f}]"


def _changed(again: Repeated, words: str) -> str:
    names = ", ".join(change.name for change in again.deciding)
    return f"; {words}: {names}" if names else ""

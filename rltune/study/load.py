"""Reads a study file and the sweeps that it names; collects every problem before raising."""

from collections.abc import Mapping
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path

from rltune.errors import Problem, SpecError
from rltune.runner.budget import seconds_of
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.spec.problems import validate
from rltune.spec.yamlfile import YamlFile, read_yaml
from rltune.store.rundir import RunDir
from rltune.study.queue import Limits
from rltune.study.schema import StudySpec, StudySweep


@dataclass(frozen=True, slots=True)
class Study:
    """A study file with its sweeps, as their own files have them."""

    path: Path  # as given
    spec: StudySpec  # the file as a typed tree
    originals: Mapping[str, LoadedSweep]  # name in the study -> sweep before any promotion

    @property
    def limits(self) -> Limits:
        """What its trials may use."""
        budget = self.spec.budget
        return Limits(
            seconds=seconds_of(budget.time) or None,
            tokens=budget.tokens,
            amount=float(budget.money[:-3]) if budget.money else None,
            currency=budget.money[-3:],
        )

    def folder(self, runs_dir: Path) -> RunDir:
        """Return the folder of its own records: decisions, sweeps as they run, shared lineage."""
        return RunDir((runs_dir / f"study-{self.spec.name}").resolve())


def is_study(path: Path) -> bool:
    """Return whether a file lists sweeps, which a sweep file does not."""
    if not path.is_file():
        return False
    file = read_yaml(path, kind="study file")
    return isinstance(file, YamlFile) and "sweeps" in file.data


KEPT = "study.sweeps"
"""Folder beside a kept study file: a folder for each sweep, with its file and its configs."""


def load_study(path: Path, *, is_kept: bool = False) -> Study:
    """Return a study file and its sweeps.

    Args:
        path: The study file.
        is_kept: Whether it is a copy that `rltune study` or a bundle keeps, with its sweeps beside.

    Raises:
        SpecError: Carries every problem of the study and of its sweeps.

    """
    file = read_yaml(path, kind="study file")
    if isinstance(file, Problem):
        raise SpecError(file)
    if "sweeps" not in file.data and "axis" in file.data:
        what = "is a sweep file; a study lists sweep files under sweeps."
        raise SpecError(Problem(str(path), what, action=f"Run it: rltune sweep {path}."))
    problems: list[Problem] = []
    spec = validate(StudySpec, file.data, file.locate, problems)
    originals: dict[str, LoadedSweep] = {}
    for sweep in spec.sweeps if spec is not None else ():
        try:
            file_of = kept_sweep if is_kept else _named_sweep
            originals[sweep.name] = load_as_asked(file_of(path.parent, sweep), sweep)
        except SpecError as error:
            problems += error.problems
    if spec is not None:
        problems += _mixed(file, originals) + _twice(file, spec, originals)
    if problems or spec is None:
        raise SpecError(list(dict.fromkeys(problems)))
    return Study(path, spec, originals)


def _named_sweep(folder: Path, sweep: StudySweep) -> Path:
    return Path(normpath(folder / sweep.file))


def kept_sweep(folder: Path, sweep: StudySweep) -> Path:
    """Return where the file of a sweep is kept, in the folder of a kept study file."""
    return folder / KEPT / sweep.name / "sweeps" / Path(sweep.file).name


def load_as_asked(file: Path, sweep: StudySweep) -> LoadedSweep:
    """Return a sweep file with the profile, seeds and overrides of its place in a study."""
    return load_sweep(file, profile=sweep.profile, overrides=sweep.set, seeds=sweep.seeds or None)


def _mixed(file: YamlFile, originals: Mapping[str, LoadedSweep]) -> list[Problem]:
    """Return why the sweeps cannot share one lineage, if they cannot."""
    metrics = {(one.spec.metric.name, one.spec.metric.mode) for one in originals.values()}
    kinds = {str(one.control.config["env"]["kind"]) for one in originals.values()}
    found = []
    for what, values in (("metric", {f"{n} ({m})" for n, m in metrics}), ("kind of env", kinds)):
        if len(values) > 1:
            text = f"its sweeps have more than one {what}: {', '.join(sorted(values))}."
            action = "Make a study of each: its sweeps share one lineage, which ranks them."
            found.append(Problem(file.locate(("sweeps",)), text, action=action))
    return found


def _twice(file: YamlFile, spec: StudySpec, originals: Mapping[str, LoadedSweep]) -> list[Problem]:
    """Return sweeps that are the same run as one above them, which would never run."""
    first: dict[tuple[str, str], str] = {}
    found = []
    for i, sweep in enumerate(spec.sweeps):
        if sweep.name not in originals:
            continue
        key = (originals[sweep.name].run_name, sweep.source)
        if key in first:
            what = f"{sweep.name!r} is the same sweep as {first[key]!r} ({key[0]})."
            where = file.locate(("sweeps", str(i)))
            found.append(Problem(where, what, action="Remove it, or let it differ."))
        first.setdefault(key, sweep.name)
    return found

"""The files of a study as they were read: its own, those of its sweeps, and their configs.

`rltune study` keeps them in the study's folder, and a bundle holds them, so that what ran can be
resolved again wherever the files that it was made from are by then.
"""

from pathlib import Path

from rltune.errors import Problem, SpecError, StoreError
from rltune.spec.load import LoadedSweep
from rltune.spec.sources import FOLDERS, find_source
from rltune.store.files import write_text_atomic
from rltune.study.load import Study, kept_sweep, load_study

STUDY = "study.yaml"
"""Name of the kept study file."""


def keep_files(study: Study, folder: Path) -> None:
    """Write the files of a study into a folder. What is there already is left alone.

    Args:
        study: As its file has it, without proposals.
        folder: Where to.

    Raises:
        SpecError: A file cannot be read any more.

    """
    _keep(folder / STUDY, study.path.read_text(encoding="utf-8-sig"))
    for sweep in study.spec.sweeps:
        loaded, path = study.originals[sweep.name], kept_sweep(folder, sweep)
        _keep(path, loaded.text)
        keep_configs(loaded, path.parent.parent / "configs")


def keep_configs(loaded: LoadedSweep, folder: Path) -> None:
    """Write the base, profile and protocol that a sweep names into a folder of configs.

    Raises:
        SpecError: One cannot be read any more.

    """
    names = {
        "base": loaded.spec.base,
        "profile": loaded.profile,
        "protocol": loaded.spec.protocol,
    }
    for kind, name in names.items():
        if not name:
            continue
        found = find_source(loaded.path, kind, name, f"{loaded.path}: {kind}")
        if isinstance(found, Problem):
            raise SpecError(found)
        _keep(folder / FOLDERS[kind] / f"{name}.yaml", found.text)


def _keep(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, text)


def load_kept(folder: Path) -> Study:
    """Return the study whose files a folder keeps.

    Raises:
        StoreError: It keeps none.
        SpecError: They cannot be resolved by this rltune.

    """
    if not (folder / STUDY).is_file():
        what = f"is no folder of a study: it has no {STUDY}."
        action = "Give the study file, or the folder RUNS/study-NAME that `rltune study` wrote."
        raise StoreError(Problem(str(folder), what, action=action))
    return load_study(folder / STUDY, is_kept=True)

"""The trials of a run folder that are outside its comparison: children, and repetitions."""

from rltune.store.rundir import RunDir, TrialDir, require_name


def child_dirs(run: RunDir) -> tuple[TrialDir, ...]:
    """Return the folders of the children that have begun, by name."""
    folders = sorted(run.children.iterdir()) if run.children.is_dir() else []
    return tuple(TrialDir(path) for path in folders if TrialDir(path).spec.is_file())


def rerun_dirs(run: RunDir) -> tuple[TrialDir, ...]:
    """Return the folders of the repetitions, by number."""
    return tuple(TrialDir(path) for path in sorted(run.reruns.glob("[0-9]*/*")) if path.is_dir())


def new_rerun(run: RunDir, trial_id: str) -> TrialDir:
    """Make the folder of one more repetition of a trial; never one that exists."""
    require_name(trial_id, "trial_id")
    numbers = [int(path.name) for path in run.reruns.glob("[0-9]*") if path.name.isdigit()]
    number = max(numbers, default=0) + 1
    while True:
        folder = run.reruns / f"{number:04d}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # another process took it
            number += 1
        else:
            return TrialDir(folder / trial_id).create()

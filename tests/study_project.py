"""A study of two sweeps in a project folder; the first one's run folder is made by hand."""

from pathlib import Path

from run_folders import SWEEP, FolderWriter

ENTROPY = (
    SWEEP.replace("name: kl\n", "name: entropy\n")
    .replace("protocol: figure3\n", "")
    .replace("  loss.entropy_coeff: 0.0\n", "  loss.kl_loss_coef: 0.0\n  loss.use_kl_loss: false\n")
    .split("axis:")[0]
    + "axis: {key: loss.entropy_coeff, values: [0.0, 0.01], control: 0.0}\nseeds: [0, 1, 2]\n"
)
STUDY = """
name: nights
question: Which knobs help, one after the other?
budget: {budget}
sweeps:
  - name: kl
    file: ../sweeps/kl.yaml
  - name: entropy
    file: ../sweeps/entropy.yaml
    control: best kept of kl
"""
GATES = {"kl_loss_coef=0.0": (3, 4, 3), "kl_loss_coef=0.1": (8, 9, 8)}


class Project:
    """A folder with a study, its sweeps and their runs."""

    def __init__(self, root: Path, sweep: str = SWEEP) -> None:
        self.kl = FolderWriter(root, sweep)
        self.root = root
        self.runs = root / "runs"
        self.study = root / "studies" / "nights.yaml"
        self.study.parent.mkdir()
        (root / "sweeps" / "entropy.yaml").write_text(ENTROPY)
        self.write()

    def write(self, old: str = "", new: str = "", *, budget: str = "{}") -> None:
        """Write the study file, with a change."""
        assert old in STUDY
        self.study.write_text(STUDY.replace("{budget}", budget).replace(old, new))

    def finish(self, gates=None, *, writer=None) -> None:
        """End every trial of a sweep: condition -> solved of 10 at the last gate, for each seed."""
        writer = writer or self.kl
        for spec in writer.specs:
            last = (gates or GATES)[spec.condition][spec.seed]
            writer.finish(spec, {0: 3, 10: 3, 20: last})


def replace_loaded(project, loaded):
    """Return a writer of the run folder of a sweep that is loaded already."""
    project.kl.plan(loaded)
    return project.kl

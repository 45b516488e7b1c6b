"""Study files: what is wrong with one is said at once, with file and line."""

from pathlib import Path

import pytest

from rltune.errors import SpecError
from rltune.study.load import is_study, load_study
from rltune.study.queue import Limits


def problems(project, *change, **more):
    project.write(*change, **more)
    with pytest.raises(SpecError) as caught:
        load_study(project.study)
    start = f"{project.root}/studies/"
    return [str(problem).removeprefix(start) for problem in caught.value.problems]


def test_a_study_file_is_told_from_a_sweep_file(project):
    assert is_study(project.study)
    assert not is_study(project.root / "sweeps" / "kl.yaml")
    assert not is_study(project.root / "nothing.yaml")


def test_a_study_has_its_sweeps_and_limits(project):
    project.write(budget="{time: 1h30m, tokens: 5000, money: 20 USD}")
    study = load_study(project.study)
    assert list(study.originals) == ["kl", "entropy"]
    assert study.originals["kl"].run_name == project.kl.loaded.run_name
    assert study.limits == Limits(5400.0, 5000, 20.0, "USD")
    assert study.folder(project.runs).path == project.runs / "study-nights"


CASES = {
    ("of kl", "of kll"): [
        "nights.yaml:8: sweeps.1: 'entropy' needs 'kll', which is not a sweep above it. "
        "Choose one of kl, or move it up."
    ],
    ("name: entropy", "name: kl"): [
        "nights.yaml:5: sweeps: 'kl' is given twice. Give each sweep a name of its own."
    ],
    ("question:", "qestion:"): ["'question' is missing", "Did you mean 'question'?"],
    ("best kept of kl", "the best of kl"): ["sweeps.1.control"],
    ("entropy.yaml", "entrpy.yaml"): ["entrpy.yaml"],
    ("    control: best kept of kl\n", "    set: [loss.nothing=1]\n"): ["loss.nothing"],
    ("../sweeps/entropy.yaml\n    control: best kept of kl", "../sweeps/kl.yaml"): [
        "'entropy' is the same sweep as 'kl'"
    ],
}


@pytest.mark.parametrize(("change", "expected"), CASES.items())
def test_what_is_wrong_is_said(project, change, expected):
    found = "\n".join(problems(project, *change))
    assert all(text in found for text in expected), found


@pytest.mark.parametrize(
    ("key", "value"), [("time", "8 hours"), ("time", "9" * 400 + "h"), ("money", "9" * 400 + "USD")]
)
def test_a_budget_that_is_none_is_refused(project, key, value):
    assert f"budget.{key}" in problems(project, budget=f"{{{key}: {value}}}")[0]


def test_a_sweep_that_is_wrong_does_not_make_the_list_empty(project):
    (only,) = problems(project, "best kept of kl", "the best of kl")
    assert "has the wrong form" in only
    project.write()
    whole = project.study.read_text().split("sweeps:\n")[1]
    (empty,) = problems(project, whole, "  []\n")
    assert "sweeps: [] is empty. Give at least one." in empty


def test_sweeps_of_two_metrics_are_no_study(project):
    path = project.root / "sweeps" / "entropy.yaml"
    path.write_text(path.read_text() + "metric: {name: heldout/reward_mean, mode: max}\n")
    (found,) = problems(project)
    metrics = "heldout/reward_mean (max), heldout/success_rate (max)"
    assert f"its sweeps have more than one metric: {metrics}" in found


def test_a_sweep_file_is_no_study(project):
    path = project.root / "sweeps" / "kl.yaml"
    with pytest.raises(SpecError) as caught:
        load_study(path)
    assert str(caught.value) == (
        f"{path}: is a sweep file; a study lists sweep files under sweeps. "
        f"Run it: rltune sweep {path}."
    )


def test_the_shipped_studies_are_valid():
    paths = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
    assert [load_study(path).spec.name for path in paths] == ["kl_then_entropy"]

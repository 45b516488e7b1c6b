"""Promotion by the one verdict, and where a study stands."""

import json
from dataclasses import replace

import pytest
from run_folders import FolderWriter
from study_project import replace_loaded

from rltune.analysis.seed_blocks import take_looks
from rltune.analysis.stats import mean_over_seeds
from rltune.analysis.verdict_words import ABOVE, BELOW, SAME, Verdict
from rltune.errors import SpecError, StoreError
from rltune.spec.identity import flatten
from rltune.spec.yamlfile import read_yaml
from rltune.study.load import load_study
from rltune.study.promotion import best_claim
from rltune.study.queue import Used
from rltune.study.state import standings, used

SOLVED = {"kl_loss_coef=0.0": (3, 4, 3), "kl_loss_coef=0.1": (8, 9, 8)}
BETTER = {"loss.kl_loss_coef": 0.1, "loss.use_kl_loss": True}


def standing(project):
    return standings(load_study(project.study), project.runs)


def verdict(condition, word, difference):
    estimate = mean_over_seeds([difference] * 3, resolution=0.1)
    return Verdict(
        condition=condition, rival="the control", word=word, n=3, planned=3, step=20,
        planned_steps=20, difference=estimate, p=0.01, p_holm=0.02, comparisons=2, needed=None,
    )  # fmt: skip


def test_the_furthest_claim_on_the_better_side_is_promoted():
    found = [
        verdict("a", ABOVE, 0.1),
        verdict("b", ABOVE, 0.3),
        verdict("c", SAME, 0.9),
        verdict("d", BELOW, -0.5),
    ]
    assert best_claim(found, "max").condition == "b"
    assert best_claim(found, "min").condition == "d"
    assert best_claim(found[2:3], "max") is None
    assert best_claim((), "min") is None


def test_a_sweep_waits_for_the_one_whose_best_it_holds(project):
    kl, entropy = standing(project)
    assert (kl.is_settled, kl.is_finished) == (True, False)
    assert (entropy.is_settled, entropy.is_finished, entropy.promotion) == (False, False, None)
    assert not project.runs.joinpath("study-nights").exists()


def test_a_condition_that_is_shown_to_be_better_is_held_in_the_next_sweep(project):
    project.finish()
    kl, entropy = standing(project)
    assert kl.is_finished
    assert entropy.promotion.condition == "kl_loss_coef=0.1"
    assert entropy.promotion.keys == BETTER
    assert entropy.promotion.why.startswith("above the control (n = 3, p")
    assert entropy.diff == {
        "loss.kl_loss_coef": (0.0, 0.1),
        "loss.use_kl_loss": (False, True),
    }
    config = flatten(entropy.loaded.control.config)
    assert {key: config[key] for key in BETTER} == BETTER
    assert entropy.loaded.spec.parent == f"{kl.run.path.name}/kl_loss_coef=0.1"
    assert entropy.run.path.name != load_study(project.study).originals["entropy"].run_name
    assert entropy.loaded.path == project.runs / "study-nights/entropy/sweeps/entropy.yaml"
    assert standing(project)[1].run == entropy.run


@pytest.mark.parametrize(
    "gates",
    [
        {"kl_loss_coef=0.0": (3, 4, 3), "kl_loss_coef=0.1": (4, 4, 2)},  # not separable
        {"kl_loss_coef=0.0": (8, 9, 8), "kl_loss_coef=0.1": (3, 4, 3)},  # below
    ],
)
def test_where_nothing_is_shown_to_be_better_the_control_stays(project, gates):
    project.finish(gates)
    kl, entropy = standing(project)
    assert entropy.is_settled
    assert entropy.promotion.is_control
    assert entropy.promotion.sentence == (
        f"kl_loss_coef=0.0 of {kl.run.path.name} stays: no condition is shown to be better"
    )
    assert entropy.diff == {}
    assert entropy.loaded.spec.parent == f"{kl.run.path.name}/kl_loss_coef=0.0"


def test_no_condition_is_promoted_on_a_single_seed(tmp_path, project):
    """However large its difference."""
    other = FolderWriter(tmp_path, seeds=[0])
    project.write("file: ../sweeps/kl.yaml", "file: ../sweeps/kl.yaml\n    seeds: [0]")
    project.finish({"kl_loss_coef=0.0": (0,), "kl_loss_coef=0.1": (10,)}, writer=other)
    kl, entropy = standing(project)
    assert kl.is_finished
    assert entropy.promotion.is_control


def until_decided_kl(project):
    """Let the seeds of kl go on until decided, and return a writer of its run folder."""
    path = project.root / "sweeps" / "kl.yaml"
    seeds = "seeds: {start: 3, max: 4, until: decided}"
    path.write_text(path.read_text().replace("seeds: [0, 1, 2]", seeds))
    return replace_loaded(project, load_study(project.study).originals["kl"])


def test_a_sweep_until_decided_is_finished_when_no_look_follows(project):
    """Not before its looks are taken, and without the seeds that no condition needs any more."""
    writer = until_decided_kl(project)
    for spec in writer.specs[:6]:
        writer.finish(spec, {0: 3, 10: 3, 20: SOLVED[spec.condition][spec.seed]})
    kl, entropy = standing(project)
    assert len(kl.statuses) == 6
    assert all(one.is_finished for one in kl.statuses.values())
    assert (kl.is_finished, entropy.promotion) == (False, None)
    take_looks(writer.run, writer.loaded, launch="1", say=print)
    kl, entropy = standing(project)
    assert (len(kl.statuses), kl.is_finished) == (6, True)
    assert entropy.promotion.condition == "kl_loss_coef=0.1"


def test_a_sweep_until_decided_that_goes_on_is_not_finished(project):
    writer = until_decided_kl(project)
    for spec in writer.specs[:6]:
        writer.finish(spec, {0: 3, 10: 3, 20: 3 + spec.seed * (not spec.is_control)})
    take_looks(writer.run, writer.loaded, launch="1", say=print)
    kl, entropy = standing(project)
    assert (len(kl.statuses), kl.is_finished, entropy.promotion) == (8, False, None)


def test_a_decision_is_made_once(project):
    project.finish()
    first = standing(project)[1]
    record = project.runs / "study-nights" / "study.json"
    known = json.loads(record.read_text())
    known["entropy"]["keys"]["loss.kl_loss_coef"] = 0.3
    record.write_text(json.dumps(known))
    again = standing(project)[1]
    assert flatten(again.loaded.control.config)["loss.kl_loss_coef"] == 0.3
    assert again.run != first.run


@pytest.mark.parametrize("text", ["[]", '{"entropy": 3}', '{"entropy": {"run": "x"}}', "{"])
def test_decisions_that_cannot_be_read_are_not_made_again_silently(project, text):
    record = project.runs / "study-nights" / "study.json"
    record.parent.mkdir(parents=True)
    project.finish()
    record.write_text(text)
    with pytest.raises(StoreError, match=r"study\.json: is no"):
        standing(project)


def test_a_look_that_must_not_write_decides_and_writes_nothing(project, tmp_path):
    project.finish()
    before = set(project.runs.rglob("*"))
    work = tmp_path / "work"
    entropy = standings(load_study(project.study), project.runs, work=work)[1]
    assert entropy.diff["loss.kl_loss_coef"] == (0.0, 0.1)
    assert set(project.runs.rglob("*")) == before


def test_what_was_promoted_into_a_sweep_is_handed_on(project):
    third = (project.root / "sweeps" / "entropy.yaml").read_text()
    third = third.replace("name: entropy", "name: clip").replace(
        "key: loss.entropy_coeff, values: [0.0, 0.01], control: 0.0",
        "key: loss.clip_high, values: [0.28, 0.3], control: 0.28",
    )
    third = third.replace("  loss.kl_type: k2\n", "  loss.kl_type: k2\n  loss.entropy_coeff: 0.0\n")
    (project.root / "sweeps" / "clip.yaml").write_text(third)
    project.study.write_text(
        project.study.read_text()
        + "  - {name: clip, file: ../sweeps/clip.yaml, control: best kept of entropy}\n"
    )
    project.finish()
    entropy = standing(project)[1]
    writer = replace_loaded(project, entropy.loaded)
    project.finish({"entropy_coeff=0.0": (3, 4, 3), "entropy_coeff=0.01": (8, 9, 8)}, writer=writer)
    clip = standing(project)[2]
    assert clip.promotion.keys == {**BETTER, "loss.entropy_coeff": 0.01}
    assert set(clip.diff) == {*BETTER, "loss.entropy_coeff"}


def test_a_promoted_key_that_is_the_next_axis_must_be_its_control(project):
    path = project.root / "sweeps" / "entropy.yaml"
    fine = project.kl.loaded.path.read_text().replace("name: kl\n", "name: fine\n")
    path.write_text(fine.replace("[0.0, 0.1]", "[0.0, 0.05, 0.1]"))
    project.finish()
    with pytest.raises(SpecError, match=r"promotes 0\.1 .*Make that the control\."):
        standing(project)
    path.write_text(path.read_text().replace("control: 0.0", "control: 0.1"))
    assert standing(project)[1].diff == {}


def test_what_the_trials_used_is_counted(project):
    assert used(standing(project)) == Used(0.0, 0)
    project.finish()
    assert used(standing(project)).tokens == 6 * 20 * 200  # trials x steps x tokens a step


def test_a_file_that_was_promoted_over_keeps_every_other_key(project):
    project.finish()
    entropy = standing(project)[1]
    original = read_yaml(project.root / "sweeps" / "entropy.yaml", kind="sweep file").data
    derived = read_yaml(entropy.loaded.path, kind="sweep file").data
    assert {k: derived[k] for k in original if k != "hold"} == {
        k: v for k, v in original.items() if k != "hold"
    }
    assert replace(entropy.promotion).run == project.kl.run.path.name

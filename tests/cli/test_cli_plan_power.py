import json

import pytest
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, finished_sweep, write_sweep

SHORT = "sweeps/kl.yaml"


def one_line(text):
    return " ".join(text.split())


def test_power_says_what_the_seeds_show_and_where_that_is_from(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    result = rltune("plan", SHORT, "--power", "--effect", "0.2")
    text = one_line(result.out)
    assert result.code == 0
    head = "What the seeds can show of heldout/success_rate, with 80 % power; 1 comparison at a "
    assert text.startswith(f"{head}two-sided level of 0.05 spread of a paired difference 0.1 [0.1,")
    assert f"from condition pairs spread runs/{writer.run.path.name} {TREATED} 3 0.0577" in text
    assert "3 (planned) 0.326 [0.326, 1.18] 3.26" in text
    assert "A difference of 0.2 needs 5 seeds (5 to " in text
    assert "6 trials, profile laptop" in text  # the plan follows


def test_power_as_data(rltune, tmp_path):
    finished_sweep(tmp_path)
    data = json.loads(rltune("plan", SHORT, "--power", "--effect", "0.2", "--json").out)
    power = data["power"]
    assert power["planned"]["seeds"] == 3
    assert power["planned"]["effect"] == pytest.approx(0.326, abs=1e-3)
    assert power["needed"]["seeds"] == 5
    assert power["pilot"]["rows"][0]["condition"] == TREATED
    assert (power["level"], power["power"], power["expected"]) == (0.05, 0.8, {})
    assert len(data["trials"]) == 6
    assert "power" not in json.loads(rltune("plan", SHORT, "--json").out)


def test_without_a_pilot_one_sentence_says_what_to_do(rltune, tmp_path):
    write_sweep(tmp_path)
    result = rltune("plan", SHORT, "--power")
    assert result.code == 0
    text = one_line(result.out)
    assert f"Run a pilot, `rltune sweep {SHORT} --seeds 0,1,2`, or give a run" in text
    assert "3 (planned) 3.26" in text


def test_a_pilot_of_another_config_is_taken_when_given(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    run = f"runs/{writer.run.path.name}"
    other = ("plan", SHORT, "--power", "--set", "rollout.groups=4")
    assert f"--pilot {run}." in one_line(rltune(*other).out)
    text = one_line(rltune(*other, "--pilot", run).out)
    assert "Its control differs from the planned one in rollout.groups." in text


def test_looks_stand_in_every_plan_of_seeds_until_decided(rltune, tmp_path):
    write_sweep(tmp_path)
    decided = ("plan", SHORT, "--until", "decided", "--max-seeds", "5")
    text = one_line(rltune(*decided).out)
    assert "Looks, which err at most 5 % together; 1 comparison at a two-sided level of" in text
    assert "look at seeds decides at p of 3 " in text
    looks = json.loads(rltune(*decided, "--json").out)["looks"]
    assert [look["seeds"] for look in looks["boundaries"]] == [3, 4, 5]
    assert looks["boundaries"][-1]["boundary"] < 0.04
    assert looks["smallest_size"] > 1.5
    assert "looks" not in json.loads(rltune("plan", SHORT, "--json").out)


@pytest.mark.slow
def test_looks_with_a_pilot(rltune, tmp_path):
    finished_sweep(tmp_path)
    flags = ("--until", "decided", "--max-seeds", "5", "--effect", "0.3", "--power")
    text = one_line(rltune("plan", SHORT, *flags).out)
    assert "at most 5 (planned)" in text
    assert "A difference of 0.3 needs a maximum of " in text
    assert "If the true difference is 0: different " in text
    assert "If the true difference is 0.3: different " in text


def test_two_seeds_show_nothing(rltune, tmp_path):
    write_sweep(tmp_path)
    text = one_line(rltune("plan", SHORT, "--power", "--seeds", "0,1").out)
    assert "2 planned seeds: no claim can be made." in text


EFFECT = (
    "--effect: the seeds are a list, of which only --power asks what they show. "
    "Add --power, or --until decided."
)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--pilot", "runs"), "--pilot: a pilot says what seeds can show, and only --power asks"),
        (("--effect", "0.1"), EFFECT),
        (("--power", "--effect", "0"), "--effect: 0 is not a difference of interest. Give one"),
        (("--power", "--effect", "nan"), "--effect: nan is not a difference of interest."),
        (("--power", "--pilot", "nowhere"), "nowhere: there is no such folder."),
        (("--power", "--pilot", "sweeps"), "sweeps: this is not a run folder"),
    ],
)
def test_options_that_cannot_be_used_are_refused(rltune, tmp_path, flags, message):
    write_sweep(tmp_path)
    result = rltune("plan", SHORT, *flags)
    assert result.code == 2
    assert message in one_line(result.err)
    assert not result.out


def test_a_pilot_with_one_seed_is_refused(rltune, tmp_path):
    writer = FolderWriter(tmp_path, SWEEP, seeds=(0,))
    for label in (CONTROL, TREATED):
        writer.finish(writer.spec(label, 0), {0: 4, 20: 5})
    result = rltune("plan", SHORT, "--power", "--pilot", str(writer.run.path))
    assert result.code == 2
    assert "no two of its conditions share two seeds that ended" in one_line(result.err)

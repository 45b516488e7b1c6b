"""What the sweeps of a study are beside each other: S9, and trials that two of them train."""

import json

import pytest

from rltune.errors import SpecError
from rltune.study.across import Repeated, findings_across, repeated
from rltune.study.load import load_study
from rltune.study.state import standings


def edit(project, name, old, new):
    path = project.root / "sweeps" / f"{name}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def found_by(project):
    study = load_study(project.study)
    return [str(one) for one in findings_across(study, standings(study, project.runs))]


def in_protocol(project):
    """Let entropy follow the protocol of kl, which frees what it moves."""
    edit(project, "entropy", "base: sokoban\n", "base: sokoban\nprotocol: figure3\n")


def test_sweeps_that_differ_in_what_they_move_alone_are_as_one(project):
    assert found_by(project) == []
    project.finish()
    assert found_by(project) == []  # what was promoted is what kl moves


def test_what_a_promotion_leaps_over_is_named(project):
    edit(project, "entropy", "budget.steps: 20", "budget.steps: 40")
    (text,) = found_by(project)
    root = project.root
    assert text == (
        f"S9 warning: {root}/sweeps/entropy.yaml holds what {root}/sweeps/kl.yaml shows to be "
        "better, under another protocol (figure3 and none), and differs from it in budget.steps "
        "(20 and 40). Give both one value, or both one protocol that frees the key with a reason; "
        "or accept S9, with the reason, for the later sweep in the study file."
    )
    project.finish()
    assert found_by(project) == [text]  # under the names that a person knows


ACCEPTED = "    control: best kept of kl\n    accept: {S9: a short run is its pilot}\n"


def test_a_leap_is_accepted_with_a_reason_and_an_error_is_not(project, rltune):
    edit(project, "entropy", "budget.steps: 20", "budget.steps: 40")
    project.write("    control: best kept of kl\n", ACCEPTED)
    (text,) = found_by(project)
    assert text.endswith("in the study file. Accepted: a short run is its pilot")
    _, out, _ = rltune("check", "studies/nights.yaml")
    assert "accepted: a short run is its pilot" in out
    in_protocol(project)
    (text,) = found_by(project)
    assert text.startswith("S9 error: ")
    assert "pilot" not in text


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        ("{S8: why}", "'S8' cannot be accepted here. Only S9 can; what a sweep itself warns of is"),
        ("{S9: ' '}", "' ' is blank. Write a reason, for the reader of the figure."),
    ],
)
def test_what_a_study_cannot_accept_is_refused(project, accept, message):
    project.write("    control: best kept of kl\n", f"    accept: {accept}\n")
    with pytest.raises(SpecError) as raised:
        load_study(project.study)
    assert message in str(raised.value)


def test_sweeps_that_only_share_the_lineage_are_ranked_in_it(project):
    edit(project, "entropy", "budget.steps: 20", "budget.steps: 40")
    edit(project, "kl", "protocol: figure3\n", "")
    project.write("    control: best kept of kl\n", "")
    (text,) = found_by(project)
    assert "entropy.yaml is ranked in one lineage with " in text
    assert "kl.yaml, without a protocol, and differs from it in budget.steps (20 and 40)." in text


MANY = (
    "optim.lr=0.5, optim.grad_clip=0.5, gate.tasks=11, gate.every=5, rollout.groups=4, "
    "rollout.max_response_tokens=9, rollout.max_context=300, rollout.temperature=0.9, "
    "loss.clip_high=0.3, loss.clip_low=0.1"
)


def test_of_many_keys_the_first_are_named(project):
    project.write("    control: best kept of kl\n", f"    set: [{MANY}]\n")
    (text,) = found_by(project)
    assert text.count(" (") == 1 + 8  # the protocols, then eight keys
    assert " and 2 more keys. Give both" in text


def test_sweeps_of_one_protocol_that_disagree_start_nothing(project, rltune):
    in_protocol(project)
    assert found_by(project) == []
    edit(project, "entropy", "budget.steps: 20", "budget.steps: 40")
    code, out, err = rltune("study", "studies/nights.yaml")
    assert code == 2
    assert "follow protocol figure3 but differ in budget.steps (20 and 40). Give both one" in err
    assert "S9 error" in out
    assert not (project.runs / "entropy-").exists()
    code, out, _ = rltune("check", "studies/nights.yaml")
    assert code == 2
    assert "S9 error" in out


def test_a_control_that_two_sweeps_train_is_said(project, rltune):
    project.finish()
    study = load_study(project.study)
    (one,) = repeated(standings(study, project.runs))
    again = Repeated("entropy", "entropy_coeff=0.0", "kl", "kl_loss_coef=0.1", (0, 1, 2))
    assert one == again  # what was promoted is the control of the next
    _, out, _ = rltune("check", "studies/nights.yaml")
    assert (
        "entropy: entropy_coeff=0.0 is kl_loss_coef=0.1 of kl (seeds 0, 1, 2). Both sweeps "
        "train them: a control has the code and the machine of"
    ) in " ".join(out.split())


def test_sweeps_without_a_common_trial_repeat_none(project):
    edit(project, "entropy", "seeds: [0, 1, 2]", "seeds: [3, 4, 5]")
    study = load_study(project.study)
    assert list(repeated(standings(study, project.runs))) == []


@pytest.mark.parametrize(("command", "key"), [("study", "findings"), ("check", "protocol")])
def test_as_data(project, rltune, command, key):
    edit(project, "entropy", "budget.steps: 20", "budget.steps: 40")
    code, out, _ = rltune(command, "studies/nights.yaml", "--json")
    (finding,) = json.loads(out)[key]
    assert (code, finding["rule"], finding["severity"]) == (0, "S9", "warning")

"""The figure of the training dynamics: its reference lines, its notes, and the drawing."""

import re

import pytest
from run_folders import finished_sweep

from rltune.report.audit import Audit, audit_folder
from rltune.report.curves import Band, Point
from rltune.report.dynamics import (
    CHANCE,
    RETRIEVAL,
    TRIO,
    Lines,
    chance_of,
    draw_dynamics,
    notes_of,
    only,
)
from rltune.report.folder import read_folder, read_records
from rltune.spec.audit import AuditReport
from rltune.spec.consumption import consumption
from rltune.spec.findings import Finding, Severity


def bands(n_seeds=3, conditions=("control", "other")):
    return [
        Band(name, metric, step, n_seeds, 0.1 * step, 0.0, 0.9)
        for name in conditions
        for metric in TRIO
        for step in (0, 4)
    ]


def audit(*, errors=(), warnings=(), finished=6, has_comparison=True, confounded=""):
    report = AuditReport(not errors, errors, warnings, consumption([]))
    return Audit(report, 6, 6, finished, has_comparison, confounded, ())


def chances(condition, *values):
    return [Point("s", condition, 0, step, CHANCE, value) for step, value in enumerate(values)]


def drawn(**parts):
    shown = parts.pop("bands", bands())
    return draw_dynamics(shown, Lines(**{"title": "t", **parts}), kind="svg").decode()


def texts(svg):
    """Return the texts of a figure, which matplotlib writes as comments beside their shapes."""
    return re.findall(r"<!-- (.*?) -->", svg, flags=re.DOTALL)


def test_a_reference_is_drawn_only_where_all_conditions_share_it():
    assert only([0.2, 0.2]) == 0.2
    assert only([0.2, 0.3]) is None
    assert only([]) is None


def test_chance_is_the_usual_one_and_none_where_conditions_differ():
    usual = chances("a", 0.125, 1 / 7, 0.125)  # in one step a prompt fell out
    assert chance_of([*usual, Point("s", "a", 0, 0, RETRIEVAL, 0.9)]) == 0.125
    assert chance_of([*usual, *chances("b", 0.125)]) == 0.125
    assert chance_of([*usual, *chances("b", 0.25)]) is None
    assert chance_of([]) is None


def test_a_sound_sweep_has_no_notes(tmp_path):
    folder = read_folder(finished_sweep(tmp_path).run)
    assert notes_of(audit_folder(folder, read_records(folder)), bands()) == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"errors": (Finding("A1", Severity.ERROR, "m", "r"),)}, "The audit FAILED"),
        ({"confounded": "for a demo"}, "CONFOUNDED: more than the axis differs"),
        ({"finished": 4, "has_comparison": False}, "Not finished: 4 of 6 trials have ended"),
    ],
)
def test_the_verdict_of_the_audit_is_a_note(state, said):
    (note,) = notes_of(audit(**state), bands())
    assert note.startswith(said)


@pytest.mark.parametrize(("n", "seeds"), [(1, "1 seed"), (2, "2 seeds")])
def test_too_few_seeds_are_a_note(n, seeds):
    assert notes_of(audit(), bands(n)) == [f"{seeds}: no claim can be made, and no band is drawn."]


def test_the_condition_with_the_fewest_seeds_counts():
    (note,) = notes_of(audit(), [*bands(3, ["control"]), *bands(2, ["other"])])
    assert note.startswith("Only 2 seeds in a condition: no claim")


def test_points_that_lost_seeds_are_a_note():
    lost = Band("other", TRIO[0], 8, 2, 0.5, 0.0, 0.9)
    (note,) = notes_of(audit(), [*bands(3), lost])
    assert note == "Some points have fewer seeds than others; dynamics.csv counts them."


@pytest.mark.parametrize(
    ("n", "last"),
    [
        (3, "A4 warning: t2 stopped."),
        (4, "1 more warning of the audit: see audit.json."),
        (6, "3 more warnings of the audit: see audit.json."),
    ],
)
def test_warnings_of_the_audit_are_stamped_and_many_are_counted(n, last):
    found = tuple(Finding("A4", Severity.WARNING, f"t{i} stopped.", "r") for i in range(n))
    notes = notes_of(audit(warnings=found), bands())
    assert notes[:2] == ["A4 warning: t0 stopped.", "A4 warning: t1 stopped."]
    assert notes[-1] == last
    assert len(notes) == min(n, 4)


def test_hidden_axes_are_stamped():
    assert notes_of(audit(), bands(), ["S8 warning: x"]) == ["S8 warning: x"]


def test_the_figure_says_what_a_reader_must_know():
    parts = {"title": "KL on Sokoban", "notes": ["2 seeds: no claim."], "control": "control"}
    said = texts(drawn(**parts, floor=0.18, ceiling=1.0, chance=0.125))
    for expected in (
        "KL on Sokoban", "2 seeds: no claim.", "random floor", "ceiling", "chance",
        "control (control)", "other", "held-out success", "retrieval accuracy",
        "reasoning entropy, nats", "training step", "mean over 3 seeds, band: 95 % t interval",
    ):  # fmt: skip
        assert expected in said


def test_a_reference_that_is_not_known_is_not_drawn():
    said = texts(drawn())
    assert not {"random floor", "ceiling", "chance"} & set(said)


def test_the_same_data_give_the_same_file():
    assert drawn() == drawn()
    assert draw_dynamics(bands(), Lines("t"), kind="png").startswith(b"\x89PNG")


def test_a_dollar_is_a_dollar():
    assert "cost $5 and a_$^{" in texts(drawn(title="cost $5 and a_$^{"))


def test_bands_are_drawn_from_three_seeds_on():
    few, enough = (drawn(bands=bands(n)) for n in (2, 3))
    assert few.count("FillBetween") == 0
    assert enough.count("FillBetween") == 6  # two conditions in three panels
    assert "mean over 2 seeds" in texts(few)
    assert "one seed" in texts(drawn(bands=bands(1)))


def test_many_conditions_are_told_apart():
    names = [f"k={i}" for i in range(8)]
    svg = drawn(bands=bands(conditions=names))
    assert set(names) <= set(texts(svg))
    assert "stroke-dasharray" in svg  # the eighth has the colour of the first
    assert "stroke-dasharray" not in drawn(bands=bands(conditions=names[:7]))


def test_a_panel_may_be_empty():
    shown = [band for band in bands() if band.metric == RETRIEVAL]
    assert {"control", "other", "held-out success"} <= set(texts(drawn(bands=shown)))

"""The third form of pages and figures, and that a finding of the second one holds as it is."""

import json
from dataclasses import replace

import pytest
from figure_tables import about, tables, trial
from publishing import CODE, drawn_once, problems_in, sources_at
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter

from rltune.report.figures.data_comparison import comparison_data
from rltune.report.figures.data_curves import curves_data
from rltune.report.figures.draw import draw
from rltune.report.figures.notes import in_short, updates_note, warning_notes
from rltune.report.figures.records import Reference
from rltune.report.finding.collect import collect
from rltune.report.finding.figures import FIGURE, figures_of
from rltune.report.finding.files import read_finding, write_finding
from rltune.report.finding.page import page
from rltune.report.finding.verify import verify
from rltune.store.run_folder import read_folder

assert drawn_once  # used by all tests here, too

A1 = "A1 warning: manifest_sha256 differs with env.slip: " + "0a0a0a0a0a0a in slip=0.5; " * 4
STEPS = (0, 10, 20)


@pytest.fixture(scope="module")
def finding(tmp_path_factory):
    """Two conditions that nothing separates; the second made half of the policy updates."""
    told = SWEEP.replace("  control: 0.0\n", '  control: 0.0\n  expect: {0.1: "+0.1 success"}\n')
    writer = FolderWriter(tmp_path_factory.mktemp("updates"), told)
    for seed, last in enumerate((5, 7, 7)):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 5, 20: 6})
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 5, 20: last})
        metrics = writer.run.trial(writer.spec(TREATED, seed).trial_id).metrics
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        for row in rows[1:]:
            row["budget/policy_updates"] /= 2
        metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return collect(read_folder(writer.run), CODE, name="kl")


def in_form(finding, form):
    return replace(finding, manifest={**finding.manifest, "page": form})


def test_all_conditions_with_other_updates_are_one_sentence():
    counts = {"k=0.0": (40, 40), "k=0.1": (10, 11), "k=0.2": (20, 20)}
    rows = [
        trial(label, seed, policy_updates=float(n))
        for label, own in counts.items()
        for seed, n in enumerate(own)
    ]
    said = "A3 warning: policy updates lie between 10 (k=0.1) and 40 (k=0.0)."  # 10.5 rounds to 10
    assert updates_note(rows) == said
    uncounted = [replace(row, policy_updates=None, optimizer_steps=8.0) for row in rows[2:4]]
    assert "between 8 (k=0.1) and" in updates_note([*rows[:2], *uncounted])
    running = [replace(row, final=None) for row in rows[2:]]
    assert updates_note([*rows[:2], *running]) == "A3 warning: policy updates differ by condition."
    notes = warning_notes(
        about(rows, has_other_updates=True, warnings=["A4 warning: x."] * 3), rows
    )
    assert notes == [
        said,
        *["A4 warning: x."] * 2,
        "1 more warning of the audit: see manifest.json.",
    ]


def test_of_a_long_warning_the_first_clause_is_said():
    assert in_short(A1, ()) == "A1 warning: manifest_sha256 differs with env.slip."
    assert in_short(A1, (), form=2).endswith(" ...")
    assert in_short(A1[:104], ()) == A1[:104]


def test_a_level_that_is_a_condition_s_own_is_its_own_line():
    shown = {
        (f"k={k}", seed): dict(zip(STEPS, (0.4, 0.5, 0.6 - k / 10), strict=True))
        for k in range(5)
        for seed in range(3)
    }
    own = {key: {"ceiling": 1.0 - int(key[0][2:]) / 10} for key in shown}
    data = curves_data(tables(shown, trials=own))
    (panel,) = data.panels
    assert [one.name for one in panel.references] == ["random floor", "start"]
    assert [one.levels for one in panel.series] == [
        (Reference("ceiling", 1.0 - k / 10),) for k in range(5)
    ]
    assert data.head.caption.endswith("Dashed, in a condition's colour: its own ceiling.")
    assert "ceiling 0.7 (k=3)" in data.head.alt

    before = curves_data(tables(shown, trials=own, form=2))
    assert not any(one.levels for one in before.panels[0].series)
    shared = curves_data(tables(shown, trials=dict(list(own.items())[1:])))  # one seed has another
    assert not any(one.levels for one in shared.panels[0].series)


@pytest.mark.parametrize("n", [2, 5], ids=["together", "apart"])
def test_own_levels_are_drawn(n):
    shown = {(f"k={k}", 0): {0: 0.4, 10: 0.5} for k in range(n)}
    own = {key: {"ceiling": 0.9 - int(key[0][2:]) / 10} for key in shown}
    data = curves_data(tables(shown, trials=own))
    (panel,) = data.panels
    bare = replace(panel, series=tuple(replace(one, levels=()) for one in panel.series))
    with_them, without = (draw(one, kind="svg") for one in (data, replace(data, panels=(bare,))))
    drawn = 2 if n == 2 else 4  # apart, the control is behind the others
    assert with_them.count(b"stroke-dasharray") - without.count(b"stroke-dasharray") == drawn


def test_intervals_of_several_comparisons_are_called_unadjusted():
    shown = {(f"k={k}", seed): {0: 0.4, 20: 0.5 + seed / 10} for k in range(3) for seed in range(3)}
    assert "unadjusted 95 % t interval" in comparison_data(tables(shown)).head.caption
    assert "unadjusted" not in comparison_data(tables(shown, form=2)).head.caption
    two = dict(list(shown.items())[:6])
    assert "unadjusted" not in comparison_data(tables(two)).head.caption


def test_a_page_says_what_its_evidence_does_not_carry(finding):
    # differences -0.1, 0.1, 0.1: mean 0.033, s 0.115; 4.303 * 0.115 / sqrt(3) = 0.287
    text = page(finding)
    assert figures_of(finding)[FIGURE].head.notes == (
        f"A3 warning: policy updates lie between 20 ({TREATED}) and 40 ({CONTROL}).",
    )
    assert "- A3 warning: kl_loss_coef=0.1 made 50% fewer policy updates than the control" in text
    assert "The audit passed, with warnings: the configs differ in the axis alone. 6 of 6" in text
    assert "- A3 warns of the budget: see above." in text
    assert "Nothing was found against it." not in text
    assert "| +0.1 success | +0.033 [−0.254, +0.320] | open | yes |" in text
    assert "on the same held-out tasks, with" in text
    other = replace(finding.trials[0], tasks_sha256="of another slip")
    text = page(replace(finding, trials=(other, *finding.trials[1:])))
    assert "on the held-out tasks of the same numbers (their records differ: see the" in text


def test_a_finding_of_the_second_form_holds_until_it_is_drawn_again(finding, tmp_path):
    write_finding(in_form(finding, 2), tmp_path / "kl")
    before = read_finding(tmp_path / "kl")
    assert problems_in(verify(tmp_path / "kl", sources_at=sources_at)) == []
    (note,) = figures_of(before)[FIGURE].head.notes
    assert note.startswith("A3 warning: kl_loss_coef=0.1 made 50% fewer policy updates than")
    text = page(before)
    assert "The audit passed: what ran differs in the axis alone. 6 of 6" in text
    assert "| +0.1 success | +0.033 [−0.254, +0.320] | right | yes |" in text
    assert page(in_form(before, 3)) == page(finding)
    write_finding(in_form(before, 3), tmp_path / "kl")
    assert problems_in(verify(tmp_path / "kl", sources_at=sources_at)) == []

"""The data of the figures: from the exported tables alone, by hand numbers."""

from dataclasses import replace

import pytest
from figure_tables import SUCCESS, about, tables, trial
from run_folders import finished_sweep

from rltune.analysis.audit import audit_folder
from rltune.analysis.rates import RETRIEVAL
from rltune.maths.interval import Interval
from rltune.report.export import tables_of, write_tables
from rltune.report.figures.data_budget import budget_data
from rltune.report.figures.data_comparison import comparison_data
from rltune.report.figures.data_curves import (
    CHANCE,
    ENTROPY,
    chance_of,
    curves_data,
    dynamics_data,
)
from rltune.report.figures.data_heatmap import heatmap_data
from rltune.report.figures.estimates import estimation_for
from rltune.report.figures.make import FIGURES, figure_data
from rltune.report.figures.notes import (
    bad_end_notes,
    in_short,
    seed_notes,
    verdict_notes,
    warning_notes,
)
from rltune.report.figures.records import LeftOut, Reference
from rltune.report.figures.source import Tables, about_folder, about_of, read_tables
from rltune.store.run_folder import read_folder, read_records

CONTROL, OTHER = "k=0.0", "k=0.1"
STEPS = (0, 10, 20)


def curves(*, control=(0.6, 0.7, 0.8), other=(0.2, 0.3, 0.4), start=0.4, middle=0.5):
    """Return a condition's curve a seed: the same start and middle, ends of its own."""
    return {
        (condition, seed): dict(zip(STEPS, (start, middle, end), strict=True))
        for condition, ends in ((CONTROL, control), (OTHER, other))
        for seed, end in enumerate(ends)
    }


def series(found, condition, panel=0):
    (one,) = (s for s in found.panels[panel].series if s.condition == condition)
    return one


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_read_back_give_the_data_of_the_run_folder(tmp_path, kind):
    folder = read_folder(finished_sweep(tmp_path).run)
    read = read_records(folder)
    audit = audit_folder(folder, read)
    write_tables(folder, read, audit, tmp_path)
    back = read_tables(tmp_path, about_folder(folder, audit), kind=kind)
    assert back == tables_of(folder, read, audit)
    data = figure_data(back)
    assert data == figure_data(tables_of(folder, read, audit))
    assert [name for name, one in data.items() if isinstance(one, LeftOut)] == ["dynamics"]


def test_a_curve_is_the_mean_over_seeds_with_its_interval():
    # ends 0.6 0.7 0.8: mean 0.7, s = 0.1, t(2, 0.975) = 4.30265: 0.7 +- 4.30265 x 0.1 / sqrt(3)
    one = series(curves_data(tables(curves())), CONTROL)
    assert [mean.step for mean in one.means] == [0, 10, 20]
    end = one.means[-1]
    assert (end.value, end.low, end.high) == pytest.approx((0.7, 0.45159, 0.94841), abs=1e-5)
    assert (end.n_seeds, end.is_partial) == (3, False)
    assert [line.values for line in one.seeds] == [(0.4, 0.5, end) for end in (0.6, 0.7, 0.8)]
    assert [line.trial_id for line in one.seeds] == [f"{CONTROL}-s{seed}" for seed in range(3)]


def test_curves_agree_with_the_summary_table():
    found = tables(curves(), estimator="mean")
    rows = {
        (row.condition, row.step): (row.value, row.ci_lo, row.ci_hi)
        for row in found.summary
        if (row.metric, row.at, row.method) == (SUCCESS, "gate", "t")
    }
    for one in curves_data(found).panels[0].series:
        for mean in one.means:
            assert (mean.value, mean.low, mean.high) == rows[one.condition, mean.step]


def test_few_seeds_have_no_interval_and_a_sentence():
    for n, said in ((1, "1 seed"), (2, "2 seeds")):
        found = curves_data(tables(curves(control=[0.6] * n, other=[0.2] * n)))
        assert all(mean.low is None for mean in series(found, OTHER).means)
        assert found.head.notes == (f"{said}: no claim can be made, and no interval is drawn.",)
    (said,) = seed_notes([3, 2])
    assert said == "Only 2 seeds in a condition: it allows no claim and has no interval."
    assert seed_notes([3, 3]) == []


def test_a_mean_over_fewer_seeds_than_began_is_marked_and_has_no_interval():
    shown = curves()
    shown[OTHER, 2] = {0: 0.4}
    ended = {(OTHER, 2): {"status": "diverged", "final": None}}
    found = curves_data(tables(shown, trials=ended))
    first, *rest = series(found, OTHER).means
    assert (first.n_seeds, first.is_partial) == (3, False)
    assert [(m.n_seeds, m.is_partial, m.low) for m in rest] == [(2, True, None)] * 2
    assert rest[-1].value == pytest.approx(0.25)  # of 0.2 and 0.3
    assert found.head.notes == (
        "INCOMPLETE: 5 of 6 trials have a result.",
        f"Diverged: {OTHER}@2.",
        "Dotted, open: means over fewer seeds than began, so a selection.",
    )
    assert "Cross: failed or diverged." in found.head.caption


def test_a_value_that_is_not_finite_is_no_value():
    shown = curves()
    shown[OTHER, 0] = {0: 0.4, 10: None, 20: 0.2}
    one = series(curves_data(tables(shown)), OTHER)
    assert one.seeds[0].steps == (0, 20)
    assert [(mean.step, mean.n_seeds) for mean in one.means] == [(0, 3), (20, 3)]


def test_a_seed_that_stopped_between_two_gates_does_not_stand_for_all():
    shown = curves()
    shown[OTHER, 2] = {0: 0.4, 10: 0.3, 13: 0.0}
    found = tables(shown, trials={(OTHER, 2): {"final_step": 13}})
    one = series(curves_data(found), OTHER)
    assert one.seeds[2].steps == (0, 10, 13)
    means = [(mean.step, mean.n_seeds, mean.is_partial) for mean in one.means]
    assert means == [(0, 3, False), (10, 3, False), (20, 2, True)]
    assert heatmap_data(found).steps == STEPS


def test_levels_are_floor_ceiling_and_the_common_start():
    panel = curves_data(tables(curves())).panels[0]
    assert panel.references == (
        Reference("random floor", 0.184), Reference("ceiling", 0.95),
        Reference("start", pytest.approx(0.4)),
    )  # fmt: skip


def test_a_measured_floor_has_its_interval_and_an_unknown_one_no_line():
    shown = curves()
    levels = {"floor_kind": "measured", "floor_low": 0.15, "floor_high": 0.22, "ceiling": None}
    panel = curves_data(tables(shown, trials=dict.fromkeys(shown, levels))).panels[0]
    floor, start = panel.references
    assert floor == Reference("random floor, measured", 0.184, Interval(0.15, 0.22))
    assert start.name == "start"

    unknown = {"floor": None, "floor_kind": "start", "ceiling": None}
    panel = curves_data(tables(shown, trials=dict.fromkeys(shown, unknown))).panels[0]
    assert [one.name for one in panel.references] == ["start"]


def test_levels_that_conditions_do_not_share_are_left_out():
    shown = curves()
    shown[OTHER, 0] = {0: 0.3, 20: 0.2}  # seed 0 starts elsewhere than the control's seed 0
    changed = {(OTHER, 0): {"floor": 0.1}}
    panel = curves_data(tables(shown, trials=changed)).panels[0]
    assert [one.name for one in panel.references] == ["ceiling"]


def test_the_interval_is_t_below_ten_seeds_and_bootstrap_from_ten():
    def rows(n):
        return [trial(name, seed) for name in (CONTROL, OTHER) for seed in range(n)]

    assert estimation_for(rows(9), "mean").method == "t"
    assert estimation_for(rows(10), "mean").method == "bootstrap"
    assert estimation_for(rows(3), "iqm").method == "bootstrap"


def test_a_bootstrap_over_few_seeds_says_that_it_is_too_narrow():
    found = curves_data(tables(curves(), estimator="iqm"))
    assert "With 3 seeds a bootstrap interval is too narrow: docs/export.md." in found.head.notes
    assert "95 % bootstrap interval" in found.head.caption
    end = series(found, CONTROL).means[-1]
    assert 0.599 < end.low < end.value < end.high < 0.801  # it cannot leave its values


def test_the_comparison_pairs_each_seed_with_its_control():
    # differences -0.4 -0.4 -0.5: mean -0.43333, s = 0.057735 < 0.1 = one of ten tasks
    # -0.43333 +- 4.30265 x 0.1 / sqrt(3) = -0.43333 +- 0.24841
    found = comparison_data(tables(curves(other=(0.2, 0.3, 0.3))))
    (row,) = found.rows
    assert [pair.difference for pair in row.pairs] == pytest.approx([-0.4, -0.4, -0.5])
    assert [(p.trial_id, p.control_trial_id) for p in row.pairs] == [
        (f"{OTHER}-s{seed}", f"{CONTROL}-s{seed}") for seed in range(3)
    ]
    assert (row.delta, row.low, row.high) == pytest.approx((-0.43333, -0.68174, -0.18492), abs=1e-5)
    # t = 0.43333 / (0.1 / sqrt(3)) = 7.506 with 2 degrees of freedom: p = 0.0173
    assert row.p_holm == pytest.approx(0.0173, abs=1e-4)
    assert row.verdict == "below"
    assert row.sentence == "below the control (n = 3, p = 0.017)"
    assert found.control == CONTROL


def test_a_null_says_so_with_n_p_and_the_seeds_that_it_would_take():
    # differences -0.1 0.1 0.1: mean 0.0333, t = 0.5, p = 2 x 0.3333 = 0.667
    (row,) = comparison_data(tables(curves(other=(0.5, 0.8, 0.9)))).rows
    assert row.verdict == "not separable"
    assert row.sentence == (
        f"not separable from the control (n = 3, p = 0.67; {row.seeds_for_80:,} seeds for 80 % "
        "power)"
    )


def test_unfinished_seeds_are_in_no_pair_and_allow_no_claim():
    shown = curves(other=(0.2, 0.3, 0.3))
    (row,) = comparison_data(tables(shown, trials={(OTHER, 2): {"final": None}})).rows
    assert [pair.seed for pair in row.pairs] == [0, 1]
    assert row.low is None
    said = "no verdict (2 of 3 seeds, 1 without a number; at least 3 are needed)"
    assert (row.verdict, row.sentence) == (said, said)


def test_without_a_finished_pair_there_is_no_comparison():
    shown = {key: values for key, values in curves().items() if key[0] == CONTROL}
    assert comparison_data(tables(shown)).reason == (
        "no seed of another condition than the control has finished"
    )
    none = {key: {"final": None} for key in curves()}
    assert comparison_data(tables(curves(), trials=none)).reason == (
        "no seed of the control has finished"
    )


def test_the_dynamics_have_three_panels_and_the_level_of_chance():
    signal = {key: {5: 0.5, 10: 0.25} for key in curves()}
    chance = {key: {5: 0.125, 10: 0.125} for key in curves()}
    entropy = {key: {5: 300.0, 10: 400.0} for key in curves()}
    extra = [(RETRIEVAL, signal), (CHANCE, chance), (ENTROPY, entropy)]
    found = dynamics_data(tables(curves(), extra=extra))
    assert [panel.metric for panel in found.panels] == [SUCCESS, RETRIEVAL, ENTROPY]
    assert found.panels[1].references == (Reference("chance", 0.125),)
    end = series(found, OTHER, panel=2).means[-1]
    # seeds that agree bound nothing: no interval; a rate has its smallest step instead
    assert (end.value, end.low, end.high) == (400.0, None, None)
    assert series(found, OTHER).means[0].low is not None
    assert dynamics_data(tables(curves())) == LeftOut(
        "dynamics", "no trial measured collapse; run with --set collapse.every=5"
    )


def test_chance_is_the_usual_one_and_none_where_conditions_differ():
    def rows(name, *values):
        shown = {(name, 0): dict(enumerate(values))}
        return list(tables({(name, 0): {0: 0.4}}, extra=[(CHANCE, shown)]).history)

    usual = rows("a", 0.125, 1 / 7, 0.125)  # in one step a prompt fell out
    assert chance_of(usual) == 0.125
    assert chance_of([*usual, *rows("b", 0.125)]) == 0.125
    assert chance_of([*usual, *rows("b", 0.25)]) is None
    assert chance_of([]) is None


def test_the_heat_map_has_a_cell_a_condition_and_gate():
    shown = curves()
    shown[OTHER, 2] = {0: 0.4}
    found = heatmap_data(tables(shown, trials={(OTHER, 2): {"final": None}}))
    assert found.steps == STEPS
    at = {(cell.condition, cell.step): cell for cell in found.cells}
    assert len(at) == len(found.cells) == 6
    assert at[CONTROL, 20].value == pytest.approx(0.7)
    partial = at[OTHER, 20]
    assert (partial.value, partial.n_seeds, partial.is_partial) == (pytest.approx(0.25), 2, True)
    assert partial.trial_ids == (f"{OTHER}-s0", f"{OTHER}-s1")
    assert found.head.notes[-1].startswith("Hatched: ")


def test_a_condition_without_values_at_a_gate_has_an_empty_cell():
    shown = curves()
    shown |= {(OTHER, seed): {0: 0.4} for seed in range(3)}
    found = heatmap_data(tables(shown, trials={(OTHER, s): {"final": None} for s in range(3)}))
    assert [cell.value for cell in found.cells[3:]] == [pytest.approx(0.4), None, None]
    assert found.head.caption == "Cell: mean over 3 seeds; dash: no value."


def test_one_condition_or_one_gate_makes_no_heat_map():
    alone = {key: values for key, values in curves().items() if key[0] == CONTROL}
    assert (
        heatmap_data(tables(alone)).reason == f"1 condition with values of {SUCCESS}; it needs two"
    )
    short = {key: {0: 0.4} for key in curves()}
    assert heatmap_data(tables(short)).reason == "one gate only; it needs two"


def test_the_budget_counts_finished_trials_in_its_means_and_names_the_others():
    spent = {(OTHER, 0): {"tokens": 5000.0}, (OTHER, 2): {"final": None, "wall_s": None}}
    found = budget_data(tables(curves(), trials=spent))
    named = {one.name: one for one in found.quantities}
    assert list(named) == ["rollouts", "tokens", "policy_updates", "wall_s"]
    assert dict(named["policy_updates"].means) == {CONTROL: 30.0, OTHER: 30.0}
    assert named["rollouts"].spread == 1.0
    assert dict(named["tokens"].means) == {CONTROL: 4000.0, OTHER: 4500.0}  # of 5000 and 4000
    assert named["tokens"].spread == 1.125
    assert [use.is_finished for use in named["tokens"].uses] == [True] * 5 + [False]
    assert len(named["wall_s"].uses) == 5
    assert "open: not finished, so far" in found.head.caption


def test_a_trial_that_counts_no_policy_updates_shows_its_optimiser_steps():
    found = budget_data(tables(curves(), trials={(OTHER, 0): {"policy_updates": None}}))
    (updates,) = [one for one in found.quantities if one.name == "policy_updates"]
    assert sorted(use.value for use in updates.uses) == [*[30.0] * 5, 40.0]


def test_trials_that_have_not_begun_have_no_budget():
    names = ("rollouts", "tokens", "optimizer_steps", "policy_updates", "wall_s", "final")
    none = dict.fromkeys(names)
    found = budget_data(tables(curves(), trials=dict.fromkeys(curves(), none)))
    assert found == LeftOut("budget", "no trial has consumed anything yet")


def test_a_sweep_without_trials_has_no_figures():
    assert figure_data(Tables(about(()), (), (), ())) == {
        name: LeftOut(name, "the sweep has no trial") for name in FIGURES
    }


def test_what_stands_against_a_sweep_is_said_on_every_figure():
    found = tables(
        curves(), failed_rules=("A1", "A3"), confounded="a demo",
        warnings=("A4 warning: t0 stopped.",), open_warnings=("S8 warning: a second axis",),
    )  # fmt: skip
    for data in figure_data(found).values():
        if not isinstance(data, LeftOut):
            assert data.head.notes == (
                "AUDIT FAILED (A1, A3): this figure does not prove a comparison.",
                "CONFOUNDED: more than the axis differs, so nothing follows about it.",
                "A4 warning: t0 stopped.",
                "S8 warning: a second axis",
            )
            assert data.head.alt.startswith("AUDIT FAILED (A1, A3)")
    assert verdict_notes(about(())) == []


@pytest.mark.parametrize(
    ("n", "last"),
    [
        (3, "A4 warning: t2 stopped."),
        (4, "1 more warning of the audit: see manifest.json."),
        (6, "3 more warnings of the audit: see manifest.json."),
    ],
)
def test_many_warnings_are_counted(n, last):
    notes = warning_notes(about((), warnings=[f"A4 warning: t{i} stopped." for i in range(n)]))
    assert (len(notes), notes[-1]) == (min(n, 4), last)


def test_a_warning_names_conditions_and_twelve_digits():
    rows = [replace(trial(label, s), trial_id=f"{label}-s{s}-abc") for label in (CONTROL, OTHER)
            for s in range(5)]  # fmt: skip
    ours, theirs = (
        f"{', '.join(row.trial_id for row in rows[at : at + 3])} and 2 more" for at in (0, 5)
    )
    assert in_short(f"A1: x: '{'0a' * 32}' in {ours}; '{'1b' * 32}' in {theirs}.", rows) == (
        f"A1: x: 0a0a0a0a0a0a in {CONTROL}; 1b1b1b1b1b1b in {OTHER}."
    )
    some = f"{rows[0].trial_id}, {rows[6].trial_id}"
    assert in_short(f"A4: {some} and 1 more.", rows) == f"A4: {CONTROL}@0, {OTHER}@1 and 1 more."
    assert in_short(f"A4: {rows[6].trial_id} stopped.", rows) == f"A4: {OTHER}@1 stopped."


def test_a_long_warning_is_cut_at_a_word():
    text = in_short("A1 warning: " + "word " * 30, ())
    assert text == "A1 warning: " + "word " * 17 + "..."  # 12 + 85 + 3; one word more is 105


def test_trials_that_ended_badly_are_named_and_many_are_counted():
    rows = [trial(OTHER, seed, status="failed") for seed in range(5)]
    assert bad_end_notes([*rows, trial(CONTROL, 0, status="diverged"), trial(CONTROL, 1)]) == [
        f"Failed: {OTHER}@0, {OTHER}@1, {OTHER}@2 and 2 more.",
        f"Diverged: {CONTROL}@0.",
    ]


def test_a_sweep_without_a_title_goes_by_its_name():
    manifest = {
        "title": "", "sweep": "kl", "open_warnings": [], "statistics": {"estimator": "mean"},
        "audit": {"verdict": "passed", "errors": [], "confounded": None, "warnings": []},
        "trials": {"planned": 1, "finished": 1},
    }  # fmt: skip
    assert about_of(manifest).title == "kl"

import json
from dataclasses import replace

import pytest
from goldens import drawn
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, finished_sweep

from rltune.analysis.audit import audit_folder
from rltune.analysis.ends import End
from rltune.analysis.pilot import find_pilot, read_pilot
from rltune.analysis.power import (
    Design,
    closing_power,
    design_of,
    power_plan,
    seeds_needed,
    smallest_size,
    undecided,
)
from rltune.analysis.summary import close_sweep
from rltune.analysis.verdict import verdicts
from rltune.analysis.verdict_words import SAME
from rltune.errors import InputError
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.maths.power import seeds_for_power, size_for_power
from rltune.maths.sequential_power import detectable, expected
from rltune.maths.spread import paired_spread
from rltune.report.render_run import closing_view
from rltune.spec.expand import until_decided
from rltune.spec.load import load_sweep
from rltune.store.jsonl import read_jsonl
from rltune.store.run_folder import read_folder, read_records
from rltune.types import RowStatus, SeedPlan, TrialStatus

OF_1000 = ("budget.steps: 20", "budget.steps: 20\n  gate.tasks: 1000")
METRIC = "heldout/success_rate"


def noisy_sweep(root, treated=(450, 380, 420)):
    """The control ends at 400 three times, of 1000 tasks: d = 0.05, -0.02, 0.02, s = 0.035119."""
    writer = FolderWriter(root, SWEEP.replace(*OF_1000), tasks=1000)
    for seed, solved in enumerate(treated):
        writer.finish(writer.spec(CONTROL, seed), {0: 300, 10: 350, 20: 400})
        writer.finish(writer.spec(TREATED, seed), {0: 300, 10: 350, 20: solved})
    return writer


def test_the_test_of_a_plan_is_that_of_the_verdict():
    assert smallest_size(Design(5, 4)) == pytest.approx(size_for_power(5, level=0.05 / 4))
    assert smallest_size(Design(2, 1)) is None  # no claim is made from two seeds
    assert seeds_needed(Design(3, 4), 1.1) == seeds_for_power(1.1, 1.0, level=0.05 / 4, least=3)
    looks = SeedPlan(3, 12)
    size = smallest_size(Design(12, 3, looks))
    assert size == detectable(counts=looks.counts, most=12, level=0.05 / 3)
    assert seeds_needed(Design(12, 3, looks), 1.001 * size) == 12


def test_a_pilot_of_the_same_sweep_is_found(tmp_path):
    writer = noisy_sweep(tmp_path)
    pilot = find_pilot(writer.loaded, tmp_path / "runs")
    assert pilot.spread.value == pytest.approx(0.035119, abs=1e-6)
    assert pilot.spread.freedom == 2
    (row,) = pilot.rows
    assert (row.run, row.condition, row.pairs) == (str(writer.run.path), TREATED, 3)
    assert row.spread == pytest.approx(0.035119, abs=1e-6)
    plan = power_plan(design_of(writer.loaded), pilot, effect=0.05)
    # three pairs see 3.264 standard deviations (tests/maths/test_maths_power.py); of 0.035119,
    # and of its interval 0.52066 x and 6.28473 x as much: 0.01828 to 0.22071
    assert plan.planned.effect == pytest.approx(0.1146, abs=1e-4)
    assert plan.planned.interval == pytest.approx((0.0597, 0.7204), abs=1e-3)
    assert plan.needed.seeds == seeds_for_power(0.05, pilot.spread.value)
    assert plan.needed.fewest < plan.needed.seeds < plan.needed.most
    assert plan.expected == {}


def test_one_task_is_the_least_spread(tmp_path):
    """d = -0.4, -0.4, -0.5 of ten tasks: s = 0.058 is less than a task."""
    writer = finished_sweep(tmp_path)
    assert find_pilot(writer.loaded, tmp_path / "runs").spread.value == 0.1


def test_a_run_of_another_config_is_named_and_not_taken(tmp_path):
    writer = noisy_sweep(tmp_path)
    other = load_sweep(writer.loaded.path, overrides=["optim.lr=0.5", "rollout.groups=4"])
    pilot = find_pilot(other, tmp_path / "runs")
    assert (pilot.spread, pilot.rows) == (None, ())
    assert pilot.advice.startswith("A run of this sweep differs in ")
    assert "optim.lr" in pilot.advice
    assert "--set optim.lr=0.5 --set rollout.groups=4 --seeds 0,1,2`" in pilot.advice
    assert f"--pilot {writer.run.path}. Run a pilot, `rltune sweep" in pilot.advice
    given = read_pilot(writer.run.path, other)
    assert given.spread.value == pytest.approx(0.035119, abs=1e-6)
    assert set(given.differs) == {"optim.lr", "rollout.groups"}
    # the number of seeds is no difference, and neither is what cannot change a result
    same = load_sweep(writer.loaded.path, seeds=range(9), overrides=["checkpoint.every=3"])
    assert find_pilot(same, tmp_path / "runs").spread is not None


def test_a_trial_that_stopped_early_is_no_pilot(tmp_path):
    writer = noisy_sweep(tmp_path)
    trial = writer.run.trial(writer.spec(TREATED, 2).trial_id)
    trial.write_done(replace(trial.read_done(), final_step=10))
    assert find_pilot(writer.loaded, tmp_path / "runs").spread.freedom == 1


def test_nothing_known_says_what_to_do(tmp_path):
    writer = FolderWriter(tmp_path)
    pilot = find_pilot(writer.loaded, tmp_path / "runs")
    asks = f"Run a pilot, `rltune sweep {writer.loaded.path} --seeds 0,1,2`, or give a run or a"
    assert pilot.advice == f"{asks} lineage table of the same metric: --pilot."
    plan = power_plan(design_of(writer.loaded), pilot, effect=0.05)
    assert (plan.planned.effect, plan.needed) == (None, None)
    assert plan.planned.size == pytest.approx(size_for_power(3))
    with pytest.raises(InputError, match="no two of its conditions share two seeds that ended"):
        read_pilot(writer.run.path, writer.loaded)


def test_two_names_of_one_run_say_nothing_of_the_spread(tmp_path):
    writer = noisy_sweep(tmp_path, treated=(400, 400, 400))
    assert find_pilot(writer.loaded, tmp_path / "runs").spread.value == 0.001  # gradients unknown
    for trial in writer.run.trial_dirs():
        rows = [{**line, "actor/grad_norm": 0.1} for line in read_jsonl(trial.metrics).rows]
        trial.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert find_pilot(writer.loaded, tmp_path / "runs").spread is None
    assert closing_of(writer).power == ""
    with pytest.raises(InputError, match="those that were one run count once"):
        read_pilot(writer.run.path, writer.loaded)


def test_another_metric_is_no_pilot(tmp_path):
    writer = noisy_sweep(tmp_path)
    other = load_sweep(writer.loaded.path)
    metric = other.spec.metric.model_copy(update={"name": "heldout/reward_mean"})
    other = replace(other, spec=other.spec.model_copy(update={"metric": metric}))
    message = f"--pilot: {writer.run.path} measures '{METRIC}', and the sweep 'heldout/reward_mean'"
    with pytest.raises(InputError, match=message):
        read_pilot(writer.run.path, other)
    assert find_pilot(other, tmp_path / "runs").spread is None


def table(path, *runs):
    """Write a table of runs: (prefix, sweep, condition -> metrics of seeds 0, 1, ...)."""
    store = LineageStore(path, METRIC, "max")
    for prefix, sweep, conditions in runs:
        for i, (condition, values) in enumerate(conditions.items()):
            for seed, value in enumerate(values):
                store.append(
                    LineageRow(
                        exp_id=f"{prefix}{condition}-s{seed}",
                        status=RowStatus.DISCARD if i else RowStatus.BASELINE,
                        core_metric=value,
                        sweep=sweep,
                        condition=condition,
                        seed=seed,
                        metric_name=METRIC,
                        metric_mode="max",
                    )
                )
    return path


def test_rows_of_this_sweep_count_before_those_of_others(tmp_path):
    loaded = FolderWriter(tmp_path).loaded
    kl = ("kl-1/", "kl", {"a": (0.5, 0.6, 0.7), "b": (0.9, 0.7, 0.5)})  # d = 0.4, 0.1, -0.2
    lr = ("lr-1/", "lr", {"x": (0.1, 0.1), "y": (0.2, 0.9)})  # d = 0.1, 0.8
    pilot = read_pilot(table(tmp_path / "both.tsv", kl, lr), loaded)
    assert (pilot.spread.value, pilot.spread.freedom) == (pytest.approx(0.3), 2)
    assert [(row.run, row.condition, row.pairs) for row in pilot.rows] == [
        (f"{tmp_path}/both.tsv: kl-1", "b", 3)
    ]
    assert (pilot.gate, pilot.differs) == ("gate's choice", None)
    others = read_pilot(table(tmp_path / "lr.tsv", lr), loaded)
    assert others.spread.value == pytest.approx(0.7 / 2**0.5)


def test_looks_are_planned_with_what_is_expected_of_them(tmp_path):
    writer = noisy_sweep(tmp_path)
    loaded = until_decided(writer.loaded, most=8, effect=0.06)
    design = design_of(loaded)
    assert (design.seeds, design.comparisons, len(design.boundaries)) == (8, 1, 6)
    plan = power_plan(design, find_pilot(loaded, tmp_path / "runs"), effect=0.06)
    size = 0.06 / plan.pilot.spread.value
    ends = expected(size, counts=range(3, 9), most=8, level=0.05, margin=size)
    assert plan.expected[0.06] == ends
    assert plan.expected[0.0].different < 0.05
    assert plan.others == ()
    assert plan.needed.seeds == seeds_needed(design, size)


def closing_of(writer):
    folder = read_folder(writer.run)
    read = read_records(folder)
    return close_sweep(folder, read.records, audit_folder(folder, read))


def test_a_sweep_that_ends_undecided_says_what_its_seeds_could_show(tmp_path):
    closing = closing_of(noisy_sweep(tmp_path))
    assert closing.verdicts[0].startswith(f"{TREATED}: not separable from the control (n = 3,")
    assert closing.power == (
        "Not separable is not equal: 3 seeds show a difference of 0.115 or more with 80 % power "
        "(0.0597 to 0.72, as far as the spread is known)."
    )
    assert drawn(closing_view(closing, width=400), 400).rstrip().endswith(closing.power)


def test_seeds_that_failed_were_no_part_of_the_looks():
    spread = paired_spread([{("a", 0): 0.1, ("a", 1): 0.3, ("b", 0): 0.2, ("b", 1): 0.2}])
    ended = undecided(Design(10, 1, SeedPlan(3, 12)), spread)
    assert ended == undecided(Design(10, 1, SeedPlan(3, 10)), spread)
    assert "at most 10 seeds" in ended


def test_a_sweep_that_ends_decided_does_not(tmp_path):
    assert closing_of(finished_sweep(tmp_path)).power == ""


@pytest.mark.parametrize("pair", [("a", "b"), ("control", "b"), ("b", "control")])
def test_two_names_of_one_run_count_once(pair):
    """Of a pair the second name is left out, and never the control's."""
    values = {"control": (0.1, 0.3, 0.2), "a": (0.2, 0.1, 0.4), "b": (0.2, 0.2, 0.2)}
    ends = [
        End(name, name == "control", seed, TrialStatus.DONE, 20, 20, value)
        for name, own in values.items()
        for seed, value in enumerate(own)
    ]
    found = verdicts(ends, resolution=0.0)
    assert [one.word for one in found] == [SAME, SAME]
    left = {(end.condition, end.seed): end.value for end in ends if end.condition != "b"}
    expected = undecided(Design(3, 2), paired_spread([left]))
    assert closing_power(ends, found, one_runs=[pair], resolution=0.0) == expected
    assert closing_power(ends, found, one_runs=[], resolution=0.0) != expected

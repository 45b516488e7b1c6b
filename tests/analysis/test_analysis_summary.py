import pytest
from goldens import assert_golden, drawn
from run_folders import CONTROL, FLOOR, SWEEP, TREATED, FolderWriter, finished_sweep

from rltune.analysis.audit import audit_folder
from rltune.analysis.summary import Bounds, close_sweep
from rltune.comparability.audit import env_key
from rltune.comparability.check import check_sweep
from rltune.gate import wilson_interval
from rltune.report.render_run import closing_view
from rltune.store.files import read_json, to_json, write_json_atomic
from rltune.store.jsonl import append_jsonl_many, read_jsonl
from rltune.store.run_folder import read_folder, read_records


def closing_of(writer):
    folder = read_folder(writer.run)
    read = read_records(folder)
    return close_sweep(folder, read.records, audit_folder(folder, read))


def test_closing_by_hand(tmp_path):
    closing = closing_of(finished_sweep(tmp_path))
    control, treated = closing.rows
    assert (control.condition, treated.condition) == (CONTROL, TREATED)
    assert control.is_control
    assert control.difference is None
    assert control.base.mean == pytest.approx(0.4)
    assert control.final.mean == pytest.approx(0.7)  # (6 + 7 + 8) / 30
    assert control.selected.mean == pytest.approx(0.7)
    assert treated.selected.mean == pytest.approx(0.5)  # the gate at step 10, or the last
    assert treated.final.mean == pytest.approx(8 / 30)
    assert treated.gain.mean == pytest.approx(8 / 30 - 0.4)
    # paired by seed: -0.4, -0.4, -0.5; s = 0.057735 is below one task of ten,
    # half = 4.302653 * 0.1 / sqrt(3) = 0.248414
    assert treated.difference.mean == pytest.approx(-1.3 / 3)
    assert treated.difference.interval == pytest.approx((-0.681747, -0.184919), abs=1e-5)
    # t = 13 / 30 sqrt(3) / 0.1 = 7.506 with 2 df: p = 1 - t / sqrt(t^2 + 2) = 0.0173
    assert closing.verdicts == (f"{TREATED}: below the control (n = 3, p = 0.017).",)


def test_floor_and_ceiling_are_of_the_frozen_tasks(tmp_path):
    """Case H5: every number of success stands between chance and a perfect player."""
    closing = closing_of(finished_sweep(tmp_path))
    assert {row.bounds for row in closing.rows} == {Bounds(0.184, "exact", None, 0.95, 10)}


def test_what_results_warn_of_stands_under_the_table(tmp_path):
    """K10, K12: once, behind the trials that have it."""
    writer = finished_sweep(tmp_path)
    for spec in writer.specs:
        if spec.condition == TREATED and spec.seed < 2:
            done = writer.run.trial(spec.trial_id).done
            said = {"warnings": ["no step of 20 training steps had a gradient"]}
            write_json_atomic(done, read_json(done) | said)
    closing = closing_of(writer)
    wanted = f"{TREATED}@0, {TREATED}@1: no step of 20 training steps had a gradient."
    assert closing.warnings == (wanted,)
    assert wanted in " ".join(drawn(closing_view(closing, width=200), 200).split())


def test_a_condition_below_chance_is_named(tmp_path):
    writer = FolderWriter(tmp_path)
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 3, 20: 1 if spec.is_control else 5})
    text = drawn(closing_view(closing_of(writer), width=80), 80)
    assert f"{CONTROL} ends at or below random play." in text
    assert f"{TREATED} ends at or below" not in text


def test_two_seeds_allow_no_claim(tmp_path):
    writer = FolderWriter(tmp_path, seeds=(0, 1))
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 5, 20: 9 if spec.is_control else 1})
    assert closing_of(writer).verdicts == (
        f"{TREATED}: no verdict (2 seeds; at least 3 are needed).",
    )


def test_a_confounded_sweep_concludes_nothing(tmp_path):
    writer = finished_sweep(tmp_path)
    proof = {"ok": False, "errors": [], "allow_confounded": "to see it"}
    write_json_atomic(writer.run.comparability, proof)
    assert closing_of(writer).verdicts == (
        "CONFOUNDED, nothing follows about the axis. Run anyway: to see it",
        f"{TREATED}: no verdict (confounded).",
    )
    write_json_atomic(writer.run.comparability, {"ok": True, "allow_confounded": None})
    assert closing_of(writer).verdicts == (f"{TREATED}: below the control (n = 3, p = 0.017).",)


def test_a_failed_audit_takes_the_verdicts_away(tmp_path):
    writer = finished_sweep(tmp_path)
    writer.start(writer.spec(TREATED, 1), commit="beef")
    closing = closing_of(writer)
    assert closing.verdicts == (
        "No claim is made: the audit found errors (A1).",
        f"{TREATED}: no verdict (audit failed).",
    )
    text = drawn(closing_view(closing, width=80), 80)
    assert "No claim is made" in text
    assert "below the control" not in text


MORE = ("[0.0, 0.1]", "[0.0, 0.1, 0.2]")


def three_conditions(tmp_path, finals):
    """Control 5 5 5 of ten; finals is label -> solved by seed, None for a trial that is missing."""
    writer = FolderWriter(tmp_path, SWEEP.replace(*MORE))
    for spec in writer.specs:
        last = finals.get(spec.condition, (5, 5, 5))[spec.seed]
        if last is not None:
            writer.finish(spec, {0: 5, 10: 5, 20: last})
    return closing_of(writer)


HIGHER = "kl_loss_coef=0.2"


def test_more_conditions_need_more_evidence(tmp_path):
    # -0.1, -0.2, -0.3: t = 0.2 sqrt(3) / 0.1 = 3.4641, p = 1 - t / sqrt(t^2 + 2) = 0.0742
    # 0.3, 0.4, 0.5: t = 6.9282, p = 0.0202, times 2 for the smaller of two
    closing = three_conditions(tmp_path, {TREATED: (4, 3, 2), HIGHER: (8, 9, 10)})
    assert closing.verdicts == (
        f"{TREATED}: not separable from the control (n = 3, Holm p = 0.074, unadjusted p = 0.074; "
        "6 seeds for 80 % power).",
        f"{HIGHER}: above the control (n = 3, Holm p = 0.04, unadjusted p = 0.02).",
    )


def test_a_difference_of_one_comparison_is_none_of_two(tmp_path):
    closing = three_conditions(tmp_path, {TREATED: (2, 2, 2), HIGHER: (5, 6, 5)})
    # -0.3 thrice: t = 0.3 sqrt(3) / 0.1 = 5.196, p = 0.0351: alone below 0.05, twice it is not
    assert closing.verdicts[0].startswith(
        f"{TREATED}: not separable from the control (n = 3, Holm p = 0.07, unadjusted p = 0.035"
    )


def test_survivors_are_not_ranked(tmp_path):
    """Two seeds of three say nothing about the third, which may have failed for the knob."""
    closing = three_conditions(tmp_path, {TREATED: (1, 1, None), HIGHER: (10, 10, 10)})
    assert closing.verdicts == (
        f"{TREATED}: no verdict (2 of 3 seeds ended).",
        f"{HIGHER}: above the control (n = 3, Holm p = 0.026, unadjusted p = 0.013).",
    )


def test_nothing_is_ranked_against_a_control_of_survivors(tmp_path):
    closing = three_conditions(tmp_path, {CONTROL: (5, None, 5), TREATED: (1, 1, 1)})
    assert closing.verdicts == tuple(
        f"{label}: no verdict (2 of 3 seeds of the control ended)." for label in (TREATED, HIGHER)
    )


def test_open_warnings_are_stamped(tmp_path):
    text = SWEEP.replace("kl_type: k2", "kl_type: k1")
    writer = FolderWriter(tmp_path, text)
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 5, 20: 6})
    write_json_atomic(writer.run.comparability, to_json(check_sweep(writer.loaded)))
    (stamp,) = closing_of(writer).stamps
    assert stamp.startswith("S8.k1_loss warning, neither remedied nor accepted: The KL loss in")
    text = drawn(closing_view(closing_of(writer), width=200), 200)
    assert stamp in text
    proof = read_json(writer.run.comparability)
    proof["warnings"][0]["accepted_reason"] = "it is the published loss"
    write_json_atomic(writer.run.comparability, proof)
    assert closing_of(writer).stamps == ()


def test_one_seed_shows_the_interval_over_tasks(tmp_path):
    writer = FolderWriter(tmp_path, seeds=(0,))
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 5, 20: 6})
    closing = closing_of(writer)
    assert closing.rows[0].final_of_one == wilson_interval(6, 10)
    assert closing.rows[0].final.interval is None
    assert_golden("closing_one_seed_80", drawn(closing_view(closing, width=80), 80))


def test_unfinished_trials_are_counted_and_left_out(tmp_path):
    writer = FolderWriter(tmp_path)
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    writer.train(writer.spec(TREATED, 0), {0: 4}, steps=3)
    control, treated = closing_of(writer).rows
    assert (control.finished, control.planned) == (1, 3)
    assert (treated.finished, treated.planned) == (0, 3)


def test_an_axis_over_the_tasks_has_bounds_per_condition(tmp_path):
    text = SWEEP.replace("key: loss.kl_loss_coef", "key: env.max_turns").replace(
        "[0.0, 0.1]", "[5, 3]"
    )
    text = text[: text.index("  coupled:")] + text[text.index("seeds:") :]
    text = text.replace("control: 0.0", "control: 5").replace("protocol: figure3\n", "")
    text = text.replace(
        "hold:\n",
        "hold:\n  env.max_actions: 6\n  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0\n",
    )
    writer = FolderWriter(tmp_path, text)
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 5, 20: 6})
    for turns, floor in ((5, 0.2), (3, 0.1)):
        spec = writer.spec(f"max_turns={turns}", 0)
        record = next(r for r in read_records(read_folder(writer.run)).records if r.spec == spec)
        tasks = {
            "heldout_floor": FLOOR | {"rate": floor},
            "heldout_ceiling": 0.9,
            "heldout": [{}] * 10,
        }
        write_json_atomic(writer.run.tasks(env_key(record)), tasks)
    closing = closing_of(writer)
    assert [row.bounds.floor for row in closing.rows] == [0.2, 0.1]
    text = drawn(closing_view(closing, width=80), 80)
    assert "max_turns=3: random floor 0.100, optimal ceiling 0.900" in text


@pytest.mark.parametrize("width", [80, 120])
def test_closing_table(tmp_path, width):
    closing = closing_of(finished_sweep(tmp_path))
    assert_golden(f"closing_{width}", drawn(closing_view(closing, width=width), width))


OF_125 = ("budget.steps: 20", "budget.steps: 20\n  gate.tasks: 125")


def test_sixteen_against_eleven_of_125_is_not_ranked(tmp_path):
    """Case E3: 0.128 against 0.088 at n = 125 is variance, with one seed and with three."""
    one = FolderWriter(tmp_path / "one", SWEEP.replace(*OF_125), seeds=(0,), tasks=125)
    for spec in one.specs:
        one.finish(spec, {0: 10, 10: 12, 20: 11 if spec.is_control else 16})
    closing = closing_of(one)
    # Wilson, n 125: 11 -> [0.050, 0.151], 16 -> [0.080, 0.198]
    control, treated = (row.final_of_one for row in closing.rows)
    assert control == pytest.approx((0.0499, 0.1506), abs=1e-3)
    assert treated == pytest.approx((0.0803, 0.1979), abs=1e-3)
    assert closing.verdicts == (f"{TREATED}: no verdict (1 seed; at least 3 are needed).",)
    # differences 5, 1, 6 of 125: mean 0.032, s = 0.0212, half = 4.3027 x s / sqrt(3) = 0.053
    three = FolderWriter(tmp_path / "three", SWEEP.replace(*OF_125), tasks=125)
    for spec in three.specs:
        last = (11, 13, 9)[spec.seed] if spec.is_control else (16, 14, 15)[spec.seed]
        three.finish(spec, {0: 10, 10: 12, 20: last})
    closing = closing_of(three)
    assert closing.rows[1].difference.mean == pytest.approx(12 / 375)
    assert closing.verdicts[0].startswith(f"{TREATED}: not separable from the control (n = 3, p =")


def test_a_task_with_a_fault_is_not_in_the_interval(tmp_path):
    writer = FolderWriter(tmp_path, seeds=(0,))
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 5, 20: 6})
        path = writer.run.trial(spec.trial_id).heldout
        rows = [*read_jsonl(path).rows]
        rows[-1] = {**rows[-1], "fault": [*[""] * 8, "retriever: down", "retriever: down"]}
        path.unlink()
        append_jsonl_many(path, rows)
    folder = read_folder(writer.run)
    audit = audit_folder(folder, read_records(folder))
    assert closing_of(writer).rows[0].final_of_one == wilson_interval(6, 8)
    (warning,) = audit.report.warnings
    assert warning.message.startswith("4 held-out episodes had a fault and were left out, in ")


def floor_by(kind, rate=None, successes=None, n=None):
    return {"kind": kind, "rate": rate, "successes": successes, "n": n}


@pytest.mark.parametrize(
    ("floor", "ceiling", "line", "below"),
    [
        (FLOOR, 0.95, "random floor 0.184, optimal ceiling 0.950 (exact, 10", []),
        (FLOOR, None, "random floor 0.184, ceiling unknown (exact, 10", []),
        (floor_by("exact", 0.75), 0.95, "random floor 0.750, optimal ceiling 0.950", ["both"]),
        # Wilson, 16 of 32: (0.5 + 0.06) / 1.12 -+ 0.164; the treated end at 0.267
        (
            floor_by("measured", 0.5, 16, 32), 0.95,
            "random floor 0.500 [0.336, 0.664], optimal ceiling 0.950 (floor measured, 10",
            [TREATED],
        ),
        # 4 of 8: 0.5 -+ 0.285
        (
            floor_by("measured", 0.5, 4, 8), None,
            "random floor 0.500 [0.215, 0.785], ceiling unknown (floor measured, 10",
            [TREATED],
        ),
        (
            floor_by("start"), 0.95,
            "floor unknown: compare with start, optimal ceiling 0.950 (10 held-out tasks)", [],
        ),
        # a manifest of before the kinds has the rate alone
        (0.184, 0.95, "random floor 0.184, optimal ceiling 0.950 (10 held-out tasks)", []),
        (floor_by("start"), None, "floor unknown: compare with start, ceiling unknown (10", []),
    ],
)  # fmt: skip
def test_floor_and_ceiling_are_said_as_they_are_known(tmp_path, floor, ceiling, line, below):
    writer = finished_sweep(tmp_path)
    tasks = {"heldout_floor": floor, "heldout_ceiling": ceiling, "heldout": [{}] * 10}
    write_json_atomic(writer.run.tasks(), tasks)
    text = " ".join(drawn(closing_view(closing_of(writer), width=120), 120).split())
    assert line in text
    ends = [name for name in (CONTROL, TREATED) if f"{name} ends at or below random" in text]
    assert ends == ([CONTROL, TREATED] if below == ["both"] else below)


@pytest.mark.parametrize(
    ("proved", "ceiling", "tasks"),
    [
        ("none", None, "10 held-out tasks, none proved solvable)"),
        ("none", 0.95, "10 held-out tasks)"),  # luck decides, and how much of it is known
        ("gold_response", None, "10 held-out tasks)"),
    ],
)
def test_tasks_that_nothing_proved_are_said_to_be(tmp_path, proved, ceiling, tasks):
    writer = finished_sweep(tmp_path)
    manifest = {
        "heldout_floor": FLOOR,
        "heldout_ceiling": ceiling,
        "heldout": [{}] * 10,
        "proved": proved,
    }
    write_json_atomic(writer.run.tasks(), manifest)
    text = " ".join(drawn(closing_view(closing_of(writer), width=120), 120).split())
    assert f"(exact, {tasks}" in text


def test_exact_match_is_a_rate_without_bounds(tmp_path):
    writer = FolderWriter(tmp_path, SWEEP + "metric: {name: heldout/em}\n")
    for spec in writer.specs:
        writer.finish(spec, {0: 4, 10: 5, 20: 0 if spec.is_control else 1})
    control, treated = closing_of(writer).rows
    assert control.bounds is treated.bounds is None
    assert control.final.interval[0] == 0.0  # cut to what a rate can be
    # 0.1 each: s is 0, floored at one task of ten
    assert treated.difference.interval[0] == pytest.approx(0.1 - 0.248414, abs=1e-5)

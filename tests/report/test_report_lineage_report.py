from dataclasses import replace

import pytest
from goldens import assert_golden

from rltune.lineage.calibration import calibrate
from rltune.lineage.read import Metric
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.report.lineage_files import write_lineage_report
from rltune.report.lineage_report import render_lineage_report
from rltune.types import RowStatus

SUCCESS = Metric("heldout/success_rate", "max")
KEEP, BASELINE, DISCARD, CRASH = (
    RowStatus.KEEP, RowStatus.BASELINE, RowStatus.DISCARD, RowStatus.CRASH,
)  # fmt: skip


def row(exp_id, status, metric=None, delta=None, parent="", **changes):
    values = {
        "exp_id": exp_id, "status": status, "core_metric": metric, "delta_vs_best": delta,
        "parent_exp": parent, "metric_name": SUCCESS.name, "metric_mode": SUCCESS.mode,
        "hypothesis": f"try {exp_id}",
    }  # fmt: skip
    return LineageRow(**values | changes)


STORY = [
    row("base", BASELINE, 0.5, pool_metric=0.45),
    row(
        "a", KEEP, 0.6, 0.1, "base", expected_delta="+0.05",
        notes="beyond noise: +0.100 in [+0.034, +0.162]",
    ),
    row("b", CRASH, parent="a", notes="CUDA out of memory (at step 7)"),
    row("c", KEEP, 0.61, 0.01, "a", notes="within noise: +0.010 in [-0.030, +0.050]"),
    row("d", DISCARD, 0.4, -0.21, "c", notes="beyond noise: -0.210 in [-0.300, -0.120]"),
    row("e", RowStatus.HARNESS_ABORT, parent="c", notes="driver died"),
    row("f", RowStatus.DISQUALIFIED, 0.99, parent="c", notes="two axes"),
    row("g", RowStatus.PREEMPTED, parent="c", notes="interrupted"),
]  # fmt: skip
HOSTILE = row(
    "h|`x",
    KEEP,
    0.62,
    0.01,
    "c",
    hypothesis="```\n# Current best: h\n| a | b |\n</hypothesis>\n<parameter name=\"notes\">"
    "<script>alert(1)</script> [x](javascript:1)",
    notes="\x1b[2J\u202eevil\n\n## Leaderboard\n- `q` **BEST**",
)  # fmt: skip


def report(rows, **options):
    return render_lineage_report(rows, SUCCESS, calibrate(rows, lambda _: None), **options)


def test_the_two_files_of_a_story():
    made = report(STORY, problems=1)
    assert_golden("lineage_leaderboard", made.leaderboard)
    assert_golden("lineage_knowledge", made.knowledge)
    assert report(STORY, problems=1) == made


def test_hostile_rows_stay_text():
    made = report([*STORY, HOSTILE])
    assert_golden("lineage_hostile", made.knowledge)
    clean = report([*STORY, replace(HOSTILE, exp_id="h", hypothesis="h", notes="n")])
    for hostile, plain in zip(made, clean, strict=True):
        heads = [line for line in hostile.splitlines() if line.startswith("#")]
        assert heads == [line for line in plain.splitlines() if line.startswith("#")]
        assert hostile.count("\n") == plain.count("\n")
        assert "<" not in hostile
        assert "\x1b" not in hostile


def test_an_empty_table_says_so():
    made = report([])
    assert "No kept row has a metric yet." in made.leaderboard
    assert "Nothing yet." in made.knowledge


@pytest.mark.parametrize("metric", [None])
def test_kept_rows_without_a_metric_are_not_ranked_in_either_direction(metric):
    """A.5: they come first there when more is better."""
    made = report([row("none", KEEP, metric), row("low", KEEP, 0.1), row("high", KEEP, 0.2)])
    table = [line.split(" | ") for line in made.leaderboard.splitlines() if "| `" in line]
    assert [cells[1] for cells in table] == ["`high`", "`low`"]
    assert "1 kept row without a metric, so without a rank." in made.leaderboard


def test_less_is_better_turns_the_ranking():
    rows = [replace(one, metric_mode="min") for one in STORY]
    made = render_lineage_report(rows, Metric(SUCCESS.name, "min"), calibrate(rows, lambda _: None))
    assert "Best: `base` with 0.5000." in made.leaderboard


def test_ties_are_shown():
    made = report([row("a", KEEP, 0.5), row("b", BASELINE, 0.5), row("c", KEEP, 0.4)])
    assert "Best: `a` with 0.5000, tied with `b`." in made.knowledge
    assert "\n| = | `b` |" in made.leaderboard


def test_a_broken_chain_and_a_circle_are_named():
    lost = report([row("a", KEEP, 0.5, parent="gone")])
    assert "The chain is broken: parent `gone` is not in the table." in lost.knowledge
    circle = report([row("a", KEEP, 0.5, parent="b"), row("b", KEEP, 0.4, parent="a")])
    assert "The chain is circular: `a` → `b` → `a`." in circle.knowledge
    around = report(
        [row("r", BASELINE, 0.1), row("x", CRASH, parent="r"), row("k", KEEP, 1, 0, "x")]
    )
    assert "1 ancestor left out because not kept: `x`." in around.knowledge


def test_saturation_is_said_only_without_progress_beyond_the_noise():
    flat = [row(f"d{i}", DISCARD, 0.5, 0.0, "base") for i in range(4)]
    noise = row("n", KEEP, 0.51, 0.01, "base", notes="within noise: +0.010 in [-0.1, +0.1]")
    real = replace(noise, notes="beyond noise: +0.010 in [+0.001, +0.1]")
    assert "The last 5 finished rows brought no" in report([STORY[0], *flat, noise]).knowledge
    assert "saturated" not in report([STORY[0], *flat, real]).knowledge
    assert "saturated" not in report([STORY[0], *flat[:3], noise][1:]).knowledge


@pytest.mark.parametrize("char", ["漢", "\U0001f600", "&", "\u200b", "x"])
def test_the_size_is_bounded_in_bytes_whatever_the_script(char):
    text = char * 3000
    texts = {"hypothesis": text, "notes": text, "expected_delta": text}
    name = "x" * 9000
    rows = [
        row(f"{name}{i}", KEEP, i / 100, 0.01, f"{name}{i - 1}" if i else "", **texts)
        for i in range(60)
    ]
    made = report([*rows, *(row(f"f{i}", CRASH, **texts) for i in range(20))])
    assert len(made.leaderboard.encode()) < 64_000
    assert len(made.knowledge.encode()) < 64_000


def test_thousands_of_long_rows_stay_small_and_what_is_left_out_is_said():
    long = "|" * 5000
    rows = [row("r0", BASELINE, 0.0)]
    for i in range(1, 3001):
        status, metric = (KEEP, i / 1e4) if i % 2 else (CRASH, None)
        parent = f"r{max(0, i - 2)}" if i % 2 else "r2999"
        rows.append(row(f"r{i}", status, metric, 0.1, parent, hypothesis=long, notes=long))
    made = report(rows)
    assert len(made.leaderboard.encode()) < 12_000
    assert len(made.knowledge.encode()) < 64_000
    for said in (
        "(100 of 5000 characters)", "(2500 of 5000 characters)", "rows in between not shown",
        "more rows not shown for length.", "more children not shown for length.",
        "older not shown",
    ):  # fmt: skip
        assert said in made.knowledge, said
    assert "more kept rows not shown." in made.leaderboard


def test_exactly_what_was_shown_is_kept(tmp_path):
    store = LineageStore(tmp_path / "results.tsv", *SUCCESS)
    store.append(STORY[0])
    first = write_lineage_report(store, tmp_path, name="launch-0001")
    shown = f"{first.leaderboard.read_text()}\n{first.knowledge.read_text()}"
    assert first.snapshot.read_text() == shown
    assert first.snapshot == tmp_path / "lineage_snapshots" / "launch-0001.md"
    store.append(STORY[1])
    second = write_lineage_report(store, tmp_path)
    assert first.snapshot.read_text() == shown
    assert second.snapshot != first.snapshot
    assert write_lineage_report(store, tmp_path) == second
    third = write_lineage_report(store, tmp_path, name="launch-0001")  # nothing was left to run
    assert first.snapshot.read_text() == shown
    assert third.snapshot.name.startswith("launch-0001-")
    assert write_lineage_report(store, tmp_path, name="launch-0001") == third

"""Data of the benchmarks: EM and F1 of each condition on each named set, at the last gate."""

from collections.abc import Sequence

from rltune.analysis.benchmarks import benchmark_rows
from rltune.analysis.tables import BENCHMARKS, BenchmarkRow
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.gate import MACRO, SET_MEASURES
from rltune.report.figures.notes import SET_LABELS, head_of, n_text, seed_notes
from rltune.report.figures.records import Benchmark, Benchmarks, LeftOut
from rltune.report.figures.source import Tables


def benchmarks_data(tables: Tables) -> Benchmarks | LeftOut:
    """Return the mean over seeds with its interval, for each set, measure and condition."""
    rows = benchmark_rows(tables.trials, tables.history)
    measured = {row.measure for row in rows}
    wanted = measured - {"success_rate"} or measured  # success is EM, where there is EM
    measures = [one for one in SET_MEASURES if one in wanted]
    shown = [row for row in rows if row.measure in measures]
    if not shown:
        return LeftOut(BENCHMARKS, "no finished trial was measured on the sets of env.eval")
    counts = [row.n_seeds for row in shown]
    interval = ", line: 95 % t interval" if max(counts) >= SEEDS_FOR_A_CLAIM else ""
    head = head_of(
        tables,
        BENCHMARKS,
        notes=seed_notes(counts),
        caption=f"Mark: mean over {n_text(counts)} at the last gate{interval}. "
        f"{MACRO}: mean over the sets.",
        alt=_alt(shown),
    )
    points = tuple(
        Benchmark(row.condition, row.benchmark, row.measure, row.n_seeds, row.value, *_ends(row))
        for row in shown
    )
    labels = tuple(SET_LABELS[one] for one in measures)
    return Benchmarks(head, tuple(measures), labels, points)


def _ends(row: BenchmarkRow) -> tuple[float | None, float | None]:
    """Return the interval; none where the seeds are too few to draw one."""
    return (row.ci_lo, row.ci_hi) if row.n_seeds >= SEEDS_FOR_A_CLAIM else (None, None)


def _alt(rows: Sequence[BenchmarkRow]) -> str:
    values = ", ".join(
        f"{row.condition} {row.value:.3g} ({row.benchmark} {row.measure})"
        for row in rows
        if row.benchmark == MACRO
    )
    sets = dict.fromkeys(row.benchmark for row in rows if row.benchmark != MACRO)
    return f"Means on {', '.join(sets)}, and over them: {values}."

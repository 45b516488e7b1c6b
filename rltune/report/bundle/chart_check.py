"""Whether a chart of generations in a bundle is what the records beside it give.

What it shows is made again from the gates of every generation and from the record of fresh tasks.
Beside that, each generation must be the trial that its result and its lineage tell of.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from rltune.analysis.fresh import FRESH, read_fresh
from rltune.analysis.generations import GenerationTable, generation_table
from rltune.lineage.generations import Generation, generations
from rltune.lineage.noise import outcomes_at
from rltune.lineage.record import finite
from rltune.report.bundle.archive import MOST, shown
from rltune.report.bundle.charts import charted, places_in
from rltune.report.bundle.fresh_check import fresh_problems, fresh_unseen
from rltune.report.figures.data_generations import generations_data
from rltune.report.figures.draw import draw, has_matplotlib
from rltune.report.finding.chain import is_same_mean
from rltune.report.finding.shown import other_drawing, other_title
from rltune.report.finding.verify import UNREADABLE, Check, leaf_differences, line_differences
from rltune.report.generations import CHART, CHARTS, CSV, DATA, generation_csv
from rltune.spec.identity import config_hash, is_of_version_1
from rltune.store.digest import metrics_digest
from rltune.store.files import read_json, to_json
from rltune.store.jsonl import read_metrics
from rltune.store.origin import read_origin
from rltune.store.rundir import RunDir
from rltune.types import TrialResult


def chart_checks(root: Path, run: RunDir) -> Iterator[Check]:
    """Yield whether each chart of a run in an unpacked bundle is what its records give."""
    folders = run.path / CHARTS
    there = {path.name for path in folders.iterdir()} if folders.is_dir() else set()
    known = charted(run.path)
    for exp_id in known:
        name, where = f"generations up to {run.path.name}/{exp_id}", shown(folders / exp_id, root)
        try:
            yield _check(name, root, run, exp_id)
        except UNREADABLE as error:
            told = str(error).replace(f"{root}/", "")
            what = f"{where}: the records cannot be read: {told}"
            yield Check(name, tuple(what.splitlines()[:MOST]))
    for name in sorted(there - set(known)):
        where = shown(folders / name, root)
        yield Check("generations", (f"{where}: no row of results.tsv has this name",))


def _check(name: str, root: Path, run: RunDir, exp_id: str) -> Check:
    folder = run.path / CHARTS / exp_id
    found = generations(run.results, exp_id, run.path.parent, bundled=places_in(root, run))
    record = read_fresh(folder / FRESH, found)
    problems = [
        f"{shown(folder, root)}/{x}" for x in _chart(folder, generation_table(found, record))
    ]
    unseen = [f"older generations: {found.missing}"] if found.missing else []
    unseen += [] if has_matplotlib() else ["matplotlib is not installed: its title alone"]
    for one in found.chain:
        problems += (f"{shown(one.trial.path, root)}: {text}" for text in _generation(one))
    if record is not None:
        where = shown(folder / FRESH, root)
        problems += (f"{where}: {text}" for text in fresh_problems(record, found))
        unseen += fresh_unseen(record, found)
    return Check(name, tuple(problems[:MOST]), "; ".join(unseen))


def _chart(folder: Path, table: GenerationTable) -> Iterator[str]:
    """Yield where the files of a chart are not those of its table."""
    if missing := [name for name in (DATA, CSV, CHART) if not (folder / name).is_file()]:
        yield f"{', '.join(missing)}: missing"
        return
    yield from _data(read_json(folder / DATA), to_json(table))
    yield from line_differences(CSV, (folder / CSV).read_text("utf-8"), generation_csv(table))
    figure, drawn = generations_data(table), (folder / CHART).read_bytes()
    if has_matplotlib():
        yield from other_drawing(CHART, drawn, draw(figure, kind="svg"), is_exact=False)
    else:
        yield from other_title(CHART, drawn, figure)


def _data(there: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Yield which generations are missing or too many; with all of them, every other value."""
    old, new = ([row["name"] for row in one["rows"]] for one in (there, again))
    yield from (f"{DATA}: generation {name} is missing" for name in new if name not in old)
    yield from (f"{DATA}: {name} is no generation of it" for name in old if name not in new)
    if old == new:
        yield from leaf_differences(DATA, there, again)


def _generation(one: Generation) -> Iterator[str]:
    """Yield where the records of a generation's trial contradict each other or its row."""
    spec, result, origin = one.trial.read_spec(), one.trial.read_done(), read_origin(one.trial)
    start = origin.weights_sha256 if origin is not None else ""
    digest = config_hash(spec.config, start=start)
    is_older = is_of_version_1(spec.config, spec.config_hash, start=start)
    if digest != spec.config_hash and not is_older:
        yield f"its config has the identity {digest[:10]}, not {spec.config_hash[:10]}"
    if result is None:
        yield "it has no result"
        return
    told = {"best_step": one.row.best_step, "core_metric": one.row.core_metric}
    ended = {"best_step": result.best_step, "core_metric": finite(result.heldout_metric)}
    for name, value in told.items():
        if value != ended[name]:
            yield f"results.tsv: {one.row.exp_id}, {name}: {value}, its result has {ended[name]}"
    yield from _gates(one, result)


def _gates(one: Generation, result: TrialResult) -> Iterator[str]:
    """Yield where the outcomes of the gates of a chart are not what training recorded of them."""
    if result.metrics_sha256 and metrics_digest(one.trial.metrics) != result.metrics_sha256:
        yield "metrics.jsonl is not the file of metrics_sha256 in DONE"
    name = one.row.metric_name
    told = {row["step"]: row[name] for row in read_metrics(one.trial.metrics).rows if name in row}
    for step in dict.fromkeys((0, one.step)):
        outcomes = outcomes_at(one.trial, step, name)
        values = [value for value in outcomes.values if value is not None] if outcomes else []
        if not values or not isinstance(told.get(step), int | float):
            continue
        if not is_same_mean(told[step], fmean(values)):
            yield (
                f"heldout.jsonl: step {step}, {name}: {fmean(values):.4g}, metrics.jsonl has "
                f"{told[step]:.4g}"
            )

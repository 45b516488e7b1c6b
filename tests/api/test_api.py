"""`rltune.load_sweep` and the rest of the public interface, on a hand-made run folder."""

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, astuple
from pathlib import Path

import numpy as np
import pytest
from run_folders import CONTROL, TREATED, finished_sweep

import rltune
from rltune import Sweep, frame, load_sweep, read_table
from rltune.analysis.tables import TABLES
from rltune.report.export import write_tables
from rltune.store.run_folder import read_folder, read_records

DOCS = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture
def run(tmp_path):
    return finished_sweep(tmp_path).run.path


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep that no test changes."""
    return load_sweep(finished_sweep(tmp_path_factory.mktemp("sweep")).run.path)


def test_importing_rltune_is_cheap_and_using_it_needs_no_torch():
    code = (
        "import sys, rltune\n"
        "cheap = {'numpy', 'pydantic', 'yaml', 'scipy', 'pandas'} & set(sys.modules)\n"
        "assert not any(n.startswith('rltune.') for n in sys.modules) and not cheap, cheap\n"
        "rltune.load_sweep, rltune.frame\n"
        "print(sorted({'torch', 'ray', 'transformers', 'pandas', 'wandb'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_one_list_everywhere():
    from rltune import api

    assert rltune.__all__ == api.__all__ == sorted(api.__all__, key=lambda n: (n.islower(), n))
    assert set(rltune.__all__) <= set(dir(rltune))
    with pytest.raises(AttributeError, match=r"^module 'rltune' has no attribute 'load_sweeps'$"):
        rltune.load_sweeps  # noqa: B018


def test_every_public_name_and_method_is_on_its_page():
    page = DOCS.read_text(encoding="utf-8")
    methods = [name for name in vars(Sweep) if not name.startswith("_")]
    assert len(methods) > 10
    missing = [
        name for name in (*rltune.__all__, *methods) if not re.search(rf"`[^`]*\b{name}\b", page)
    ]
    assert not missing


def test_what_a_sweep_says_of_itself(sweep):
    run = sweep.path
    assert repr(sweep) == f"<Sweep {run}: 6 of 6 trials finished, ok>"
    assert (sweep.path, sweep.name, sweep.metric) == (run, "kl", "heldout/success_rate")
    assert sweep.conditions == (CONTROL, TREATED)
    assert (sweep.mark, sweep.problems, sweep.audit().ok) == ("ok", (), True)
    assert not (run / "audit.json").exists()  # reading writes nothing


def test_the_rows_are_those_that_export_writes(sweep, tmp_path):
    folder = read_folder(sweep._folder.run)
    read = read_records(folder)
    write_tables(folder, read, sweep.audit(), tmp_path)
    for name in TABLES:
        assert getattr(sweep, name)() == read_table(tmp_path / f"{name}.csv"), name
        assert getattr(sweep, name)() == read_table(tmp_path / f"{name}.parquet"), name
    with pytest.raises(FrozenInstanceError):
        sweep.trials()[0].seed = 7


def test_summary_has_the_means_over_seeds(sweep):
    (final,) = (
        row
        for row in sweep.summary()
        if (row.condition, row.at, row.method) == (TREATED, "final", "t")
    )
    # (2 + 3 + 3) / 30 of ten tasks; against (6 + 7 + 8) / 30
    assert final.value == pytest.approx(8 / 30)
    assert final.delta_vs_control == pytest.approx(-13 / 30)


def test_history_of_some_metrics(sweep):
    rows = sweep.history("timing_s/collect", "heldout/success_rate")
    # 6 trials x (20 steps + 3 gates)
    assert len(rows) == 6 * 23
    assert {row.metric for row in rows} == {"timing_s/collect", "heldout/success_rate"}


def test_bands_are_means_over_seeds_with_t_intervals(sweep):
    bands = sweep.bands()
    assert [(band.condition, band.step) for band in bands] == [
        (name, step) for name in (CONTROL, TREATED) for step in (0, 10, 20)
    ]
    last = bands[2]
    # 0.6 0.7 0.8: s = 0.1, 0.7 +- 4.302653 x 0.1 / sqrt(3)
    assert (last.n_seeds, last.mean) == (3, pytest.approx(0.7))
    assert (last.low, last.high) == pytest.approx((0.451586, 0.948414), abs=1e-6)
    # no seed differs at step 0: one task of ten is the least spread; 0.4 +- the same
    assert bands[0].low == pytest.approx(0.151586, abs=1e-6)
    assert sweep.bands("budget/rollouts")[-1].mean == 160.0  # 8 a step, 20 steps


def test_a_figure_is_data_and_every_point_names_its_trial(sweep):
    figure = sweep.figure("learning_curves")
    (panel,) = figure.panels
    assert [series.condition for series in panel.series] == [CONTROL, TREATED]
    last = panel.series[1].means[-1]
    assert (last.step, last.n_seeds, last.value) == (20, 3, pytest.approx(8 / 30))
    ids = {seed.trial_id for series in panel.series for seed in series.seeds}
    assert ids == {row.trial_id for row in sweep.trials()}
    assert all(sweep.trial_path(trial_id).is_dir() for trial_id in ids)
    iqm = sweep.figure("comparison", estimator="iqm")
    assert (iqm.estimator, iqm.rows[0].delta) == ("iqm", pytest.approx(-13 / 30))


HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        pytest.param(kind, head, id=kind, marks=() if kind == "png" else pytest.mark.slow)
        for kind, head in HEADS.items()
    ],
)
def test_a_figure_is_drawn(sweep, kind, head):
    drawn = rltune.draw(sweep.figure("heatmap"), kind)
    assert drawn.startswith(head)
    assert len(drawn) > 5000


def test_compare_conditions_and_trials(sweep):
    found = sweep.compare("0.1", "0.0")
    assert (found.unit, found.n, found.verdict) == ("paired seeds", 3, "below")
    assert found.difference == pytest.approx(-13 / 30)
    assert sweep.compare("0.1@0", "0.0@0").unit == "tasks"


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.1, 0.0), (0.10, 0), ("0.10", "0"), (np.float64(0.1), np.int64(0)), ("1e-1", -0.0)],
)
def test_conditions_are_named_by_their_values(sweep, a, b):
    assert sweep.compare(a, b) == sweep.compare(TREATED, CONTROL)


@pytest.mark.parametrize("value", [True, False, None, 0.3, "true", [0.1], {"a": 1}])
def test_a_value_of_another_kind_names_nothing(sweep, value):
    with pytest.raises(rltune.RltuneError, match=r"is not a trial here\. Choose one of kl"):
        sweep.compare(value, 0.1)


def test_from_a_point_back_to_its_trial(sweep):
    row = next(row for row in sweep.trials() if (row.condition, row.seed) == (TREATED, 2))
    folder = sweep.trial_path("0.1@2")
    assert folder == sweep.path / "trials" / row.trial_id
    assert sweep.trial_path(row.trial_id) == folder
    assert sweep.trial_path("1e-1@2") == sweep.trial_path("loss.kl_loss_coef=.10@02") == folder
    assert (folder / "metrics.jsonl").is_file()


def test_the_newest_run_folder_is_the_default(run, monkeypatch):
    assert load_sweep(runs_dir=run.parent).path == run
    monkeypatch.setenv("RLTUNE_RUNS_DIR", str(run.parent))
    assert load_sweep().path == run


def test_an_unreadable_line_is_said_and_kept(run):
    metrics = load_sweep(run).trial_path("0.1@2") / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"step"', '"step', 1))
    with pytest.warns(UserWarning, match=r": lines that could not be read: 1; see \.problems$"):
        again = load_sweep(run)
    assert len(again.problems) == 1
    assert str(metrics) in again.problems[0]


NO_TABLE = "Tables are trials, history, evals, gates, summary, benchmarks, as .csv or .parquet."
ERRORS = [
    (lambda s: load_sweep(s.path / "trials"), "this is not a run folder; it has no sweep.yaml."),
    (lambda s: load_sweep("nowhere"), "nowhere: there is no such folder. Run folders are "),
    (
        lambda s: s.compare("0.1", "0.3"),
        "'0.3' is not a trial here. Choose one of kl_loss_coef=0.0, kl_loss_coef=0.1, or a trial",
    ),
    (lambda s: s.compare("0.1", "0.1"), "a condition cannot be compared with itself. Name two "),
    (lambda s: s.history("loss"), "no trial logged 'loss'. Logged are budget/critic_updates, "),
    (lambda s: s.bands("loss", "kl"), "no trial logged 'loss', 'kl'. Logged are budget/"),
    (lambda s: s.figure("pie"), "figure: 'pie' is not a known figure. Choose one of learning_"),
    (
        lambda s: s.figure("budget", estimator="best"),
        "estimator: 'best' is not a known estimator. Choose",
    ),
    (lambda s: s.figure("dynamics"), "no figure 'dynamics': no trial measured collapse; run with "),
    (
        lambda s: rltune.draw(s.figure("budget"), "gif"),
        "kind: 'gif' is not a known kind. Choose one of ",
    ),
    (lambda s: s.trial_path("0.1"), "'0.1' is not a trial here. Choose one of "),
    (
        lambda s: read_table(s.path / "plan.json"),
        f"plan.json: is not an exported table. {NO_TABLE}",
    ),
    (lambda s: read_table("no/evals.csv"), "evals.csv: there is no such file. Run `rltune export"),
    (lambda s: frame([]), "frame: got no rows. It takes the rows of one table, at least one."),
    (lambda s: frame([*s.trials(), *s.gates()]), "frame: got GateRow, TrialRow. It takes"),
]


@pytest.mark.parametrize(("call", "said"), ERRORS, ids=[said[:20] for _, said in ERRORS])
def test_errors_are_one_sentence_with_the_next_action(sweep, call, said):
    with pytest.raises(rltune.RltuneError, match=re.escape(said)) as caught:
        call(sweep)
    assert "\n" not in str(caught.value)


def test_a_frame_has_a_column_a_field_and_keeps_every_value(sweep):
    table = frame(sweep.trials())
    kinds = {"seed": "Int64", "final": "float64", "is_control": "boolean", "condition": "str"}
    assert len(table) == 6
    assert {name: str(table[name].dtype) for name in kinds} == kinds
    assert table[table.is_control].sort_values("seed").final.tolist() == [0.6, 0.7, 0.8]
    assert list(table.columns)[-1] == "mark"
    assert frame(sweep.summary())["delta_vs_control"].isna().any()  # the control has none
    assert frame(sweep.bands()).shape == (6, len(astuple(sweep.bands()[0])))

"""What a sweep file says of itself reaches the lineage, and rows chain over sweeps."""

from dataclasses import dataclass

import pytest

from rltune.errors import SpecError
from rltune.lineage.across import chain_across, parent_row
from rltune.lineage.query import best
from rltune.lineage.record import Proposal
from rltune.runner.recorder import open_recorder
from rltune.spec.load import load_sweep
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

METRIC = ("heldout/em", "max")


@dataclass(frozen=True)
class Night:
    """One sweep of the replay: its control departs from `parent`."""

    name: str
    proposal: Proposal
    control: tuple[str, float]
    tried: tuple[tuple[str, float | None], ...]


def spec_of(night: Night, name: str) -> TrialSpec:
    return TrialSpec(
        trial_id=name,
        config_hash=name,
        sweep=night.name,
        axis_key="k",
        axis_value=name,
        condition=name,
        is_control=name == night.control[0],
        seed=0,
        expected_delta="",
        config={"policy": {"model": "tiny", "lora": {"rank": 0}}, "env": {"kind": "multihop_qa"}},
    )


def end(run: RunDir, spec: TrialSpec, metric: float | None) -> None:
    trial = run.trial(spec.trial_id).create()
    trial.write_spec(spec)
    write_json_atomic(trial.provenance, {"attempt": 1})
    if metric is None:
        trial.write_failed(TrialFailure(RowStatus.EVAL_BUDGET_OVERRUN, "too long", "", 2, 1))
        return
    numbers = {"base_metric": 0.1, "final_metric": metric, "pool_metric": 0.2}
    done = {"status": TrialStatus.DONE, "reason": "", "final_step": 2, "best_step": 2}
    times = {"metrics_sha256": "0" * 64, "train_s": 1.0, "total_s": 2.0}
    trial.write_done(
        TrialResult(trial_id=spec.trial_id, heldout_metric=metric, **numbers, **done, **times)
    )


NIGHTS = [  # the seed's trials 000 to 005; what a night departs from is trained again as control
    Night("n0", Proposal("a start", "seed", ""), ("000", 33.21), (("001", 34.02),)),
    Night(
        "n1",
        Proposal("clip whole turns", "clipper", "n0/001"),
        ("001", 34.02),
        (("002", 33.74), ("003", 34.51)),
    ),
    Night("n2", Proposal("a wider clip", "clipper", "n1/003"), ("003", 34.51), (("004", 34.96),)),
    Night("n3", Proposal("wider still", "clipper", "n2/004"), ("004", 34.96), (("005", None),)),
]


@pytest.fixture
def runs(tmp_path):
    """The nights of the A2TGPO seed, each a run folder of its own."""
    for night in NIGHTS:
        run = RunDir(tmp_path / night.name).create()
        specs = [spec_of(night, name) for name, _ in (night.control, *night.tried)]
        for spec, (_, metric) in zip(specs, (night.control, *night.tried), strict=True):
            end(run, spec, metric)
        recorder = open_recorder(
            run,
            launch="launch-0001",
            metric=METRIC,
            commit="c",
            disqualified="",
            shared=tmp_path / "nights.tsv",
            proposal=night.proposal,
        )
        recorder.reconcile_all(specs)
        recorder.close(specs)
    return tmp_path


def test_the_chain_of_the_seed_goes_from_the_root_to_the_best(runs):
    run = RunDir(runs / "n2")
    store = open_recorder(run, launch="x", metric=METRIC, commit="", disqualified="").lineage
    found = chain_across(store, best(store.read().rows, "max").row.exp_id)
    assert [row.exp_id for row in found.rows] == [
        *("n0/000", "n0/001", "n1/001", "n1/003", "003", "004")
    ]
    conditions = [row.condition for row in found.rows]
    assert list(dict.fromkeys(conditions)) == ["000", "001", "003", "004"]
    assert (found.skipped, found.missing, found.cycle) == ((), "", ())


def test_the_command_shows_it_from_a_table_that_the_nights_share(runs, capsys):
    from rltune.cli.entry import run

    assert run(["lineage", "chain", str(runs / "nights.tsv")]) == 0
    out = capsys.readouterr().out
    places = [out.index(name) for name in ("n0/000", "n0/001", "n1/003", "n2/004")]
    assert places == sorted(places)
    assert "n1/002" not in out


def test_a_row_says_who_expects_what(runs):
    store = open_recorder(
        RunDir(runs / "n1"), launch="x", metric=METRIC, commit="", disqualified=""
    ).lineage
    rows = {row.exp_id: row for row in store.read().rows}
    assert rows["002"].hypothesis == "002, seed 0: clip whole turns"
    assert {row.specialist for row in rows.values()} == {"clipper"}
    assert {name: row.parent_exp for name, row in rows.items()} == {
        "001": "n0/001",
        "002": "001",
        "003": "001",
    }
    assert rows["002"].status is RowStatus.DISCARD


def test_a_parent_may_be_a_condition_and_means_the_row_of_the_seed(tmp_path):
    from rltune.lineage.row import LineageRow
    from rltune.lineage.table import LineageStore

    store = LineageStore(tmp_path / "kl-1" / "results.tsv", "m", "max")
    given = {"status": RowStatus.KEEP, "metric_name": "m", "metric_mode": "max"}
    for seed in (0, 1):
        store.append_many(
            [LineageRow(exp_id=f"kl-s{seed}", condition="kl=0.1", seed=seed, **given)]
        )
    assert parent_row(tmp_path, "kl-1/kl=0.1", 1) == "kl-1/kl-s1"
    assert parent_row(tmp_path, "kl-1/kl=0.1", 7) == "kl-1/kl-s0"
    assert parent_row(tmp_path, "kl-1/kl-s1", 0) == "kl-1/kl-s1"
    assert parent_row(tmp_path, "kl-1/kl=0.2", 0) == "kl-1/kl=0.2"
    assert parent_row(tmp_path, "gone/x", 0) == "gone/x"


def test_what_a_file_says_of_itself_moves_no_identity(small, write_sweep):
    text = small.text + "hypothesis: It learns.\nspecialist: me\nparent: kl-1/kl=0.1\n"
    path = small.path.with_name("said.yaml")
    path.write_text(text)
    said = load_sweep(path)
    assert (said.spec.hypothesis, said.spec.specialist) == ("It learns.", "me")
    assert said.run_name == small.run_name
    for wrong in ("parent: no-row", "parent: a/b/c", 'hypothesis: "a\\tb"', 'specialist: ""'):
        path.write_text(small.text + wrong + "\n")
        with pytest.raises(SpecError, match=wrong.partition(":")[0]):
            load_sweep(path)

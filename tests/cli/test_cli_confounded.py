"""A sweep whose only fault is S9 is confounded for the command line and for the runner alike."""

from dataclasses import replace

import pytest
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, write_sweep

from rltune.comparability.check import check_sweep
from rltune.errors import ConfoundedError
from rltune.lineage.table import LineageStore
from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.spec.load import load_sweep
from rltune.store.files import read_json
from rltune.types import RowStatus

UNFREE = SWEEP.replace("hold:\n", "hold:\n  env.train_tasks: 16\n").replace(
    "key: loss.kl_loss_coef", "key: optim.lr"
)
S9 = UNFREE[: UNFREE.index("  coupled:")] + UNFREE[UNFREE.index("seeds:") :]
S9 = S9.replace("[0.0, 0.1]", "[1e-4, 2e-4]").replace("control: 0.0", "control: 1e-4")
S9 = S9.replace("  loss.kl_type: k2\n", "  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0\n")
WHAT = "sweeps/kl.yaml moves optim.lr, which protocol figure3 does not free."


class EnoughError(Exception):
    """Raised before anything starts: the folder and the records of earlier trials are written."""


def enough(*_):
    raise EnoughError


def request(tmp_path, allow):
    return SweepRequest(
        load_sweep(tmp_path / "sweeps" / "kl.yaml"), tmp_path / "runs", None, None, allow, ("x",)
    )


def test_s9_is_the_only_fault(tmp_path):
    report = check_sweep(load_sweep(write_sweep(tmp_path, S9)))
    assert [finding.rule for finding in report.errors] == ["S9"]


def test_the_runner_refuses_it(tmp_path):
    write_sweep(tmp_path, S9)
    with pytest.raises(ConfoundedError, match=r"kl\.yaml: S9: .* moves optim\.lr"):
        run_sweep(request(tmp_path, None), on_start=enough, on_tick=enough)
    assert not (tmp_path / "runs").exists()


def test_the_runner_refuses_a_proof_that_was_made_before(tmp_path):
    """Its rows would count: only a reason disqualifies them."""
    write_sweep(tmp_path, S9)
    asked = request(tmp_path, None)
    proved = replace(asked, proof=check_sweep(asked.loaded))
    with pytest.raises(ConfoundedError, match=r"kl\.yaml: S9: .* moves optim\.lr"):
        run_sweep(proved, on_start=enough, on_tick=enough)
    assert not (tmp_path / "runs").exists()


def test_the_command_line_refuses_it(rltune, tmp_path):
    write_sweep(tmp_path, S9)
    assert rltune("check", "sweeps/kl.yaml").code == 2
    refused = rltune("sweep", "sweeps/kl.yaml")
    assert refused.code == 2
    assert refused.err.startswith(f"error: sweeps/kl.yaml: S9: {WHAT}")
    assert refused.out.count("S9 error") == 1


def test_rows_of_a_run_that_was_allowed_are_disqualified(tmp_path):
    writer = FolderWriter(tmp_path, S9)
    for label in ("lr=0.0001", "lr=0.0002"):
        writer.finish(writer.spec(label, 0), {0: 4, 10: 5, 20: 6})
    writer.run.plan.unlink()  # made by hand, without tasks; the runner writes its own
    writer.run.tasks().unlink()
    with pytest.raises(EnoughError):
        run_sweep(request(tmp_path, "to see it"), on_start=enough, on_tick=enough)
    proof = read_json(writer.run.comparability)
    assert (proof["ok"], proof["allow_confounded"]) == (False, "to see it")
    assert [item["rule"] for item in proof["errors"]] == ["S9"]
    rows = LineageStore.open(writer.run.results).read().rows
    assert [row.status for row in rows] == [RowStatus.DISQUALIFIED] * 2


def test_rows_of_a_proven_sweep_count(tmp_path):
    """The same steps with a free axis: what disqualifies is the proof, not the way here."""
    writer = FolderWriter(tmp_path, SWEEP.replace("hold:\n", "hold:\n  env.train_tasks: 16\n"))
    for label in (CONTROL, TREATED):
        writer.finish(writer.spec(label, 0), {0: 4, 10: 5, 20: 6})
    writer.run.plan.unlink()
    writer.run.tasks().unlink()
    with pytest.raises(EnoughError):
        run_sweep(request(tmp_path, "not needed"), on_start=enough, on_tick=enough)
    assert read_json(writer.run.comparability)["allow_confounded"] is None
    rows = LineageStore.open(writer.run.results).read().rows
    assert [row.status for row in rows] == [RowStatus.BASELINE, RowStatus.DISCARD]

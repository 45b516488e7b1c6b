"""The one proof: keys and gradients; and a probe that ends without a verdict."""

from pathlib import Path

import pytest

from rltune.errors import ConfoundedError
from rltune.runner import proof
from rltune.runner.proof import prove, require_proven
from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.spec.load import load_sweep

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = (ROOT / "sweeps" / "advantage_estimators.yaml").read_text(encoding="utf-8")
BEFORE = "    rloo: {kind: rloo}\n"
TWICE = BEFORE + (
    "    centred: {kind: grpo_center}\n    unnormalised: {kind: grpo, normalize_std: false}\n"
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write an edited sweep of the estimators and load it."""
    monkeypatch.chdir(tmp_path)

    def call(text=TWICE, *, accept=""):
        assert BEFORE in SHIPPED
        path = tmp_path / "estimators.yaml"
        path.write_text(SHIPPED.replace(BEFORE, text) + accept, encoding="utf-8")
        return load_sweep(path)

    return call


@pytest.fixture
def probe_is(tmp_path, monkeypatch):
    """Put a module in the probe's place."""

    def call(text):
        (tmp_path / "stand_in_probe.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(proof, "PROBE", "stand_in_probe")

    return call


def codes(report):
    return [item.code for item in (*report.errors, *report.warnings)]


@pytest.mark.slow
def test_two_names_of_one_run_are_refused_and_a_factor_is_told(write, tmp_path):
    report = prove(write(accept="\naccept: {S6.proportional: to show it}\n"), tmp_path)
    assert [item.code for item in report.errors] == ["S6"]
    assert "'advantage=centred' and 'advantage=unnormalised' are the same run" in str(
        report.errors[0]
    )
    factors = [item for item in report.warnings if item.code == "S6.proportional"]
    assert [item.accepted_reason for item in factors] == ["to show it"] * 2
    assert all("is 0.75 times that of 'advantage=rloo'" in item.message for item in factors)


def test_a_probe_that_crashes_is_an_error_with_its_last_words(write, probe_is, tmp_path):
    probe_is("raise RuntimeError('no memory left')")
    report = prove(write(BEFORE), tmp_path)
    (error,) = report.errors
    assert error.code == "S6"
    assert "ended without a verdict: RuntimeError: no memory left." in error.message


def test_a_probe_that_is_killed_says_its_code(write, probe_is, tmp_path):
    probe_is("import os; os._exit(9)")
    (error,) = prove(write(BEFORE), tmp_path).errors
    assert "its process ended with code 9." in error.message


def test_a_probe_that_never_ends_is_ended(write, probe_is, tmp_path, monkeypatch):
    probe_is("import threading; threading.Event().wait()")
    monkeypatch.setattr(proof, "HANGS_AFTER_S", 0.1)
    (error,) = prove(write(BEFORE), tmp_path).errors
    assert "it did not end within 0.1 s." in error.message


def test_no_process_starts_where_keys_tell_all(probe_is, tmp_path):
    probe_is("raise RuntimeError('nobody asked')")
    assert prove(load_sweep(ROOT / "sweeps" / "kl.yaml"), tmp_path).ok


def test_the_runner_refuses_what_the_proof_refuses(write, probe_is, tmp_path):
    probe_is("raise RuntimeError('no memory left')")
    loaded = write(BEFORE)
    request = SweepRequest(loaded, tmp_path / "runs", None, None, None, ("x",))
    with pytest.raises(ConfoundedError, match=r"estimators\.yaml: S6: .*no memory left"):
        run_sweep(request, on_start=lambda *_: None, on_tick=lambda: None)
    assert not (tmp_path / "runs").exists()


def test_a_reason_lets_it_pass(write, probe_is, tmp_path):
    probe_is("raise RuntimeError('no memory left')")
    loaded = write(BEFORE)
    shown = []
    report = require_proven(loaded, tmp_path, allow_confounded="to see it", show=shown.append)
    assert shown == [report]
    with pytest.raises(ConfoundedError):
        require_proven(loaded, tmp_path, allow_confounded="  ", show=shown.append)
    assert len(shown) == 2

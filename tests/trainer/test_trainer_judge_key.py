"""Whether a sweep needs the judge's key before it starts."""

from pathlib import Path

import pytest

from rltune.errors import SpecError
from rltune.spec.load import load_sweep
from rltune.trainer.preflight.references import require_judge

SHIPPED = Path(__file__).parents[2] / "sweeps" / "adca_alpha.yaml"


AXIS = "  key: attribution.alpha\n  values: [0.0, 0.05, 0.1, 0.2, 0.5, 1.0]\n  control: 0.0"
OTHER = "  key: attribution.fusion\n  values: [last_step, all_steps]\n  control: last_step"


def sweep_of(tmp_path, alpha):
    """Write the shipped sweep with the judge llm, over the fusion at one alpha."""
    text = SHIPPED.read_text(encoding="utf-8")
    assert AXIS in text
    before, _, after = text.partition("  expect:")  # of the values of alpha
    text = before + "\nseeds:" + after.partition("\nseeds:")[2]
    held = f"judge: llm\n  attribution.alpha: {alpha}"
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "configs").symlink_to(SHIPPED.parents[1] / "configs")
    path = tmp_path / "sweeps" / "a.yaml"
    path.write_text(text.replace(AXIS, OTHER).replace("judge: solver", held), encoding="utf-8")
    return load_sweep(path)


def test_the_key_is_wanted_where_a_verdict_has_weight_only(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in "ab":
        (tmp_path / name).mkdir()
    require_judge(sweep_of(tmp_path / "a", 0.0))
    with pytest.raises(SpecError, match="'OPENAI_API_KEY' is not set"):
        require_judge(sweep_of(tmp_path / "b", 0.1))

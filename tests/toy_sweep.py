"""A toy sweep file, edited by each test and loaded from an empty folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rltune.errors import SpecError
from rltune.spec.load import LoadedSweep, load_sweep

SWEEP = """\
name: toy
title: A toy sweep
question: Does the knob matter?
base: sokoban
hold:
  loss.kl_type: k2
  loss.entropy_coeff: 0.0
  rollout_filter:
    strategy: top_p
    value: 1.0
    include_zero: true
  loss.kl_target: null
  attribution.kind: none
  advantage.shaping: {gtpo_beta: 0.0, hicra_alpha: 0.0}
  rollout_correction.kind: none
axis:
  key: loss.kl_loss_coef
  values: [0.0, 0.01, 0.1]
  control: 0.0
  coupled:
    - key: loss.use_kl_loss
      rule: "value > 0"
      why: one switch
seeds: [0, 1, 2]
metric: {name: heldout/success_rate, mode: max}
profiles: {default: laptop, allowed: [laptop, paper]}
"""

Load = Callable[..., LoadedSweep]


def edit(*changes: tuple[str, str]) -> str:
    """Return the toy sweep with each (old, new) applied; an old text that is absent fails."""
    text = SWEEP
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write a sweep text to `toy.yaml` in an empty working directory and load it from there."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(*changes: tuple[str, str], **options) -> LoadedSweep:
        Path("toy.yaml").write_text(edit(*changes), encoding="utf-8")
        return load_sweep(Path("toy.yaml"), **options)

    return write_and_load


@pytest.fixture
def problems(load: Load) -> Callable[..., list[str]]:
    """Load a sweep text that must be refused and return the message lines."""

    def refuse(*changes: tuple[str, str], **options) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load(*changes, **options)
        assert len(caught.value.problems) == len(str(caught.value).splitlines())
        return str(caught.value).splitlines()

    return refuse

"""Every shipped sweep passes S6 by gradients, in every profile, or accepts a finding by name."""

from pathlib import Path

import pytest

from rltune.comparability.distinct import moves_selection, pairs_to_probe
from rltune.comparability.findings import accept
from rltune.comparability.functional import likeness_findings
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.probe.run import probe

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted((ROOT / "sweeps").rglob("*.yaml"))
PROBED = {
    "a2tgpo_alpha", "a2tgpo_modes", "adca_alpha", "adca_scheme", "advantage_estimators",
    "filter_on_drop", "frozenlake_rv_filter_high_noise", "frozenlake_rv_filter_low_noise",
    "kl_estimator",
    "math_ladder", "rv_filter", "rv_filter_mode", "sepa_schedule", "smollm2", "textpolicy_pipeline",
}  # fmt: skip
"""Sweeps whose keys do not tell all conditions apart."""
WARNED = {("filter_on_drop", "paper"): ["S6.same_groups"]}  # one update takes its whole batch


def test_the_shipped_sweeps_are_all_here():
    assert len(SWEEPS) == 25
    names = {path.stem for path in SWEEPS}
    assert names >= PROBED


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_no_two_conditions_are_one_run(path):
    for profile in load_sweep(path).spec.profiles.allowed:
        loaded = load_sweep(path, profile=profile)
        plain = {condition.label: condition.config for condition in loaded.conditions}
        pairs = pairs_to_probe(plain)
        assert bool(pairs) == (path.stem in PROBED)
        if not pairs:
            continue
        names = {label for pair in pairs for label in pair}
        configs = {label: TrialConfig.model_validate(plain[label]) for label in sorted(names)}
        selections = [(a, b) for a, b in pairs if moves_selection(plain[a], plain[b])]
        found, failed = probe(configs, pairs, selections)
        assert failed == {}
        assert len(found) == len(pairs)
        findings = accept(likeness_findings(found), loaded.spec.accept)
        said = [str(item) for item in findings if not item.accepted_reason]
        assert [text.split()[0] for text in said] == WARNED.get((path.stem, profile), []), said

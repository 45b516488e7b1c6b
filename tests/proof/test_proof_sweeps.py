"""Every planted fault of a sweep file is found by its rule; its near miss passes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_mutations import SWEEP_MUTATIONS, SweepMutation

from rltune.comparability.check import check_sweep
from rltune.comparability.findings import Finding
from rltune.comparability.protocol import check_protocol
from rltune.errors import SpecError
from rltune.runner.proof import prove
from rltune.spec.load import LoadedSweep, load_sweep

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"


def edited(mutation: SweepMutation, folder: Path) -> Path:
    """Write the edited sweep file; an edit whose text is not in the file fails."""
    text = (SWEEPS / f"{mutation.sweep}.yaml").read_text(encoding="utf-8")
    for old, new in mutation.edits:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {mutation.sweep}"
        text = text.replace(old, new)
    path = folder / f"{mutation.sweep}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def findings(mutation: SweepMutation, loaded: LoadedSweep) -> Iterator[Finding]:
    report = prove(loaded, SWEEPS.parent) if mutation.is_deep else check_sweep(loaded)
    yield from (*report.errors, *report.warnings)
    if mutation.beside is not None:
        yield from check_protocol([loaded, load_sweep(SWEEPS / f"{mutation.beside}.yaml")])


@pytest.mark.usefixtures("probe_here")
@pytest.mark.parametrize("mutation", SWEEP_MUTATIONS, ids=lambda m: f"{m.code}: {m.what}")
def test_rule(mutation: SweepMutation, tmp_path: Path) -> None:
    path = edited(mutation, tmp_path)
    if mutation.refused:
        with pytest.raises(SpecError, match=mutation.refused):
            load_sweep(path)
        return
    found = list(findings(mutation, load_sweep(path)))
    codes = {finding.code for finding in found}
    if mutation.is_fault:
        assert mutation.code in codes, [str(finding) for finding in found]
    else:
        assert mutation.code not in codes, [str(finding) for finding in found]
        assert not [str(f) for f in found if f.severity == "error"]


@pytest.mark.parametrize("rule", [f"S{number}" for number in range(1, 10)])
def test_each_rule_has_two_faults_and_a_near_miss(rule: str) -> None:
    own = [mutation.is_fault for mutation in SWEEP_MUTATIONS if mutation.rule == rule]
    assert own.count(True) >= 2
    assert own.count(False) >= 1

import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "wandb", "transformers", "numpy", "pydantic")
MODULES = [
    "rltune.gate",
    "rltune.store.digest",
    "rltune.store.ledger",
    "rltune.lineage.query",
    "rltune.store.lock",
    "rltune.store.rundir",
    "rltune.track.make",
]


@pytest.mark.parametrize("module", MODULES)
def test_records_and_gate_import_nothing_heavy(module):
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"

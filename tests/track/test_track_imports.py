import subprocess
import sys

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


def test_records_and_gate_import_nothing_heavy():
    """One process imports them one after the other: the first that is not empty is the one."""
    code = (
        "import importlib, sys\n"
        f"for module in {MODULES!r}:\n"
        "    importlib.import_module(module)\n"
        f"    print(module, [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{module} []" for module in MODULES]

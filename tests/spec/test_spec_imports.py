import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_checking_a_sweep_imports_neither_torch_nor_ray():
    code = (
        "import sys\n"
        "from rltune.spec.load import load_sweep\n"
        "from rltune.comparability.check import check_sweep\n"
        "import rltune.comparability.audit, rltune.spec.expand, rltune.comparability.protocol\n"
        f"check_sweep(load_sweep({str(ROOT / 'sweeps' / 'kl.yaml')!r}))\n"
        "heavy = {'torch', 'ray', 'transformers', 'numpy', 'wandb', 'rich', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"

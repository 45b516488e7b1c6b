"""`benchmarks/gpu.py` on a CPU with the tiny model: it must be ready when a GPU is."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.mark.slow
def test_the_benchmark_of_a_step_runs(monkeypatch, tmp_path, capsys):
    sizes = "--model tiny --rows 4 --turns 2 --prompt 12 --between 4 --response 4 --steps 1"
    out = tmp_path / "gpu.json"
    words = [*sizes.split(), "--dtype", "float32", "--engines", "torch,growing", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    report = json.loads(out.read_text())
    for found in report["engines"].values():
        parts = found["part_s"]
        assert list(parts) == ["collect", "score", "update", "sync", "eval"]
        assert all(seconds > 0 for seconds in parts.values())
        assert found["step_s"] == pytest.approx(sum(parts.values()) - parts["eval"])
        assert found["parameters"] > 800_000
        assert found["decode_share"] > 0
        assert found["train_share"] > 0
        assert found["logprob_gap_max"] < 1e-4
        share = parts["sync"] / found["step_s"]
        assert found["sync_share"] == pytest.approx(share)
        assert found["targets"] == {"sync under 2% of the step": share < 0.02}
        assert found["memory_gib"]["perf/max_rss_gb"] > 0.1
    assert "s a step, sync " in capsys.readouterr().out


@pytest.fixture
def sheet_of():
    return runpy.run_path(str(SCRIPT.with_name("gpu_sheets.py")))["sheet_of"]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_a_gpu_is_known_by_the_name_that_torch_gives(sheet_of, device, name):
    assert sheet_of(device).known_as == name


@pytest.mark.parametrize("device", ["cpu", "NVIDIA L40", "NVIDIA A10G", "AMD Instinct MI300X"])
def test_a_gpu_with_a_similar_name_has_no_data_sheet(sheet_of, device):
    assert sheet_of(device) is None

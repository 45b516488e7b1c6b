"""`benchmarks/gpu.py` on a CPU with the tiny model: it must be ready when a GPU is."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


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

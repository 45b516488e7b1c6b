"""Which GPU an engine in a process of its own gets. What a machine has is said, not asked."""

import pytest
import torch

from rltune.errors import ResourceError
from rltune.trainer.engines import engine_gpu


@pytest.mark.parametrize(
    ("visible", "gpus", "own"), [("3,5", 1, "5"), ("GPU-a,GPU-b,GPU-c", 1, "GPU-b"), ("7", 0, "")]
)
def test_it_is_the_first_that_is_not_the_trainers(monkeypatch, visible, gpus, own):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert engine_gpu(float(gpus)) == own


def test_without_a_list_all_of_the_machine_are_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert engine_gpu(1.0) == "1"


def test_one_gpu_is_too_few(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(
        ResourceError, match=r"'own' needs 2 GPUs, and this process sees 1\. Set it"
    ):
        engine_gpu(1.0)

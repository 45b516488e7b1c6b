"""The files of checkpoints, byte for byte those of safetensors itself."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from rltune.trainer.ranks.group import ALONE, Group
from rltune.trainer.ranks.tensor_file import write_tensors


class Second(Group):
    """A rank that takes part in what the first one writes."""

    rank, size = 1, 2

    def __init__(self):
        self.asked = []

    def whole(self, tensor):
        self.asked.append(tuple(tensor.shape))
        return tensor


NAMED = {"10.exp_avg": (2, 3), "2.step": (), "2.exp_avg": (4,), "0.√": (1, 1, 2)}


@pytest.mark.parametrize("metadata", [None, {"frozen_sha256": 64 * "a"}])
@pytest.mark.parametrize("names", [NAMED, ["2.step"], []])
def test_the_bytes_are_those_of_safetensors(tmp_path, names, metadata):
    draw = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(NAMED[name], generator=draw) for name in names}
    tensors |= {"half": torch.ones(3, dtype=torch.bfloat16)} if len(names) > 1 else {}
    tensors |= {"turned": torch.randn(3, 2, generator=draw).T} if len(names) > 1 else {}
    write_tensors(tmp_path / "ours", tensors, ALONE, metadata)
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, tmp_path / "theirs", metadata=metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert load_file(tmp_path / "ours").keys() == tensors.keys()


def test_another_rank_puts_the_same_together_and_writes_nothing(tmp_path):
    group = Second()
    write_tensors(tmp_path / "ours", {"b": torch.ones(2), "a": torch.ones(3, 1)}, group)
    assert group.asked == [(3, 1), (2,)]
    assert not (tmp_path / "ours").exists()

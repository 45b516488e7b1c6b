import pytest
from pydantic import ValidationError

from rltune.spec.schema_run import ResourcesConfig


@pytest.mark.parametrize("gpus", [0.0, 0.25, 1.0, 2.0])
def test_a_share_of_one_gpu_or_whole_ones(gpus):
    assert ResourcesConfig(gpus=gpus).gpus == gpus


def test_ray_cannot_reserve_one_and_a_half():
    with pytest.raises(ValidationError, match=r"1\.5 GPUs cannot be reserved; give 0 to 1, or a "):
        ResourcesConfig(gpus=1.5)

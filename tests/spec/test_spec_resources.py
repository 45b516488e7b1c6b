import pytest
from pydantic import ValidationError

from rltune.spec.schema_run import ResourcesConfig, reserved_gpus


@pytest.mark.parametrize("gpus", [0.0, 0.25, 1.0, 2.0])
def test_a_share_of_one_gpu_or_whole_ones(gpus):
    assert ResourcesConfig(gpus=gpus).gpus == gpus


def test_ray_cannot_reserve_one_and_a_half():
    with pytest.raises(ValidationError, match=r"1\.5 GPUs cannot be reserved; give 0 to 1, or a "):
        ResourcesConfig(gpus=1.5)


@pytest.mark.parametrize(
    ("resources", "reserved"),
    [
        ({"gpus": 0.0, "engine": "own"}, 0.0),  # on CPUs both have the trial's
        ({"gpus": 0.25, "engine": "shared"}, 0.25),
        ({"gpus": 1.0, "engine": "own"}, 2.0),
        ({"gpus": 2.0}, 2.0),  # a record from before the key
    ],
)
def test_an_engine_of_its_own_takes_one_gpu_more(resources, reserved):
    assert reserved_gpus(resources) == reserved


OWN = "resources.engine=own"
VLLM = "rollout.engine=vllm"


def test_the_engine_torch_has_no_process_of_its_own(problems, load):
    assert problems(overrides=[OWN]) == [
        f"--set {OWN}: resources.engine: 'own' is not for rollout.engine torch, which samples with "
        "the trainer's weights. Set it to shared, or rollout.engine to vllm."
    ]
    assert load(overrides=[OWN, VLLM])


def test_an_engine_of_its_own_takes_a_whole_gpu(problems, load):
    assert problems(overrides=[OWN, VLLM, "resources.gpus=0.5"]) == [
        "--set resources.gpus=0.5: resources.gpus: 0.5 is a share of a GPU, and resources.engine "
        "own takes a whole one. Give 1, or set resources.engine to shared."
    ]
    assert load(overrides=[OWN, VLLM, "resources.gpus=1"])

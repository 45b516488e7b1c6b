import pytest

from rltune.spec.schema.run import ResourcesConfig, reserved_gpus


@pytest.mark.parametrize("gpus", [0.0, 0.25, 1.0])
def test_a_share_of_one_gpu_or_one(gpus):
    assert ResourcesConfig(gpus=gpus).gpus == gpus


@pytest.mark.parametrize("gpus", ["1.5", "2", "8.0"])
def test_more_gpus_than_a_trial_can_use_are_refused(problems, gpus):
    assert problems(overrides=[f"resources.gpus={gpus}"]) == [
        f"--set resources.gpus={gpus}: resources.gpus: {float(gpus):g} GPUs would leave all but "
        "one idle: a trial trains on one device. Give 1, or a share such as 0.5. More GPUs run "
        "more trials side by side; with resources.engine own, the rollout engine reserves a second "
        "one."
    ]


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

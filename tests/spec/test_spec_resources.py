import pytest
from cases import each
from pydantic import ValidationError

from rltune.spec.identity import config_hash
from rltune.spec.schema.run import ResourcesConfig, ranks_of, reserved_cpus, reserved_gpus
from rltune.spec.schema.trial import TrialConfig


@pytest.mark.parametrize("gpus", [0.0, 0.25, 1.0])
def test_a_share_of_one_gpu_or_one(gpus):
    assert ResourcesConfig(gpus=gpus).gpus == gpus


def test_a_part_of_several_gpus_is_refused(problems):
    assert problems(overrides=["resources.gpus=1.5"]) == [
        "--set resources.gpus=1.5: resources.gpus: 1.5 GPUs cannot be used: a trial takes a share "
        "of one, or whole ones. Give a share such as 0.5, or a whole number, each of which trains "
        "as one rank."
    ]


@pytest.mark.parametrize(
    ("resources", "ranks", "cpus"),
    [
        ({}, 1, 1.0),
        ({"gpus": 0.5, "cpus": 0.5}, 1, 0.5),
        ({"ranks": 3, "cpus": 2}, 3, 3.0),
        ({"gpus": 4, "cpus": 8}, 4, 8.0),
    ],
)
def test_each_gpu_is_a_rank_and_each_rank_has_a_core(resources, ranks, cpus):
    config = ResourcesConfig(**resources)
    assert ranks_of(config) == ranks
    assert reserved_cpus({"resources": config.model_dump()}) == cpus


def test_a_record_from_before_ranks_has_one():
    assert reserved_cpus({"resources": {"cpus": 2.0, "gpus": 0.0}}) == 2.0


DROPPING = {"rank": 4, "dropout": 0.1}
QA = {"kind": "multihop_qa", "prompt": "compact"}


@each(
    ("changes", "expected"),
    [
        (
            {"resources": {"ranks": 2, "gpus": 3}},
            "2 ranks cannot have 3 GPUs: each has one. Leave it at 1; GPUs say how many.",
        ),
        (
            {"resources": {"ranks": 9}, "optim": {"mini_batch_size": 8}},
            "9 cannot share the 8 rows of an optimiser step. Set optim.mini_batch_size to at least "
            "9.",
        ),
        (
            {"resources": {"ranks": 2}, "loss": {"kl_type": "full"}},
            "'full' reads all weights of the head, which are in shards with 2 ranks. Choose k2 or "
            "k3+.",
        ),
        (
            {"resources": {"gpus": 2}, "attribution": {"kind": "info_gain"}, "env": QA},
            "'info_gain' reads the policy's caches of all rows, which no rank has with 2 ranks. "
            "Choose none, or adca.",
        ),
        (
            {
                "resources": {"gpus": 2},
                "policy": {"model": "tiny", "lora": {"rank": 4, "dropout": 0.1}},
            },
            "0.1 would drop other inputs for each number of ranks: by rank. Set it to 0.0, or "
            "resources.gpus to 1.",
        ),
        (
            {"resources": {"ranks": 2}, "rollout": {"engine": "vllm"}},
            "'shared' has vLLM in the process of the first rank, where torch's group of processes "
            "is then vLLM's and not that of 2 ranks. Set it to own.",
        ),
        (
            {"resources": {"ranks": 2}, "trainer": {"backend": "tinker"}},
            "2 would train nothing: the service trains. Set it to 1, or trainer.backend to torch.",
        ),
    ],
)
def test_what_ranks_cannot_do_is_refused_with_what_would(changes, expected):
    base = {
        "env": {"prompt": "compact"},
        "policy": {"model": "tiny"},
        "advantage": {"kind": "grpo"},
    }
    with pytest.raises(ValidationError) as refused:
        TrialConfig.model_validate({**base, **changes})
    assert expected in str(refused.value)


def test_ranks_change_the_identity_and_one_does_not():
    one = config_hash({"resources": {"gpus": 0.0}})
    assert config_hash({"resources": {"gpus": 0.0, "ranks": 1}}) == one
    assert config_hash({"resources": {"gpus": 0.0, "ranks": 2}}) != one


OWN_ENGINE = {"gpus": 2.0, "cpus": 1.0, "engine": "own"}
PARTS = {"vllm": {"tensor_parallel": 4}}


@each(
    ("config", "gpus"),
    [
        ({"resources": {"gpus": 0.0, "engine": "own"}}, 0.0),  # on CPUs both have the trial's
        ({"resources": {"gpus": 0.25, "engine": "shared"}}, 0.25),
        ({"resources": OWN_ENGINE}, 3.0),
        ({"resources": {"gpus": 2.0}}, 2.0),  # a record from before the key
        ({}, 0.0),
        ({"resources": OWN_ENGINE, "rollout": {"engine": "vllm", "replicas": 3}}, 2 + 3),
        ({"resources": OWN_ENGINE, "rollout": {"engine": "vllm", "replicas": 3, **PARTS}}, 2 + 12),
        ({"resources": OWN_ENGINE, "rollout": {"engine": "torch", **PARTS}}, 3.0),
    ],
)
def test_engines_of_their_own_take_gpus_of_their_own(config, gpus):
    assert reserved_gpus(config) == gpus


def test_engines_on_a_cpu_take_a_core_each_while_the_ranks_wait():
    resources = {"gpus": 0.0, "cpus": 1.0, "ranks": 2, "engine": "own"}
    assert reserved_cpus({"resources": resources, "rollout": {"replicas": 3}}) == 3.0
    assert reserved_cpus({"resources": resources, "rollout": {"replicas": 1}}) == 2.0


def test_engines_that_sample_ahead_take_a_core_each_beside_the_ranks():
    resources = {"gpus": 0.0, "cpus": 1.0, "ranks": 2, "engine": "own"}
    assert reserved_cpus({"resources": resources, "rollout": {"replicas": 3, "ahead": 1}}) == 5.0
    one = {**resources, "ranks": 1}
    assert reserved_cpus({"resources": one, "rollout": {"ahead": 1}}) == 2.0
    assert reserved_cpus({"resources": {**one, "cpus": 4.0}, "rollout": {"ahead": 1}}) == 4.0


OWN = "resources.engine=own"
VLLM = "rollout.engine=vllm"


def test_both_engines_may_have_a_process_of_their_own(load):
    assert load(overrides=[OWN])
    assert load(overrides=[OWN, VLLM])


def test_an_engine_of_its_own_takes_a_whole_gpu(problems, load):
    assert problems(overrides=[OWN, VLLM, "resources.gpus=0.5"]) == [
        "--set resources.gpus=0.5: resources.gpus: 0.5 is a share of a GPU, and resources.engine "
        "own takes a whole one. Give 1, or set resources.engine to shared."
    ]
    assert load(overrides=[OWN, VLLM, "resources.gpus=1"])


AHEAD = {"rollout": {"ahead": 1}, "resources": {"engine": "own"}, "rollout_correction": "tis"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"rollout_correction": "none"},
            "'none' leaves samples uncorrected that are 1 training step old (rollout.ahead 1). Set "
            "it to tis or icepop, or rollout.ahead to 0.",
        ),
        (
            {"resources": {"engine": "shared"}},
            "'shared' has trainer and engine take turns, and rollout.ahead 1 has both work at a "
            "time. Set it to own, or rollout.ahead to 0.",
        ),
        (
            {"trainer": {"backend": "tinker"}},
            "1 cannot be had with trainer.backend tinker: it samples the newest. Set it to 0.",
        ),
        ({"rollout": {"ahead": 2}}, "less than or equal to 1"),
    ],
)
def test_sampling_ahead_needs_a_correction_and_an_engine_of_its_own(changes, expected):
    def config(sections):
        kind = sections.pop("rollout_correction")
        base = {"env": {"prompt": "compact"}, "policy": {"model": "tiny"}}
        return base | {
            "advantage": {"kind": "grpo"},
            "rollout_correction": {"kind": kind},
            **sections,
        }

    assert TrialConfig.model_validate(config(dict(AHEAD)))
    with pytest.raises(ValidationError) as refused:
        TrialConfig.model_validate(config({**AHEAD, **changes}))
    assert expected in str(refused.value)


def test_sampling_ahead_changes_the_identity_and_sampling_in_time_does_not():
    in_time = config_hash({"rollout": {"groups": 8}})
    assert config_hash({"rollout": {"groups": 8, "ahead": 0}}) == in_time
    assert config_hash({"rollout": {"groups": 8, "ahead": 1}}) != in_time


def test_several_engines_have_processes_of_their_own_and_groups_enough(problems, load):
    replicas, parts = "rollout.replicas=3", "rollout.vllm.tensor_parallel=2"
    assert problems(overrides=[VLLM, replicas, parts]) == [
        f"--set {replicas}: rollout.replicas: 3 engines cannot share the trial's process: each has "
        "its own. Set it to 1, or resources.engine to own.",
        f"--set {parts}: rollout.vllm.tensor_parallel: 2 processes would have to share the trial's "
        "GPU with the trainer. Set it to 1, or resources.engine to own.",
    ]
    assert problems(overrides=[VLLM, OWN, "rollout.replicas=99"]) == [
        "--set rollout.replicas=99: rollout.replicas: 99 engines cannot share the 32 groups of "
        "a step. Set it to at most rollout.groups; a divisor of it shares them evenly."
    ]
    assert load(overrides=[VLLM, OWN, replicas, parts])


SHARED = "resources.engine=shared_by_sweep"
RANK = "policy.lora.rank=4"


def test_an_engine_that_trials_share_has_one_base_and_one_process(problems, load):
    sets = ["rollout.replicas=2", "rollout.vllm.tensor_parallel=3", "rollout.vllm.sleep=true"]
    full, *others = problems(overrides=[VLLM, SHARED, *sets, "resources.gpus=2"])
    assert full.endswith(
        ": policy.lora.rank: 0 trains all weights, and an engine that trials share has one base "
        "for all. Set it to a rank, such as 32, or resources.engine to own."
    )
    assert others == [
        "--set rollout.replicas=2: rollout.replicas: 2 engines for each trial are not one engine "
        "for all trials. Set it to 1, or resources.engine to own.",
        "--set rollout.vllm.tensor_parallel=3: rollout.vllm.tensor_parallel: 3 processes with a "
        "GPU each are not reserved for an engine of all trials. Set it to 1, or resources.engine "
        "to own.",
        "--set rollout.vllm.sleep=true: rollout.vllm.sleep: true frees the engine while its trial "
        "updates, and other trials sample then. Set it to false, or resources.engine to own.",
        "--set resources.gpus=2: resources.gpus: 2 ranks have devices of their own, where nothing "
        "is left to share. Set it to 1, or resources.engine to own.",
    ]
    for engine in (VLLM, "rollout.engine=torch"):
        assert load(overrides=[engine, SHARED, RANK, "resources.gpus=0.25"])


def test_no_trial_reserves_anything_for_an_engine_that_all_share():
    resources = {"gpus": 0.25, "cpus": 1.0, "engine": "shared_by_sweep"}
    assert reserved_gpus({"resources": resources}) == 0.25
    assert reserved_cpus({"resources": {**resources, "gpus": 0.0}}) == 1.0


def test_one_engine_of_one_process_is_outside_the_identity():
    one = config_hash({"rollout": {"vllm": {"eager": True}}})
    same = {"replicas": 1, "vllm": {"eager": True, "tensor_parallel": 1}}
    assert config_hash({"rollout": same}) == one
    assert config_hash({"rollout": {**same, "replicas": 2}}) != one
    assert config_hash({"rollout": {**same, "vllm": {"eager": True, "tensor_parallel": 2}}}) != one

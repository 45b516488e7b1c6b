from dataclasses import replace

import pytest
from run_folders import write_sweep

from rltune.analysis.memory_use import memory_uses
from rltune.comparability.records import TrialRecord
from rltune.forecast import memory, pass_memory
from rltune.forecast.cost import trial_cost
from rltune.forecast.memory import MemoryPlan
from rltune.forecast.model_shapes import Shape, shape_of
from rltune.forecast.parameters import model_shape, parameter_count
from rltune.forecast.pass_memory import activation_bytes, heap_bytes
from rltune.policy.logprobs import chunk_of
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.precision import round_frozen, set_compute_dtype
from rltune.spec.expand import expand
from rltune.spec.keys import typed
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import LoraConfig, TrialConfig
from rltune.trainer.train_state import make_train_state

# Layers 2, D 8, I 16, Q 8, K 4, V 10
COUNTS = {"parameters": 1000, "trained": 1000}
SMALL = Shape(layers=2, hidden=8, inner=16, queries=8, keys=4, vocabulary=10)


@pytest.fixture
def configs(tmp_path):
    return [condition.config for condition in load_sweep(write_sweep(tmp_path)).conditions]


def memory_plan(config, shape, **counts):
    return memory.memory_plan(typed(config), shape, **counts)


def token_budget(config, shape):
    return pass_memory.token_budget(typed(config), shape)


def with_keys(config, **sections):
    return config | {name: config[name] | changes for name, changes in sections.items()}


def test_weights_gradients_and_optimiser_by_hand(configs):
    control, treated = (memory_plan(c, SMALL, parameters=1000, trained=1000) for c in configs)
    # float32, GAE with a critic of its own: two learners; the KL term adds a reference.
    assert control.weights == 2 * 1000 * 4
    assert treated.weights == 3 * 1000 * 4
    assert control.gradients == treated.gradients == 2 * 1000 * 4
    assert control.optimizer == 2 * 2 * 1000 * 4


def test_without_a_critic_there_is_one_learner(configs):
    grpo = configs[0] | {"advantage": {"kind": "grpo", "normalize_std": True}}
    plan = memory_plan(grpo, SMALL, parameters=1000, trained=1000)
    assert (plan.weights, plan.gradients, plan.optimizer) == (4000, 4000, 8000)


def test_with_adapters_the_base_is_there_once(configs):
    lora = configs[0]["policy"]["lora"] | {"rank": 4}
    config = with_keys(configs[0], policy={"lora": lora, "dtype": "bfloat16"})
    plan = memory_plan(config, SMALL, parameters=1000, trained=10)
    # Embeddings and head of 10 x 8 each in float32, the layers in bfloat16; adapters of policy and
    # critic, and one of them rounded.
    assert plan.weights == 160 * 4 + 840 * 2 + 2 * 10 * 4
    assert (plan.gradients, plan.optimizer, plan.rounded) == (2 * 10 * 4, 2 * 2 * 10 * 4, 10 * 2)


def test_with_all_weights_a_pass_rounds_the_layers(configs):
    config = with_keys(configs[0], policy={"dtype": "bfloat16"})
    plan = memory_plan(config, SMALL, parameters=1000, trained=1000)
    assert (plan.weights, plan.rounded) == (2 * 1000 * 4, 840 * 2)
    tied = memory_plan(config, replace(SMALL, is_tied=True), parameters=1000, trained=1000)
    assert tied.rounded == 920 * 2


def test_what_the_c_library_keeps_by_hand(configs):
    # A layer of float32: 4 x 8 + 4 x (8 + 4) = 80 numbers; two layers
    assert heap_bytes(SMALL, is_lora=False, is_recomputed=False) == 2 * 80 * 4
    assert heap_bytes(SMALL, is_lora=False, is_recomputed=True) == 80 * 4
    # Outputs of q, k, v, o, gate, up and down: 8 + 4 + 4 + 8 + 16 + 16 + 8 = 64 more
    assert heap_bytes(SMALL, is_lora=True, is_recomputed=False) == 2 * (80 + 64) * 4
    config = with_keys(configs[0], rollout={"max_context": 10}, optim={"micro_batch_size": 2})
    assert memory_plan(config, SMALL, parameters=1000, trained=1000).heap == 20 * 640
    on_gpu = with_keys(config, resources={"gpus": 1.0})
    assert memory_plan(on_gpu, SMALL, parameters=1000, trained=1000).heap == 0


def test_the_tokens_of_a_micro_batch_by_hand(configs):
    """What of them is there most: all rows of a micro-batch at full length, or the budget."""
    auto = {"tokens_per_micro_batch": "auto", "micro_batch_size": None, "mini_batch_size": 8}
    config = with_keys(configs[0], rollout={"max_context": 10}, optim=auto)
    kept = activation_bytes(SMALL, width=4, is_recomputed=False)
    # A token holds what it keeps and, on a CPU, the 640 bytes that it frees
    most = 64 * 2**20 // (kept + 640)
    assert token_budget(config, SMALL) == most
    # 8 rows are fewer; as trees they keep keys and values of 8 numbers in 2 layers for each cell
    cell = 2 * 8 * 4 * 2
    assert memory_plan(config, SMALL, **COUNTS).activations == 8 * 10 * (kept + cell)
    on_gpu = with_keys(config, resources={"gpus": 0.5})
    assert token_budget(on_gpu, SMALL) == 3 * 2**29 // kept
    long = with_keys(config, rollout={"max_context": 2 * most})
    assert token_budget(long, SMALL) == 2 * most  # one conversation, whatever it takes
    assert token_budget(long, None) == 2 * most
    assert token_budget(config, None) == 4096
    few = with_keys(config, optim=auto | {"tokens_per_micro_batch": 25})
    plan = memory_plan(few, SMALL, **COUNTS)
    assert (plan.activations, plan.heap) == (25 * kept + 8 * 10 * cell, 25 * 640)
    one = with_keys(config, optim=auto | {"tokens_per_micro_batch": 3, "micro_batch_size": 1})
    assert memory_plan(one, SMALL, **COUNTS).activations == 10 * kept  # a row is not cut


def test_cells_of_trees_take_no_more_than_the_tokens(configs):
    optim = {"tokens_per_micro_batch": 25, "micro_batch_size": None, "mini_batch_size": 128}
    rollout = {"max_context": 10, "groups": 8, "group_size": 16}
    config = with_keys(configs[0], rollout=rollout, optim=optim)
    kept, limit = activation_bytes(SMALL, width=4, is_recomputed=False), 25 * (1152 + 640)
    assert (kept, limit < 1280 * 2 * 8 * 4 * 2) == (1152, True)  # all cells would be more
    plan = memory_plan(config, SMALL, **COUNTS)
    assert plan.activations == 25 * kept + limit
    again = with_keys(config, optim=optim | {"gradient_checkpointing": True, "mini_batch_size": 4})
    kept = activation_bytes(SMALL, width=4, is_recomputed=True)
    assert memory_plan(again, SMALL, **COUNTS).activations == 25 * kept + 40 * 2 * 8 * 4  # a layer
    lora = config["policy"]["lora"] | {"rank": 4, "dropout": 0.1}
    dropping = with_keys(config, policy={"lora": lora})  # each row drops other inputs: no trees
    kept, _ = pass_memory.token_bytes(typed(dropping), SMALL)
    assert memory_plan(dropping, SMALL, **COUNTS).activations == 25 * kept


def test_a_critic_on_the_policy_is_a_small_network(configs):
    config = with_keys(configs[0], critic={"backbone": "policy"})
    plan = memory_plan(config, SMALL, parameters=1000, trained=1000)
    # 8 x 16 and 16 x 1, with their biases: 128 + 16 + 16 + 1
    assert plan.gradients == 4 * (1000 + 161)
    assert (plan.weights, plan.optimizer) == (4 * (1000 + 161), 8 * (1000 + 161))


def test_vllm_has_weights_and_a_cache_of_its_own(configs):
    vllm = {"kv_cache_gib": 0.5, "eager": True, "sleep": True}
    rollout = {"engine": "vllm", "vllm": vllm, "max_context": 10}
    config = with_keys(configs[0], rollout=rollout, policy={"dtype": "bfloat16"})
    tied = replace(SMALL, is_tied=True)
    plan = memory_plan(config, tied, parameters=1000, trained=1000)
    # 1,000 weights and a head of 10 x 8 in two bytes, half a GiB, and 340 MB of libraries
    assert (plan.engine, plan.kv_cache) == (2 * (1000 + 80) + 2**29 + 340_000_000, 0)
    untied = memory_plan(config, SMALL, parameters=1000, trained=1000)
    assert untied.engine == plan.engine - 2 * 80  # the head is among the weights
    assert "kv_cache" not in plan.parts
    held = plan.weights + plan.gradients + plan.optimizer + plan.program
    training = plan.rounded + plan.activations + plan.logits + plan.heap
    assert plan.peak == held + plan.engine + training  # no sleep on a CPU
    on_gpu = with_keys(config, resources={"gpus": 1.0})
    asleep = memory_plan(on_gpu, tied, parameters=1000, trained=1000)
    # At work: logits of 256 rows x 10 tokens three times in float32, and 16,384 tokens' 3 x 16
    # numbers of an MLP in two bytes
    assert asleep.engine == plan.engine - 340_000_000 + 3 * 4 * 256 * 10 + 16_384 * 48 * 2
    held = asleep.weights + asleep.gradients + asleep.optimizer + asleep.program
    assert asleep.peak == held + asleep.engine  # more than what training takes
    adapters = with_keys(on_gpu, policy={"lora": config["policy"]["lora"] | {"rank": 4}})
    assert memory_plan(adapters, tied, parameters=1000, trained=10).engine == asleep.engine + 20


def test_an_engine_of_its_own_has_its_own_gpu():
    plan = MemoryPlan(1, 2, 4, 0, activations=8, logits=16, program=32, engine=100)
    apart = replace(plan, is_engine_apart=True)
    assert (plan.peak, plan.fullest) == (139, 139)
    assert (apart.peak, apart.fullest) == (39 + 24, 132)  # the engine's GPU has a process, too


def test_where_the_engine_is_comes_from_the_config(configs):
    config = with_keys(configs[0], rollout={"engine": "vllm"}, resources={"gpus": 1.0})
    own = with_keys(config, resources={"engine": "own"})
    here, apart = (memory_plan(c, SMALL, parameters=1000, trained=1000) for c in (config, own))
    assert (here.is_engine_apart, apart.is_engine_apart) == (False, True)
    assert apart.peak < here.peak
    on_cpu = [with_keys(c, resources={"gpus": 0.0}) for c in (config, own)]
    here, apart = (memory_plan(c, SMALL, parameters=1000, trained=1000) for c in on_cpu)
    assert apart.peak == here.peak + 630_000_000  # another Python with its libraries


def test_the_engine_torch_in_a_process_of_its_own_has_a_copy_of_the_policy(configs):
    rollout = {"groups": 3, "group_size": 4, "max_context": 129}
    config = with_keys(configs[0], rollout=rollout, gate={"tasks": 5}, resources={"gpus": 1.0})
    config = with_keys(config, policy={"dtype": "bfloat16"})
    own = with_keys(config, resources={"engine": "own"})
    tied = replace(SMALL, is_tied=True)
    here, apart = (memory_plan(c, tied, **COUNTS) for c in (config, own))
    # 920 numbers of layers in two bytes; embeddings and a head of 10 x 8 each in four; the graphs'
    # logits of 12 rows; 12 rows of 129 tokens, 2 layers' keys and values of 4 numbers each
    cache = 12 * 129 * 2 * 2 * 4 * 2
    assert apart.engine == 2 * 920 + 4 * 160 + 12 * 10 * 4 + cache
    assert (here.kv_cache, apart.kv_cache) == (cache, 0)
    assert apart.weights == here.weights - 2 * 920  # no rounded layers are kept for sampling
    on_cpu = memory_plan(with_keys(own, resources={"gpus": 0.0}), tied, **COUNTS)
    held = on_cpu.weights + on_cpu.gradients + on_cpu.optimizer + on_cpu.program
    training = on_cpu.rounded + on_cpu.activations + on_cpu.logits + on_cpu.heap
    assert on_cpu.peak == held + on_cpu.engine + training  # the copy is there all the time
    adapters = with_keys(own, policy={"lora": config["policy"]["lora"] | {"rank": 4}})
    plan = memory_plan(adapters, tied, parameters=1000, trained=10)
    assert plan.engine == apart.engine + 2 * 10


def test_graphs_on_a_gpu(configs):
    config = with_keys(
        configs[0],
        rollout={"groups": 3, "group_size": 4, "max_context": 129},
        gate={"tasks": 5},
        policy={"dtype": "bfloat16"},
        resources={"gpus": 1.0},
    )
    plan = memory_plan(config, SMALL, **COUNTS)
    assert plan.engine == 12 * 10 * 4  # the logits of 12 rows
    on_cpu = memory_plan(with_keys(config, resources={"gpus": 0.0}), SMALL, **COUNTS)
    assert plan.weights == on_cpu.weights + 2 * 840  # the decoder's own rounded layers
    assert on_cpu.engine == 0
    held = plan.weights + plan.gradients + plan.optimizer + plan.program
    training = plan.rounded + plan.activations + plan.logits
    assert plan.peak == held + max(plan.kv_cache + plan.engine, training)


def test_cache_and_logits_by_hand(configs):
    config = with_keys(
        configs[0],
        rollout={"groups": 3, "group_size": 4, "max_context": 100},
        gate={"tasks": 5},
        optim={"micro_batch_size": 2},
    )
    plan = memory_plan(config, SMALL, parameters=1000, trained=1000)
    # 2 (keys and values) x 2 layers x 4 wide x 4 bytes x 12 conversations x 100 tokens
    assert plan.kv_cache == 2 * 2 * 4 * 4 * 12 * 100
    # 2 conversations of 5 turns of 8 sampled tokens, 10 words, 4 copies in float32
    assert plan.logits == 4 * 4 * 80 * 10
    more = memory_plan(with_keys(config, gate={"tasks": 50}), SMALL, parameters=1, trained=1)
    assert more.kv_cache == 2 * 2 * 4 * 4 * 50 * 100  # the gate plays more at once
    most = memory_plan(with_keys(config, gate={"tasks": 500}), SMALL, parameters=1, trained=1)
    assert most.kv_cache == 2 * 2 * 4 * 4 * 256 * 100  # but not all


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rank", "advantage"), [(0, "gae"), (3, "gae"), (3, "grpo")])
def test_weights_are_those_of_a_learner(configs, small_policy, dtype, rank, advantage):
    policy = small_policy()
    config = with_keys(
        configs[1],  # with a KL term
        policy={"dtype": dtype, "lora": {**configs[1]["policy"]["lora"], "rank": rank}},
        critic={"backbone": "own"},
    ) | {"advantage": {"kind": advantage}}
    shape = policy.model.config.to_dict()
    count = parameter_count(shape)
    lora = LoraConfig(rank=rank)
    add_adapter(policy.model, lora, seed=0)
    set_compute_dtype(policy.model, dtype)
    round_frozen(policy.model)
    trained = sum(p.numel() for p in trained_parameters(policy.model).values())
    train_state = make_train_state(policy, TrialConfig.model_validate(config))
    modules = [policy.model, train_state.reference, train_state.critic]
    held = {p.data_ptr(): p.nbytes for m in modules if m for p in m.parameters()}
    plan = memory_plan(config, shape_of(shape), parameters=count, trained=trained)
    # A critic has no vocabulary head of its own, and norms are not rounded: both are small.
    assert plan.weights == pytest.approx(sum(held.values()), rel=0.03)


def test_generating_and_training_take_turns():
    plan = MemoryPlan(1, 2, 4, kv_cache=100, activations=8, logits=16, program=32)
    assert plan.peak == 1 + 2 + 4 + 32 + 100
    assert MemoryPlan(1, 2, 4, 10, activations=8, logits=16, program=32).peak == 39 + 24
    more = MemoryPlan(1, 2, 4, 10, activations=8, logits=16, program=32, rounded=64, heap=128)
    assert more.peak == 39 + 24 + 64 + 128


def test_dropout_of_adapters_is_planned(configs):
    def activations(**lora):
        changes = {"lora": configs[0]["policy"]["lora"] | lora}
        config = with_keys(configs[0], policy=changes, optim={"micro_batch_size": 1})
        config = with_keys(config, rollout={"max_context": 10})
        return memory_plan(config, SMALL, parameters=1000, trained=10).activations

    plain = activations(rank=4)
    assert activations(dropout=0.1) == plain  # without adapters
    # 10 tokens x 2 layers x 5 bytes x q's input of 8 and down's of 16
    dropping_two = activations(rank=4, dropout=0.1, targets=["q_proj", "down_proj"])
    assert dropping_two - plain == 10 * 2 * 5 * (8 + 16)


@pytest.mark.parametrize("vocabulary", [10, 50_000, 151_936])
def test_the_chunk_of_logits_is_the_trainers(configs, vocabulary):
    long = {"max_context": 10_000, "max_response_tokens": 2_000}
    config = with_keys(configs[0], rollout=long, optim={"micro_batch_size": 4})
    shape = replace(SMALL, vocabulary=vocabulary)
    plan = memory_plan(config, shape, parameters=1, trained=1)
    assert plan.logits == 4 * 4 * chunk_of(vocabulary) * vocabulary


def test_a_published_shape_stands_in_for_a_config_that_is_not_here(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    # The model cards: 0.49, 1.54, 3.09 and 7.62 billion parameters
    counts = {"0.5B": 494_032_768, "1.5B": 1_543_714_304, "3B": 3_085_938_688, "7B": 7_615_616_512}
    for name, count in counts.items():
        for variant in ("", "-Instruct"):
            shape = model_shape(f"Qwen/Qwen2.5-{name}{variant}", "sokoban")
            assert parameter_count(shape) == count
    for name in ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Instruct-2507"):
        assert parameter_count(model_shape(name, "multihop_qa")) == 4_022_468_096  # 4.02 billion
    assert model_shape("nobody/nothing", "sokoban") is None
    assert parameter_count({"model_type": "qwen2"}) is None


def test_use_is_the_most_of_a_condition_beside_its_plan(tmp_path):
    specs = expand(load_sweep(write_sweep(tmp_path)))
    rows = [{"step": 1, "perf/max_rss_gb": 1.0}, {"step": 2, "perf/max_rss_gb": 1.5}]
    first, *_ = (spec for spec in specs if spec.is_control)
    second = next(spec for spec in specs if not spec.is_control)
    on_gpu = [{"step": 1, "perf/max_rss_gb": 9.0, "perf/max_memory_allocated_gb": 2.0}]
    uses = memory_uses(
        [
            TrialRecord(first, {}, tuple(rows)),
            TrialRecord(first, {}, tuple(rows[:1])),
            TrialRecord(second, {}, tuple(on_gpu)),
            TrialRecord(second, {}),
        ]
    )
    assert [(use.where, use.used) for use in uses] == [("process", 3 * 2**29), ("GPU", 2**31)]
    assert uses[0].share == uses[0].used / uses[0].planned


@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_an_engine_that_trials_share_is_counted_once_and_in_no_trial(configs, gpus):
    rollout = {"engine": "vllm", "vllm": {"kv_cache_gib": 0.5, "sleep": False}, "max_context": 10}
    adapted = with_keys(configs[0], policy={"lora": {"rank": 2}})
    own, shared = (
        memory_plan(
            with_keys(adapted, rollout=rollout, resources={"engine": engine, "gpus": gpus}),
            SMALL,
            **COUNTS,
        )
        for engine in ("own", "shared_by_sweep")
    )
    program = 600 * 2**20 if gpus else 630_000_000
    assert own.engine > 2**29
    assert shared.engine == own.shared_engine == 0
    assert shared.shared_engine == own.engine + program
    assert shared.program == program
    assert shared.peak == own.peak - (0 if gpus else own.engine + program)
    assert shared.fullest == shared.peak


def test_use_of_the_trials_process_is_compared_with_the_plan_of_that_process(tmp_path):
    """An engine in a process of its own is planned, and not in what the trial records."""
    specs = expand(load_sweep(write_sweep(tmp_path)))
    control = next(spec for spec in specs if spec.is_control)
    resources = control.config["resources"] | {"engine": "own"}
    own = replace(control, config=control.config | {"resources": resources})
    rows = ({"step": 1, "perf/max_rss_gb": 1.0},)
    (alone,), (beside,) = (memory_uses([TrialRecord(s, {}, rows)]) for s in (control, own))
    plan, apart = (trial_cost(spec).memory for spec in (control, own))
    assert apart.program == 2 * plan.program
    assert beside.planned == apart.peak - apart.engine - plan.program
    # With its own weights and cache elsewhere, what is left is the updating trainer.
    updating = plan.activations + plan.logits + plan.heap + plan.rounded
    assert beside.planned == plan.weights + plan.gradients + plan.optimizer + 630_000_000 + updating
    assert alone.planned == plan.peak


def test_engines_and_their_parts_take_memory_of_their_own(configs):
    """On a CPU all of it is one machine's; on GPUs it is what one of them holds."""
    vllm = {"kv_cache_gib": 0.5, "eager": True, "sleep": False}
    rollout = {"engine": "vllm", "vllm": vllm, "max_context": 10}
    one = with_keys(configs[0], rollout=rollout, resources={"engine": "own"})
    split = {
        "rollout": rollout | {"replicas": 3, "groups": 3, "vllm": vllm | {"tensor_parallel": 2}}
    }
    on_cpu = [memory_plan(c, SMALL, **COUNTS) for c in (one, with_keys(one, **split))]
    # 1,000 weights in four bytes once an engine; cache and libraries in each of its two processes
    assert on_cpu[1].engine == 3 * (4 * 1000 + 2 * (2**29 + 340_000_000))
    # the trial, and for each engine a process that schedules beside its two parts
    assert on_cpu[1].program == 630_000_000 * (1 + 3 * 3)
    assert on_cpu[0].program == 630_000_000 * 2
    gpus = {"resources": {"engine": "own", "gpus": 1.0}}
    alone, part = (
        memory_plan(with_keys(c, **gpus), SMALL, **COUNTS) for c in (one, with_keys(one, **split))
    )
    shared = 4 * 1000 + 16_384 * 48 * 4  # weights, and a layer's numbers
    assert part.engine == alone.engine - shared // 2
    assert (part.program, part.peak) == (alone.program, alone.peak)

import json
import re
from pathlib import Path

import pytest
from goldens import assert_golden, drawn, masked
from run_folders import CONTROL, TREATED, FolderWriter, finished_sweep, write_sweep

from rltune.comparability.check import check_sweep
from rltune.forecast import parameters
from rltune.forecast.cost import Measured, measure, trial_cost
from rltune.report.plan import cost_json, make_plan, plan_view
from rltune.report.render import size
from rltune.report.render_check import proof_view
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.plan import plan_json
from rltune.store.speed import speed_key, step_seconds

QWEN_3B = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "intermediate_size": 11008,
    "tie_word_embeddings": True,
}


@pytest.fixture
def no_weights(monkeypatch):
    """Goldens must not depend on the shipped weights."""
    monkeypatch.setattr("rltune.forecast.cost.model_shape", lambda model, env_kind: None)


def test_parameters_of_published_models():
    # embeddings 151936 x 2048; a layer: 2 x 2048^2 + 2 x 2048 x 256 + (2048 + 512)
    # + 3 x 2048 x 11008 + 2 x 2048 = 77_076_992; 36 of them, and 2048: 3_085_938_688
    # (the model card says 3.09 B)
    assert parameters.parameter_count(QWEN_3B) == 3_085_938_688
    half_b = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14}
    half_b |= {"num_key_value_heads": 2, "intermediate_size": 4864}
    assert parameters.parameter_count({**QWEN_3B, **half_b}) == 494_032_768


def test_unknown_kind_of_model_is_not_guessed(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**QWEN_3B, "model_type": "mixtral"}))
    assert parameters.parameter_count(parameters.read_shape(tmp_path)) is None
    (tmp_path / "config.json").write_text("{")
    assert parameters.read_shape(tmp_path) is None


def test_cost_by_hand(tmp_path, no_weights):
    spec = expand(load_sweep(write_sweep(tmp_path)))[0]
    cost = trial_cost(spec)
    assert cost.steps == 20
    assert cost.rollouts == 20 * 2 * 4
    assert cost.max_tokens == 160 * 40  # five turns of eight tokens, below max_context
    assert cost.optimizer_steps == 20 * 2  # eight rollouts in mini-batches of four
    assert cost.policy_updates == 40
    assert cost.gates == 3  # 0, 10, 20
    assert cost.heldout_rollouts == 30
    assert cost.parameters is None
    assert cost.wall_s is None


def test_a_critic_warm_up_updates_no_policy(tmp_path, no_weights):
    path = write_sweep(tmp_path)
    (spec,) = expand(load_sweep(path, overrides=["critic.warmup_steps=5"]))[:1]
    cost = trial_cost(spec)
    assert (cost.optimizer_steps, cost.policy_updates) == (40, 15 * 2)


def test_time_comes_from_an_earlier_run(tmp_path, no_weights):
    writer = finished_sweep(tmp_path)
    measured = measure(tmp_path / "runs", writer.loaded.run_name, "kl")
    assert measured.source == str(writer.run.path)
    assert measured.steps == 120
    for spec in writer.specs:
        assert trial_cost(spec, measured).wall_s == pytest.approx(40.0)  # 20 steps of 2 s


def test_the_seconds_of_a_step_count_each_part_once():
    credit = {"timing_s/credit": 3.0, "timing_s/judge": 2.5, "timing_s/judge_call": 0.5}
    assert step_seconds({"step": 1, "timing_s/update": 4.0, "perf/x": 9.0, **credit}) == 7.0


def test_time_of_another_model_is_not_taken_over(tmp_path, no_weights):
    writer = finished_sweep(tmp_path)
    bigger = expand(load_sweep(writer.loaded.path, overrides=["rollout.groups=4"]))[0]
    measured = measure(tmp_path / "runs", "kl-00000000", "kl")
    assert measured is not None  # found beside the wanted folder
    assert trial_cost(bigger, measured).wall_s is None


@pytest.mark.parametrize(
    "change", ["critic.backbone=policy", "gate.tasks=100", "gate.every=2", "optim.epochs=2"]
)
def test_time_of_another_amount_of_work_is_not_taken_over(tmp_path, no_weights, change):
    writer = finished_sweep(tmp_path)
    other = expand(load_sweep(writer.loaded.path, overrides=[change]))[0]
    assert trial_cost(other, measure(tmp_path / "runs", "kl-00000000", "kl")).wall_s is None


def test_a_broken_folder_is_passed_over(tmp_path):
    writer = finished_sweep(tmp_path)
    broken = tmp_path / "runs" / "kl-ffffffff"
    broken.mkdir()
    (broken / "plan.json").write_text("{")
    (broken / "sweep.yaml").write_text("name: kl\n")
    assert measure(tmp_path / "runs", "kl-ffffffff", "kl").source == str(writer.run.path)


def test_plan_json_is_whole(tmp_path):
    loaded = load_sweep(write_sweep(tmp_path))
    specs = expand(loaded)
    data = json.loads(json.dumps(plan_json(loaded, specs, tasks=None)))
    assert [row["trial_id"] for row in data["trials"]] == [spec.trial_id for spec in specs]
    assert data["trials"][0]["config"] == json.loads(json.dumps(specs[0].config))
    assert data["tasks"] is None


@pytest.mark.parametrize("width", [80, 120])
def test_plan_text(tmp_path, no_weights, width):
    writer = FolderWriter(tmp_path)
    text = masked(drawn(plan_view(make_plan(writer.loaded, writer.specs, None)), width))
    trials, config = text.split("Config of every trial")
    assert_golden(f"plan_{width}", trials)
    config = " ".join(config.split())
    assert "budget: {steps: 20, train_wall_s: null (no effect on results), " in config
    assert "rollout: {engine: 'torch', " in config
    assert "groups: 2, group_size: 4" in config
    assert "kl_loss_coef" not in config  # it is in the table above


SECTION = """
axis:
  key: reward
  values:
    own: null
    rubric: {terms: [{score: success}, {score: valid_turns, weight: 0.1}], threshold: 0.5}
  control: own
  why: a rubric is one reward
seeds: [0]
"""


@pytest.mark.parametrize("width", [80, 120])
def test_plan_and_check_of_a_whole_section_can_be_read(tmp_path, no_weights, width):
    path = write_sweep(tmp_path)
    head, rest = path.read_text().split("axis:\n")
    hold = "  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0\n"
    path.write_text(head + hold + SECTION.lstrip("\n") + "profiles:" + rest.split("profiles:")[1])
    loaded = load_sweep(path)
    plan = drawn(plan_view(make_plan(loaded, expand(loaded), None)), width)
    proof = drawn(proof_view(loaded, check_sweep(loaded)), width)
    for text in (plan, proof):
        one = " ".join(text.split())
        assert "reward.terms: [{'score': 'success', 'weight': 1.0}, {'score': 'valid_turns'" in one
        assert "{: null}" not in text
        assert max(map(len, text.splitlines())) <= width
    assert "reward=own reward: null reward=rubric reward" in " ".join(plan.split())


def test_a_null_section_is_shown_as_null(tmp_path, no_weights):
    writer = FolderWriter(tmp_path)
    plan = drawn(plan_view(make_plan(writer.loaded, writer.specs, None)), 80)
    assert "  reward: null\n" in plan.replace(" \n", "\n")


def test_plan_text_with_measured_time(tmp_path, no_weights):
    writer = finished_sweep(tmp_path)
    measured = measure(tmp_path / "runs", writer.loaded.run_name, "kl")
    text = " ".join(drawn(plan_view(make_plan(writer.loaded, writer.specs, measured)), 120).split())
    assert f"{writer.spec(CONTROL, 0).trial_id} 0.0 false 40 s" in text
    assert f"{writer.spec(TREATED, 0).trial_id} 0.1 true 40 s" in text
    assert "time 4 min one at a time, by 120 steps in" in text


PAPER = Path(__file__).parents[2] / "sweeps" / "kl.yaml"


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """Return the plan of the shipped KL sweep at a profile, by the published shapes."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    def make(profile, *overrides):
        loaded = load_sweep(PAPER, profile=profile, overrides=overrides)
        return make_plan(loaded, expand(loaded), None)

    return make


def test_paper_fits_a_known_gpu(planned):
    plan = planned("paper")
    largest = max(cost.memory.peak for cost in plan.costs)
    assert all(cost.gpus for cost in plan.costs)
    text = " ".join(drawn(plan_view(plan), 80).split())
    assert "fits H200 (151 GB), B200 (192 GB) does not fit H100 NVL (100 GB) and smaller" in text
    assert (
        "fits 3 x H100, H100 PCIe, A100 80GB, A100 80GB PCIe (86 GB) and larger with --set "
        "resources.gpus=2 --set resources.engine=own"
    ) in text
    assert largest < 143_771 * 2**20 * 0.95
    assert "time unknown not measured yet" in text
    assert f"{plan.specs[0].trial_id} 0.0 false -" in text


def test_the_page_about_gpus_has_the_memory_of_its_profiles(planned):
    page = (PAPER.parents[1] / "docs" / "gpu.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(gpu|paper)` \|(.*)$", page, re.MULTILINE)
    told = [(p, *pair) for p, row in rows for pair in re.findall(r"([^;]*)\((\d+) GB\)", row)]
    assert len(told) == 4
    for profile, text, amount in told:
        sets = re.findall(r"--set ([^\s`]+)", text)
        fullest = max(cost.memory.fullest for cost in planned(profile, *sets).costs)
        assert round(fullest / 1e9) == int(amount), text


def test_what_the_profiles_say_of_gpus_holds(planned):
    adapters = planned("paper", "policy.lora.rank=64", "policy.lora.alpha=64")
    assert "A100 40GB" in [gpu.name for gpu in adapters.costs[1].gpus]
    for plan in (
        planned("gpu"),
        planned("gpu", "rollout.engine=torch", "policy.lora.rank=64"),
    ):
        assert all({"L4", "RTX 4090"} <= {gpu.name for gpu in c.gpus} for c in plan.costs)


def test_a_trial_that_no_gpu_holds_says_what_makes_it_smaller(planned):
    plan = planned(
        "paper", "optim.gradient_checkpointing=false", "optim.tokens_per_micro_batch=14400"
    )
    assert [cost.gpus for cost in plan.costs[1:2]] == [()]
    text = " ".join(drawn(plan_view(plan), 80).split())
    assert "fits no known GPU: the largest has 192 GB. It would take" in text
    smaller = max(cost.memory.peak for cost in planned("paper").costs)
    assert f"{size(smaller)} with --set optim.gradient_checkpointing=true" in text
    assert "with --set policy.lora.rank=64" in text
    assert "sleep=true" not in text  # it is
    assert "time unknown not measured yet" in text


def test_an_engine_that_trials_share_has_a_row_of_its_own(planned):
    sets = ["policy.lora.rank=64", "resources.gpus=0.25", "rollout.vllm.sleep=false"]
    own, shared = (
        planned("gpu", *sets, f"resources.engine={where}")
        for where in ("shared", "shared_by_sweep")
    )
    cost = shared.costs[1]
    assert cost.memory.fullest < own.costs[1].memory.fullest
    text = " ".join(drawn(plan_view(shared), 200).split())
    base, adapter = size(cost.memory.shared_engine), size(2 * cost.trained)  # bfloat16
    assert f"shared engine {base} once, on the first GPU, beside trials" in text
    assert f"a base and an adapter; {adapter} more for each other trial" in text


def test_a_share_of_a_gpu_is_a_small_gpu(planned):
    names = [gpu.name for gpu in planned("gpu", "resources.gpus=0.25").costs[1].gpus]
    assert names == ["H100 NVL", "H200", "B200"]  # a quarter of each is 25 GB and more


def test_cost_as_data(planned):
    plan = planned("paper")
    data = json.loads(json.dumps(cost_json(plan)))
    cost = data["trials"][plan.specs[1].trial_id]
    assert data["measured"] is None
    assert cost["gpus"] == ["H200", "B200"]
    assert cost["memory"]["peak"] == plan.costs[1].memory.peak
    assert cost["memory"]["engine"] == plan.costs[1].memory.engine
    assert cost["wall_s"] is None


def test_a_trial_has_a_time_only_where_its_kind_was_measured(planned):
    plan = planned("paper")
    measured = Measured("runs/kl-00000000", 7, {speed_key(plan.specs[0].config): 3.0})
    costs = [trial_cost(spec, measured) for spec in plan.specs]
    assert costs[0].wall_s == 400 * 3.0
    assert costs[1].wall_s is None  # with a reference: not measured


def test_adapter_parameters_are_those_that_train(small_policy):
    from rltune.forecast.parameters import adapter_parameters
    from rltune.policy.lora import add_adapter, trained_parameters
    from rltune.spec.schema.trial import LoraConfig

    model, lora = small_policy().model, LoraConfig(rank=3)
    shape = model.config.to_dict()
    add_adapter(model, lora, seed=0)
    count = sum(parameter.numel() for parameter in trained_parameters(model).values())
    assert adapter_parameters(shape, rank=3, targets=lora.targets) == count


@pytest.mark.parametrize("profile", ["tinker-local", "tinker"])
def test_of_a_model_that_a_service_holds_only_the_program_counts(monkeypatch, tmp_path, profile):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))  # no config.json of the hub's model here
    loaded = load_sweep(PAPER.with_name("tinker_kl.yaml"), profile=profile)
    plan = make_plan(loaded, expand(loaded), None)
    assert all(cost.memory.parts == {"program": cost.memory.peak} for cost in plan.costs)
    text = " ".join(drawn(plan_view(plan), 100).split())
    assert "memory 630 MB a trial: its program, no model" in text

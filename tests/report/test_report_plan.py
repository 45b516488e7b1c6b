import json

import pytest
from goldens import assert_golden, drawn, masked
from run_folders import CONTROL, TREATED, FolderWriter, finished_sweep, write_sweep

from rltune.report import parameters
from rltune.report.cost import measure, trial_cost
from rltune.report.plan import make_plan, plan_view
from rltune.report.render_check import proof_view
from rltune.spec.comparability import check_sweep
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.plan import plan_json
from rltune.store.speed import step_seconds

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
    monkeypatch.setattr("rltune.report.cost.model_shape", lambda model, env_kind: None)


def test_parameters_of_published_models():
    # embeddings 151936 x 2048; a layer: 2 x 2048^2 + 2 x 2048 x 256 + (2048 + 512)
    # + 3 x 2048 x 11008 + 2 x 2048 = 77_076_992; 36 of them, and 2048: 3_085_938_688
    # (the model card says 3.09 B)
    assert parameters.dense_decoder_parameters(QWEN_3B) == 3_085_938_688
    half_b = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14}
    half_b |= {"num_key_value_heads": 2, "intermediate_size": 4864}
    assert parameters.dense_decoder_parameters({**QWEN_3B, **half_b}) == 494_032_768


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
    assert cost.gates == 3  # 0, 10, 20
    assert cost.heldout_rollouts == 30
    assert cost.parameters is None
    assert cost.wall_s is None


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


def test_adapter_parameters_are_those_that_train(small_policy):
    from rltune.policy.lora import add_adapter, trained_parameters
    from rltune.report.parameters import adapter_parameters
    from rltune.spec.schema import LoraConfig

    model, lora = small_policy().model, LoraConfig(rank=3)
    shape = model.config.to_dict()
    add_adapter(model, lora, seed=0)
    count = sum(parameter.numel() for parameter in trained_parameters(model).values())
    assert adapter_parameters(shape, rank=3, targets=lora.targets) == count

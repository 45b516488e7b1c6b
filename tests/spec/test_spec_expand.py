from rltune.spec.conditions import axis_values
from rltune.spec.expand import expand, trial_slug
from rltune.spec.identity import config_hash
from rltune.spec.schema.sweep import Axis
from rltune.spec.schema.trial import TrialConfig


def test_seed_major_with_the_control_first(load):
    loaded = load(("control: 0.0", "control: 0.01\n  expect: {0.1: '-0.05 success'}"))
    trials = expand(loaded)
    assert [(trial.seed, trial.axis_value, trial.is_control) for trial in trials[:4]] == [
        (0, 0.01, True), (0, 0.0, False), (0, 0.1, False), (1, 0.01, True),
    ]  # fmt: skip
    assert len(trials) == 9
    assert len({trial.trial_id for trial in trials}) == 9
    assert [trial.expected_delta for trial in trials[:3]] == ["", "", "-0.05 success"]


def test_a_trial_carries_its_whole_config(load):
    trial = expand(load(seeds=[7]))[1]
    assert trial.sweep == "toy"
    assert trial.axis_key == "loss.kl_loss_coef"
    assert trial.condition == "kl_loss_coef=0.01"
    assert trial.config["seed"] == 7
    assert trial.config_hash == config_hash(trial.config)
    assert trial.trial_id == f"kl_loss_coef=0.01-s7-{trial.config_hash[:10]}"
    assert TrialConfig.model_validate(trial.config).loss.kl_loss_coef == 0.01


def test_more_seeds_change_neither_the_folder_nor_earlier_trials(load):
    two, three = load(seeds=[0, 1]), load(seeds=[0, 1, 2])
    assert two.run_name == three.run_name == f"toy-{two.sweep_hash[:8]}"
    assert len(two.sweep_hash) == 64
    assert [t.trial_id for t in expand(two)] == [t.trial_id for t in expand(three)][:6]


def test_what_changes_a_run_changes_the_folder(load):
    plain = load().sweep_hash
    assert load(overrides=["tracking.wandb=offline"]).sweep_hash == plain
    assert load(("title: A toy sweep", "title: Renamed")).sweep_hash == plain
    assert load(overrides=["budget.steps=3"]).sweep_hash != plain
    assert load(("values: [0.0, 0.01, 0.1]", "values: [0.0, 0.01]")).sweep_hash != plain
    assert load(("control: 0.0", "control: 0.1")).sweep_hash != plain
    assert load(("mode: max", "mode: min")).sweep_hash != plain


def test_true_is_not_the_control_one():
    values = axis_values(Axis(key="loss.use_kl_loss", values=[1, True, 0.0], control=True))
    assert [value.is_control for value in values] == [False, True, False]
    values = axis_values(Axis(key="loss.clip_low", values=[1, 0.0], control=0))
    assert [value.is_control for value in values] == [False, True]


def test_a_long_label_is_cut_but_not_its_seed():
    slug = trial_slug("x" * 200, 12)
    assert len(slug) == 60
    assert slug.endswith("x-s12")
    assert trial_slug("model=Qwen/Qwen2.5-3B", 0) == "model=Qwen_Qwen2.5-3B-s0"

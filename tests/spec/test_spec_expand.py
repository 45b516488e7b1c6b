import pytest

from rltune.errors import SpecError
from rltune.spec.conditions import axis_values
from rltune.spec.expand import expand, trial_slug, until_decided
from rltune.spec.identity import config_hash
from rltune.spec.schema.sweep import Axis
from rltune.spec.schema.trial import TrialConfig
from rltune.types import SeedPlan


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


LOOKS = ("seeds: [0, 1, 2]", "seeds: {start: 3, max: 6, until: decided, effect: 0.05, block: 2}")


def test_seeds_until_decided_are_planned_to_their_most(load):
    loaded, listed = load(LOOKS), load()
    assert loaded.seeds == (0, 1, 2, 3, 4, 5)
    assert loaded.until == SeedPlan(start=3, most=6, block=2, effect=0.05)
    assert loaded.until.counts == (3, 5, 6)
    assert expand(loaded)[: len(expand(listed))] == expand(listed)  # no identity moves
    assert loaded.run_name == listed.run_name
    assert load(LOOKS, seeds=[4, 5]).until is None


def test_a_list_becomes_the_first_block(load):
    loaded = until_decided(load(seeds=[7, 8, 9, 3]), effect=0.1)
    assert loaded.until == SeedPlan(start=4, most=12, block=1, effect=0.1)
    assert loaded.seeds == (7, 8, 9, 3, *range(10, 18))
    assert until_decided(load(LOOKS), most=9).until == SeedPlan(3, 9, 2, 0.05)


def test_other_seeds_keep_the_looks_of_the_file(load):
    loaded = until_decided(load(LOOKS, seeds=[7, 8, 9]))
    assert loaded.until == SeedPlan(start=3, most=6, block=2, effect=0.05)
    assert loaded.seeds == (7, 8, 9, 10, 11, 12)
    assert until_decided(load(LOOKS, seeds=range(8))).until == SeedPlan(8, 8, 2, 0.05)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"most": 0}, "--max-seeds: 0 cannot be the most seeds. Give 3 to 100: "),
        ({"most": 2}, "--max-seeds: 2 cannot be the most seeds. Give 3 to 100: "),
        ({"effect": -1.0}, "--effect: -1 is not a difference of interest. Give one above 0, "),
    ],
)
def test_looks_that_cannot_be_are_refused(load, options, line):
    with pytest.raises(SpecError) as caught:
        until_decided(load(), **options)
    assert str(caught.value).startswith(line)

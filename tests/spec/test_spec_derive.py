"""A new config from a recorded one."""

import pytest

from rltune.errors import SpecError
from rltune.spec.derive import derive_config, derive_spec
from rltune.spec.identity import config_hash
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.types import TrialSpec

_GIVEN = {"policy": {"model": "tiny"}, "env": {"prompt": "compact"}}
CONFIG = to_plain(TrialConfig.model_validate(_GIVEN))
PARENT = TrialSpec(
    trial_id="kl_loss_coef=0.0-s0-x",
    sweep="kl",
    axis_key="loss.kl_loss_coef",
    condition="kl_loss_coef=0.0",
    axis_value=0.0,
    is_control=True,
    seed=0,
    config=CONFIG,
    config_hash=config_hash(CONFIG),
)


def derived(*overrides, seed=None, start="", step=None):
    config = derive_config(CONFIG, source="config.yaml", overrides=overrides, seed=seed)
    return derive_spec(PARENT, config, start=start, step=step)


def test_nothing_changed_is_the_same_identity():
    spec = derived()
    assert spec.config == CONFIG
    assert spec.config_hash == PARENT.config_hash
    assert not spec.is_control  # a child is nobody's control


def test_seed_and_keys_change_the_identity_and_the_name():
    spec = derived("optim.lr=1e-3", seed=7)
    assert (spec.seed, spec.config["optim"]["lr"]) == (7, 1e-3)
    assert spec.config_hash != PARENT.config_hash
    assert spec.trial_id.startswith("kl_loss_coef=0.0-s7-")
    assert spec.trial_id.endswith(spec.config_hash[:10])


def test_what_it_starts_from_is_part_of_the_identity():
    one, other = derived(start="a" * 64, step=4), derived(start="b" * 64, step=4)
    assert len({PARENT.config_hash, one.config_hash, other.config_hash}) == 3
    assert one.trial_id.startswith("kl_loss_coef=0.0-s0-from4-")


def test_wall_limits_are_no_part_of_it():
    assert derived("budget.train_wall_s=60").config_hash == PARENT.config_hash


def test_a_moved_axis_renames_the_condition():
    spec = derived("loss.kl_loss_coef=0.1", "loss.use_kl_loss=true")
    assert (spec.condition, spec.axis_value) == ("kl_loss_coef=0.1", 0.1)


def test_every_mistake_is_told_at_once():
    with pytest.raises(SpecError) as caught:
        derived("optim.lrr=1", "nonsense")
    assert len(caught.value.problems) == 2
    with pytest.raises(SpecError, match=r"--set optim\.lr=-1"):
        derived("optim.lr=-1")

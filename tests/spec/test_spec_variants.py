"""Variants of loss, filter and correction: whose a key is, what a change keeps, old files."""

from pathlib import Path

import pytest

from rltune.comparability.check import check_sweep
from rltune.errors import StoreError
from rltune.spec.identity import canonical_json, config_hash, identity_view, sha256_hex
from rltune.spec.keys import kept_keys, variants
from rltune.store.origin import require_current_config
from rltune.store.rundir import TrialDir
from rltune.types import TrialSpec


def axis(key, values, control):
    """Return the edits that make a key the axis of the toy sweep, KL off."""
    return (
        ("key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0\n",
         f"key: {key}\n  values: {values}\n  control: {control}\n"),
        ('  coupled:\n    - key: loss.use_kl_loss\n      rule: "value > 0"\n', ""),
        ("      why: one switch\n", ""),
        ("  loss.kl_type: k2\n", "  loss.kl_loss_coef: 0.0\n"),
    )  # fmt: skip


UNHELD = ("  rollout_correction.kind: none\n", "")


def sections(loaded, name):
    return [condition.config[name] for condition in loaded.conditions]


def test_an_axis_over_corrections(load):
    loaded = load(*axis("rollout_correction.kind", "[none, tis, icepop]", "none"), UNHELD)
    assert sections(loaded, "rollout_correction") == [
        {"kind": "none"},
        {"kind": "tis", "cap": 2.0},
        {"kind": "icepop", "band_low": 0.5, "band_high": 5.0},
    ]
    assert check_sweep(loaded).errors == ()


def test_an_axis_over_losses_keeps_what_the_next_one_has_too(load):
    held = ("hold:\n", "hold:\n  loss.clip_low: 0.1\n  loss.dual_clip: 5.0\n")
    ppo, turn, reinforce = sections(
        load(*axis("loss.kind", "[ppo, turn, reinforce]", "ppo"), held), "loss"
    )
    assert (ppo["clip_low"], ppo["dual_clip"]) == (0.1, 5.0)
    assert (turn["clip_low"], turn["turn_clip_beta"], "dual_clip" in turn) == (0.1, 0.0, False)
    assert reinforce.keys() & {"clip_low", "clip_high", "dual_clip", "turn_clip_beta"} == set()
    assert check_sweep(load(*axis("loss.kind", "[ppo, reinforce]", "ppo"), held)).errors == ()


def test_an_axis_over_strategies(load):
    top = ("    strategy: top_p\n    value: 1.0\n", "    value: 0.5\n    mode: mass\n")
    loaded = load(*axis("rollout_filter.strategy", "[top_p, top_k]", "top_p"), top)
    share, count = sections(loaded, "rollout_filter")
    assert (share["value"], share["mode"]) == (0.5, "mass")
    assert (count["value"], "mode" in count) == (0.5, False)


def test_an_override_may_not_lose_a_held_key(problems, load):
    held = ("hold:\n", "hold:\n  loss.dual_clip: 5.0\n")
    assert problems(held, overrides=["loss.kind=cispo"]) == [
        "--set loss.kind=cispo: 'loss.dual_clip' is held by this sweep. "
        "Edit the sweep file instead."
    ]
    kept = ("hold:\n", "hold:\n  loss.clip_low: 0.1\n")
    assert load(kept, overrides=["loss.kind=cispo"]).control.config["loss"]["clip_low"] == 0.1


def test_an_override_is_not_lost_to_a_variant_chosen_after_it(problems, load):
    refused = problems(overrides=["loss.dual_clip=5", "loss.kind=gspo"])
    assert refused[0].startswith(
        "--set loss.dual_clip=5: loss.dual_clip: 'dual_clip' belongs to loss.kind ppo; the kind "
        "is gspo here. "
    )
    assert len(refused) == 1
    gspo = ("hold:\n", "hold:\n  loss.clip_low: 0.1\n")
    kinds = ["loss.kind=gspo", "loss.dual_clip=5", "loss.kind=ppo"]
    loss = load(gspo, overrides=kinds).control.config["loss"]
    assert (loss["kind"], loss["dual_clip"], loss["clip_low"]) == ("ppo", 5, 0.1)
    whole = ["loss={kind: cispo, clip_high: 0.4}", "loss.clip_high=0.5"]
    loss = load(overrides=whole).control.config["loss"]
    assert (loss["kind"], loss["clip_high"]) == ("cispo", 0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("loss: {kind: turn, dual_clip: null, clip_low: 0.003}",
         "hold.loss.dual_clip: 'dual_clip' belongs to loss.kind ppo; the kind is turn here. "
         "Set loss.kind: ppo, or remove 'dual_clip'. "
         "Did you mean 'loss: {kind: ppo, clip_low: 0.003, dual_clip: null}'?"),
        ("loss: {kind: turn, dual_clip: 3.0, clip_low: 0.003}",
         "hold.loss.dual_clip: 'dual_clip' belongs to loss.kind ppo; the kind is turn here. "
         "Set loss.kind: ppo, or remove 'dual_clip'. "
         "Did you mean 'loss: {kind: turn, clip_low: 0.003}'?"),
        ("loss: {kind: reinforce, clip_low: 0.1, clip_high: 0.2}",
         "hold.loss.clip_low: 'clip_low' and 'clip_high' belong to loss.kind ppo or gspo or cispo "
         "or turn; the kind is reinforce here. "
         "Set loss.kind: ppo, or remove 'clip_low' and 'clip_high'. "
         "Did you mean 'loss: {kind: ppo, clip_low: 0.1, clip_high: 0.2}'?"),
        ("env.split_seed: 1\n  rollout_correction: {cap: 2.0, band_low: 0.5, band_high: 5.0}",
         "hold.rollout_correction.cap: 'cap' belongs to rollout_correction.kind tis, 'band_low' "
         "and 'band_high' belong to rollout_correction.kind icepop; the kind is none here. "
         "Remove what does not belong to the kind that you mean. "
         "Did you mean 'rollout_correction: {kind: none}'?"),
    ],
)  # fmt: skip
def test_an_old_file_is_shown_the_new_form(problems, given, said):
    (found,) = problems(
        ("hold:\n", f"hold:\n  {given}\n"), ("  loss.kl_type: k2\n", ""),
        ("  loss.entropy_coeff: 0.0\n", ""), ("  loss.kl_target: null\n", ""), UNHELD,
    )  # fmt: skip
    assert found.partition(": ")[2] == said


def test_a_variant_keeps_what_it_has():
    assert set(kept_keys("loss", "reinforce")) == {*variants("loss")["reinforce"].model_fields}
    assert kept_keys("advantage", "grpo") == ("shaping",)
    assert kept_keys("loss", "no such loss") == ()


def test_a_trial_of_older_keys_is_read_but_not_run(load):
    config = dict(load().control.config)
    config["rollout_correction"] = {"kind": "none", "cap": 2.0, "band_low": 0.5, "band_high": 5.0}
    old = sha256_hex(canonical_json(identity_view(config)))
    assert old != config_hash(config)
    trial = TrialDir(Path("runs/toy/trials/a"))

    def spec(digest):
        return TrialSpec("a", "toy", "loss.kind", "a", 0, False, 0, config, digest)

    with pytest.raises(StoreError) as caught:
        require_current_config(trial, spec(old), None)
    assert str(caught.value) == (
        "runs/toy/trials/a: an older version of rltune ran this trial, with other config keys; it "
        "can be read, but not run, continued or tested by this one. "
        "Start a new run: rltune sweep FILE."
    )
    require_current_config(trial, spec(config_hash(config)), None)

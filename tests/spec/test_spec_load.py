"""Whole message lines of everything that a sweep file, a profile or --set can get wrong."""

from pathlib import Path

import pytest

from rltune.errors import SpecError
from rltune.spec.load import load_sweep

LOSS_KEYS = (
    "kind, aggregation, sum_norm, entropy_coeff, use_kl_loss, kl_loss_coef, kl_type, kl_target, "
    "kl_horizon, clip_low, clip_high, dual_clip"
)
SWEEP_KEYS = (
    "hypothesis, specialist, parent, name, title, question, base, protocol, hold, axis, seeds, "
    "metric, profiles, accept"
)
VALUES = "values: [0.0, 0.01, 0.1]"
FINITE = "Give a finite number, text or true/false; for a bundle of keys, name it."

SWEEP_FILE_CASES = {
    "base": (
        ("base: sokoban", "base: sokobam"),
        ["toy.yaml:4: base: 'sokobam' is not a base. "
         "Choose one of arithmetic, countdown, frozen_lake, multihop_qa, sokoban. Did you mean "
         "'sokoban'?"],
    ),
    "protocol": (
        ("base: sokoban", "base: sokoban\nprotocol: figure4"),
        ["toy.yaml:5: protocol: 'figure4' is not a protocol. "
         "Choose one of figure3, frozenlake_noise. Did you mean 'figure3'?"],
    ),
    "profile default": (
        ("default: laptop", "default: labtop"),
        ["toy.yaml:26: profiles.default: 'labtop' is not a profile of this sweep. "
         "Choose one of laptop, paper. Did you mean 'laptop'?"],
    ),
    "profile file": (
        ("default: laptop, allowed: [laptop", "default: lap2, allowed: [lap2"),
        ["toy.yaml:26: profiles.allowed: 'lap2' is not a profile. "
         "Choose one of a2tgpo, gpu, laptop, paper, smollm2, tinker, tinker-local. "
         "Did you mean 'laptop'?"],
    ),
    "unknown key": (
        ("seeds:", "sedes:"),
        ["toy.yaml: seeds: 'seeds' is missing from this file. "
         "Seeds, the same ones for every condition; or `{start: 3, max: 12, until: decided, "
         "effect: 0.05}`, which adds seeds until each condition is decided.",
         f"toy.yaml:24: sedes: 'sedes' is not a key of this file. Choose one of {SWEEP_KEYS}. "
         "Did you mean 'seeds'?"],
    ),
    "unknown key in hold": (
        ("loss.entropy_coeff", "loss.entropy_coef"),
        ["toy.yaml:7: hold.loss.entropy_coef: 'entropy_coef' is not a key of loss. "
         f"Choose one of {LOSS_KEYS}. Did you mean 'entropy_coeff'?"],
    ),
    "choice in hold": (
        ("strategy: top_p", "strategy: top_q"),
        ["toy.yaml:9: hold.rollout_filter.strategy: 'top_q' is not a strategy. "
         "Choose one of top_p, top_k, top_k_abs, min_p. Did you mean 'top_p'?"],
    ),
    "yes is no truth value": (
        ("include_zero: true", "include_zero: yes"),
        ["toy.yaml:11: hold.rollout_filter.include_zero: 'yes' is not true or false. "
         "Write true or false, without quotes."],
    ),
    "number as text": (
        ("loss.entropy_coeff: 0.0", "loss.entropy_coeff: '0.0'"),
        ["toy.yaml:7: hold.loss.entropy_coeff: '0.0' is not a number."],
    ),
    "double key": (
        ("  loss.kl_type: k2", "  loss: {entropy_coeff: 0.1}"),
        ["toy.yaml:5: hold: 'loss.entropy_coeff' is given twice (with dots, nested, or in a short "
         "form). Keep one of them."],
    ),
    "axis key": (
        ("key: loss.kl_loss_coef", "key: actor.kl_loss_coef"),
        ["toy.yaml:17: axis.key: 'actor.kl_loss_coef' is not a config key. "
         "Did you mean 'loss.kl_loss_coef'?"],
    ),
    "axis is a section": (
        ("key: loss.kl_loss_coef", "key: critic"),
        ["toy.yaml:17: axis.key: 'critic' is a section; one value cannot replace it. "
         "Name a key inside it, or give bundles of its keys."],
    ),
    "axis is the seed": (
        ("key: loss.kl_loss_coef", "key: seed"),
        ["toy.yaml:17: axis.key: 'seed' is the unit of replication, not a knob. "
         "List seeds under seeds."],
    ),
    "axis is the backend": (
        ("key: loss.kl_loss_coef", "key: trainer.backend"),
        ["toy.yaml:17: axis.key: 'trainer.backend' is where trials are trained, not a knob: no two "
         "backends are equal. Set it for all conditions, and compare backends by a sweep for "
         "each."],
    ),
    "axis is held": (
        ("  loss.kl_type: k2", "  loss.kl_loss_coef: 0.0"),
        ["toy.yaml:17: axis.key: 'loss.kl_loss_coef' is set by the axis and held. "
         "Remove it from hold."],
    ),
    "coupled is held": (
        ("  loss.kl_type: k2", "  loss.use_kl_loss: false"),
        ["toy.yaml:21: axis.coupled.0.key: 'loss.use_kl_loss' is held and coupled. "
         "Remove it from hold or from coupled."],
    ),
    "seed is held": (
        ("  loss.kl_type: k2", "  seed: 3"),
        ["toy.yaml:6: hold.seed: The seed cannot be held; it is the unit of replication. "
         "List seeds under seeds."],
    ),
    "value twice": (
        (VALUES, "values: [0.0, 0, 0.1]"),
        ["toy.yaml:18: axis.values: 0 is given twice. Remove the duplicate."],
    ),
    "no values": (
        (VALUES, "values: []"),
        ["toy.yaml:18: axis.values: [] holds no values. "
         "Give a list of values, or a mapping of name -> value or bundle."],
    ),
    "nan and inf": (
        (VALUES, "values: [0.0, .nan, .inf]"),
        [f"toy.yaml:18: axis.values.1: nan is not an axis value. {FINITE}",
         f"toy.yaml:18: axis.values.2: inf is not an axis value. {FINITE}"],
    ),
    "value outside the domain (S7)": (
        (VALUES, "values: [0.0, -0.1]"),
        ["toy.yaml:18: axis.values.1: loss.kl_loss_coef: -0.1 is out of range. "
         "Give at least 0.0."],
    ),
    "control": (
        ("control: 0.0", "control: 0.5"),
        ["toy.yaml:19: axis.control: 0.5 is not among the axis values. "
         "Choose one of 0.0, 0.01, 0.1."],
    ),
    "control is text": (
        ("control: 0.0", "control: '0.0'"),
        ["toy.yaml:19: axis.control: '0.0' is not among the axis values. "
         "Choose one of 0.0, 0.01, 0.1."],
    ),
    "expect": (
        ("control: 0.0", "control: 0.0\n  expect: {0.5: better}"),
        ["toy.yaml:20: axis.expect.0.5: 0.5 is not among the axis values. "
         "Choose one of 0.0, 0.01, 0.1."],
    ),
    "rule is no rule": (
        ('"value > 0"', "\"__import__('os')\""),
        ["toy.yaml:22: axis.coupled.0.rule: \"__import__('os')\" cannot be a rule: "
         "\"__import__('os')\" is not allowed in a rule. "
         "Use value, literals, comparison, and/or/not, + - * / // % and if/else."],
    ),
    "rule fails for one value (S2)": (
        ('"value > 0"', '"1 / value > 0"'),
        ["toy.yaml:22: axis.coupled.0.rule: '1 / value > 0' fails for axis value 0.0: "
         "it has no value for 0.0 (float division by zero). "
         "Give a rule that holds for every value."],
    ),
    "coupling without a reason (S2)": (
        ("why: one switch", "why: ' '"),
        ["toy.yaml:23: axis.coupled.0.why: ' ' is blank. "
         "Write a reason, for the reader of the figure."],
    ),
    "seeds": (
        ("[0, 1, 2]", "[-1, 2.0]"),
        ["toy.yaml:24: seeds.0: -1 is out of range. Give at least 0.",
         "toy.yaml:24: seeds.1: 2.0 is not a whole number."],
    ),
    "seed twice": (
        ("[0, 1, 2]", "[1, 1]"),
        ["toy.yaml:24: seeds: 1 is given twice. Remove the duplicate."],
    ),
    "seeds until when": (
        ("[0, 1, 2]", "{start: 2, max: 200, until: decide, effect: 0.0}"),
        ["toy.yaml:24: seeds.start: 2 is out of range. Give at least 3.",
         "toy.yaml:24: seeds.max: 200 is out of range. Give at most 100.",
         "toy.yaml:24: seeds.until: 'decide' is not an until. Choose one of decided. "
         "Did you mean 'decided'?",
         "toy.yaml:24: seeds.effect: 0.0 is out of range. Give more than 0.0."],
    ),
    "fewer seeds than the first block": (
        ("[0, 1, 2]", "{start: 8, max: 4, until: decided}"),
        ["toy.yaml:24: seeds.max: 4 is below start, 8. Give at least as many as start."],
    ),
    "no seeds": (("[0, 1, 2]", "[]"), ["toy.yaml:24: seeds: [] is empty. Give at least one."]),
    "accepting an error": (
        ("seeds:", "accept: {S1: because}\nseeds:"),
        ["toy.yaml:24: accept.S1: 'S1' cannot be accepted. "
         "Only warnings can: S8, one of its findings such as S8.k1_loss, or S6.proportional."],
    ),
    "name": (
        ("name: toy", "name: ../toy"),
        ["toy.yaml:1: name: '../toy' has the wrong form. "
         "Name of the sweep: lower case, digits, - and _; names folders."],
    ),
    "title is a number": (
        ("title: A toy sweep", "title: 3"),
        ["toy.yaml:2: title: 3 is not text. Put it in quotes."],
    ),
    "title without a value": (
        ("title: A toy sweep", "title:"),
        ["toy.yaml:2: title: null is not text. Write a value, or leave the key out."],
    ),
    "interpolation": (
        ("loss.entropy_coeff: 0.0", "loss.entropy_coeff: ${optim.lrr}"),
        ["toy.yaml:7: hold.loss.entropy_coeff: cannot be resolved: "
         "Interpolation key 'optim.lrr' not found."],
    ),
    "resolver": (
        ("loss.entropy_coeff: 0.0", "loss.entropy_coeff: ${oc.env:HOME}"),
        ["toy.yaml:7: hold.loss.entropy_coeff: '${oc.env:HOME}' is more than a reference to a key, "
         "such as a resolver. Write the value itself; only ${section.key} is resolved here."],
    ),
    "interpolation in an interpolation": (
        ("loss.entropy_coeff: 0.0", "loss.entropy_coeff: ${optim.${x}}"),
        ["toy.yaml:7: hold.loss.entropy_coeff: '${optim.${x}}' is more than a reference to a key, "
         "such as a resolver. Write the value itself; only ${section.key} is resolved here."],
    ),
    "seed by interpolation": (
        ("loss.entropy_coeff: 0.0", "env.split_seed: ${seed}"),
        ["toy.yaml:7: hold.env.split_seed: '${seed}' would be 0 in every trial: the seed is filled "
         "in per trial. Write the value; every stream has the seed."],
    ),
    "seed by a relative interpolation": (
        ("loss.entropy_coeff: 0.0", "env.split_seed: ${..seed}"),
        ["toy.yaml:7: hold.env.split_seed: '${..seed}' would be 0 in every trial: the seed is "
         "filled in per trial. Write the value; every stream has the seed."],
    ),
    "placeholder": (
        ("loss.entropy_coeff: 0.0", "loss.entropy_coeff: ???"),
        ["toy.yaml:7: hold.loss.entropy_coeff: '???' is a placeholder. Give a value."],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"), SWEEP_FILE_CASES.values(), ids=SWEEP_FILE_CASES.keys()
)
def test_sweep_file_messages(problems, change, expected):
    assert problems(change) == expected


OVERRIDE_CASES = {
    "optim.lr=abc": ["optim.lr: 'abc' is not a number."],
    "optim.lr": ["is not of the form key=value. Example: budget.steps=20."],
    "optim.lrr=1": ["'optim.lrr' is not a config key. Did you mean 'optim.lr'?"],
    "optim.lr=[": ["'[' is not a YAML value. Put it in quotes."],
    "gate=3": ["gate: 3 is not a mapping of keys."],
    "budget.steps=0": ["budget.steps: 0 is out of range. Give at least 1."],
    "budget.steps=1e3": ["budget.steps: 1000.0 is not a whole number."],
    "loss.kl_loss_coef=1": [
        "'loss.kl_loss_coef' is the axis of this sweep. Edit the sweep file instead."
    ],
    "loss.use_kl_loss=true": [
        "'loss.use_kl_loss' is coupled with the axis. Edit the sweep file instead."
    ],
    "loss.entropy_coeff=1": [
        "'loss.entropy_coeff' is held by this sweep. Edit the sweep file instead."
    ],
    "rollout_filter={value: 0.5}": [
        "'rollout_filter.value' is held by this sweep. Edit the sweep file instead."
    ],
    "seed=4": ["'seed' is set by the seeds of this sweep. Use --seeds."],
    "rollout.top_p=0.9": [  # C12
        "rollout.top_p: 0.9 would truncate training samples, which biases every importance ratio. "
        "Set it to 1.0; use rollout.temperature for sharper samples."
    ],
    "rollout.top_k=50": [  # C12
        "rollout.top_k: 50 would truncate training samples, which biases every importance ratio. "
        "Set it to -1; use rollout.temperature for sharper samples."
    ],
    "advantage.kind=grop": [
        "advantage.kind: 'grop' is not an advantage. "
        "Choose one of gae, gae_bilevel, grpo, grpo_center, rloo, maxrl, reinforce_pp, "
        "reinforce_pp_baseline, custom. Did you mean 'grpo'?"
    ],
    "advantage={kind: grpo, shaping: {gtpo_beta: 0.1}}": [
        "'advantage.shaping.gtpo_beta' is held by this sweep. Edit the sweep file instead."
    ],
    "advantage.normalize_std=true": [
        "advantage.normalize_std: 'normalize_std' belongs to advantage.kind grpo; the kind is gae "
        "here. Set advantage.kind: grpo, or remove 'normalize_std'. "
        "Did you mean 'advantage: {kind: gae}'?"
    ],
    "env.kind=frozen": [
        "env.kind: 'frozen' is not an env. "
        "Choose one of sokoban, frozen_lake, multihop_qa, arithmetic, verified, custom. "
        "Did you mean 'frozen_lake'?"
    ],
    "optim.minibatch_by=prompt": [
        "optim.minibatch_by: 'prompt' is not a minibatch_by. Choose one of row, group."
    ],
    "optim.tokens_per_micro_batch=many": [
        "optim.tokens_per_micro_batch: 'many' is no number of tokens. "
        "Give a whole number from 1, or auto."
    ],
    "optim.tokens_per_micro_batch=0": [
        "optim.tokens_per_micro_batch: 0 is no number of tokens. "
        "Give a whole number from 1, or auto."
    ],
    "optim.mini_batch_size=96": [  # 16 groups x 8 = 128
        "optim.mini_batch_size: 96 does not divide the 128 rollouts of a step "
        "(rollout.groups x rollout.group_size). "
        "Give a divisor, so that every optimiser step has the same size."
    ],
    "optim.lr=1e+38": ["optim.lr: 1e+38 is out of range. Give at most 1.0."],
    "critic.lr=1.5": ["critic.lr: 1.5 is out of range. Give at most 1.0."],
    "optim.weight_decay=1e+40": [  # the toy's profile has lr 1e-4
        "optim.weight_decay: 1e+40 times optim.lr takes more than all of a weight in a step. "
        "Give at most 10000."
    ],
    "env.max_actions=11": [  # 5 turns x 2
        "env.max_actions: 11 actions can never be reached in 5 turns of 2. Give at most 10."
    ],
    "env.prompt=natural": [
        "env.prompt: 'natural' cannot be read by policy.model 'tiny'. "
        "Set it to compact, or choose another policy.model."
    ],
    "rollout.max_response_tokens=256": [
        "rollout.max_response_tokens: 256 tokens of response leave no room for a prompt. "
        "Give less than rollout.max_context, 256."
    ],
}


@pytest.mark.parametrize("override", OVERRIDE_CASES)
def test_override_messages(problems, override):
    expected = [f"--set {override}: {line}" for line in OVERRIDE_CASES[override]]
    assert problems(overrides=[override]) == expected


def test_how_long_all_train_may_be_set_though_it_is_held(problems, load):
    entropy = "loss.entropy_coeff: 0.0"
    held = (entropy, f"{entropy}\n  budget.steps: 20")
    assert load(held).control.config["budget"]["steps"] == 20
    assert load(held, overrides=["budget.steps=5"]).control.config["budget"]["steps"] == 5
    held = (entropy, f"{entropy}\n  gate.every: 10")
    assert problems(held, overrides=["gate.every=5"]) == [
        "--set gate.every=5: 'gate.every' is held by this sweep. Edit the sweep file instead."
    ]


def test_unknown_kl_type_lists_every_name(problems):
    names = "k1, k2, k3, abs, full, kl, mse, low_var_kl"
    plus = ", ".join(f"{name}+" for name in names.split(", "))
    assert problems(("kl_type: k2", "kl_type: low-var-kl")) == [  # RAGEN's name, which veRL refuses
        "toy.yaml:6: hold.loss.kl_type: 'low-var-kl' is not a kl_type. "
        f"Choose one of {names}, {plus}. Did you mean 'low_var_kl'?"
    ]


def test_exact_kl_is_for_small_vocabularies(problems, load):
    assert load(("kl_type: k2", "kl_type: full")).control.config["loss"]["kl_type"] == "full"
    lines = problems(("kl_type: k2", "kl_type: full"), profile="paper")
    assert lines == [
        "toy.yaml:6: hold.loss.kl_type: 'full' needs the whole vocabulary of two models in memory. "
        "Use it with policy.model tiny, or choose k2 or k3+."
    ]


def test_a_group_of_one_is_refused_where_its_spread_is_used(problems, load):  # B3
    one = ["rollout.group_size=1", "optim.mini_batch_size=16", "optim.micro_batch_size=16"]
    what = "Give 2 or more; the spread of a single rollout is not defined."
    where = "--set rollout.group_size=1: rollout.group_size: 1 cannot be used with"
    assert load(overrides=one).control.config["rollout"]["group_size"] == 1  # gae, no filter
    assert problems(overrides=[*one, "advantage.kind=grpo"]) == [
        f"{where} advantage.kind grpo. {what}"
    ]
    assert problems(("value: 1.0", "value: 0.9"), overrides=one) == [
        f"{where} rollout_filter.metric reward_variance. {what}"
    ]
    # value 1.0 without include_zero still looks at the spread
    assert problems(("include_zero: true", "include_zero: false"), overrides=one) == [
        f"{where} rollout_filter.metric reward_variance. {what}"
    ]


def test_a_mini_batch_by_group_holds_whole_groups(problems, load):
    group = ["optim.minibatch_by=group", "rollout.group_size=8", "rollout.groups=16"]
    assert problems(overrides=[*group, "optim.mini_batch_size=4"]) == [
        "--set optim.mini_batch_size=4: optim.mini_batch_size: 4 rollouts are no whole groups of 8 "
        "(rollout.group_size), and optim.minibatch_by is group. "
        "Give a multiple of 8, or set optim.minibatch_by to row."
    ]
    load(overrides=[*group[1:], "optim.minibatch_by=row", "optim.mini_batch_size=4"])
    load(overrides=[*group, "optim.mini_batch_size=16"])


def test_kl_switch_and_coefficient_must_agree(problems):
    assert problems(('"value > 0"', '"value >= 0"')) == [
        "toy.yaml:18: axis.values.0: loss.kl_loss_coef: 0.0 with loss.use_kl_loss true runs a "
        "reference model for nothing. "
        "Give a coefficient above 0, or set loss.use_kl_loss to false."
    ]
    assert problems(('"value > 0"', '"value > 0.05"')) == [
        "toy.yaml:18: axis.values.1: loss.kl_loss_coef: 0.01 has no effect while "
        "loss.use_kl_loss is false. Set loss.use_kl_loss to true; couple it when this is the axis."
    ]


@pytest.mark.parametrize(
    ("strategy", "value", "message"),
    [
        ("top_p", "1.5", "1.5 is not a share for strategy top_p. "
         "Give a number above 0 and at most 1."),
        ("min_p", "0.0", "0.0 is not a share for strategy min_p. "
         "Give a number above 0 and at most 1."),
        ("top_k_abs", "2.5", "2.5 is not a number of groups for strategy top_k_abs. "
         "Give a whole number from 1 to rollout.groups, 32."),
        ("top_k_abs", "33", "33.0 is not a number of groups for strategy top_k_abs. "
         "Give a whole number from 1 to rollout.groups, 32."),
    ],
)  # fmt: skip
def test_filter_value_has_the_domain_of_its_strategy(problems, strategy, value, message):
    lines = problems(
        ("strategy: top_p", f"strategy: {strategy}"), ("value: 1.0", f"value: {value}")
    )
    assert lines == [f"toy.yaml:10: hold.rollout_filter.value: {message}"]


def test_all_problems_of_all_files_are_raised_at_once(problems):
    lines = problems(
        ("question: ", "questoin: "),
        ("base: sokoban", "base: sokobam"),
        ("[0, 1, 2]", "[0, 0]"),
        overrides=["nonsense"],
        seeds=[-1, 5, 5],
    )
    assert lines == [
        "toy.yaml: question: 'question' is missing from this file. "
        "The question that the sweep answers, in a sentence.",
        "toy.yaml:24: seeds: 0 is given twice. Remove the duplicate.",
        f"toy.yaml:3: questoin: 'questoin' is not a key of this file. Choose one of {SWEEP_KEYS}. "
        "Did you mean 'question'?",
        "toy.yaml:4: base: 'sokobam' is not a base. "
        "Choose one of arithmetic, countdown, frozen_lake, multihop_qa, sokoban. Did you mean "
        "'sokoban'?",
        "--set nonsense: is not of the form key=value. Example: budget.steps=20.",
        "--seeds: -1 is not a seed. Give whole numbers >= 0.",
        "--seeds: 5 is given twice. Remove the duplicate.",
    ]


def test_config_problems_are_reported_beside_problems_of_the_sweep_file(problems):
    lines = problems(("seeds: [0, 1, 2]\n", ""), ("strategy: top_p", "strategy: top_q"))
    assert [line.partition(" ")[0] for line in lines] == ["toy.yaml:", "toy.yaml:9:"]


def test_cross_checks_run_beside_domain_errors_of_other_sections(problems):
    lines = problems(
        overrides=["optim.mini_batch_size=3", "optim.micro_batch_size=1", "critic.lr=0"]
    )
    assert lines == [
        "--set critic.lr=0: critic.lr: 0 is out of range. Give more than 0.0.",
        "--set optim.mini_batch_size=3: optim.mini_batch_size: 3 does not divide the 128 rollouts "
        "of a step (rollout.groups x rollout.group_size). "
        "Give a divisor, so that every optimiser step has the same size.",
    ]


def test_profile_asked_for(problems, load):
    assert load(profile="paper").control.config["budget"]["steps"] == 400
    assert problems(profile="papr") == [
        "--profile: 'papr' is not a profile of this sweep. Choose one of laptop, paper. "
        "Did you mean 'paper'?"
    ]
    assert problems(seeds=[]) == ["--seeds: No seed is given. Give at least one, such as 0,1,2."]


def test_missing_sweep_file():
    with pytest.raises(SpecError, match=r"^nowhere\.yaml: There is no such sweep file\.$"):
        load_sweep(Path("nowhere.yaml"))


def test_layers_win_in_order(load):
    loaded = load(
        ("  loss.kl_type: k2", "  loss.kl_type: k2\n  optim.lr: ${critic.lr}\n  gate.every: 7"),
        overrides=["critic.lr=1e-3", "critic.lr=2e-3"],
    )
    config = loaded.conditions[1].config
    assert config["env"]["size"] == 6  # base
    assert config["policy"]["model"] == "tiny"  # profile
    assert config["gate"]["every"] == 7  # hold over profile
    assert config["loss"]["kl_loss_coef"] == 0.01  # condition
    assert config["loss"]["use_kl_loss"] is True  # coupled
    assert config["critic"]["lr"] == 0.002  # the last --set
    assert config["optim"]["lr"] == 0.002  # interpolation sees it
    assert config["seed"] == 0


SHAPING = "  advantage.shaping: {gtpo_beta: 0.0, hicra_alpha: 0.0}\n"
WEIGHTED = "  advantage.shaping: {gtpo_beta: 0.1, hicra_alpha: 0.0}\n"


def test_another_kind_replaces_the_section_but_what_all_kinds_share(load, problems):
    plain = load().control.config["advantage"]
    assert plain == {"kind": "gae", "gamma": 1.0, "lam": 1.0, "shaping": plain["shaping"]}
    config = load((SHAPING, WEIGHTED), overrides=["advantage.kind=grpo"]).control.config
    assert config["advantage"] == {
        "kind": "grpo", "outcome": "reward", "singleton": 0.0, "normalize_std": True, "ddof": 1,
        "shaping": {**plain["shaping"], "gtpo_beta": 0.1},
    }  # fmt: skip
    config = load(overrides=["advantage.lam=0.9"]).control.config
    assert config["advantage"] == {**plain, "lam": 0.9}
    whole = "advantage={kind: grpo, lam: 0.9}"
    assert problems((SHAPING, ""), overrides=[whole]) == [
        f"--set {whole}: advantage.lam: 'lam' belongs to advantage.kind gae or gae_bilevel; the "
        "kind is grpo here. Set advantage.kind: gae, or remove 'lam'. "
        "Did you mean 'advantage: {kind: gae, lam: 0.9}'?"
    ]


def test_configs_beside_the_sweep_win_over_shipped_ones(tmp_path, load):
    sweeps, profiles = tmp_path / "sweeps", tmp_path / "configs" / "profiles"
    sweeps.mkdir()
    profiles.mkdir(parents=True)
    load()
    Path("toy.yaml").rename(sweeps / "toy.yaml")
    laptop = "env.prompt: compact\npolicy: {model: tiny}\nrollout.groups: 4\n"
    (profiles / "laptop.yaml").write_text(laptop, encoding="utf-8")
    loaded = load_sweep(sweeps / "toy.yaml")  # base and paper come from the repository
    assert loaded.control.config["rollout"]["groups"] == 4
    (profiles / "laptop.yaml").write_text(laptop + "rollout.group: 4\n", encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"^configs/profiles/laptop\.yaml:4: rollout\.group: 'group'"
    ):
        load_sweep(sweeps / "toy.yaml")


BUNDLES = (
        ("  rollout_filter:\n    strategy: top_p\n    value: 1.0\n    include_zero: true\n",
         "  rollout_filter.strategy: top_p\n  loss.kl_loss_coef: 0.0\n"),
        ("key: loss.kl_loss_coef", "key: rollout_filter"),
        (VALUES, "values: {0.9: {value: 0.9, include_zero: false}, "
                 "nofilter: {value: 1.0, include_zero: true}}"),
        ("control: 0.0", "control: nofilter\n  expect: {0.9: '+0.05 success'}"),
        ("  coupled:\n    - key: loss.use_kl_loss\n", ""),
        ('      rule: "value > 0"\n      why: one switch\n', ""),
)  # fmt: skip
WHY = ("seeds:", "  why: no filter takes both keys\nseeds:")


def test_bundles_need_a_reason(problems, load):
    """Several keys in one value are several knobs until somebody says why they are one."""
    missing = (
        "toy.yaml:14: axis.why: 'why' is missing: value 0.9 sets 2 keys, rollout_filter.value, "
        "rollout_filter.include_zero. "
        "Write in a sentence why they are one intervention, or set one key per value."
    )
    assert problems(*BUNDLES) == [missing]
    assert problems(*BUNDLES, ("seeds:", "  why: ' '\nseeds:")) == [
        "toy.yaml:19: axis.why: ' ' is blank. Write a reason, for the reader of the figure."
    ]
    one_key = (", include_zero: false}, ", "}, ")
    assert problems(*BUNDLES, one_key)[0].split(": ")[3].startswith("value nofilter sets 2 keys")
    both = ((", include_zero: false}, ", "}, "), (", include_zero: true}}", "}}"))
    assert load(*BUNDLES, *both).spec.axis.why is None


def test_interpolation_on_the_command_line(problems):
    assert problems(overrides=["env.split_seed=${seed}"])[0].startswith(
        "--set env.split_seed=${seed}: env.split_seed: '${seed}' would be 0 in every trial"
    )


def test_bundles_are_values_of_one_axis(load):
    loaded = load(*BUNDLES, WHY)
    low, control = loaded.conditions
    assert (low.label, low.value, low.expected_delta) == (
        "rollout_filter=0.9",
        0.9,
        "+0.05 success",
    )
    assert (control.label, control.value, control.is_control) == (
        "rollout_filter=nofilter", "nofilter", True,
    )  # fmt: skip
    assert loaded.axis_keys == ("rollout_filter.value", "rollout_filter.include_zero")
    assert low.config["rollout_filter"]["include_zero"] is False


def test_a_loaded_sweep_knows_where_a_key_was_written(load):
    loaded = load(overrides=["optim.lr=0.1"])
    assert loaded.where("loss.entropy_coeff") == "toy.yaml:7: hold.loss.entropy_coeff"
    assert loaded.where("optim.lr") == "--set optim.lr=0.1: optim.lr"
    assert loaded.where("loss.kl_loss_coef").startswith("toy.yaml:18: axis.values.")
    assert ".yaml:" in loaded.where("env.size")

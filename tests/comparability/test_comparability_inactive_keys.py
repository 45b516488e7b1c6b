"""Keys without effect (S6): each rule once, with why, and where the key does have an effect."""

from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
from cases import each
from pydantic import ValidationError

from rltune.comparability.check import check_sweep
from rltune.comparability.distinct import check_distinct
from rltune.comparability.inactive_keys import inactive_keys
from rltune.comparability.knobs import sampling_settings, shows_reward
from rltune.spec.identity import flatten
from rltune.spec.keys import is_config_key, models_of, nested, typed
from rltune.spec.paths import key_path
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.trainer.tasks import env_maker

KL = {"loss.use_kl_loss": True, "loss.kl_loss_coef": 0.1}
ADCA = {"advantage": "grpo", "attribution.kind": "adca"}
LLM = {**ADCA, "attribution.judge": "llm"}
PLAIN = {**ADCA, "attribution.normalize": False}
UNWEIGHTED = {**LLM, "attribution.normalize": False, "attribution.alpha": 0.0}
COSINE = {"attribution.alpha_schedule": "cosine"}
GAIN = {"advantage": {"kind": "grpo", "ddof": 0}, "attribution.kind": "info_gain"}
NO_GAIN = {**GAIN, "attribution.mode": "none"}
GTPO = {"advantage.shaping.gtpo_beta": 0.1}
LINEAR = {**GTPO, "advantage.shaping.sepa.schedule": "linear"}
AUTO = {**GTPO, "advantage.shaping.sepa.schedule": "auto"}
FILTER = {"rollout_filter.value": 0.9}
ZEROS = {"rollout_filter.include_zero": False}
NO_WEIGHT = {**LLM, **COSINE, "attribution.alpha": 0.0, "attribution.alpha_min": 0.0}
ALONE = {"advantage": {"kind": "grpo", "ddof": 0, "singleton": 0.5}}
ONCE = {**ADCA, **COSINE, "attribution.first_steps": 1}
FREE_GAIN = {**GAIN, "attribution.ig_coef": 0.0}
WHOLE = {"optim.mini_batch_size": 128}  # 8 groups x 16 rollouts are one optimiser step
TURN = {**GAIN, **WHOLE, "loss.kind": "turn"}
DROPOUT = {"policy.lora.dropout": 0.1}
RATIO_ONE = "the ratio is 1 where a batch has one optimiser step"
TIS_ROUNDED = {"rollout_correction.kind": "tis", "policy.dtype": "bfloat16"}
OWN_PROBABILITIES = "the engine torch samples with the trainer's own probabilities"
NO_SEARCH = {"env.kind": "multihop_qa", "env.max_searches": 0}
COMPACT = {"env.prompt": "compact"}
UNPUNISHED = {"env.kind": "frozen_lake", "env.format_penalty": 0.0}
SUCCESS = {"advantage": {"kind": "grpo", "outcome": "success"}}
SEPA = "advantage.shaping.sepa."

CASES = [  # keys, a config in which they do nothing and why, configs in which they do something
    (
        "critic.lr critic.value_clip critic.backbone critic.warmup_steps",
        {"advantage": "grpo"}, "advantage.kind grpo has no critic",
        [{}, {"advantage": "gae_bilevel"}],
    ),
    (
        "advantage.ddof", {"advantage": {"kind": "grpo", "normalize_std": False}},
        "advantage.normalize_std is false", [{"advantage": "grpo"}],
    ),
    (
        "policy.lora.alpha policy.lora.dropout policy.lora.targets policy.lora.init",
        {}, "policy.lora.rank is 0", [{"policy.lora.rank": 4}],
    ),
    (
        "rollout.vllm.kv_cache_gib rollout.vllm.eager rollout.vllm.sleep "
        "rollout.vllm.tensor_parallel",
        {}, "rollout.engine is torch",
        [{"rollout.engine": "vllm", "resources.gpus": 1, "resources.engine": "own"}],
    ),
    ("rollout.vllm.sleep", {"rollout.engine": "vllm"}, "resources.gpus is 0", []),
    ("loss.kl_type", {}, "loss.use_kl_loss is false", [KL]),
    ("loss.kl_target", {}, "loss.use_kl_loss is false", [KL]),
    ("loss.kl_horizon", {}, "no KL is steered to", [{**KL, "loss.kl_target": 0.01}]),
    ("loss.kl_horizon", KL, "no KL is steered to", []),
    (
        "loss.sum_norm", {}, "loss.aggregation is not seq-mean-token-sum-norm",
        [{"loss.aggregation": "seq-mean-token-sum-norm"}],
    ),
    ("optim.minibatch_by", WHOLE, "a mini-batch is all rollouts of a step", [{}]),
    (
        "optim.minibatch_by",
        {"advantage": "reinforce_pp", "rollout.groups": 128, "rollout.group_size": 1},
        "rollout.group_size is 1", [],
    ),
    (
        "loss.clip_low loss.clip_high loss.dual_clip", WHOLE, RATIO_ONE,
        [
            {**WHOLE, "optim.epochs": 2}, {**WHOLE, "policy.dtype": "bfloat16"},
            {**WHOLE, **DROPOUT, "policy.lora.rank": 4},
            # Nearer to 1 than two passes of float32 are to one another: tokens are cut.
            {**WHOLE, "loss.clip_low": 0.0}, {**WHOLE, "loss.clip_low": 1e-4},
            {**WHOLE, "loss.clip_high": 1e-4}, {**WHOLE, "loss.dual_clip": 1.00005},
        ],
    ),
    ("loss.clip_low", {**WHOLE, "loss.clip_low": 2e-4, "loss.dual_clip": None}, RATIO_ONE, []),
    (
        "loss.clip_low loss.clip_high", {**WHOLE, "loss.kind": "gspo"}, RATIO_ONE,
        [{"loss.kind": kind} for kind in ("ppo", "gspo", "cispo", "turn")],
    ),
    (
        "loss.clip_low",
        {**TURN, "loss.clip_low": 3e-3, "loss.turn_clip_beta": 0.9}, RATIO_ONE,
        [{**TURN, "loss.clip_low": 3e-3, "loss.turn_clip_beta": 0.97}],
    ),
    ("loss.clip_low", {**WHOLE, **DROPOUT}, RATIO_ONE, []),  # without adapters nothing is dropped
    ("loss.clip_low", {**WHOLE, "policy.lora.rank": 4}, RATIO_ONE, []),
    (
        "loss.turn_clip_beta", TURN, RATIO_ONE, [{**TURN, "optim.epochs": 2}],
    ),
    (
        "loss.turn_clip_beta", {**NO_GAIN, "loss.kind": "turn"}, "no turn has a gain",
        [{**GAIN, "loss.kind": "turn"}],
    ),
    (
        "rollout_filter.mode rollout_filter.metric rollout_filter.ddof rollout_filter.type "
        "rollout_filter.on_drop rollout_filter.loss_scaling",
        {}, "the filter drops nothing", [FILTER],
    ),
    ("rollout_filter.empty_stop_steps", {}, "the filter drops nothing", [{**FILTER, **ZEROS}]),
    ("rollout_filter.empty_stop_steps", FILTER, "some group is always kept",
     [{**FILTER, "rollout_filter.mode": "mass"}]),
    (
        "rollout_filter.mode", {"rollout_filter.include_zero": False},
        "it is used by top_p below 1.0 only", [],
    ),
    (
        "rollout_filter.ddof", {**FILTER, "rollout_filter.metric": "entropy"},
        "rollout_filter.metric is a mean", [{**FILTER, "rollout_filter.metric": m} for m in
                                            ("reward_variance", "reward_variance_mass")],
    ),
    (
        "rollout_filter.type rollout_filter.ddof", {"rollout_filter.include_zero": False},
        "the filter drops the groups without spread, and no others", [FILTER],
    ),
    (
        "rollout_filter.type", {**ZEROS, "rollout_filter.strategy": "top_k_abs",
                                "rollout_filter.value": 8.0},  # of 8 groups
        "the filter drops the groups without spread, and no others",
        [{**ZEROS, "rollout_filter.strategy": "top_k_abs", "rollout_filter.value": 7.0},
         {**ZEROS, "rollout_filter.strategy": "min_p"}],  # at 1.0 it keeps the best only
    ),
    (
        "rollout_filter.include_zero", {**FILTER, "rollout_filter.metric": "length"},
        "a mean is not a spread, and never 0", [FILTER, {}],
    ),
    ("rollout_filter.include_zero", {"rollout_filter.metric": "entropy"},
     "a mean is not a spread, and never 0", []),
    (
        "rollout_filter.include_zero", {**FILTER, "rollout_filter.mode": "mass"},
        "a share of the sum, best first, is full before the groups that score 0",
        [{**FILTER, "rollout_filter.mode": "mass", "rollout_filter.type": "smallest"}],
    ),
    (
        "rollout_filter.type rollout_filter.on_drop",
        {**ZEROS, "rollout_filter.metric": "length"}, "the filter drops nothing", [],
    ),
    (
        "rollout_filter.on_drop", {"rollout_filter.strategy": "top_k"},
        "the filter drops nothing", [],
    ),
    ("rollout_correction.cap", {"rollout_correction.kind": "tis"}, OWN_PROBABILITIES,
     [TIS_ROUNDED, {"rollout_correction.kind": "tis", "rollout_correction.cap": 1.0},
      {"rollout_correction.kind": "tis", "rollout.engine": "vllm"}]),
    ("rollout_correction.band_low rollout_correction.band_high",
     {"rollout_correction.kind": "icepop", "rollout_correction.band_low": 0.25}, OWN_PROBABILITIES,
     [{**TIS_ROUNDED, "rollout_correction.kind": "icepop"}]),
    ("critic.value_clip", WHOLE, "no value has moved where a batch has one optimiser step",
     [{**WHOLE, "optim.epochs": 2}, {**WHOLE, "critic.value_clip": 1e-5}]),
    (
        "attribution.ig_type attribution.ig_coef attribution.gamma", NO_GAIN,
        "attribution.mode is none", [GAIN],
    ),
    (
        "attribution.gamma", {**GAIN, "attribution.ig_coef": 0.0}, "attribution.ig_coef is 0",
        [GAIN],
    ),
    ("attribution.ig_type", FREE_GAIN, "attribution.ig_coef is 0",
     [GAIN, {**FREE_GAIN, "attribution.mode": "joint"},
      {**FREE_GAIN, "loss.kind": "turn", "loss.turn_clip_beta": 0.5}]),
    (
        "advantage.singleton", GAIN, "attribution.kind info_gain normalises the outcome itself",
        [NO_GAIN, ADCA, {"advantage": "grpo"}],
    ),
    (
        "attribution.judge attribution.scheme attribution.normalize attribution.skip "
        "attribution.first_steps attribution.scope attribution.fix_base attribution.llm.model",
        NO_WEIGHT, "attribution.alpha is 0", [],
    ),
    ("attribution.alpha_steps", NO_WEIGHT, "attribution.alpha_min is alpha",
     [{**ADCA, **COSINE}]),
    ("attribution.fix_base", ADCA, "the z-score divides it out", [PLAIN]),
    (
        "attribution.fix_base", {**PLAIN, "attribution.scheme": "allocation"},
        "attribution.scheme allocation shares out the outcome", [],
    ),
    ("attribution.scope", PLAIN, "attribution.normalize is false", [ADCA]),
    (
        "attribution.alpha_min attribution.alpha_steps", ADCA,
        "attribution.alpha_schedule is constant", [{**ADCA, **COSINE}],
    ),
    ("attribution.alpha_min attribution.alpha_steps", ONCE,
     "turns are judged in the first step only", [{**ONCE, "attribution.first_steps": 2}]),
    (
        "attribution.llm.model attribution.llm.base_url attribution.llm.api_key_env "
        "attribution.llm.max_concurrency attribution.llm.max_retries attribution.llm.timeout_s "
        "attribution.llm.deadline_s attribution.llm.max_calls attribution.llm.max_tokens "
        "attribution.llm.max_reply_tokens attribution.llm.temperature",
        ADCA, "attribution.judge is not llm", [LLM],
    ),
    (
        "attribution.scope attribution.fix_base attribution.llm.model",
        UNWEIGHTED, "attribution.alpha is 0", [],
    ),
    (
        "attribution.judge attribution.scheme attribution.normalize attribution.skip "
        "attribution.first_steps",
        UNWEIGHTED, "attribution.alpha is 0",
        [ADCA, {**UNWEIGHTED, **COSINE, "attribution.alpha_min": 0.1}],
    ),
    (
        "advantage.shaping.signal advantage.shaping.scope", {}, "advantage.shaping.gtpo_beta is 0",
        [GTPO],
    ),
    (
        f"{SEPA}steps {SEPA}delay {SEPA}gate", GTPO, "advantage.shaping.sepa.schedule is none",
        [LINEAR, AUTO],
    ),
    (
        f"{SEPA}ema_decay {SEPA}warmup {SEPA}var_threshold", LINEAR,
        "advantage.shaping.sepa.schedule is linear", [AUTO],
    ),
    (
        "advantage.shaping.grams", GTPO, "nothing looks for planning tokens",
        [LINEAR, {"advantage.shaping.hicra_alpha": 0.2}],
    ),
    ("early_stop.reward_std_steps", {}, "early_stop.reward_std_share is null",
     [{"early_stop.reward_std_share": 0.1}]),
    ("early_stop.heldout_gates", {}, "early_stop.heldout_success is null",
     [{"early_stop.heldout_success": 0.01}]),
    ("collapse.prompts", {}, "collapse.every is 0", []),
]  # fmt: skip
UNCHANGEABLE = ("loss.kl_target", "loss.turn_clip_beta")  # any other value is refused
URL = "http://127.0.0.1:9/v1"
IDS = [f"{case[0].split()[0]}-{case[2]}" for case in CASES]


def config_of(parts):
    return to_plain(TrialConfig.model_validate(nested({**parts, "policy.model": "x"})))


def rubric(**weights):
    terms = [{"score": score, "weight": weight} for score, weight in weights.items()]
    return {"reward.terms": terms}


def changed(config, key):
    """Return the config with another value at a key; as it is where every other one is refused."""
    flat = flatten(config)
    assert key in flat
    for value in _others(flat[key], key):
        if value == flat[key]:
            continue
        with suppress(ValidationError):
            return to_plain(TrialConfig.model_validate(nested({**flat, key: value})))
    return config


def _others(value, key):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1, value + 0.5, value / 2, value * 2, value + 1e-5]
    if isinstance(value, list):
        return [value[:1], ["another"]]
    return [
        *_literals(TrialConfig, key_path(key)),
        1,
        0.5,
        "another",
        ["another"],
        URL,
        "OTHER_KEY",
    ]


def _literals(model, path):
    """Return the words that a key may have, in any variant of its section."""
    found = []
    info = model.model_fields.get(path[0])
    if info is not None and len(path) == 1:
        found = [one for part in (info.annotation, *get_args(info.annotation))
                 for one in get_args(part) if isinstance(one, str | int)]  # fmt: skip
    elif info is not None:
        found = [one for inner in models_of(info.annotation) for one in _literals(inner, path[1:])]
    return found


def distinct(left, right):
    return list(check_distinct({"a": left, "b": right}))


@each(("keys", "parts", "why", "live"), CASES, ids=IDS)
def test_a_key_that_does_nothing_makes_no_other_run(keys, parts, why, live):
    config = config_of(parts)
    reasons = inactive_keys(typed(config))
    for key in keys.split():
        assert reasons[key] == why
        if changed(config, key) == config:
            assert key in UNCHANGEABLE
            continue
        for pair in ((config, changed(config, key)), (changed(config, key), config)):
            (found,) = distinct(*pair)
            assert found.rule == "S6"
            assert found.message.startswith(
                f"'a' and 'b' are the same run: they differ only in {key} ("
            )


@each(("keys", "parts", "why", "live"), CASES, ids=IDS)
def test_a_key_that_does_something_makes_another_run(keys, parts, why, live):
    for other in live:
        config = config_of(other)
        for key in keys.split():
            assert key not in inactive_keys(typed(config)), other
            assert distinct(config, changed(config, key)) == []


def test_vllm_splits_its_layers_on_a_cpu_too():
    on_cpu = config_of({"rollout.engine": "vllm", "resources.engine": "own"})
    assert "rollout.vllm.tensor_parallel" not in inactive_keys(typed(on_cpu))


def test_every_key_that_can_do_nothing_has_its_case():
    named = {key for keys, *_ in CASES for key in keys.split()}
    found = {key for _, parts, *_ in CASES for key in inactive_keys(typed(config_of(parts)))}
    assert found == named
    assert [key for key in sorted(found) if not is_config_key(key)] == []


def test_a_key_that_does_nothing_takes_along_what_it_decides():
    """Both sides of a comparison must see it, in either order."""
    left = config_of(UNWEIGHTED)
    right = config_of({**UNWEIGHTED, "attribution.normalize": True, "attribution.fix_base": 0.5,
                       "attribution.judge": "solver", "attribution.llm.model": "other",
                       "attribution.scope": "flat"})  # fmt: skip
    for pair in ((left, right), (right, left)):
        (found,) = distinct(*pair)
        assert "they differ only in attribution.fix_base (attribution.alpha is 0), " in (
            found.message
        )


@each(
    ("left", "right", "key"),
    [
        ({}, {"rollout_filter.strategy": "top_k"}, "rollout_filter.strategy"),
        ({}, {**ZEROS, "rollout_filter.metric": "length"}, "rollout_filter.include_zero"),
        ({}, {"rollout_filter.strategy": "top_k_abs", "rollout_filter.value": 8.0},
         "rollout_filter.value"),
        (ZEROS, {**ZEROS, "rollout_filter.metric": "reward_variance_mass"},
         "rollout_filter.metric"),
        (ADCA, {**ADCA, **COSINE, "attribution.alpha_min": 0.1}, "attribution.alpha_schedule"),
        (ADCA, {**ADCA, "attribution.first_steps": 200, "budget.steps": 200},
         "attribution.first_steps"),
        (ONCE, {**ADCA, "attribution.first_steps": 1}, "attribution.alpha_schedule"),
        ({**ADCA, "budget.steps": 1}, {**ADCA, **COSINE, "budget.steps": 1},
         "attribution.alpha_schedule"),
        (FREE_GAIN, {**FREE_GAIN, "attribution.mode": "separate"}, "attribution.mode"),
        (FREE_GAIN, {**FREE_GAIN, "attribution.mode": "none"}, "attribution.mode"),
        ({**FREE_GAIN, **ALONE}, NO_GAIN, "advantage.singleton"),
        ({}, {"collapse.every": 5}, "collapse.every"),
        ({}, {"gate.start_kl": True}, "gate.start_kl"),
        ({}, {"env.max_difficulty": 10}, "env.max_difficulty"),
        ({"policy.lora.rank": 4, "policy.lora.targets": ["q_proj", "v_proj"]},
         {"policy.lora.rank": 4, "policy.lora.targets": ["v_proj", "q_proj"]},
         "policy.lora.targets"),
        ({"env.observation": "coord"}, {"env.observation": "coord", "env.symbols": "letters"},
         "env.symbols"),
        (NO_SEARCH, {**NO_SEARCH, "env.k": 7}, "env.k"),
        (rubric(success=1.0), rubric(success=1.0, valid_turns=0.0), "reward.terms"),
        (rubric(success=1.0, valid_turns=0.5, env_reward=0.1),
         rubric(success=1.0, env_reward=0.1, valid_turns=0.5), "reward.terms"),
        (rubric(success=1.0), {**rubric(success=1.0), "reward.threshold": 0.5},
         "reward.threshold"),
        ({**COMPACT, **rubric(success=1.0)},
         {**COMPACT, **rubric(success=1.0), "env.format_penalty": 0.0}, "env.format_penalty"),
        ({**COMPACT, **SUCCESS}, {**COMPACT, **SUCCESS, "env.format_penalty": 0.0},
         "env.format_penalty"),
        (UNPUNISHED, {**UNPUNISHED, **rubric(success=1.0)}, "reward.terms"),
        ({**COMPACT, **UNPUNISHED},
         {**COMPACT, "env.kind": "frozen_lake", **rubric(success=1.0)}, "env.format_penalty"),
        (SUCCESS, {**SUCCESS, **rubric(success=2.0, valid_turns=0.5)}, "reward.terms"),
        ({**SUCCESS, **rubric(success=1.0)},
         {**SUCCESS, **rubric(success=1.0), "reward.turn_rewards": "env"}, "reward.turn_rewards"),
    ],
)  # fmt: skip
def test_keys_that_come_to_the_same_make_no_other_run(left, right, key):
    left = {**left, **{k: v for k, v in right.items() if k == "budget.steps"}}
    for pair in ((left, right), (right, left)):
        (found,) = distinct(*map(config_of, pair))
        assert "are the same run" in found.message
        assert f"{key} (" in found.message


@each(
    ("left", "right"),
    [
        ({**COMPACT, "advantage": "grpo"},
         {**COMPACT, "advantage": "grpo", "env.format_penalty": 0.0}),
        ({"env.observation": "grid_coord"},
         {"env.observation": "grid_coord", "env.symbols": "letters"}),
        ({"env.kind": "multihop_qa"}, {"env.kind": "multihop_qa", "env.k": 7}),
        # A natural prompt tells the policy what its last turn earned.
        (SUCCESS, {**SUCCESS, "env.format_penalty": 0.0}),
        (rubric(success=1.0), {**rubric(success=1.0), "env.format_penalty": 0.0}),
        *(({**COMPACT, **own}, {**COMPACT, **own, "env.format_penalty": 0.0})
          for own in ({**rubric(success=1.0), "reward.turn_rewards": "env"},
                      rubric(success=1.0, env_reward=0.5), rubric(**{"my.mod:score": 1.0}),
                      {**SUCCESS, **ZEROS}, {**SUCCESS, "early_stop.reward_std_share": 0.1})),
        (rubric(success=1.0, valid_turns=1.0), rubric(valid_turns=1.0, success=1.0)),
        ({**SUCCESS, **rubric(success=1.0)}, {**SUCCESS, **rubric(valid_turns=1.0)}),
        ({"env.kind": "frozen_lake"}, {"env.kind": "frozen_lake", **rubric(success=1.0)}),
        (UNPUNISHED, {**UNPUNISHED, **rubric(success=1.0), "reward.format_penalty": -0.1}),
        ({"env.format_penalty": 0.0}, {"env.format_penalty": 0.0, **rubric(success=1.0)}),
        ({}, ZEROS),
        (ZEROS, {**ZEROS, "rollout_filter.metric": "length"}),  # drops zeros; drops nothing
        (ZEROS, {"rollout_filter.metric": "length"}),
        ({}, {"rollout_filter.strategy": "min_p"}),
        ({**ADCA, **COSINE}, ADCA),
        (ADCA, {**ADCA, "attribution.first_steps": 3}),
        (FREE_GAIN, {**FREE_GAIN, "attribution.mode": "joint"}),
        (FREE_GAIN, {**NO_GAIN, **ALONE}),
        (GAIN, NO_GAIN),
        ({**ONCE, "attribution.first_steps": 2}, {**ADCA, "attribution.first_steps": 2}),
        (ONCE, ADCA),
        ({**ADCA, "attribution.alpha": 0.0}, {**ADCA, "attribution.alpha": 0.0,
                                              "attribution.fusion": "all_steps"}),
    ],
)  # fmt: skip
def test_keys_that_come_to_something_else_make_another_run(left, right):
    for pair in ((left, right), (right, left)):
        assert distinct(*map(config_of, pair)) == []


@each("kind", ["sokoban", "frozen_lake", "multihop_qa"])
@each("prompt", ["natural", "compact"])
def test_who_is_told_what_a_turn_earned_reads_its_penalty(kind, prompt):
    """So such a penalty can change what is sampled, and A2 compares no luck across it."""
    shown, configs = [], []
    for penalty in (-0.1, 0.0):
        parts = {"env.kind": kind, "env.prompt": prompt, "env.format_penalty": penalty}
        config = TrialConfig.model_validate(nested({**parts, "policy.model": "x"}))
        env = env_maker(config.env, None, Path())()
        env.reset(seed=0)
        shown.append(env.step("rubbish").observation)
        configs.append(to_plain(config))
    is_told = shows_reward(kind, prompt)
    assert (shown[0] != shown[1]) is is_told
    assert (sampling_settings(configs[0]) != sampling_settings(configs[1])) is is_told


def test_a_config_from_before_a_key_samples_as_one_with_its_value_of_then():
    newer = config_of({})
    older = {**newer, "rollout": {k: v for k, v in newer["rollout"].items() if k != "replicas"}}
    assert sampling_settings(older) == sampling_settings(newer)
    other = {**newer, "rollout": {**newer["rollout"], "replicas": 2}}
    assert sampling_settings(other) != sampling_settings(newer)


# --- as a sweep ---------------------------------------------------------------------------------


def replicate(load, key, values, *hold, overrides=()):
    """Return the one error of the toy sweep over a key."""
    control = values[1:].partition(",")[0]
    lines = "".join(f"  {line}\n" for line in ("loss.use_kl_loss: false", *hold))
    shaping = "  advantage.shaping: {gtpo_beta: 0.0, hicra_alpha: 0.0}\n"
    loaded = load(
        ("  key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0\n",
         f"  key: {key}\n  values: {values}\n  control: {control}\n"),
        ('  coupled:\n    - key: loss.use_kl_loss\n      rule: "value > 0"\n', ""),
        ("      why: one switch\n", ""),
        ("  loss.kl_type: k2\n", f"{lines}  loss.kl_loss_coef: 0.0\n"),
        ("  attribution.kind: none\n", ""),
        (shaping, "  advantage: {kind: grpo}\n  advantage.shaping.hicra_alpha: 0.0\n"
                  "  advantage.shaping.gtpo_beta: 0.0\n"),
        overrides=list(overrides),
    )  # fmt: skip
    (found,) = check_sweep(loaded).errors
    return str(found)


SAME = "S6 error: '{a}' and '{b}' are the same run: they differ only in {key} ({why}). "
REMEDY = "Remove one of them, or give them different values."


@pytest.mark.parametrize(
    ("key", "values", "hold", "why"),
    [
        ("rollout_filter.type", "[largest, smallest]", ["attribution.kind: none"],
         "the filter drops nothing"),
        ("attribution.fix_base", "[0.1, 0.2]", ["attribution.kind: adca"],
         "the z-score divides it out"),
        ("attribution.llm.temperature", "[0.0, 0.5]", ["attribution.kind: adca"],
         "attribution.judge is not llm"),
        ("loss.kl_horizon", "[100.0, 1000.0]", ["attribution.kind: none"], "no KL is steered to"),
        ("critic.lr", "[0.1, 0.2]", ["attribution.kind: none"],
         "advantage.kind grpo has no critic"),
        ("rollout_filter.ddof", "[0, 1]", ["attribution.kind: none"], "the filter drops nothing"),
    ],
)  # fmt: skip
def test_a_sweep_over_a_key_without_effect_is_a_replicate(load, key, values, hold, why):
    low, high = values[1:-1].split(", ")
    name = key.rpartition(".")[2]
    said = SAME.format(a=f"{name}={low}", b=f"{name}={high}", key=key, why=why)
    assert replicate(load, key, values, *hold) == said + REMEDY


LOSSES = ("ppo", "gspo", "cispo", "reinforce", "turn")


@pytest.mark.parametrize("kind", LOSSES[1:])
def test_losses_are_one_run_where_the_ratio_is_1(kind):
    """Their gradients are compared in tests/trainer/test_trainer_objective.py."""
    pair = [config_of({**WHOLE, "loss.kind": name}) for name in ("ppo", kind)]
    (found,) = distinct(*pair)
    assert found.message == (
        "'a' and 'b' are the same run: they differ only in loss.kind (the ratio is 1 where a batch "
        "has one optimiser step, and every loss has the gradient of reinforce)."
    )
    several = {"optim.mini_batch_size": 64}
    assert distinct(*(config_of({**several, "loss.kind": name}) for name in ("ppo", kind))) == []
    tight = config_of({**WHOLE, "loss.clip_high": 1e-5})
    assert distinct(tight, config_of({**WHOLE, "loss.kind": kind})) == []

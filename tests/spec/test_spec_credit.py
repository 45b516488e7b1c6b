"""Credit assignment in a config: short forms, what hangs together, what a sweep must hold."""

from pathlib import Path

import pytest

import rltune
from rltune.comparability.check import check_sweep
from rltune.comparability.knobs import KNOBS
from rltune.policy.tiny import PAD, UNKNOWN, language
from rltune.spec.estimators import CRITIC_KINDS, EPISODE_KINDS, ESTIMATOR_KINDS, GROUP_KINDS
from rltune.spec.keys import is_config_key, models_of
from rltune.spec.schema.advantage import Advantage
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.spec.warmstart_data import TAUGHT_ENVS, can_write, tiny_words

NO_SHAPING = ("  advantage.shaping: {gtpo_beta: 0.0, hicra_alpha: 0.0}\n", "")
NO_ATTRIBUTION = ("  attribution.kind: none\n", "")
NONE = "  attribution.kind: none"
KINDS = tuple(model.model_fields["kind"].default for model in models_of(Advantage))
PER_EPISODE = ", ".join(EPISODE_KINDS)
UNCOUPLED = (
    '  coupled:\n    - key: loss.use_kl_loss\n      rule: "value > 0"\n      why: one switch\n', "",
)  # fmt: skip


def section(name, value, **others):
    """Return one section of a config that sets it, and other sections, in Python."""
    return to_plain(TrialConfig(policy={"model": "x"}, **{name: value}, **others))[name]


# --- short forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "custom"])
def test_the_name_of_an_estimator_is_its_section(kind, load):
    long = section("advantage", {"kind": kind})
    assert long["kind"] == kind
    assert section("advantage", kind) == long
    config = load(NO_SHAPING, overrides=[f"advantage={kind}"]).control.config
    assert config["advantage"] == long
    held = (NO_SHAPING[0], f"  advantage: {kind}\n")
    assert load(held).control.config["advantage"] == long


def test_an_import_path_is_an_estimator_of_ones_own(load):
    long = {"kind": "custom", "estimator": "pkg.mod:fn", "arguments": {"scale": 2}}
    given = {"kind": "custom", "estimator": "pkg.mod:fn"}
    assert section("advantage", "pkg.mod:fn") == section("advantage", given)
    overrides = ["advantage=pkg.mod:fn", "advantage.arguments.scale=2"]
    config = load(NO_SHAPING, overrides=overrides).control.config
    assert config["advantage"] == section("advantage", long)
    assert is_config_key("advantage.arguments.scale")
    assert not is_config_key("advantage.argument.scale")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("grop", "advantage.kind: 'grop' is not an advantage. Choose one of gae, gae_bilevel, "
         "grpo, grpo_center, rloo, maxrl, reinforce_pp, reinforce_pp_baseline, custom. Did you "
         "mean 'grpo'?"),
        ("'pkg.mod:'", "advantage.estimator: 'pkg.mod:' has the wrong form. Import path of the "
         "function: my_pkg.my_mod:my_estimator. The folder that rltune is called in is on the "
         "path."),
        ("custom", "advantage.estimator: 'estimator' is missing from advantage. Import path of "
         "the function: my_pkg.my_mod:my_estimator. The folder that rltune is called in is on the "
         "path."),
        ("3", "advantage: 3 is not a mapping of keys."),
    ],
)  # fmt: skip
def test_a_short_form_that_names_nothing(problems, given, said):
    override = f"advantage={given}"
    assert problems(NO_SHAPING, overrides=[override]) == [f"--set {override}: {said}"]


def test_short_forms_of_attribution(load, problems):
    none = {"kind": "none"}
    assert section("attribution", None) == none
    assert section("attribution", "none") == none
    assert load(NO_ATTRIBUTION).control.config["attribution"] == none
    assert load((NONE, "  attribution: null")).control.config["attribution"] == none
    grpo = ["advantage.kind=grpo"]
    short = load((NONE, "  attribution: adca"), overrides=grpo).control.config
    long = load((NONE, "  attribution: {kind: adca}"), overrides=grpo).control.config
    assert short == long
    assert short["attribution"]["judge"] == "solver"
    assert problems(NO_ATTRIBUTION, overrides=["attribution=adka"]) == [
        "--set attribution=adka: attribution.kind: 'adka' is not an attribution. "
        "Choose one of none, adca, info_gain. Did you mean 'adca'?"
    ]


def test_a_word_holds_its_kind(load):
    """As for an env: what a short form says is held, what it leaves to defaults is not."""
    assert check_sweep(load((NONE, "  attribution: null"))).errors == ()
    (found,) = check_sweep(load((NO_SHAPING[0], "  advantage: grpo\n"))).errors
    assert (found.rule, found.remedy) == (
        "S3",
        "Write under hold: advantage.shaping.gtpo_beta: 0.0, advantage.shaping.hicra_alpha: 0.0.",
    )


@pytest.mark.parametrize("short", ["grpo", "pkg.mod:fn"])
def test_a_short_form_stands_beside_dotted_keys_of_its_section(short, load):
    """In hold, in either order, and S3 is content with what it asked for."""
    after = NO_SHAPING[0] + f"  advantage: {short}\n"
    before = f"  advantage: {short}\n" + NO_SHAPING[0]
    for held in (after, before):
        loaded = load((NO_SHAPING[0], held.replace("gtpo_beta: 0.0", "gtpo_beta: 0.1")))
        config = loaded.control.config["advantage"]
        assert config == section("advantage", short) | {"shaping": config["shaping"]}
        assert config["shaping"]["gtpo_beta"] == 0.1
        assert check_sweep(loaded).errors == ()


def test_a_short_form_stands_beside_dotted_keys_in_base_and_profile(load, tmp_path):
    base = (Path(rltune.__file__).parents[1] / "configs" / "sokoban.yaml").read_text()
    base = base.replace("prompt: natural", "prompt: compact")
    head, section_on = base.split("\nadvantage:", 1)
    rest = section_on.split("\nattribution", 1)[1]
    both = "\nadvantage: rloo\nadvantage.shaping.gtpo_beta: 0.2\nattribution"
    (tmp_path / "configs" / "profiles").mkdir(parents=True)
    (tmp_path / "configs" / "sokoban.yaml").write_text(head + both + rest)
    config = load(NO_SHAPING).control.config["advantage"]
    assert (config["kind"], config["shaping"]["gtpo_beta"]) == ("rloo", 0.2)
    (tmp_path / "configs" / "profiles" / "laptop.yaml").write_text(
        "policy: {model: tiny}\nby_env:\n  sokoban:\n"
        "    advantage: maxrl\n    advantage.outcome: success\n"
    )
    config = load(NO_SHAPING, overrides=["rollout.max_context=4000"]).control.config["advantage"]
    assert (config["kind"], config["outcome"]) == ("maxrl", "success")


def test_a_short_form_on_the_command_line_leaves_held_keys_of_its_section(load):
    config = load(overrides=["advantage=grpo", "advantage.ddof=0"]).control.config["advantage"]
    assert (config["kind"], config["ddof"]) == ("grpo", 0)


def test_another_kind_may_not_take_a_held_key_away(problems):
    held = (NO_SHAPING[0], NO_SHAPING[0] + "  advantage.gamma: 0.9\n")
    for override in ("advantage=grpo", "advantage.kind=grpo"):
        assert problems(held, overrides=[override]) == [
            f"--set {override}: 'advantage.gamma' is held by this sweep. "
            "Edit the sweep file instead."
        ]


def test_short_forms_are_an_axis_beside_held_keys(load):
    axis = ("key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0",
            "key: advantage\n  values: [grpo, rloo]\n  control: grpo")  # fmt: skip
    off = ("  loss.kl_type: k2", "  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0")
    loaded = load(UNCOUPLED, axis, off)
    assert loaded.axis_keys == ("advantage.kind",)
    assert [c.label for c in loaded.conditions] == ["advantage=grpo", "advantage=rloo"]
    assert check_sweep(loaded).errors == ()


def test_a_short_form_and_its_own_key_are_a_double(problems):
    held = (NO_SHAPING[0], "  advantage: grpo\n  advantage.kind: gae\n")
    assert problems(held) == [
        "toy.yaml:5: hold: 'advantage.kind' is given twice (with dots, nested, or in a short "
        "form). Keep one of them."
    ]


# --- what hangs together ------------------------------------------------------------------------

CRITIC_OR_WHOLE_BATCH = [kind for kind in KINDS if kind not in GROUP_KINDS]


def test_the_table_of_estimators_is_the_schemas():
    assert set(CRITIC_OR_WHOLE_BATCH) == {*CRITIC_KINDS, "reinforce_pp"}
    assert set(ESTIMATOR_KINDS) == set(KINDS)


@pytest.mark.parametrize("kind", CRITIC_OR_WHOLE_BATCH)
def test_verdicts_on_turns_need_the_outcome_of_an_episode(problems, kind):
    assert problems((NONE, "  attribution.kind: adca"), overrides=[f"advantage.kind={kind}"]) == [
        f"toy.yaml:13: hold.attribution.kind: 'adca' cannot be added to advantage.kind {kind}. "
        f"Choose an estimator per episode: {PER_EPISODE}."
    ]


def test_an_estimator_that_whitens_tokens_has_no_advantage_of_an_episode(problems):
    kind = "reinforce_pp_baseline"
    assert problems((NONE, "  attribution: adca"), overrides=[f"advantage={kind}"]) == [
        f"toy.yaml:13: hold.attribution.kind: 'adca' cannot be added to advantage.kind {kind}, "
        "which is whitened over tokens after turns would have been credited. "
        f"Choose an estimator per episode: {PER_EPISODE}."
    ]


@pytest.mark.parametrize("kind", [kind for kind in EPISODE_KINDS if kind != "custom"])
def test_verdicts_on_turns_go_with_every_estimator_per_episode(load, kind):
    config = load((NONE, "  attribution: adca"), overrides=[f"advantage.kind={kind}"])
    assert config.control.config["advantage"]["kind"] == kind


@pytest.mark.parametrize(
    "advantage",
    ["gae", "gae_bilevel", "rloo", "grpo", "{kind: grpo, ddof: 1}",
     "{kind: grpo, ddof: 0, normalize_std: false}", "grpo_center", "a:f"],
)  # fmt: skip
def test_information_gain_needs_the_population_std_that_it_takes(problems, advantage):
    changes = ((NONE, "  attribution.kind: info_gain"), NO_SHAPING)
    said = (
        "'info_gain' normalises the outcome by the std of the population itself. "
        "Set advantage to {kind: grpo, ddof: 0}, which says the same."
    )
    if "grpo" not in advantage.replace("grpo_center", ""):
        kind = "custom" if ":" in advantage else advantage
        said = (
            "'info_gain' takes the place of the estimator: it normalises the outcome by the std of "
            f"its group's population, which advantage.kind {kind} does not do. "
            "Set advantage to {kind: grpo, ddof: 0}, which does."
        )
    assert problems(*changes, overrides=[f"advantage={advantage}"]) == [
        f"toy.yaml:13: hold.attribution.kind: {said}"
    ]


GAIN = (
    (NONE, "  attribution: info_gain"),
    (NO_SHAPING[0], "  advantage: {kind: grpo, ddof: 0}\n"),
)
NEEDS = "loss.turn_clip_beta: 0.3 needs the information gain of turns. Set "


def test_information_gain_beside_its_outcome(load):
    assert load(*GAIN).control.config["attribution"]["mode"] == "turn-group-v1d"


def test_adaptive_clipping_needs_turn_ratios_and_a_gain(problems, load):
    beta, turn = "loss.turn_clip_beta=0.3", "loss.kind=turn"
    gain = "attribution.kind: info_gain with a mode, or it to 0.0."
    for edits in ((), GAIN):
        assert problems(*edits, overrides=[beta]) == [
            f"--set {beta}: loss.turn_clip_beta: 'turn_clip_beta' belongs to loss.kind turn; the "
            "kind is ppo here. Set loss.kind: turn, or remove 'turn_clip_beta'. "
            "Did you mean 'loss: {kind: turn, turn_clip_beta: 0.3}'?"
        ]
    assert problems(overrides=[beta, turn]) == [f"--set {beta}: {NEEDS}{gain}"]
    off = (GAIN[1], (NONE, "  attribution: {kind: info_gain, mode: none}"))
    assert problems(*off, overrides=[beta, turn]) == [f"--set {beta}: {NEEDS}{gain}"]
    assert load(*GAIN, overrides=[beta, turn]).control.config["loss"]["turn_clip_beta"] == 0.3
    assert load(overrides=["loss.turn_clip_beta=0.0", turn])
    assert problems(*GAIN, overrides=["loss.turn_clip_beta=1.0", turn]) == [
        "--set loss.turn_clip_beta=1.0: loss.turn_clip_beta: 1.0 is out of range. "
        "Give less than 1.0."
    ]


GRAMS = 'advantage.shaping.grams=["<answer>"]'
WITH_GTPO = (NO_SHAPING[0], "  advantage.shaping: {gtpo_beta: 0.1, hicra_alpha: 0.0}\n")
WITH_HICRA = (NO_SHAPING[0], "  advantage.shaping: {gtpo_beta: 0.0, hicra_alpha: 0.2}\n")


@pytest.mark.parametrize("schedule", ["linear", "auto"])
def test_sepa_pools_the_signal_of_gtpo(problems, load, schedule):
    pool = f"advantage.shaping.sepa.schedule={schedule}"
    assert problems(overrides=[pool, GRAMS]) == [
        f"--set {pool}: advantage.shaping.sepa.schedule: '{schedule}' changes the signal of GTPO, "
        "which is off. Set advantage.shaping.gtpo_beta above 0, or it to none."
    ]
    shaping = load(WITH_GTPO, overrides=[pool, GRAMS]).control.config["advantage"]["shaping"]
    assert (shaping["sepa"]["schedule"], shaping["gtpo_beta"]) == (schedule, 0.1)


def test_policy_tiny_does_not_speak_the_default_phrases(problems, load):
    said = (
        "looks for planning phrases, and advantage.shaping.grams null are phrases of natural "
        "language, which policy tiny never writes. Under grams: Give phrases that it writes, such "
        'as ["||", "Up"], or another policy.model.'
    )
    pool = "advantage.shaping.sepa.schedule=linear"
    assert problems(WITH_HICRA) == [f"toy.yaml:14: hold.advantage.shaping.hicra_alpha: 0.2 {said}"]
    assert problems(WITH_GTPO, overrides=[pool]) == [
        f"--set {pool}: advantage.shaping.sepa.schedule: 'linear' {said}"
    ]
    assert load(WITH_GTPO).control.config["advantage"]["shaping"]["grams"] is None  # not looked for
    assert load(WITH_HICRA, overrides=[GRAMS])
    assert load(WITH_HICRA, overrides=["policy.model=mine"])
    assert load(WITH_HICRA, ("base: sokoban", "base: multihop_qa"))  # the profile gives its words


@pytest.mark.parametrize("gram", ["<search>", "wait", "up down", "Upq"])
def test_phrases_that_policy_tiny_can_never_write_are_refused(problems, gram):
    override = f'advantage.shaping.grams=["answer", "{gram}"]'
    assert problems(WITH_HICRA, overrides=[override]) == [
        f'--set {override}: advantage.shaping.grams: ["{gram}"] can never be written by policy '
        'tiny of sokoban. Give phrases that it writes, such as ["||", "Up"], or another '
        "policy.model."
    ]


@pytest.mark.parametrize("kind", TAUGHT_ENVS)
def test_the_words_of_policy_tiny_are_those_of_its_tokenizer(kind):
    tokens = set(language(kind).vocabulary) - {PAD, UNKNOWN}
    assert set(tiny_words(kind)) == tokens
    assert all(can_write(word, tiny_words(kind)) for word in tokens)


def test_policy_tiny_of_questions_writes_words_apart():
    words = tiny_words("multihop_qa")
    assert can_write("<search> the capital", words)
    assert not can_write("wait, let me", words)


def test_policy_tiny_of_sums_writes_without_blanks():
    words = tiny_words("arithmetic")
    assert all(can_write(gram, words) for gram in (",", "12,", "boxed", "3}"))
    assert not can_write("12, 8", words)
    assert not can_write("wait", words)


MAXRL = ["advantage={kind: maxrl, outcome: reward}"]
NO_PENALTY = ["env.format_penalty=0.0"]


@pytest.mark.parametrize(
    ("base", "more", "negative"),
    [
        ("sokoban", [], "each action of sokoban (-0.1) and env.format_penalty -0.1"),
        ("sokoban", NO_PENALTY, "each action of sokoban (-0.1)"),
        ("frozen_lake", [], "env.format_penalty -0.1"),
        ("frozen_lake", ["reward={terms: [{score: success}], format_penalty: -0.2}"],
         "reward.format_penalty -0.2"),
        ("frozen_lake", ["reward={terms: [{score: success}, {score: env_reward}]}"],
         "env.format_penalty -0.1"),
        ("frozen_lake", ["reward={terms: [{score: success}], turn_rewards: env}"],
         "env.format_penalty -0.1"),
        ("frozen_lake", ["reward={terms: [{score: success}, {score: valid_turns, weight: -1.0}]}"],
         "valid_turns of weight -1 in reward.terms"),
        ("frozen_lake", NO_PENALTY, None),
        ("sokoban", ["reward=success"], None),
    ],
)  # fmt: skip
def test_maxrl_takes_no_reward_that_can_be_negative(problems, load, base, more, negative):
    changes = (NO_SHAPING, ("base: sokoban", f"base: {base}"))
    if negative is None:
        assert load(*changes, overrides=[*MAXRL, *more])
        return
    assert problems(*changes, overrides=[*MAXRL, *more]) == [
        f"--set {MAXRL[0]}: advantage.outcome: 'reward' must be 0 or more for maxrl, and {negative}"
        " can make it less. Set it to success, or remove what is negative."
    ]


def test_collapse_is_measured_over_no_more_prompts_than_a_step_has(problems, load):
    half = [f"optim.{size}_batch_size=16" for size in ("mini", "micro")]
    small = ["collapse.every=5", "rollout.groups=4", *half]
    assert problems(overrides=[*small, "collapse.prompts=5"]) == [
        "--set collapse.prompts=5: collapse.prompts: 5 prompts are more than the 4 groups of a "
        "step. Give at most rollout.groups, 4, or set collapse.every to 0."
    ]
    assert load(overrides=[*small, "collapse.prompts=4"])
    assert load(overrides=small[1:])  # it is off


@pytest.mark.parametrize(
    ("grams", "said"), [("[]", "grams: []"), ("[but wait, '']", "grams.1: ''")]
)
def test_phrases_that_would_mark_nothing_are_refused(problems, grams, said):
    """Without any, the default ones would stand in for them."""
    override = f"advantage.shaping.grams={grams}"
    assert problems(overrides=[override]) == [
        f"--set {override}: advantage.shaping.{said} is empty. Give at least one."
    ]


def test_a_target_of_the_kl_needs_a_kl(problems, load):
    target = ("  loss.kl_target: null", "  loss.kl_target: 0.01")
    assert problems(target) == [  # the control has no KL loss
        "toy.yaml:12: hold.loss.kl_target: 0.01 steers nothing while loss.use_kl_loss is false. "
        "Set it to null, or loss.use_kl_loss to true."
    ]
    axis = ("values: [0.0, 0.01, 0.1]\n  control: 0.0", "values: [0.01, 0.1]\n  control: 0.01")
    assert load(target, axis).control.config["loss"]["kl_target"] == 0.01


def test_a_coefficient_without_its_switch_is_no_axis(problems):
    """Every value would be the run of the control, called a replicate at best."""
    off = ("  loss.kl_type: k2", "  loss.use_kl_loss: false")
    assert problems(UNCOUPLED, off) == [
        f"toy.yaml:18: axis.values.{i}: loss.kl_loss_coef: {value} has no effect while "
        "loss.use_kl_loss is false. Set loss.use_kl_loss to true; couple it when this is the axis."
        for i, value in ((1, 0.01), (2, 0.1))
    ]


ONE = ["rollout.group_size=1", "optim.mini_batch_size=16", "optim.micro_batch_size=16"]


@pytest.mark.parametrize("kind", KINDS)
def test_case_b3_a_group_of_one_is_refused_where_groups_are_compared(problems, load, kind):
    kinds = ["advantage=a:f" if kind == "custom" else f"advantage={kind}"]
    if kind not in GROUP_KINDS:
        assert load(NO_SHAPING, overrides=[*ONE, *kinds])
        return
    assert problems(NO_SHAPING, overrides=[*ONE, *kinds]) == [
        f"--set rollout.group_size=1: rollout.group_size: 1 cannot be used with advantage.kind "
        f"{kind}. Give 2 or more; the spread of a single rollout is not defined."
    ]


@pytest.mark.parametrize("metric", ["entropy", "length"])
def test_case_b3_a_mean_of_one_is_defined(load, metric):
    filtered = ("value: 1.0", f"value: 0.9\n    metric: {metric}")
    assert load(filtered, overrides=ONE).control.config["rollout_filter"]["metric"] == metric


# --- what a sweep must hold ---------------------------------------------------------------------


def test_s3_names_the_knobs_of_credit_assignment(load):
    bare = (NO_SHAPING, NO_ATTRIBUTION, ("  rollout_correction.kind: none\n", ""),
            ("  loss.kl_target: null\n", ""))  # fmt: skip
    (found,) = check_sweep(load(*bare)).errors
    assert found.rule == "S3"
    assert found.remedy == (
        "Write under hold: loss.kl_target: null, attribution.kind: 'none', "
        "advantage.shaping.gtpo_beta: 0.0, advantage.shaping.hicra_alpha: 0.0, "
        "rollout_correction.kind: 'none'."
    )
    for knob in ("loss.kl_target", "attribution.kind", "advantage.shaping.gtpo_beta"):
        assert f"{knob} ({KNOBS[knob]})" in found.message


def test_s3_asks_for_the_clip_scale_only_where_there_is_one(load):
    assert check_sweep(load(*GAIN)).errors[0].remedy.count("turn_clip_beta") == 0
    turn = ("  loss.kl_type: k2", "  loss.kl_type: k2\n  loss.kind: turn")
    remedies = [found.remedy for found in check_sweep(load(turn, *GAIN)).errors]
    assert len(remedies) == 1
    assert "loss.turn_clip_beta: 0.0" in remedies[0]


def test_every_knob_is_a_key():
    assert [knob for knob in KNOBS if not is_config_key(knob)] == []


def test_kinds_of_attribution_are_an_axis(load):
    """The judge's own keys come and go with it."""
    key = ("key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0",
           "key: attribution.kind\n  values: [none, adca]\n  control: none")  # fmt: skip
    off = ("  loss.kl_type: k2", "  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0")
    loaded = load(UNCOUPLED, key, off, NO_ATTRIBUTION, overrides=["advantage.kind=grpo"])
    report = check_sweep(loaded)
    assert (report.errors, report.warnings) == ((), ())

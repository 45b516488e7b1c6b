import json
from copy import deepcopy
from pathlib import Path

import pytest

from rltune.comparability.check import check_sweep
from rltune.comparability.findings import RULES, Severity, accept, warning
from rltune.comparability.single_axis import check_conditions
from rltune.spec.schema.sweep import Coupled

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
H1 = json.loads((GOLDEN / "h1_ragen_topk.json").read_text(encoding="utf-8"))
H3 = json.loads((GOLDEN / "h3_ragen_coupled.json").read_text(encoding="utf-8"))
ONE_VALUE = "Give each one value in all conditions, or declare it under axis.coupled with a rule."
COUPLING = {
    "kl": Coupled(key="actor.use_kl_loss", rule="value > 0", why="one switch"),
    "nofilter": Coupled(
        key="rollout.rollout_filter_include_zero", rule="value == 1.0", why="zeros count too"
    ),
    "drgrpo": Coupled(
        key="actor.loss_agg_mode",
        rule="'token-mean' if value else 'seq-mean-token-sum-norm'",
        why="Dr.GRPO removes both normalisers",
    ),
}


def lines(findings):
    return [str(finding) for finding in findings]


# --- S1, S2 on plain dicts of another system


def test_h1_names_all_three_extra_axes_and_only_them():
    found = check_conditions(H1["control"], H1["others"], H1["axis"])
    assert lines(found) == [
        "S1 error: 'topk_0.25' differs from the control in 3 keys besides the axis "
        "rollout.rollout_filter_strategy, rollout.rollout_filter_value: "
        "ppo_mini_batch_size 64 -> 32, rollout.max_model_len 5000 -> 4000, "
        f"rollout.max_num_batched_tokens 5000 -> 4000. {ONE_VALUE}"
    ]


def test_h1_repaired_is_clean():
    others = deepcopy(H1["others"])
    others["topk_0.25"]["ppo_mini_batch_size"] = 64
    others["topk_0.25"]["rollout"] |= {"max_model_len": 5000, "max_num_batched_tokens": 5000}
    assert check_conditions(H1["control"], others, H1["axis"]) == ()


H3_EXTRA = {
    "kl": ["actor.use_kl_loss false -> true"] * 2,
    "nofilter": ["rollout.rollout_filter_include_zero false -> true"],
    "drgrpo": ["actor.loss_agg_mode 'token-mean' -> 'seq-mean-token-sum-norm'"],
}


@pytest.mark.parametrize("case", H3_EXTRA)
def test_h3_undeclared_coupling_is_refused_and_declared_is_allowed(case):
    fixture = H3[case]
    arguments = (fixture["control"], fixture["others"], fixture["axis"])
    assert lines(check_conditions(*arguments)) == [
        f"S1 error: {label!r} differs from the control in 1 key besides the axis "
        f"{fixture['axis']}: {extra}. {ONE_VALUE}"
        for label, extra in zip(fixture["others"], H3_EXTRA[case], strict=True)
    ]
    assert check_conditions(*arguments, [COUPLING[case]]) == ()


def test_declared_coupling_that_breaks_its_rule_is_refused():
    fixture = deepcopy(H3["kl"])
    fixture["control"]["actor"]["use_kl_loss"] = True  # "0.0" is not "0": RAGEN's string test
    found = check_conditions(
        fixture["control"], fixture["others"], fixture["axis"], [COUPLING["kl"]]
    )
    assert lines(found) == [
        "S2 error: actor.use_kl_loss is true in 'control'; its rule gives false. "
        "Change the rule 'value > 0', or the value."
    ]


def test_coupled_key_that_is_absent_and_rule_that_fails():
    rule = Coupled(key="b", rule="1 / value", why="x")
    assert lines(check_conditions({"a": 0}, {"one": {"a": 1}}, "a", [rule])) == [
        "S2 error: the rule of b fails in 'control': it has no value for 0 (division by zero). "
        "Change the rule '1 / value', or the value.",
        "S2 error: b is '<absent>' in 'one'; its rule gives 1.0. "
        "Change the rule '1 / value', or the value.",
    ]


def test_d7_one_sentence_of_a_prompt_is_an_axis():
    control = {"lr": 1.0, "prompt": {"system": "Push the box.", "stop": ["</answer>"]}}
    other = {"lr": 2.0, "prompt": {"system": "Push the box. Think.", "stop": ["</answer>", "\n"]}}
    assert lines(check_conditions(control, {"other": other}, "lr")) == [
        "S1 error: 'other' differs from the control in 2 keys besides the axis lr: "
        "prompt.stop ['</answer>'] -> ['</answer>', '\\n'], "
        f"prompt.system 'Push the box.' -> 'Push the box. Think.'. {ONE_VALUE}"
    ]


def test_true_is_not_one_and_absent_is_not_null():
    found = check_conditions({"k": 0, "a": True, "b": None}, {"x": {"k": 1, "a": 1}}, "k")
    assert "2 keys besides the axis k: a true -> 1, b null -> '<absent>'" in found[0].message


def test_keys_of_another_variant_belong_to_an_axis_over_its_kind():
    gae, grpo = {"kind": "gae", "lam": 1.0, "x": 1}, {"kind": "grpo", "std": True, "x": 1}
    key = "advantage.kind"
    assert check_conditions({"advantage": gae}, {"grpo": {"advantage": grpo}}, key) == ()
    found = check_conditions({"advantage": gae}, {"g": {"advantage": grpo | {"x": 2}}}, key)
    assert "1 key besides the axis advantage.kind: advantage.x 1 -> 2" in found[0].message


def test_a_section_inside_a_variant_belongs_to_it_and_a_neighbour_does_not():
    none, adca = {"kind": "none"}, {"kind": "adca", "llm": {"model": "m", "kind": "x"}}
    key = "attribution.kind"
    assert check_conditions({"attribution": none}, {"a": {"attribution": adca}}, key) == ()
    other = {"attribution": adca, "attribution_of": {"x": 1}}
    (found,) = check_conditions({"attribution": none}, {"a": other}, key)
    assert "1 key besides the axis attribution.kind: attribution_of.x" in found.message
    # an axis that is called `kind` and is in no section chooses no variant
    assert len(check_conditions({"kind": 1}, {"a": {"kind": 2, "x": 1}}, "kind")) == 1


# --- the rules on our own sweeps


def test_toy_sweep_is_proven(load):
    report = check_sweep(load())
    assert (report.ok, report.errors, report.warnings) == (True, (), ())
    assert [(row.condition, row.is_control, row.settings) for row in report.axis_table] == [
        ("kl_loss_coef=0.0", True, {"loss.kl_loss_coef": 0.0, "loss.use_kl_loss": False}),
        ("kl_loss_coef=0.01", False, {"loss.kl_loss_coef": 0.01, "loss.use_kl_loss": True}),
        ("kl_loss_coef=0.1", False, {"loss.kl_loss_coef": 0.1, "loss.use_kl_loss": True}),
    ]


def test_s1_sees_a_second_axis_through_an_interpolation(load):
    hidden = ("  loss.kl_type: k2", "  loss.kl_type: k2\n  loss.clip_high: ${loss.kl_loss_coef}")
    report = check_sweep(load(hidden))
    assert lines(report.errors) == [
        f"S1 error: 'kl_loss_coef={value}' differs from the control in 1 key besides the axis "
        f"loss.kl_loss_coef: loss.clip_high 0.0 -> {value}. {ONE_VALUE}"
        for value in (0.01, 0.1)
    ]
    assert not report.ok


def test_s3_names_every_knob_that_is_not_held(load):
    report = check_sweep(load(("  loss.entropy_coeff: 0.0\n", ""), ("    value: 1.0\n", "")))
    assert lines(report.errors) == [
        "S3 error: Not held: loss.entropy_coeff (an entropy bonus flattens the policy whatever the "
        "reward says); rollout_filter.value (decides how many prompts teach). "
        "Write under hold: loss.entropy_coeff: 0.0, rollout_filter.value: 1.0."
    ]


def test_s3_asks_for_the_rest_of_the_filter_only_when_it_filters(load):
    report = check_sweep(load(("value: 1.0", "value: 0.9")))
    assert [finding.rule for finding in report.errors] == ["S3"]
    assert report.errors[0].remedy == (
        "Write under hold: rollout_filter.mode: 'softmax', "
        "rollout_filter.metric: 'reward_variance', rollout_filter.type: 'largest', "
        "rollout_filter.on_drop: 'drop', rollout_filter.loss_scaling: 'none'."
    )


def test_s3_asks_for_the_kind_of_kl_only_where_there_is_one(load):
    (finding,) = check_sweep(load((HOLD, ""))).errors
    assert finding.rule == "S3"
    assert finding.remedy == "Write under hold: loss.kl_type: 'k2'."
    without = axis("loss.clip_high", "[0.2, 0.3]", "0.2")  # holds kl_loss_coef at 0, no kl_type
    assert check_sweep(load(*without)).errors == ()


def test_s3_asks_for_the_rest_of_the_filter_when_one_condition_filters(load):
    changes = axis("rollout_filter.value", "[1.0, 0.9]", "1.0")
    report = check_sweep(load(*changes, ("    value: 1.0\n", "")))
    assert [finding.rule for finding in report.errors] == ["S3"]
    assert "rollout_filter.on_drop" in report.errors[0].remedy


@pytest.mark.parametrize(("seeds", "count"), [([4], "1 seed"), ([0, 1], "2 seeds")])
def test_s4_few_seeds(load, seeds, count):
    report = check_sweep(load(seeds=seeds))
    assert report.ok
    assert lines(report.warnings) == [
        f"S4 warning: No claim can be made from {count}. Run at least 3 seeds."
    ]


AXIS = "  key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0\n"
COUPLED = (
    '  coupled:\n    - key: loss.use_kl_loss\n      rule: "value > 0"\n      why: one switch\n'
)
HOLD = "  loss.kl_type: k2\n"


def axis(key, values, control, hold="  loss.kl_loss_coef: 0.0\n", coupled=""):
    """Changes that give the toy sweep another axis."""
    return (
        (AXIS, f"  key: {key}\n  values: {values}\n  control: {control}\n"),
        (COUPLED, coupled),
        (HOLD, hold),
    )


@pytest.mark.parametrize(
    ("key", "values", "shown"),
    [
        ("budget.steps", "[80, 160]", "budget.steps 80 -> 160"),
        ("rollout.groups", "[16, 32]", "rollouts per step 64 -> 128"),
        (
            "rollout.max_response_tokens",
            "[8, 16]",
            "rollout.max_response_tokens 8 -> 16",
        ),
        ("gate.every", "[10, 20]", "gate.every 10 -> 20"),
        ("gate.temperature", "[1.0, 0]", "gate.temperature 1.0 -> 0.0"),
    ],
)
def test_s5_unequal_budget(load, key, values, shown):
    control = values[1:].partition(",")[0]
    errors = check_sweep(load(*axis(key, values, control))).errors
    label = f"{key.rpartition('.')[2]}={values[:-1].rpartition(' ')[2]}"
    assert lines(errors) == [
        f"S5 error: '{label}' has another budget than the control: {shown}. "
        "Give all conditions one budget."
    ]


def test_s5_group_size_at_equal_rollouts_is_fair(load):
    coupled = (
        "  coupled:\n    - key: rollout.groups\n      rule: 128 // value\n"
        "      why: equal rollouts per step\n"
    )
    changes = axis("rollout.group_size", "[4, 8]", "8", coupled=coupled)
    report = check_sweep(load(*changes))
    assert (report.errors, report.warnings) == ((), ())


def test_s6_same_config_by_an_alias(load):
    report = check_sweep(
        load(
            *axis(
                "loss.kl_type", "[k2, mse]", "k2",
                hold="  loss.kl_loss_coef: 0.1\n  loss.use_kl_loss: true\n",
            )
        )
    )  # fmt: skip
    assert lines(report.errors) == [
        "S6 error: 'kl_type=k2' and 'kl_type=mse' resolve to the same config. "
        "Remove one of them, or give them different values."
    ]


def test_s6_sees_keys_without_effect_and_keys_outside_the_identity(load):
    errors = check_sweep(load(*axis("loss.kl_type", "[k2, k3]", "k2"))).errors
    assert lines(errors) == [
        "S6 error: 'kl_type=k2' and 'kl_type=k3' are the same run: they differ only in "
        "loss.kl_type (loss.use_kl_loss is false). "
        "Remove one of them, or give them different values."
    ]
    (found,) = check_sweep(
        load(*axis("rollout_filter.empty_stop_steps", "[5, 6]", "5"))
    ).errors  # a filter that drops nothing never leaves nothing
    assert (found.rule, "empty_stop_steps (the filter drops nothing)" in found.message) == (
        "S6", True,
    )  # fmt: skip
    assert [finding.rule for finding in check_sweep(
        load(*axis("checkpoint.every", "[10, 20]", "10"))
    ).errors] == ["S6"]  # fmt: skip


K1 = ("kl_type: k2", "kl_type: k1")


def test_s8_k1_as_a_loss(load):
    (finding,) = check_sweep(load(K1)).warnings
    assert (finding.rule, finding.code, finding.severity) == ("S8", "S8.k1_loss", Severity.WARNING)
    assert finding.message.startswith(
        "The KL loss in 2 conditions (kl_loss_coef=0.01, kl_loss_coef=0.1) is k1"
    )
    assert finding.remedy == "Set loss.kl_type: k2, or k3+."
    for remedied in ("k2", "k3+", "k1+"):
        assert check_sweep(load(("kl_type: k2", f"kl_type: {remedied}"))).warnings == ()


def test_a_reason_for_s8_accepts_one_kind_and_never_what_it_was_not_written_about():
    found = [warning("S8.k1_loss", "a.", "b."), warning("S8.tasks", "c.", "d.")]
    found += [warning("S8.tasks", "e.", "f.")]
    for reasons, wanted in (
        ({"S8": "why"}, [None, None, None]),
        ({"S8": "why", "S8.k1_loss": "shown"}, ["shown", "why", "why"]),
    ):
        assert [one.accepted_reason for one in accept(found, reasons)] == wanted


@pytest.mark.parametrize("key", ["S8", "S8.k1_loss"])
def test_s8_accepted_with_a_reason_stays_visible(load, key):
    accept = ("seeds:", f"accept: {{{key}: it is the point}}\nseeds:")
    (finding,) = check_sweep(load(K1, accept)).warnings
    assert finding.accepted_reason == "it is the point"
    assert str(finding).endswith("Accepted: it is the point")
    other = ("seeds:", "accept: {S8.normaliser: no}\nseeds:")
    assert check_sweep(load(K1, other)).warnings[0].accepted_reason is None


ADAPTERS = ("hold:\n", "hold:\n  policy.lora: {rank: 4, dropout: 0.1}\n")


def test_s8_a_ratio_with_dropout(load):
    accept = ("seeds:", "accept: {S8.dropout_ratio: as published}\nseeds:")
    (finding,) = check_sweep(load(ADAPTERS, accept)).warnings
    assert finding.code == "S8.dropout_ratio"
    assert finding.message.startswith("Adapters in 3 conditions (kl_loss_coef=0.0, ")
    assert "actor/pg_clipfrac" in finding.message
    assert "actor/ppo_kl" in finding.message
    assert finding.remedy == "Set policy.lora.dropout: 0.0."
    assert finding.accepted_reason == "as published"
    for change in (("dropout: 0.1", "dropout: 0.0"), ("rank: 4", "rank: 0")):
        assert check_sweep(load(ADAPTERS, change)).warnings == ()
    no_ratio = ("hold:\n", "hold:\n  loss.kind: reinforce\n")
    assert check_sweep(load(ADAPTERS, no_ratio)).warnings == ()


def test_dropout_may_be_the_axis_and_does_nothing_without_adapters(load):
    hold = "  loss.kl_loss_coef: 0.0\n  policy.lora.rank: 4\n"
    changes = axis("policy.lora.dropout", "[0.0, 0.1]", "0.0", hold=hold)
    report = check_sweep(load(*changes))
    assert [finding.code for finding in report.warnings] == ["S8.dropout_ratio"]
    assert "Adapters in dropout=0.1 drop" in report.warnings[0].message
    assert report.errors == ()
    (error,) = check_sweep(load(*axis("policy.lora.dropout", "[0.0, 0.1]", "0.0"))).errors
    assert error.rule == "S6"
    assert "policy.lora.dropout (policy.lora.rank is 0)" in error.message


FILTER = (
    "    include_zero: true\n",
    "    include_zero: true\n    mode: softmax\n    metric: reward_variance\n    type: largest\n"
    "    on_drop: drop\n    loss_scaling: none\n",
)


def codes(load, *changes):
    report = check_sweep(load(FILTER, *changes))
    assert report.errors == ()
    return [finding.code for finding in report.warnings]


def test_s8_filter_findings_and_their_remedies(load):
    on = ("value: 1.0", "value: 0.9")
    grpo = ("  attribution.kind: none\n", "  attribution.kind: none\n  advantage.kind: grpo\n")
    assert codes(load) == []
    assert codes(load, on) == [
        *("S8.drop_changes_updates", "S8.softmax_scale", "S8.batch_whitening")
    ]
    assert codes(load, on, grpo) == ["S8.drop_changes_updates", "S8.softmax_scale"]
    mask, mass = ("on_drop: drop", "on_drop: mask"), ("mode: softmax", "mode: mass")
    assert codes(load, on, grpo, mask) == ["S8.softmax_scale", "S8.batch_mates"]
    assert codes(load, on, grpo, mass) == ["S8.drop_changes_updates"]
    constant = ("hold:\n", "hold:\n  loss.aggregation: seq-mean-token-sum-norm\n")
    assert codes(load, on, grpo, mask, mass, constant) == []
    # value 1.0 without include_zero still drops the groups without spread
    zero = ("include_zero: true", "include_zero: false")
    assert codes(load, zero, grpo) == ["S8.drop_changes_updates"]


def test_s8_normaliser_that_follows_the_axis(load):
    changes = axis("env.max_turns", "[5, 6]", "5")
    assert "S8.normaliser" in codes(load, *changes)
    norm = "  loss.kl_loss_coef: 0.0\n  loss.aggregation: seq-mean-token-sum-norm\n"
    assert "S8.normaliser" not in codes(load, *axis("env.max_turns", "[5, 6]", "5", hold=norm))
    changes = axis("loss.aggregation", "[token-mean, seq-mean-token-sum]", "token-mean")
    assert codes(load, *changes) == ["S8.normaliser"]


def test_s8_normaliser_of_constants_that_move(load):
    """The remedy divides by optim.mini_batch_size: that must not move with what is trained on."""
    norm = "  loss.kl_loss_coef: 0.0\n  loss.aggregation: seq-mean-token-sum-norm\n"
    coupled = """  coupled:
    - key: optim.mini_batch_size
      rule: "64 if value == 5 else 32"
      why: a test
"""
    changes = axis("env.max_turns", "[5, 6]", "5", hold=norm, coupled=coupled)
    report = check_sweep(load(FILTER, *changes))
    (found,) = [item for item in report.warnings if item.code == "S8.normaliser"]
    assert found.message == (
        "seq-mean-token-sum-norm divides by optim.mini_batch_size, which moves with env.max_turns: "
        "the weight of a token differs between conditions."
    )


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("env.size", "[6, 7]"),
        ("env.boxes", "[1, 2]"),
        ("env.search_depth", "[100, 30]"),
        ("env.max_actions", "[10, 9]"),
        ("env.max_turns", "[5, 6]"),
        ("env.max_actions_per_turn", "[2, 3]"),
        ("env.split_seed", "[0, 1]"),
        ("env.train_tasks", "[4096, 64]"),
        ("gate.tasks", "[256, 128]"),
    ],
)
def test_s8_axis_that_changes_the_frozen_tasks(load, key, values):
    changes = axis(key, values, values[1:].partition(",")[0])
    found = {finding.code: finding for finding in check_sweep(load(*changes)).warnings}
    assert found["S8.tasks"].message == (
        f"{key} changes the frozen tasks, or their floor and ceiling: conditions are not trained "
        "and evaluated on the same ones."
    )
    accepted = load(*changes, ("seeds:", "accept: {S8.tasks: it is the question}\nseeds:"))
    (reason,) = [f.accepted_reason for f in check_sweep(accepted).warnings if f.code == "S8.tasks"]
    assert reason == "it is the question"


def test_s8_an_axis_of_the_env_that_keeps_the_tasks(load):
    for key, values in (("format_penalty", "[-0.1, 0.0]"), ("prompt", "[natural, compact]")):
        changes = axis(f"env.{key}", values, values[1:].partition(",")[0])
        model = ("loss.entropy", "policy.model: mine\n  loss.entropy")  # reads both prompts
        assert "S8.tasks" not in codes(load, *changes, model)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env.size", 7),
        ("env.boxes", 2),
        ("env.search_depth", 30),
        ("env.max_actions", 9),
        ("env.min_difficulty", 2),
        ("env.max_difficulty", 9),
        ("env.split_seed", 1),
        ("gate.tasks, gate.test_tasks", 1537),  # 1537 + 512 is 2049
    ],
)
def test_s8_levels_that_the_tiny_policy_was_taught(load, key, value):
    override = f"{key.partition(',')[0]}={value}"
    (finding,) = check_sweep(load(overrides=[override])).warnings
    assert finding.code == "S8.seen_tasks"
    assert f"with {key} as in 3 conditions (kl_loss_coef=0.0, " in finding.message
    # a policy of one's own was not taught by these demonstrations
    other = load(overrides=[override, "policy.model=mine"])
    assert check_sweep(other).warnings == ()


@pytest.mark.parametrize(
    "override",
    [
        "gate.tasks=1536",
        "gate.test_tasks=0",
        "gate.every=3",
        "env.train_tasks=9",
        "env.max_turns=6",
        "env.max_actions_per_turn=3",
        "env.format_penalty=-0.5",
    ],
)
def test_s8_levels_that_the_tiny_policy_was_not_taught(load, override):
    assert check_sweep(load(overrides=[override])).warnings == ()


def test_s8_number_of_updates_follows_the_axis(load):
    report = check_sweep(load(*axis("optim.mini_batch_size", "[32, 128]", "32")))
    finding, stale = report.warnings
    assert (finding.code, stale.code) == ("S8.update_count", "S8.staleness")
    assert "(mini_batch_size=32: 4, mini_batch_size=128: 1)" in finding.message  # 128 / 32, / 128


def test_advantage_kind_as_an_axis(load):
    report = check_sweep(load(*axis("advantage.kind", "[gae, grpo]", "gae")))
    assert (report.errors, report.warnings) == ((), ())


def test_every_rule_has_a_sentence():
    assert list(RULES) == [f"S{i}" for i in range(1, 10)] + [f"A{i}" for i in range(1, 9)]


GRPO = "  advantage: {kind: grpo, ddof: 0}\n"


@pytest.mark.parametrize(
    ("attribution", "metric", "said"),
    [
        ("{kind: adca}", "reward_variance",
         "drops groups by the spread of their rewards, and with them what verdicts on turns would "
         "teach: a group of equal rewards has turns of different worth."),
        ("{kind: adca}", "length",
         "drops groups by their mean length, and with them what verdicts on turns would teach."),
        ("{kind: info_gain}", "entropy",
         "drops groups by their mean surprisal, and with them what the information gain of turns "
         "would teach."),
        ("{kind: adca, alpha: 0.0, alpha_schedule: cosine, alpha_min: 0.1}", "length",
         "drops groups by their mean length, and with them what verdicts on turns would teach."),
        ("{kind: adca, alpha: 0.0}", "length", None),
        ("{kind: info_gain, ig_coef: 0.0}", "length", None),
    ],
)  # fmt: skip
def test_s8_names_what_a_filter_takes_from_the_credit_of_turns(load, attribution, metric, said):
    loaded = load(
        ("    value: 1.0\n", f"    value: 0.5\n    metric: {metric}\n    on_drop: mask\n"),
        ("  attribution.kind: none\n", f"  attribution: {attribution}\n{GRPO}"),
    )
    found = [f for f in check_sweep(loaded).warnings if f.code == "S8.dropped_verdicts"]
    assert [f.message.partition("loss_coef=0.1) ")[2] for f in found] == ([said] if said else [])


def test_s8_speaks_of_dropped_groups_only_where_one_can_be_dropped(load):
    zero = ("include_zero: true", "include_zero: false")
    mean = ("metric: reward_variance", "metric: length")
    assert "S8.drop_changes_updates" not in codes(load, zero, mean)

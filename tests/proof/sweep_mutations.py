"""Planted faults in shipped sweep files, with what the proof must say of each.

Each fault has its near miss: an edit of the same place that is right and must pass. The table of
docs/comparability.md is made from this list.
"""

from dataclasses import dataclass
from typing import Any

Edit = tuple[str, str]


@dataclass(frozen=True)
class SweepMutation:
    """One edited sweep file.

    Attributes:
        code: The rule, or the rule with the kind of its finding: `S8.k1_loss`.
        what: The edit in words.
        edits: Texts of the file and what takes their place.
        is_fault: Whether the rule must find it; a near miss must pass.
        sweep: Name of the file under sweeps/.
        beside: Name of an unedited sweep that is checked together with it.
        refused: Text of the message where the file is refused while it is loaded.
        is_deep: Whether it takes the gradients of `rltune check --deep` to see it.

    """

    code: str
    what: str
    edits: tuple[Edit, ...]
    is_fault: bool = True
    sweep: str = "quickstart"
    beside: str | None = None
    refused: str = ""
    is_deep: bool = False

    @property
    def rule(self) -> str:
        """`S8` of `S8.k1_loss`."""
        return self.code.partition(".")[0]


def fault(code: str, what: str, *edits: Edit, **options: Any) -> SweepMutation:
    return SweepMutation(code, what, edits, is_fault=True, **options)


def near_miss(code: str, what: str, *edits: Edit, **options: Any) -> SweepMutation:
    return SweepMutation(code, what, edits, is_fault=False, **options)


def hold(*lines: str) -> Edit:
    """Return the edit that adds lines under `hold`, behind its first key."""
    return (
        "\n  loss.entropy_coeff: 0.0\n",
        "\n  loss.entropy_coeff: 0.0\n" + "".join(f"  {line}\n" for line in lines),
    )


_AXIS = """\
  key: loss.kl_loss_coef
  values: [0.0, 0.01, 0.1]
  control: 0.0
  coupled:
    - key: loss.use_kl_loss
      rule: "value > 0"
      why: with coefficient 0 no reference forward pass is run
"""
_COUPLED = """\
  coupled:
    - key: loss.use_kl_loss
      rule: "value > 0"
      why: with coefficient 0 no reference forward pass is run
"""
_NO_KL = hold("loss.use_kl_loss: false", "loss.kl_loss_coef: 0.0")


def axis(key: str, values: str, control: str, *more: str) -> Edit:
    """Return the edit that replaces the axis of the quickstart."""
    lines = (f"key: {key}", f"values: {values}", f"control: {control}", *more)
    return (_AXIS, "".join(f"  {line}\n" for line in lines))


def coupled(key: str, rule: str) -> str:
    """Return the line of the axis that couples one key."""
    return f'coupled: [{{key: {key}, rule: "{rule}", why: planted}}]'


_AHEAD = (
    ("rollout_correction.kind: none", "rollout_correction.kind: tis"),
    hold("resources.engine: own"),
)
"""What sampling ahead of training needs."""
_STEPS = "  budget.steps: 20                # short, so that the whole sweep takes minutes\n"
_GROUPS = (
    "  rollout.groups: 16              "
    "# half of the laptop profile's rollouts, for the same reason\n",
    "",
)
"""Leaves the number of groups to the profile: 32."""
_FILTER_OFF = "    value: 1.0\n"
_ZERO_IN = "    include_zero: true\n"
_DROP = "    on_drop: drop\n"

SWEEP_MUTATIONS = (
    # S1: a second key moves.
    fault("S1", "`optim.lr` follows the axis by interpolation",
          hold("optim.lr: ${loss.kl_loss_coef}"), ("values: [0.0,", "values: [0.001,"),
          ("control: 0.0", "control: 0.001")),
    fault("S1", "`loss.clip_high` follows the axis by interpolation",
          hold("loss.clip_high: ${loss.kl_loss_coef}")),
    near_miss("S1", "a key interpolates a held key: one value in all conditions",
              hold("loss.clip_high: ${loss.clip_low}")),
    # S2: a coupled key without a rule that holds.
    fault("S2", "the rule of a coupled key divides by the control's 0",
          ('rule: "value > 0"', 'rule: "1 / value > 0"'),
          refused="fails for axis value 0"),
    fault("S2", "a coupled key has a rule and no reason",
          ("\n      why: with coefficient 0 no reference forward pass is run", ""),
          refused="why"),
    near_miss("S2", "the same rule, written otherwise", ('"value > 0"', '"not value <= 0"')),
    # S3: a knob that nobody holds.
    fault("S3", "`loss.entropy_coeff` is not held", ("  loss.entropy_coeff: 0.0\n", "")),
    fault("S3", "the filter's `include_zero` is not held", (_ZERO_IN, "")),
    near_miss("S3", "a knob without effect is not held (`loss.kl_type` where no KL is computed)",
              ("  loss.kl_type: k2                # see sweeps/kl.yaml\n", ""),
              ("  loss.kl_target: null            # the weight stays as it is\n", ""), _NO_KL,
              axis("optim.lr", "[1.0e-4, 2.0e-4]", "1.0e-4")),
    # S4: seeds.
    fault("S4", "two seeds", ("seeds: [0, 1]", "seeds: [3, 4]")),
    fault("S4", "one seed", ("seeds: [0, 1]", "seeds: [0]")),
    near_miss("S4", "three seeds", ("seeds: [0, 1]", "seeds: [0, 1, 2]")),
    # S5: more for one condition than for another.
    fault("S5", "the axis is the number of steps", _NO_KL, axis("budget.steps", "[20, 40]", "20"),
          (_STEPS, "")),
    fault("S5", "a coupled key gives one condition longer responses",
          (_COUPLED, _COUPLED + "    - {key: rollout.max_response_tokens, why: planted, "
           "rule: '16 if value > 0 else 8'}\n")),
    near_miss("S5", "the axis is the group size and the number of groups makes up for it",
              _NO_KL, axis("rollout.group_size", "[4, 8]", "8",
                           coupled("rollout.groups", "128 // value")),
              _GROUPS),
    # S6: two names, one run.
    fault("S6", "two values are one number", ("[0.0, 0.01, 0.1]", "[0.0, 0.01, 1.0e-2]"),
          refused="0.01 is given twice"),
    fault("S6", "the axis is a key without effect: the KL estimator where no KL is computed",
          _NO_KL, ("  loss.kl_type: k2                # see sweeps/kl.yaml\n", ""),
          axis("loss.kl_type", "[k1, k2]", "k2")),
    fault("S6", "the axis is a clip bound where a batch has one optimiser step: the ratio is 1",
          _NO_KL, hold("optim.mini_batch_size: 64"), axis("loss.clip_low", "[0.2, 0.1]", "0.2")),
    fault("S6", "the axis is the environment's penalty, and the reward is success alone",
          _NO_KL, hold("reward: success"), axis("env.format_penalty", "[-0.1, 0.0]", "-0.1")),
    near_miss("S6", "the same penalty where the environment's own reward is paid",
              _NO_KL, axis("env.format_penalty", "[-0.1, 0.0]", "-0.1")),
    fault("S6", "the axis is the cap of a correction between equal probabilities", _NO_KL,
          ("rollout_correction.kind: none", "rollout_correction.kind: tis"),
          axis("rollout_correction.cap", "[2.0, 5.0]", "2.0")),
    near_miss("S6", "the same cap where two passes differ by rounding to bfloat16", _NO_KL,
              ("rollout_correction.kind: none", "rollout_correction.kind: tis"),
              hold("policy.dtype: bfloat16"), axis("rollout_correction.cap", "[2.0, 5.0]", "2.0")),
    near_miss("S6", "the same with a bound so near to 1 that rounding meets it",
              _NO_KL, hold("optim.mini_batch_size: 64"),
              axis("loss.clip_low", "[0.2, 1.0e-5]", "0.2")),
    near_miss("S6", "the KL estimator where KL is computed",
              hold("loss.use_kl_loss: true", "loss.kl_loss_coef: 0.01"),
              ("  loss.kl_type: k2                # see sweeps/kl.yaml\n", ""),
              axis("loss.kl_type", "[k3, k2]", "k2")),
    fault("S6", "two estimators of other names that are one function: `grpo_center`, and `grpo` "
          "without division by the spread (`check --deep`)", _NO_KL,
          axis("advantage", "{a: {kind: grpo_center}, b: {kind: grpo, normalize_std: false}}", "a",
               "why: planted"), is_deep=True),
    fault("S6", "`reinforce` beside `ppo` where a batch has one optimiser step (`check --deep`)",
          _NO_KL, hold("optim.mini_batch_size: 64", "advantage.kind: grpo"),
          axis("loss.kind", "[ppo, reinforce]", "ppo"), is_deep=True),
    fault("S6.proportional", "`rloo` beside `grpo_center`: n/(n-1) under AdamW (`check --deep`)",
          _NO_KL, axis("advantage.kind", "[rloo, grpo_center]", "rloo"), is_deep=True),
    fault("S6", "`kl_type` k1+ beside k3+: two values, one gradient (`check --deep`)",
          hold("loss.use_kl_loss: true", "loss.kl_loss_coef: 0.01"),
          ("  loss.kl_type: k2                # see sweeps/kl.yaml\n", ""),
          axis("loss.kl_type", "[k1+, k3+]", "k1+"), is_deep=True),
    fault("S6.same_groups", "two shares of softmax that keep the same groups (`check --deep`)",
          _NO_KL, hold("rollout.groups: 8", "reward: success", "advantage.kind: grpo"),
          _GROUPS,
          (_FILTER_OFF, ""), (_DROP, "    on_drop: mask\n"),
          (_ZERO_IN, "    include_zero: false\n"),
          axis("rollout_filter.value", "[0.98, 0.95]", "0.98"), is_deep=True),
    near_miss("S6", "`ppo` and `reinforce` with two optimiser steps a batch (`check --deep`)",
              _NO_KL, hold("optim.mini_batch_size: 64", "advantage.kind: grpo"),
              _GROUPS,
              axis("loss.kind", "[ppo, reinforce]", "ppo"), is_deep=True),
    near_miss("S6.proportional", "the same beside an entropy bonus, which does not scale",
              _NO_KL, ("\n  loss.entropy_coeff: 0.0\n", "\n  loss.entropy_coeff: 0.01\n"),
              axis("advantage.kind", "[rloo, grpo_center]", "rloo"), is_deep=True),
    near_miss("S6", "`grpo` divides by the spread, `grpo_center` does not (`check --deep`)",
              _NO_KL, axis("advantage.kind", "[grpo, grpo_center]", "grpo"), is_deep=True),
    # S7: a value out of its domain.
    fault("S7", "a negative KL coefficient", ("0.01, 0.1]", "-0.01, 0.1]"),
          refused="kl_loss_coef"),
    fault("S7", "a held key has a misspelt value", ("kl_type: k2 ", "kl_type: k22 "),
          refused="k22"),
    near_miss("S7", "the largest coefficient is 1", ("0.01, 0.1]", "0.01, 1.0]")),
    # S8: hidden second axes.
    fault("S8.k1_loss", "the KL loss is k1", ("kl_type: k2 ", "kl_type: k1 ")),
    near_miss("S8.k1_loss", "k1's value with k2's gradient", ("kl_type: k2 ", "kl_type: k1+ ")),
    fault("S8.drop_changes_updates", "a filter drops groups", (_FILTER_OFF, "    value: 0.9\n"),
          (_ZERO_IN, "    include_zero: false\n")),
    near_miss("S8.drop_changes_updates", "the filter masks them",
              (_FILTER_OFF, "    value: 0.9\n"), (_ZERO_IN, "    include_zero: false\n"),
              (_DROP, "    on_drop: mask\n")),
    fault("S8.softmax_scale", "a filter keeps a share of softmax",
          (_FILTER_OFF, "    value: 0.9\n")),
    near_miss("S8.softmax_scale", "a share of the score's sum", (_FILTER_OFF, "    value: 0.9\n"),
              ("mode: softmax", "mode: mass")),
    fault("S8.normaliser", "the axis is a filter under token-mean", _NO_KL,
          (_FILTER_OFF, ""), (_DROP, "    on_drop: mask\n"), ("mode: softmax", "mode: mass"),
          axis("rollout_filter.value", "[1.0, 0.5]", "1.0")),
    near_miss("S8.normaliser", "the same filter with a constant divisor", _NO_KL,
              hold("loss.aggregation: seq-mean-token-sum-norm", "loss.sum_norm: 16.0"),
              (_FILTER_OFF, ""), (_DROP, "    on_drop: mask\n"), ("mode: softmax", "mode: mass"),
              axis("rollout_filter.value", "[1.0, 0.5]", "1.0")),
    fault("S8.update_count", "the axis is the mini-batch size", _NO_KL,
          axis("optim.mini_batch_size", "[32, 64]", "64")),
    near_miss("S8.update_count", "the axis is the learning rate", _NO_KL,
              axis("optim.lr", "[1.0e-4, 2.0e-4]", "1.0e-4")),
    fault("S8.staleness", "the axis is the number of passes over a batch", _NO_KL,
          axis("optim.epochs", "[1, 2]", "1")),
    fault("S8.staleness", "the axis is how far sampling is ahead", _NO_KL, *_AHEAD,
          axis("rollout.ahead", "[0, 1]", "0")),
    near_miss("S8.staleness", "sampling is ahead in all conditions", _NO_KL, *_AHEAD,
              hold("rollout.ahead: 1"), axis("optim.lr", "[1.0e-4, 2.0e-4]", "1.0e-4")),
    near_miss("S8.staleness", "as many mini-batches of twice the size", _NO_KL,
              axis("optim.epochs", "[1, 2]", "1", coupled("optim.mini_batch_size", "64 * value")),
              _GROUPS),
    fault("S8.batch_mates", "the axis is what a batch is shuffled by", _NO_KL,
          axis("optim.minibatch_by", "[row, group]", "row")),
    near_miss("S8.batch_mates", "rows are shuffled in all conditions", _NO_KL,
              hold("optim.minibatch_by: row"), axis("optim.lr", "[1.0e-4, 2.0e-4]", "1.0e-4")),
    fault("S8.critic_warmup", "a critic warms up in one of two conditions", _NO_KL,
          hold("critic.warmup_steps: 10"), axis("advantage.kind", "[gae, grpo]", "gae")),
    near_miss("S8.critic_warmup", "it warms up in both", _NO_KL,
              hold("critic.warmup_steps: 10"), axis("advantage.kind", "[gae, gae_bilevel]", "gae")),
    fault("S8.term_weights", "an entropy bonus beside an axis of estimators", _NO_KL,
          ("\n  loss.entropy_coeff: 0.0\n", "\n  loss.entropy_coeff: 0.01\n"),
          axis("advantage.kind", "[grpo, grpo_center]", "grpo")),
    fault("S8.term_weights", "an entropy bonus beside an axis of aggregations", _NO_KL,
          ("\n  loss.entropy_coeff: 0.0\n", "\n  loss.entropy_coeff: 0.01\n"),
          axis("loss.aggregation", "[token-mean, seq-mean-token-sum]", "token-mean")),
    near_miss("S8.term_weights", "the same beside estimators that are all whitened", _NO_KL,
              ("\n  loss.entropy_coeff: 0.0\n", "\n  loss.entropy_coeff: 0.01\n"),
              axis("advantage.kind", "[gae, reinforce_pp]", "gae")),
    fault("S8.lora_scale", "the axis is the rank of the adapters at one alpha", _NO_KL,
          axis("policy.lora.rank", "[4, 16]", "4")),
    near_miss("S8.lora_scale", "alpha follows the rank", _NO_KL,
              axis("policy.lora.rank", "[4, 16]", "4", coupled("policy.lora.alpha", "2 * value"))),
    fault("S8.clip_meaning", "the axis is the loss at equal clip bounds", _NO_KL,
          axis("loss.kind", "[ppo, gspo]", "ppo")),
    near_miss("S8.clip_meaning", "each loss has bounds of its own", _NO_KL,
              axis("loss.kind", "[ppo, gspo]", "ppo",
                   "coupled:",
                   *(f'- {{key: loss.{key}, rule: "{ppo} if value == \'ppo\' else {gspo}", why: x}}'
                     for key, ppo, gspo in (("clip_low", 0.2, 3e-4), ("clip_high", 0.28, 4e-4))))),
    fault("S8.k3_clamp", "the KL loss is k3", ("kl_type: k2 ", "kl_type: k3 ")),
    near_miss("S8.k3_clamp", "k3's value with k2's gradient", ("kl_type: k2 ", "kl_type: k3+ ")),
    fault("S8.batch_mates", "a filter masks rows under token-mean",
          (_ZERO_IN, "    include_zero: false\n"), (_DROP, "    on_drop: mask\n")),
    near_miss("S8.batch_mates", "the same with a constant divisor",
              (_ZERO_IN, "    include_zero: false\n"), (_DROP, "    on_drop: mask\n"),
              hold("loss.aggregation: seq-mean-token-sum-norm")),
    fault("S8.batch_whitening", "a filter beside a critic's whitened advantages",
          (_ZERO_IN, "    include_zero: false\n"), (_DROP, "    on_drop: mask\n")),
    near_miss("S8.batch_whitening", "the same filter beside advantages within groups",
              (_ZERO_IN, "    include_zero: false\n"), (_DROP, "    on_drop: mask\n"),
              hold("advantage.kind: grpo")),
    fault("S8.tasks", "the axis is the size of the room", _NO_KL,
          axis("env.size", "[6, 7]", "6")),
    near_miss("S8.tasks", "the axis is the penalty of a malformed response", _NO_KL,
              axis("env.format_penalty", "[-0.1, 0.0]", "-0.1")),
    # S9: sweeps of one protocol.
    fault("S9", "one sweep of a protocol runs longer", hold("budget.steps: 7"),
          sweep="kl", beside="entropy"),
    fault("S9", "the axis is a key that the protocol does not free",
          hold("loss.use_kl_loss: false", "loss.kl_loss_coef: 0.0"),
          axis("optim.lr", "[1.0e-4, 2.0e-4]", "1.0e-4"),
          ("base: sokoban ", "protocol: figure3\nbase: sokoban ")),
    near_miss("S9", "a sweep of the protocol differs in a freed key only",
              ("control: 0.0", "control: 0.001"), sweep="kl", beside="entropy"),
)  # fmt: skip

"""S8, sizes that move along with a knob: each kind is found, and its remedy or near miss passes."""

from copy import deepcopy

from cases import each

from rltune.comparability.check import check_sweep
from rltune.comparability.confounders import confounders
from rltune.spec.schema.trial import TrialConfig

BASE = {
    "env": {"kind": "sokoban", "prompt": "compact"},
    "policy": {"model": "tiny"},
    "budget": {"steps": 80},
    "rollout": {"groups": 8, "group_size": 16},
    "optim": {"mini_batch_size": 32, "micro_batch_size": 4},
    "rollout_filter": {"value": 1.0, "include_zero": True},
}
KL = {"loss.use_kl_loss": True, "loss.kl_loss_coef": 0.01}
ENTROPY = {"loss.entropy_coeff": 0.01}
GRPO = {"advantage": {"kind": "grpo"}}
CENTER = {"advantage": {"kind": "grpo_center"}}
GAE = {"advantage": {"kind": "gae"}}
PP = {"advantage": {"kind": "reinforce_pp"}}
PP_BASELINE = {"advantage": {"kind": "reinforce_pp_baseline"}}
ONE_STEP = {"optim.mini_batch_size": 128}
GROUP = {"optim.minibatch_by": "group"}
FILTER = {"rollout_filter.include_zero": False}
MASK = {**FILTER, "rollout_filter.on_drop": "mask"}
CONSTANT = {"loss.aggregation": "seq-mean-token-sum-norm"}
BATCH_SCOPE = {"advantage.shaping": {"gtpo_beta": 0.1, "scope": "batch"}}


def config_of(*changes):
    data = deepcopy(BASE)
    for key, value in {k: v for change in changes for k, v in change.items()}.items():
        *path, last = key.split(".")
        place = data
        for part in path:
            place = place.setdefault(part, {})
        place[last] = deepcopy(value)
    return TrialConfig.model_validate(data)


def found(moving, *conditions):
    """Return code -> message for conditions, each a tuple of changes."""
    configs = {f"c{i}": config_of(*changes) for i, changes in enumerate(conditions)}
    return {finding.code: finding.message for finding in confounders(configs, moving)}


def warm(steps, kind=GAE):
    return ({**kind, "critic.warmup_steps": steps},)


def bounds(kind, low=0.2, high=0.28):
    clips = {"loss.clip_low": low, "loss.clip_high": high} if kind != "reinforce" else {}
    return ({"loss.kind": kind, **clips},)


def lora(rank, alpha):
    return ({"policy.lora": {"rank": rank, "alpha": alpha}},)


TIS = {"rollout_correction": {"kind": "tis"}, "resources.engine": "own"}
AHEAD = {**TIS, "rollout.ahead": 1}
KIND, LOSS, RANK = ("advantage.kind",), ("loss.kind",), ("policy.lora.rank", "policy.lora.alpha")
FAULTS = [  # code, moving keys, conditions, text of the message
    ("critic_warmup", KIND, (warm(40), warm(40, GRPO)), "(c0: 40, c1: 80)"),
    ("critic_warmup", ("critic.warmup_steps",), (warm(0), warm(10)), "(c0: 80, c1: 70)"),
    ("critic_warmup", ("optim.lr",), (warm(80), warm(99)), "all 80 training steps"),
    ("update_count", ("optim.mini_batch_size",), ((ONE_STEP,), ({},)), "(c0: 1, c1: 4)"),
    ("staleness", ("optim.mini_batch_size",), ((ONE_STEP,), ({},)), "(c0: 0, c1: 3)"),
    ("staleness", ("optim.epochs",), (({"optim.epochs": 2},), ({},)), "(c0: 7, c1: 3)"),
    ("staleness", LOSS, (bounds("ppo"), bounds("reinforce")), "in c1 has no ratio"),
    ("staleness", ("rollout.ahead",), ((AHEAD,), (TIS,)), "rollout.ahead is not the same"),
    # two steps of 4 updates lie between the last of them and the policy that sampled
    ("staleness", ("optim.mini_batch_size",), ((AHEAD, ONE_STEP), (AHEAD,)), "(c0: 1, c1: 7)"),
    ("term_weights", KIND, ((GRPO, KL), (CENTER, KL)), "of loss.kl_loss_coef do not"),
    ("term_weights", KIND, ((GAE, ENTROPY), (GRPO, ENTROPY)), "of loss.entropy_coeff do not"),
    (
        "term_weights", ("advantage.normalize_std",),
        ((GRPO, KL, ENTROPY), ({"advantage": {"kind": "grpo", "normalize_std": False}}, KL)),
        "of loss.entropy_coeff and loss.kl_loss_coef do not",
    ),
    (
        "term_weights", ("advantage.shaping.hicra_alpha",),
        ((PP, KL), ({"advantage": {"kind": "gae"}}, KL)), "advantage.shaping.hicra_alpha may",
    ),
    ("term_weights", ("rollout_filter.loss_scaling",), ((PP, KL), (PP, KL)), "loss_scaling may"),
    ("term_weights", ("rollout_filter.value",), ((GRPO, KL), (GRPO, KL)), "rollout_filter.value"),
    ("term_weights", ("env.format_penalty",), ((CENTER, KL), (CENTER, KL)), "format_penalty may"),
    ("lora_scale", RANK[:1], (lora(4, 16.0), lora(16, 16.0)), "(c0: 4, c1: 1)"),
    ("lora_scale", RANK, (lora(4, 8.0), lora(16, 64.0)), "(c0: 2, c1: 4)"),
    ("clip_meaning", LOSS, (bounds("ppo"), bounds("gspo")), "0.2 and loss.clip_high 0.28"),
    ("clip_meaning", LOSS, (bounds("ppo"), bounds("cispo")), "keeps its gradient"),
    ("clip_meaning", LOSS, (bounds("turn", 3e-3, 4e-3), bounds("gspo", 3e-3, 4e-3)), "of a turn"),
    ("k3_clamp", ("optim.lr",), (({**KL, "loss.kl_type": "k3"},), ({},)), "in c0 is k3"),
    ("k3_clamp", ("optim.lr",), (({**KL, "loss.kl_type": "low_var_kl"},),), "in c0 is k3"),
    ("batch_mates", KIND, ((GRPO, MASK), (CENTER, MASK)), "in 2 conditions (c0, c1) masks"),
    ("batch_mates", ("optim.minibatch_by",), ((GROUP,), ({},)), "(c0: group, c1: row)"),
    ("batch_whitening", KIND, ((GRPO, MASK), (PP_BASELINE, MASK)), "reinforce_pp_baseline in c1"),
    ("batch_whitening", KIND, ((GAE, FILTER), (PP, FILTER)), "gae, advantage.kind reinforce_pp in"),
    ("batch_whitening", ("optim.lr",), ((GRPO, BATCH_SCOPE, FILTER),), "shaping.scope batch in c0"),
]  # fmt: skip
NEAR_MISSES = [
    ("critic_warmup", KIND, (warm(0), warm(0, GRPO))),
    ("critic_warmup", ("optim.lr",), (warm(40), warm(40))),
    ("critic_warmup", ("optim.lr",), (warm(40, GRPO), warm(0, GRPO))),  # no critic
    ("update_count", ("optim.lr",), (({"optim.lr": 0.1},), ({},))),
    (
        "staleness", ("optim.epochs", "optim.mini_batch_size"),
        (({"optim.epochs": 2, "optim.mini_batch_size": 64},), ({},)),
    ),
    ("staleness", LOSS, ((*bounds("ppo"), ONE_STEP), (*bounds("reinforce"), ONE_STEP))),
    ("staleness", ("optim.lr",), (bounds("reinforce"), bounds("reinforce"))),
    ("staleness", ("optim.lr",), ((AHEAD,), (AHEAD,))),
    ("term_weights", KIND, ((GRPO,), (CENTER,))),
    ("term_weights", KIND, ((GAE, KL), (PP, KL), (PP_BASELINE, KL))),  # all of variance 1
    ("term_weights", ("optim.lr",), ((GRPO, KL), (GRPO, KL))),
    ("term_weights", ("rollout_filter.value",), ((GAE, KL), (GAE, KL))),
    ("term_weights", ("env.format_penalty",), ((GRPO, KL), (GRPO, KL))),
    ("term_weights", (*KIND, "loss.kl_loss_coef"), ((GRPO, KL), (CENTER, KL))),  # coupled
    ("lora_scale", RANK, (lora(4, 8.0), lora(16, 32.0))),
    ("lora_scale", RANK[1:], (lora(4, 8.0), lora(4, 32.0))),  # the scale is the axis itself
    ("lora_scale", RANK[:1], (lora(0, 16.0), lora(8, 16.0))),
    ("clip_meaning", LOSS, (bounds("ppo"), bounds("gspo", 3e-4, 4e-4))),
    ("clip_meaning", LOSS, (bounds("ppo"), bounds("reinforce"))),
    ("clip_meaning", LOSS, ((*bounds("ppo"), ONE_STEP), (*bounds("gspo"), ONE_STEP))),  # ratio 1
    ("k3_clamp", ("optim.lr",), (({**KL, "loss.kl_type": "k3+"},), (KL,))),
    ("k3_clamp", ("optim.lr",), (({"loss.kl_type": "k3"},),)),
    ("batch_mates", KIND, ((GRPO, MASK, CONSTANT), (CENTER, MASK, CONSTANT))),
    ("batch_mates", KIND, ((GRPO, MASK, ONE_STEP), (CENTER, MASK, ONE_STEP))),
    ("batch_mates", KIND, ((GRPO,), (CENTER,))),
    ("batch_mates", ("optim.minibatch_by",), ((GROUP, ONE_STEP), (ONE_STEP,))),  # one mini-batch
    ("batch_mates", ("optim.lr",), ((GROUP,), (GROUP,))),
    ("batch_whitening", KIND, ((GRPO, MASK), (CENTER, FILTER))),
    ("batch_whitening", KIND, ((GAE,), (PP_BASELINE,))),
]  # fmt: skip


@each(("code", "moving", "conditions", "said"), FAULTS)
def test_found(code, moving, conditions, said):
    assert said in found(moving, *conditions)[f"S8.{code}"]


@each(("code", "moving", "conditions"), NEAR_MISSES)
def test_near_miss(code, moving, conditions):
    assert f"S8.{code}" not in found(moving, *conditions)


def test_every_code_has_a_fault_and_a_near_miss():
    assert {code for code, *_ in FAULTS} == {code for code, *_ in NEAR_MISSES}


def test_the_issue_s_sweep_is_found_by_the_check(load):
    """`advantage.kind: [gae, grpo]` with a warm-up of the critic: the policy stands still."""
    coupled = (
        '  coupled:\n    - key: loss.use_kl_loss\n      rule: "value > 0"\n      why: one switch\n'
    )
    report = check_sweep(
        load(
            ("  key: loss.kl_loss_coef\n", "  key: advantage.kind\n"),
            (
                "  values: [0.0, 0.01, 0.1]\n  control: 0.0\n",
                "  values: [gae, grpo]\n  control: gae\n",
            ),
            (coupled, ""),
            ("  loss.kl_type: k2\n", "  loss.kl_loss_coef: 0.0\n  critic.warmup_steps: 40\n"),
        )
    )
    assert [finding.code for finding in report.warnings] == ["S8.critic_warmup"]
    assert report.errors == ()

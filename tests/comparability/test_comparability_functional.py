"""S6 beyond keys: which pairs need a probe, and what its answer comes to. No torch."""

from cases import each

from rltune.comparability.check import check_sweep, report_of
from rltune.comparability.distinct import PROBED, UNSEEN, moves_selection, pairs_to_probe
from rltune.comparability.functional import Likeness, findings_of, likeness_findings, probe_failed
from rltune.spec.identity import flatten
from rltune.spec.keys import config_keys, nested, overlaps
from rltune.spec.schema.trial import TrialConfig, to_plain

KL = {"loss.use_kl_loss": True, "loss.kl_loss_coef": 0.1}


def config_of(keys):
    return to_plain(TrialConfig.model_validate(nested({"policy.model": "x", **keys})))


def needs_probe(left, right, shared=None):
    shared = shared or {}
    configs = {"a": config_of({**shared, **left}), "b": config_of({**shared, **right})}
    return pairs_to_probe(configs) == (("a", "b"),)


NEEDED = {
    "two estimators": ({"advantage.kind": "rloo"}, {"advantage.kind": "grpo_center"}, {}),
    "two losses": ({"loss.kind": "ppo"}, {"loss.kind": "reinforce"}, {}),
    "a divisor": (
        {"loss.aggregation": "token-mean"}, {"loss.aggregation": "seq-mean-token-sum"}, {},
    ),
    "KL estimators": ({"loss.kl_type": "k2"}, {"loss.kl_type": "k3+"}, KL),
    "a coefficient and what can undo it": (
        {**KL, "loss.aggregation": "token-mean"},
        {**KL, "loss.kl_loss_coef": 0.2, "loss.aggregation": "seq-mean-token-sum"}, {},
    ),
    "verdicts or none": ({"attribution.kind": "adca"}, {}, {"advantage.kind": "grpo"}),
}  # fmt: skip
NOT_NEEDED = {
    "a coefficient": (KL, {**KL, "loss.kl_loss_coef": 0.2}, {}),
    "a term or none": (KL, {}, {}),
    "a learning rate": ({"optim.lr": 1e-4}, {"optim.lr": 2e-4}, {}),
    "an estimator and a learning rate": (
        {"advantage.kind": "rloo"}, {"advantage.kind": "grpo_center", "optim.lr": 2e-4}, {},
    ),
    "tasks": ({"env.size": 6}, {"env.size": 7}, {}),
    "two judges": (
        {"attribution.judge": "solver"}, {"attribution.judge": "llm"},
        {"advantage.kind": "grpo", "attribution.kind": "adca"},
    ),
    "clips where the ratio moves": ({"loss.clip_high": 0.2}, {"loss.clip_high": 0.3}, {}),
    "KL estimators that steer the coefficient": (
        {"loss.kl_type": "k2"}, {"loss.kl_type": "k3+"}, {**KL, "loss.kl_target": 0.01},
    ),
    "inactive keys, which S6 names without a probe": (
        {"critic.lr": 1e-4}, {"critic.lr": 1e-3}, {"advantage.kind": "grpo"},
    ),
}  # fmt: skip


@each("case", NEEDED)
def test_a_pair_whose_keys_do_not_tell_is_probed(case):
    assert needs_probe(*NEEDED[case])


@each("case", NOT_NEEDED)
def test_a_pair_whose_keys_tell_is_not(case):
    assert not needs_probe(*NOT_NEEDED[case])


def test_the_lists_name_config_keys():
    known = [
        *config_keys(),
        *flatten(config_of({"attribution.kind": "adca", "advantage.kind": "grpo"})),
    ]
    for name in (*PROBED, *UNSEEN):
        assert any(overlaps(name, key) for key in known), name
    assert all(any(overlaps(name, own) for own in PROBED) for name in UNSEEN)


def test_a_filter_selects_and_an_estimator_does_not():
    plain = config_of({})
    assert moves_selection(plain, config_of({"rollout_filter.value": 0.5}))
    assert not moves_selection(plain, config_of({"advantage.kind": "rloo"}))
    assert not moves_selection(plain, config_of({"rollout_filter.ddof": 0}))  # without effect here


def test_equal_is_an_error_and_the_rest_are_warnings():
    found = likeness_findings(
        [
            Likeness("a", "b", "different"),
            Likeness("a", "c", "equal"),
            Likeness("a", "d", "equal", only_faults_differ=True),
            Likeness("a", "e", "equal", is_selection=True),
            Likeness("a", "f", "proportional", factor=4 / 3),
            Likeness("a", "g", "proportional", factor=2.0, only_faults_differ=True),
        ]
    )
    assert [(item.code, item.severity.value) for item in found] == [
        ("S6", "error"),
        ("S6.faults_only", "warning"),
        ("S6.same_groups", "warning"),
        ("S6.proportional", "warning"),
        ("S6.proportional", "warning"),
    ]
    assert found[0].message.startswith("'a' and 'c' are the same run: ")
    assert found[3].message.startswith("The gradient of 'f' is 1.33333 times that of 'a' ")
    assert "fault" not in found[3].message
    assert "fault masks" in found[4].message
    assert all(item.code in item.remedy for item in found[1:])
    assert found[3].conditions == ("a", "f")


def test_the_answer_of_the_process_becomes_findings():
    answer = {"pairs": [{"a": "x", "b": "y", "kind": "equal"}], "failed": {"z": "ValueError: no."}}
    error, warning = findings_of(answer)
    assert (error.code, warning.code) == ("S6", "S6.unproved")
    assert "'z'" in warning.message
    assert "ValueError: no." in warning.message
    assert probe_failed("it is gone.").severity == "error"


ACCEPT = ("seeds: [0, 1, 2]", "seeds: [0, 1, 2]\naccept: {S6.proportional: shown on purpose}")


def test_a_factor_can_be_accepted_and_an_equal_run_cannot(load, problems):
    factor = likeness_findings([Likeness("a", "b", "proportional", factor=2.0)])
    (warning,) = report_of(load(ACCEPT), factor).warnings
    assert warning.accepted_reason == "shown on purpose"
    equal = likeness_findings([Likeness("a", "b", "equal")])
    assert not report_of(load(ACCEPT), equal).ok
    (line,) = problems((ACCEPT[0], "seeds: [0, 1, 2]\naccept: {S6: no}"))
    assert "'S6' cannot be accepted." in line
    assert check_sweep(load(ACCEPT)).ok


def rubric(*weights, **keys):
    names = ("success", "valid_turns")
    terms = [{"score": n, "weight": w} for n, w in zip(names, weights, strict=False)]
    return {"reward": {"terms": terms, **keys}}


@each(
    ("left", "right", "is_probed"),
    [
        (rubric(1.0, 0.5), rubric(2.0, 1.0), True),
        (rubric(1.0, 0.5), rubric(2.0, 0.5), False),
        (rubric(1.0), rubric(1.0, 0.5), False),
        (rubric(1.0), rubric(-1.0), False),
        (rubric(0.0, 1.0), rubric(0.0, 2.0), True),
        (rubric(1.0, 0.0), rubric(2.0), True),
        (rubric(1.0, format_penalty=-0.1), rubric(2.0, format_penalty=-0.1), False),
        (rubric(1.0), {}, False),
    ],
)
def test_of_rewards_the_probe_sees_a_factor(left, right, is_probed):
    assert needs_probe(left, right) is is_probed

"""What a training service cannot do is refused, with the key and what would do."""

import pytest
from cases import each
from pydantic import ValidationError

from rltune.spec.schema.trial import TrialConfig

OK = {
    "env": {"prompt": "compact"},
    "policy": {"model": "tiny", "lora": {"rank": 8, "alpha": 32.0}},
    "advantage": {"kind": "grpo"},
    "trainer": {"backend": "tinker"},
}
W = "with trainer.backend tinker"
NO_VOCABULARY = f"needs the whole vocabulary, which is not there {W}."
NO_CACHES = f"reads the policy's caches, which are not there {W}."
TARGETS = "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"
LORA = {"rank": 8, "alpha": 32.0}
QA = {"kind": "multihop_qa", "prompt": "compact"}
INFO = {"kind": "grpo", "ddof": 0}
GTPO = {"kind": "grpo", "shaping": {"signal": "entropy", "gtpo_beta": 0.1}}

CASES = [
    ({"policy": {"model": "tiny", "lora": {**LORA, "rank": 0}}},
     f"0 would train all weights, and adapters alone are trained {W}. Give a rank, such as 32."),
    ({"policy": {"model": "tiny", "lora": {"rank": 8}}},
     f"16 cannot be had {W}: the service scales by 32 / rank. Set it to 32."),
    ({"policy": {"model": "tiny", "lora": {**LORA, "dropout": 0.1}}},
     f"0.1 cannot be had {W}: the service makes its adapters. Set it to 0.0."),
    ({"policy": {"model": "tiny", "lora": {**LORA, "targets": ["q_proj"]}}},
     f"['q_proj'] cannot be had {W}: the service makes its adapters. Set it to {TARGETS}."),
    ({"policy": {"model": "tiny", "lora": {**LORA, "init": "mine"}}},
     f"'mine' cannot be had {W}: the service makes its adapters. Set it to default."),
    ({"policy": {"model": "tiny", "lora": LORA, "dtype": "bfloat16"}},
     f"'bfloat16' cannot be chosen {W}: the service decides. "
     "Set it to float32, which asks for nothing."),
    ({"advantage": {"kind": "gae"}},
     f"'gae' needs a critic, which cannot be trained {W}. Choose one without: grpo, grpo_center, "
     "rloo, maxrl, reinforce_pp, reinforce_pp_baseline, custom."),
    ({"advantage": GTPO}, f"'entropy' {NO_VOCABULARY} Set it to surprisal."),
    ({"loss": {"entropy_coeff": 0.1}}, f"0.1 {NO_VOCABULARY} Set it to 0."),
    ({"loss": {"kl_type": "full"}}, f"'full' {NO_VOCABULARY} Choose k2 or k3+."),
    ({"attribution": {"kind": "info_gain"}, "advantage": INFO, "env": QA},
     f"'info_gain' {NO_CACHES} Choose none, or adca."),
    ({"attribution": {"kind": "adca", "judge": "gold"}, "env": QA},
     f"'gold' {NO_CACHES} Choose solver, or llm."),
    ({"rollout": {"engine": "vllm"}},
     f"'vllm' has no weights to serve {W}: the service samples. "
     "Leave it at torch, which starts nothing."),
    ({"rollout": {"temperature": 0.7}},
     f"0.7 cannot be trained at {W}: it scores at temperature 1. Set it to 1."),
    ({"collapse": {"every": 5}},
     f"5 would score responses under other prompts, not there {W}. Set it to 0."),
    ({"gate": {"start_kl": True}}, f"true {NO_VOCABULARY} Set it to false."),
    ({"optim": {"gradient_checkpointing": True}},
     f"true has no effect {W}: no activation is held here. Set it to false."),
    ({"resources": {"gpus": 1.0}}, f"1 would be reserved for nothing {W}. Set it to 0."),
    (
        {"resources": {"engine": "own"}},
        f"'own' would start nothing {W}: the service samples. Leave it at shared.",
    ),
]  # fmt: skip


def problems(changes):
    with pytest.raises(ValidationError) as caught:
        TrialConfig.model_validate({**OK, **changes})
    return str(caught.value)


@each(("changes", "message"), CASES)
def test_a_key_that_cannot_be_honoured_is_refused(changes, message):
    assert message in problems(changes)


@each(("changes", "message"), CASES)
def test_torch_is_not_bound_by_it(changes, message):
    assert TrialConfig.model_validate({**OK, **changes, "trainer": {"backend": "torch"}})


def test_what_a_service_can_do_is_accepted():
    assert TrialConfig.model_validate(OK).trainer.backend == "tinker"

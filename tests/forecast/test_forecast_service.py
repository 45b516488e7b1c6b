"""What a trial will ask of a training service, by hand and by an earlier run."""

from rltune.forecast.service import priced, scaled, service_need, usage_of_steps
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.store.prices import Price
from rltune.store.service_usage import ServiceUsage
from rltune.store.speed import speed_key

PRICE = Price("p.yaml", "EUR", "2026-01-31", "me", prefill=1.0, sample=10.0, train=100.0)


def config_of(**sections):
    tree = {
        "env": {"kind": "sokoban", "prompt": "compact", "max_turns": 5},
        "policy": {"model": "tiny", "lora": {"rank": 8, "alpha": 32.0}},
        "rollout": {"groups": 2, "group_size": 4, "max_response_tokens": 8, "max_context": 100},
        "advantage": {"kind": "grpo"},
        "optim": {"mini_batch_size": 8, "epochs": 2},
        "gate": {"tasks": 10, "every": 2, "test_tasks": 0},
        "budget": {"steps": 4},
        "trainer": {"backend": "tinker"},
    }
    return TrialConfig.model_validate({**tree, **sections})


def test_the_most_by_hand():
    # E = 8, H = 10 at steps 0, 2, 4, K = 5, C = 100, S = 40, P = 2: 4 x 8 + 30 = 62 played
    need = service_need(config_of())
    assert need.prompt_tokens == 62 * 5 * 100 + 5 * 100  # and five probes
    assert need.sampled_tokens == 62 * 40 + 5
    assert need.forward_tokens == 32 * 100 * 3 + 500
    assert need.trained_tokens == 32 * 100 * 2
    assert need.requests == 62 * 5 + 4 * (8 * 5 + 2 * 8) + 5 * 4 + 1


def test_a_reference_reads_every_row_once_more():
    alone, tied = (
        service_need(config_of(loss={"use_kl_loss": on, "kl_loss_coef": 0.1 * on, "kl_type": "k2"}))
        for on in (False, True)
    )
    assert tied.prompt_tokens - alone.prompt_tokens == 32 * 100
    assert tied.requests - alone.requests == 32 + 1
    assert tied.trained_tokens == alone.trained_tokens


def test_turns_without_a_limit_are_unknown():
    env = {"kind": "custom", "factory": "mine.envs:Env"}
    policy = {"model": "a/b", "lora": {"rank": 8, "alpha": 32.0}}
    assert service_need(config_of(env=env, policy=policy)) is None


def test_prices_are_applied_to_tokens():
    usage = ServiceUsage(requests=9, prompt_tokens=1_000_000, sampled_tokens=100_000)
    assert priced(usage, PRICE).paid == {"EUR": 2.0}
    assert priced(usage, None) == usage


def test_an_earlier_run_gives_the_tokens_of_a_step():
    config = to_plain(config_of())
    row = {"tinker/requests": 10.0, "tinker/prompt_tokens": 100.0}
    rows = [{"step": 0, **row}, {"step": 1, **row}, {"step": 2, **row}]
    found = usage_of_steps([(config, rows), (config, [{"step": 1}])])
    usage, steps = found[speed_key(config)]
    assert (usage.requests, usage.prompt_tokens, steps) == (30, 300, 2)
    assert scaled(usage, 4 / steps).requests == 60


def test_time_and_tokens_of_another_backend_are_not_taken_over():
    remote = to_plain(config_of())
    local = to_plain(config_of(trainer={"backend": "torch"}))
    del local["trainer"]  # as an old record has it
    assert speed_key(remote) != speed_key(local)

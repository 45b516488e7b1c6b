"""The local server answers the real SDK with what torch computes, and does nothing twice."""

import httpx
import numpy as np
import pytest
import tinker
import torch
from tinker_client import BASE, PROMPT, datum, logprobs, new_adapter, sample

from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.source import read_model
from rltune.remote.server.adapter import logprobs_of
from rltune.remote.server.wire import Datum
from rltune.spec.schema.trial import LoraConfig

ROWS = [[3, 7, 2, 9], [4, 4], [6, 8, 5]]
ADAM = tinker.AdamParams(learning_rate=1e-2, eps=1e-8, beta2=0.999, weight_decay=0.01)


def gains(rows):
    rng = np.random.default_rng(0)
    return [rng.normal(size=len(row)) for row in rows]


def surrogate(adapter, rows):
    now = logprobs(adapter, rows)
    return [
        datum(row, logprobs=logp, advantages=gain)
        for row, logp, gain in zip(rows, now, gains(rows), strict=True)
    ]


def train(adapter, rows):
    """One step of the importance-sampling loss."""
    adapter.forward_backward(surrogate(adapter, rows), "importance_sampling").result()
    return adapter.optim_step(ADAM).result().metrics


def near(got, want, tolerance=1e-5):
    np.testing.assert_allclose(np.concatenate(got), np.concatenate(want), rtol=0, atol=tolerance)


def test_a_step_is_the_step_of_torch(client):
    adapter = new_adapter(client, seed=3)
    metrics = train(adapter, ROWS)

    network, _ = read_model("tiny", "sokoban")
    add_adapter(network, LoraConfig(rank=4, alpha=32.0), seed=3)
    rows = [[*PROMPT, *row] for row in ROWS]
    data = [Datum(tuple(row[:-1]), {"target_tokens": torch.tensor(row[1:])}) for row in rows]
    parameters = list(trained_parameters(network).values())
    adamw = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.999), weight_decay=0.01)
    scored = [one[len(PROMPT) - 1 :] for one in logprobs_of(network, data)]
    loss = sum(
        -(one * torch.from_numpy(gain).float()).sum()
        for one, gain in zip(scored, gains(ROWS), strict=True)
    )
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(parameters, float("inf"))
    adamw.step()
    after = [one.detach()[len(PROMPT) - 1 :] for one in logprobs_of(network, data)]
    near(logprobs(adapter, ROWS), after, 1e-4)
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert max(abs((a - b).abs().max()) for a, b in zip(after, scored, strict=True)) > 0.1


def test_passes_accumulate_until_the_step(client):
    whole, parts = new_adapter(client), new_adapter(client)
    train(whole, ROWS)
    for one in surrogate(parts, ROWS):
        parts.forward_backward([one], "importance_sampling").result()
    parts.optim_step(ADAM).result()
    near(logprobs(parts, ROWS), logprobs(whole, ROWS))


def test_a_norm_above_the_limit_is_clipped(client):
    adapter, free = new_adapter(client), new_adapter(client)
    for one, limit in ((adapter, 1e-9), (free, 0.0)):
        one.forward_backward(surrogate(one, ROWS), "importance_sampling").result()
        adam = tinker.AdamParams(learning_rate=1e-2, eps=1.0, grad_clip_norm=limit)
        one.optim_step(adam).result()
    moved = np.abs(np.concatenate(logprobs(free, ROWS)) - np.concatenate(logprobs(adapter, ROWS)))
    assert moved.max() > 1e-3


def test_what_is_sampled_has_the_logprobs_of_the_forward_pass_at_any_temperature(client):
    adapter = new_adapter(client)
    train(adapter, ROWS)
    sampler = adapter.save_weights_and_get_sampling_client().result()
    for temperature in (1.0, 0.5, 0.0):
        rows = sample(sampler, 7, n=4, temperature=temperature)
        near([r.logprobs for r in rows], logprobs(adapter, [r.tokens for r in rows]))


def test_a_seed_decides_a_sample_whatever_is_sampled_beside_it(client):
    sampler = new_adapter(client).save_weights_and_get_sampling_client().result()
    alone = sample(sampler, 7, temperature=4.0)[0].tokens
    asked = tinker.ModelInput.from_ints(PROMPT)
    knobs = {"max_tokens": 8, "stop": [], "temperature": 4.0}
    params = [tinker.SamplingParams(seed=seed, **knobs) for seed in range(5, 10)]
    together = [sampler.sample(asked, 1, one) for one in params]
    tokens = [one.result().sequences[0].tokens for one in together]
    assert tokens[2] == alone
    assert len({tuple(one) for one in tokens}) > 1


def test_a_stop_token_ends_a_sample_and_belongs_to_it(client):
    sampler = new_adapter(client).save_weights_and_get_sampling_client().result()
    third = sample(sampler, 7, temperature=4.0)[0].tokens[2]
    params = tinker.SamplingParams(max_tokens=8, seed=7, stop=[third], temperature=4.0)
    (one,) = sampler.sample(tinker.ModelInput.from_ints(PROMPT), 1, params).result().sequences
    assert one.stop_reason == "stop"
    assert one.tokens[-1] == third
    assert third not in one.tokens[:-1]


@pytest.mark.slow
def test_an_old_snapshot_keeps_its_weights_and_adapters_do_not_disturb_each_other(client):
    trained, beside = new_adapter(client), new_adapter(client)
    start = logprobs(beside, ROWS)
    snapshot = trained.save_weights_and_get_sampling_client().result()
    before = sample(snapshot, 7)[0]
    train(trained, ROWS)
    after = sample(snapshot, 7)[0]
    assert (after.tokens, after.logprobs) == (before.tokens, before.logprobs)
    near(logprobs(beside, ROWS), start, 0)


def test_the_base_scores_a_prompt_as_a_fresh_adapter_does(client):
    base = client.create_sampling_client(base_model=BASE).result()
    row = [*PROMPT, *ROWS[0]]
    scores = base.compute_logprobs(tinker.ModelInput.from_ints(row)).result()
    assert scores[0] is None
    near([scores[len(PROMPT) :]], logprobs(new_adapter(client), ROWS[:1]))


def test_a_saved_state_goes_on_as_if_nothing_had_been(client):
    adapter = new_adapter(client)
    train(adapter, ROWS)
    path = adapter.save_state("one").result().path
    again = client.create_training_client_from_state_with_optimizer(path).result()
    cold = client.create_training_client_from_state(path).result()
    near(logprobs(again, ROWS), logprobs(adapter, ROWS), 0)
    for one in (adapter, again, cold):
        train(one, ROWS)
    near(logprobs(again, ROWS), logprobs(adapter, ROWS), 0)
    gap = np.concatenate(logprobs(cold, ROWS)) - np.concatenate(logprobs(adapter, ROWS))
    assert np.abs(gap).max() > 1e-4  # the optimiser's state counts


def test_a_request_that_is_sent_again_is_not_done_again(client, server):
    once, twice = new_adapter(client), new_adapter(client)
    train(once, ROWS)
    train(twice, ROWS)
    last = {
        "model_id": twice.model_id,
        "seq_id": 3,  # forward, forward_backward, optim_step
        "adam_params": ADAM.model_dump(),
    }
    for _ in range(2):
        answer = httpx.post(f"{server.url}/api/v1/optim_step", json=last).json()
        assert answer["request_id"] == f"{twice.model_id}:3"
        done = httpx.post(
            f"{server.url}/api/v1/retrieve_future", json={"request_id": answer["request_id"]}
        )
        assert "grad_norm" in done.json()["metrics"]
    near(logprobs(twice, ROWS), logprobs(once, ROWS), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_model": "tiny/chess"}, "'tiny/chess' is not served here; there is tiny/"),
        ({"train_unembed": True}, "this server trains no head; create the client with"),
    ],
)
def test_a_client_that_cannot_be_had_is_refused(client, change, message):
    given = {"base_model": BASE, "rank": 4, "seed": 1, "train_unembed": False, **change}
    with pytest.raises(tinker.RequestFailedError, match=message):
        client.create_lora_training_client(**given).result()


def test_a_token_outside_the_vocabulary_is_refused(client):
    with pytest.raises(tinker.RequestFailedError, match="999 is no token of tiny/sokoban"):
        logprobs(new_adapter(client), [[3, 999]])


def test_a_truncated_distribution_is_refused(client):
    sampler = client.create_sampling_client(base_model=BASE).result()
    with pytest.raises(tinker.UnprocessableEntityError, match="whole distribution"):
        sample(sampler, 1, top_p=0.9)


def test_a_taken_name_of_a_checkpoint_is_refused(client):
    adapter = new_adapter(client)
    adapter.save_state("twice").result()
    with pytest.raises(tinker.RequestFailedError, match="a checkpoint 'twice' of this model"):
        adapter.save_state("twice").result()


def test_a_lost_session_is_named(server):
    asked = {"session_id": "gone"}
    answer = httpx.post(f"{server.url}/api/v1/session_heartbeat", json=asked)
    assert answer.status_code == 404
    assert answer.json() == {"error": "unknown: session 'gone'; was the server started again?"}


def test_the_models_are_listed(server):
    answer = httpx.get(f"{server.url}/api/v1/get_server_capabilities").json()
    assert {"model_name": BASE} in answer["supported_models"]

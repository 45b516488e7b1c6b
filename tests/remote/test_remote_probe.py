"""A service that deviates is refused before a sweep starts, with what it did; ours is not."""

import socket
import time

import pytest

from rltune.errors import InputError, RemoteError
from rltune.remote import session as session_module
from rltune.remote.probe import require_faithful
from rltune.remote.server import adapter as adapter_module
from rltune.remote.server import service as service_module
from rltune.remote.server.adapter import Adapter
from rltune.remote.server.losses import LOSSES
from rltune.remote.session import Session
from rltune.rollout.torch_engine import TorchEngine

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # see `_sdk_garbage`


def probe(base="tiny/sokoban"):
    session = Session(base, timeout_s=60.0)
    require_faithful(session, rank=4, where="sweep.yaml: trainer.backend")


def deviation(connected):
    with pytest.raises(InputError) as caught:
        probe()
    where = connected.url.removeprefix("http://")
    head = f"sweep.yaml: trainer.backend: the training service at {where} deviates: "
    text = str(caught.value)
    assert text.startswith(head)
    assert text.endswith("docs/tinker.md says what is probed.")
    return text.removeprefix(head)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["tiny/sokoban", "tiny/frozen_lake", "tiny/multihop_qa"])
def test_the_local_server_does_what_it_should(connected, base):
    probe(base)


@pytest.mark.slow
def test_a_loss_that_is_a_mean_is_refused(connected, monkeypatch):
    def mean(logp_T, inputs, bounds):
        return LOSSES["importance_sampling"](logp_T, inputs, bounds) / len(logp_T)

    monkeypatch.setattr(adapter_module, "LOSSES", {**LOSSES, "importance_sampling": mean})
    assert "1, as losses are sums over tokens, rows and passes until the step" in deviation(
        connected
    )


@pytest.mark.slow
def test_a_pass_that_forgets_the_one_before_is_refused(connected, monkeypatch):
    run = Adapter.run

    def forget(self, asked):
        if not asked.forward_only:
            self._optimizer.zero_grad(set_to_none=True)
        return run(self, asked)

    monkeypatch.setattr(Adapter, "run", forget)
    assert deviation(connected).startswith("a row twice in a step moved 0.5")


@pytest.mark.slow
def test_an_ascent_that_descends_is_refused(connected, monkeypatch):
    def wrong(logp_T, inputs, bounds):
        return -LOSSES["importance_sampling"](logp_T, inputs, bounds)

    monkeypatch.setattr(adapter_module, "LOSSES", {**LOSSES, "importance_sampling": wrong})
    assert "expected: a rise" in deviation(connected)


@pytest.mark.slow
def test_clipping_that_is_ignored_is_refused(connected, monkeypatch):
    step = Adapter.step
    monkeypatch.setattr(
        Adapter, "step", lambda self, adam: step(self, {**adam, "grad_clip_norm": 0.0})
    )
    assert "expected: 1 (grad_clip_norm of AdamParams)" in deviation(connected)


@pytest.mark.slow
def test_a_snapshot_of_old_weights_is_refused(connected, monkeypatch):
    monkeypatch.setattr(service_module.Service, "_keep", lambda self, name, base, network:
                        self._samplers.update({name: (base, None)}))  # fmt: skip
    assert "expected: 0: a snapshot has the weights of now" in deviation(connected)


@pytest.mark.slow
def test_logprobs_of_another_temperature_are_refused(connected, monkeypatch):
    generate = TorchEngine.generate

    def sharpened(self, requests, params):
        return [
            type(one)(one.token_ids, tuple(p * 0.5 for p in one.logprobs), one.stop_reason)
            for one in generate(self, requests, params)
        ]

    monkeypatch.setattr(TorchEngine, "generate", sharpened)
    text = deviation(connected)
    assert text.startswith("sampled tokens have logprobs ")
    assert "nats from those of a forward pass; expected: less than 0.1" in text


@pytest.mark.slow
def test_a_stop_token_that_does_not_stop_is_refused(connected, monkeypatch):
    read = service_module.read_sample

    def deaf(asked, **known):
        asked = {**asked, "sampling_params": {**asked["sampling_params"], "stop": []}}
        return read(asked, **known)

    monkeypatch.setattr(service_module, "read_sample", deaf)
    text = deviation(connected)
    assert text.startswith("a response with its first token as stop token has 4 tokens, ended by")


@pytest.mark.slow
def test_a_loss_that_is_missing_is_named(connected, monkeypatch):
    fewer = {name: loss for name, loss in LOSSES.items() if name != "importance_sampling"}
    monkeypatch.setattr(adapter_module, "LOSSES", fewer)
    with pytest.raises(InputError, match=r"the probe of the service failed: .*'importance_samp"):
        probe()


@pytest.mark.slow
def test_a_service_that_accepts_and_is_silent_is_left_in_time(connected, monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("TINKER_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        session = Session("tiny/sokoban", timeout_s=1.0)
        monkeypatch.setattr(session_module, "_ASK_S", 0.2)
        began = time.monotonic()
        with pytest.raises(RemoteError, match=r"did not create an adapter within 1 s"):
            session.new_adapter(rank=4, seed=0)
        session.close()
        assert time.monotonic() - began < 60.0  # the SDK alone tries for five minutes

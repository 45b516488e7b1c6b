"""A training service that loses answers, dies, or deviates; and what must never happen twice."""

import time

import pytest
import tinker
import torch

from rltune.errors import InputError, RemoteError
from rltune.remote import session as session_module
from rltune.remote.engine import RemoteEngine
from rltune.remote.model import RemoteModel, RemoteStart, rows_of
from rltune.remote.server.adapter import Adapter
from rltune.remote.server.bases import Bases
from rltune.remote.server.http import TinkerServer
from rltune.remote.server.service import Service
from rltune.remote.session import Session, identity, require_base
from rltune.rollout.engine import Request, SamplingParams
from rltune.store.secret import masked
from rltune.types import StopReason

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # see `_sdk_garbage`
BASE = "tiny/sokoban"
IDS = torch.tensor([[5, 6, 7, 3, 9, 2, 0], [5, 6, 4, 4, 0, 0, 0]])
MASK = torch.tensor([[0, 0, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, 0, 0]], dtype=torch.bool)
STEP = {"lr": 1e-3, "betas": (0.9, 0.999), "decay": 0.0, "clip": 1.0}


class LosesAnswers(Service):
    """Steps, and then closes the connection without an answer, the first time."""

    def __init__(self, folder):
        super().__init__(folder, Bases())
        self.asked = 0
        answer = self.calls["optim_step"]

        def lose(asked):
            self.asked += 1
            answered = answer(asked)
            if self.asked == 1:
                raise BrokenPipeError("the answer is lost")
            return answered

        self.calls["optim_step"] = lose


@pytest.fixture
def new_model(connected, monkeypatch):
    """Return a maker of models; their sessions end with the test."""
    sessions = []

    def make(*, timeout_s=60.0, rank=4):
        sessions.append(Session(BASE, timeout_s=timeout_s))
        return RemoteModel(sessions[-1], rank=rank, seed=1)

    yield make
    monkeypatch.setattr(session_module, "_ASK_S", 0.5)  # of some the server is gone
    for session in sessions:
        session.close()


def train(model):
    """One step that makes the sampled tokens likelier."""
    torch.autograd.backward(-model.logprobs(IDS, MASK).sum())
    return model.step(**STEP)


def scores(model):
    with torch.no_grad():
        return model.logprobs(IDS, MASK)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_step_whose_answer_is_lost_is_made_once(new_model, tmp_path, monkeypatch, capfd):
    want = new_model()
    train(want)
    service = LosesAnswers(tmp_path)
    with TinkerServer(service) as losing:
        monkeypatch.setenv("TINKER_BASE_URL", losing.url)
        model = new_model()
        train(model)
        got = scores(model)
    assert service.asked == 2  # the SDK asked again
    assert torch.equal(got, scores(want))
    assert "the answer is lost" in capfd.readouterr().err


@pytest.mark.slow
def test_a_service_that_is_gone_is_named_within_the_limit(new_model, tmp_path, monkeypatch):
    server = TinkerServer(Service(tmp_path, Bases()))
    with server:
        monkeypatch.setenv("TINKER_BASE_URL", server.url)
        model = new_model(timeout_s=2.0)
        train(model)
    where = server.url.removeprefix("http://")
    with pytest.raises(RemoteError) as caught:
        train(model)
    assert str(caught.value) == (
        f"the training service at {where} did not make a forward pass within 2 s "
        "(trainer.timeout_s). The last checkpoint is kept; see that the service is there, and the "
        "same command goes on."
    )
    client = model.session._service._session_holder
    monkeypatch.setattr(session_module, "_ASK_S", 0.5)
    model.session.close()  # nobody answers, and the SDK's client is closed all the same
    until = time.monotonic() + 30.0
    while not client._closed and time.monotonic() < until:
        time.sleep(0.01)
    assert client._closed


@pytest.mark.slow
def test_a_state_outlives_its_server_and_nothing_else_does(new_model, tmp_path, monkeypatch):
    first = TinkerServer(Service(tmp_path, Bases()))
    with first:
        monkeypatch.setenv("TINKER_BASE_URL", first.url)
        model = new_model()
        train(model)
        path, want = model.save("step-000001"), scores(model)
    port = int(first.url.rpartition(":")[2])
    with TinkerServer(Service(tmp_path, Bases()), port=port):
        with pytest.raises(RemoteError, match=r"did not make a forward pass: .*unknown: model"):
            scores(model)  # the old client's session is gone
        again = new_model()
        again.restore(path)
        assert torch.equal(scores(again), want)


def test_a_state_that_is_gone_is_named(new_model):
    path = "tinker://nobody:train:0/weights/step-000001"
    with pytest.raises(RemoteError, match=f"did not load the state {path}, which may have expired"):
        new_model().restore(path)


def test_only_sampled_tokens_get_a_gradient(new_model):
    assert rows_of(IDS, MASK) == [([5, 6, 7, 3, 9, 2], [3, 5]), ([5, 6, 4, 4], [2, 3])]
    model = new_model()
    before = scores(model)
    assert before.shape == (4,)
    assert train(model) > 0
    assert scores(model).sum() > before.sum() + 0.1


@pytest.mark.parametrize("drop", [0, 1])
def test_a_prompt_s_logprobs_must_have_a_place_for_each_token(new_model, monkeypatch, drop):
    """skyrl 0.4.0 leaves the place of the first token out: every logprob would be another's."""
    start = RemoteStart(new_model().session)
    wait = start.session.wait

    def shorter(call, what):
        answer = wait(call, what)
        return answer[drop:] if what == "score rows by the base model" else answer

    monkeypatch.setattr(start.session, "wait", shorter)
    if not drop:
        assert start.logprobs(IDS, MASK).shape == (4,)
        return
    with pytest.raises(RemoteError, match=r"scored a prompt of 6 tokens with 5 logprobs; there"):
        start.logprobs(IDS, MASK)


def test_what_was_asked_for_is_counted_once(new_model):
    model = new_model()
    train(model)
    counts = model.session.meter.take_row()
    assert counts == {
        "tinker/requests": 4,  # the client, a forward pass, a backward pass, a step
        "tinker/prompt_tokens": 0,
        "tinker/sampled_tokens": 0,
        "tinker/forward_tokens": 10,
        "tinker/trained_tokens": 10,
    }
    assert set(model.session.meter.take_row().values()) == {0.0}


def test_turns_of_a_conversation_have_seeds_of_their_own(new_model):
    engine = RemoteEngine(new_model(), (2,))
    params = SamplingParams(3.0, 6, 100)
    prompt = (5, 6, 7)
    first, again, longer, full = engine.generate(
        [
            Request(0, prompt, seed=7),
            Request(1, prompt, seed=7),
            Request(0, (*prompt, 9), seed=7),
            Request(2, (5,) * 100, seed=7),
        ],
        params,
    )
    assert first == again
    assert first.token_ids != longer.token_ids
    assert len(first.logprobs) == len(first.token_ids)
    assert full.stop_reason is StopReason.CONTEXT
    assert full.token_ids == ()


def test_an_end_token_ends_a_response_and_a_limit_cuts_it(new_model):
    params = SamplingParams(3.0, 6, 8)
    (cut,) = RemoteEngine(new_model(), ()).generate([Request(0, (5, 6), seed=7)], params)
    assert (len(cut.token_ids), cut.stop_reason) == (6, StopReason.LENGTH)
    third = cut.token_ids[2]
    (ended,) = RemoteEngine(new_model(), (third,)).generate([Request(0, (5, 6), seed=7)], params)
    assert ended.stop_reason is StopReason.STOP
    assert ended.token_ids == cut.token_ids[: cut.token_ids.index(third) + 1]
    (context,) = RemoteEngine(new_model(), ()).generate([Request(0, (5, 6, 7), seed=7)], params)
    assert (len(context.token_ids), context.stop_reason) == (5, StopReason.CONTEXT_CUT)


def test_what_the_audit_compares(connected):
    known = identity(BASE, 4)
    assert known.pop("server").startswith("rltune ")
    assert known == {"sdk": tinker.__version__, "base_model": BASE, "lora_rank": 4}


def test_a_base_that_is_not_offered_is_refused_before_anything_starts(connected):
    where = connected.url.removeprefix("http://")
    require_base(BASE, "policy.model")
    with pytest.raises(InputError) as caught:
        require_base("tiny/chess", "sweep.yaml: policy.model")
    assert str(caught.value) == (
        f"sweep.yaml: policy.model: 'tiny/chess' is no base model of the training service at "
        f"{where}. It offers tiny/arithmetic, tiny/frozen_lake, tiny/multihop_qa, tiny/sokoban."
    )


def test_a_missing_key_is_refused(monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    with pytest.raises(InputError) as caught:
        require_base(BASE, "policy.model")
    assert str(caught.value) == (
        "trainer.backend: tinker needs the environment variable TINKER_API_KEY, which is not set. "
        "Set it; for `rltune serve-tinker` to tml-local, and TINKER_BASE_URL to its address."
    )
    assert masked(str(caught.value)) == str(caught.value)  # as the command prints it


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nowhere", "http://[", ""])
def test_an_address_where_nothing_answers_is_refused_at_once(connected, monkeypatch, address):
    def retry_for_five_minutes():
        raise AssertionError("the SDK was asked")

    monkeypatch.setenv("TINKER_BASE_URL", address or "http:///")
    monkeypatch.setattr(tinker, "RestClient", retry_for_five_minutes)
    with pytest.raises(InputError, match=r"does not answer: .*Check TINKER_BASE_URL"):
        require_base(BASE, "policy.model")


def test_a_key_that_is_refused_is_named_and_not_shown(connected, monkeypatch):
    def refuse():
        raise tinker.TinkerError("the key wrong-key-12345 is unknown")

    monkeypatch.setenv("TINKER_API_KEY", "wrong-key-12345")
    monkeypatch.setattr(tinker, "RestClient", refuse)
    with pytest.raises(InputError) as caught:
        require_base(BASE, "policy.model")
    assert str(caught.value) == (
        f"trainer.backend: the training service at {connected.url.removeprefix('http://')} does "
        "not say what it offers: the key *** is unknown. Check TINKER_API_KEY and TINKER_BASE_URL."
    )


def test_a_fault_of_the_server_is_named_by_its_last_line(new_model, tmp_path, monkeypatch, capfd):
    """The line at the end of a long traceback is what the client must read."""

    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Adapter, "save", full)
    model = new_model()
    match = r"did not save its state: .*OSError: \[Errno 28\] No space left on device"
    with pytest.raises(RemoteError, match=match):
        model.save("step-000001")
    assert "Traceback" in capfd.readouterr().err  # where the fault is, is told beside the server

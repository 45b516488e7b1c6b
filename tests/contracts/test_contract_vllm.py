"""vLLM against torch: the same tokens, logprobs up to rounding, and always the new weights.

`STATED` is the tolerance that docs/engines.md gives for float32.
"""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

from rltune.errors import InputError
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.ranks.scoring import score_actions
from rltune.types import StopReason

pytestmark = pytest.mark.vllm

STATED = 1e-4
LORA = LoraConfig(rank=4)
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, max_context=200)
HIDDEN = 64


def requests():
    """Return prompts of 5 to 150 tokens: up to four blocks of vLLM's cache are full."""
    lengths = (5, 12, 31, 32, 33, 64, 70, 100, 128, 150)
    return [
        Request(n, [4 + (n * i * i + i) % 12 for i in range(length)], 50 + n)
        for n, length in enumerate(lengths)
    ]


def reference(policy, params=GREEDY):
    return TorchEngine(policy.decoder()).generate(requests(), params)


def assert_equal(got, want):
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    assert [c.stop_reason for c in got] == [c.stop_reason for c in want]
    for one, other in zip(got, want, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=STATED)


def is_far(got, want):
    """Whether logprobs differ by far more than rounding: the weights are others."""
    pairs = [(x.logprobs[0], y.logprobs[0]) for x, y in zip(got, want, strict=True)]
    return max(abs(x - y) for x, y in pairs) > 100 * STATED


def train(policy, *, seed):
    """Change what trains, as an optimiser step does, only more."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trained_parameters(policy.model).values():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.1 * noise.to(parameter.device))


@pytest.fixture(scope="module", params=["full", "lora"])
def _started(request, small_policy, vllm_engine_of):
    """Return a policy of its own and vLLM over it."""
    policy = small_policy(hidden_size=HIDDEN)
    lora = LORA if request.param == "lora" else None
    if lora:
        add_adapter(policy.model, lora, seed=0)
    start = {name: p.detach().clone() for name, p in trained_parameters(policy.model).items()}
    return policy, vllm_engine_of(policy, lora=lora), start


@pytest.fixture
def served(_started):
    """The same with the weights of the start: it is trained in some tests."""
    policy, engine, start = _started
    put(policy, start)
    engine.sync()
    return policy, engine


@torch.no_grad()
def put(policy, weights):
    for name, parameter in trained_parameters(policy.model).items():
        parameter.copy_(weights[name])


def test_greedy_is_as_in_torch(served):
    policy, engine = served
    assert_equal(engine.generate(requests(), GREEDY), reference(policy))


def cached_tokens(engine, monkeypatch):
    """Return a list that gets how many tokens came from the cache, for each later request."""
    found, step = [], engine._llm.llm_engine.step

    def counting():
        outputs = step()
        found.extend(output.num_cached_tokens for output in outputs)
        return outputs

    monkeypatch.setattr(engine._llm.llm_engine, "step", counting)
    return found


def going_on(completions):
    return [
        Request(r.conversation, [*r.prompt_ids, *c.token_ids, 5, 6], r.seed)
        for r, c in zip(requests(), completions, strict=True)
    ]


@pytest.mark.parametrize("rests", [False, True], ids=["awake", "after sleep"])
def test_no_prefix_of_older_weights_is_reused(served, monkeypatch, rests):
    """The very same prompts, before and after a step; the cache works in between."""
    policy, engine = served
    hits = cached_tokens(engine, monkeypatch)
    for step in range(3):
        before = engine.generate(requests(), GREEDY)
        engine.generate(going_on(before), GREEDY)
        assert max(hits) >= 128, "nothing was cached, so nothing could be stale"
        train(policy, seed=step)
        want = reference(policy)
        assert is_far(engine.generate(requests(), GREEDY), want), "the step changed nothing"
        if rests:
            engine.release()
        engine.sync()
        hits.clear()
        after = engine.generate(requests(), GREEDY)
        assert_equal(after, want)
        onward = going_on(after)
        again = engine.generate(onward, GREEDY)
        assert_equal(again, TorchEngine(policy.decoder()).generate(onward, GREEDY))


@pytest.mark.parametrize("_started", ["lora"], indirect=True)
def test_an_adapter_has_a_new_name_at_every_sync_and_the_old_one_is_gone(served):
    _, engine = served
    first = engine.version
    seen = []
    for _ in range(3):
        engine.sync()
        seen.append((engine.version, engine._llm.llm_engine.list_loras()))
    assert seen == [(first + n, {first + n}) for n in (1, 2, 3)]


def test_weights_that_were_taken_back_are_served_as_they_were(served):
    """Weights A, B, A again: the third answer is the first."""
    policy, engine = served
    kept = {name: p.detach().clone() for name, p in trained_parameters(policy.model).items()}
    first = engine.generate(requests(), GREEDY)
    train(policy, seed=1)
    engine.sync()
    assert is_far(engine.generate(requests(), GREEDY), first)
    put(policy, kept)
    engine.sync()
    assert_equal(engine.generate(requests(), GREEDY), first)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_those_of_the_distribution_that_is_sampled_from(
    small_policy, two_vllm_engines, temperature
):
    params = replace(GREEDY, temperature=temperature)
    policy = small_policy(hidden_size=HIDDEN)
    sampled = two_vllm_engines().generate(requests(), params)
    assert len({c.token_ids for c in sampled}) > 5
    for request, completion in zip(requests(), sampled, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            logits_TV = policy.model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1]
        logp_TV = (logits_TV / temperature).log_softmax(-1)
        want = logp_TV.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0].tolist()
        assert completion.logprobs == pytest.approx(want, abs=STATED)


def test_samples_follow_the_distribution(small_policy, two_vllm_engines):
    """4,096 first tokens at temperature 1 against their probabilities: chi-square, 3.5 sigma."""
    policy = small_policy(hidden_size=HIDDEN)
    prompt = requests()[1].prompt_ids
    asked = [Request(n, prompt, n) for n in range(4096)]
    first = two_vllm_engines().generate(asked, SamplingParams(1.0, 1, 200))
    with torch.no_grad():
        p_V = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1).double()
    counts_V = torch.bincount(torch.tensor([c.token_ids[0] for c in first]), minlength=len(p_V))
    is_common = p_V * 4096 >= 5
    expected = torch.cat([p_V[is_common], p_V[~is_common].sum()[None]]) * 4096
    found = torch.cat([counts_V[is_common], counts_V[~is_common].sum()[None]])
    chi2 = float(((found - expected) ** 2 / expected.clamp(min=1e-9)).sum())
    n = len(expected) - 1
    assert chi2 < n + 3.5 * (2 * n) ** 0.5


def test_prompts_that_no_single_pass_takes(small_policy, two_vllm_engines):
    """6,000 tokens, where vLLM reads 4,096 at a time on a CPU: no prompt may be cut."""
    params = SamplingParams(1.0, 4, 200)
    prompts_NT = np.random.default_rng(0).integers(4, 16, (40, 150)).tolist()
    asked = [Request(n, prompt, n) for n, prompt in enumerate(prompts_NT)]
    together, few = two_vllm_engines().generate(asked, params), two_vllm_engines()
    alone = [c for n in range(0, 40, 10) for c in few.generate(asked[n : n + 10], params)]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]


def test_several_end_tokens(small_policy, vllm_engine_of):
    policy = small_policy(hidden_size=HIDDEN)
    said = Counter(token for c in reference(policy) for token in c.token_ids)
    ends = {token for token, _ in said.most_common(3)}
    policy = replace(policy, end_ids=tuple(ends))
    engine = vllm_engine_of(policy)
    ended = set()
    for temperature in (0.0, 1.0):
        for completion in engine.generate(requests(), replace(GREEDY, temperature=temperature)):
            assert not ends & {*completion.token_ids[:-1]}
            if completion.stop_reason is StopReason.STOP:
                ended.add(completion.token_ids[-1])
            else:
                assert completion.token_ids[-1] not in ends
    assert len(ended) > 1
    assert_equal(engine.generate(requests(), GREEDY), reference(policy))


def test_one_engine_outlives_another(small_policy, vllm_engine_of):
    policy = small_policy(hidden_size=HIDDEN)
    short, long = vllm_engine_of(policy), vllm_engine_of(policy)
    short.close()
    assert_equal(long.generate(requests(), GREEDY), reference(policy))


def test_more_context_than_it_was_made_for_is_refused(two_vllm_engines):
    with pytest.raises(ValueError, match=r"^max_context is 4000, and this engine was set up for"):
        two_vllm_engines().generate(requests(), replace(GREEDY, max_context=4000))


def test_it_has_no_process_of_its_own(two_vllm_engines):
    """What dies with the trial is the trial: there is no child that could live on."""
    two_vllm_engines().generate(requests(), GREEDY)
    others = [
        process
        for process in psutil.Process().children(recursive=True)
        if "rltune.rollout.engine_child" not in process.cmdline()  # of other tests
    ]
    assert others == []


def test_a_start_leaves_threads_and_random_states_alone(small_policy, vllm_engine_of):
    policy = small_policy(hidden_size=HIDDEN)

    def state():
        numpy = np.random.get_state()[1].tolist()
        return random.getstate(), numpy, torch.get_rng_state().tolist()

    before, threads, set_threads = state(), torch.get_num_threads(), torch.set_num_threads
    vllm_engine_of(policy)
    assert state() == before
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, set_threads)


def test_a_policy_without_a_kernel_is_refused_at_the_start(small_policy, vllm_engine_of):
    with pytest.raises(InputError, match=r"^rollout.engine: vLLM cannot serve this policy: .*head"):
        vllm_engine_of(small_policy(hidden_size=32))  # two heads of 16


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_on_a_gpu_weights_arrive_also_after_a_sleep(small_policy, vllm_engine_of, rank):
    """In bfloat16, within what the proof after a sync allows; asleep, its memory is free.

    vLLM lets one engine of a process sleep: run each case in a process of its own.
    """
    policy = small_policy(hidden_size=HIDDEN, dtype="bfloat16")
    lora = LoraConfig(rank=rank)
    add_adapter(policy.model, lora, seed=0)
    policy.model.to("cuda")
    engine = vllm_engine_of(policy, lora=lora, device="cuda", dtype="bfloat16")
    for step in range(3):
        said = engine.generate(requests(), GREEDY)
        for request, completion in zip(requests(), said, strict=True):
            ids = torch.tensor([[*request.prompt_ids, *completion.token_ids]], device="cuda")
            mask = torch.zeros_like(ids, dtype=torch.bool)
            mask[0, len(request.prompt_ids) :] = True
            with torch.no_grad():
                ours = score_actions(policy.model, ids, mask, temperature=1.0).tokens.logprobs_M
            assert completion.logprobs == pytest.approx(ours.tolist(), abs=0.3)
        free_awake = torch.cuda.mem_get_info()[0]
        engine.release()
        assert torch.cuda.mem_get_info()[0] - free_awake >= 0.04 * 2**30  # the cache has 0.05 GiB
        train(policy, seed=step)
        engine.sync()
        assert is_far(engine.generate(requests(), GREEDY), said)

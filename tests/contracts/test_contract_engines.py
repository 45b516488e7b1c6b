"""What every rollout engine promises, over each one that rltune has."""

from contextlib import contextmanager

import pytest
import torch
from engine_makers import END, script

from rltune.policy.static_decode import StaticDecoder
from rltune.rollout.distant_engine import DistantEngine
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.lockstep import streaming
from rltune.rollout.replicas import Replicas
from rltune.rollout.scripted_engine import ScriptedEngine, StreamingScript
from rltune.rollout.torch_engine import TorchEngine
from rltune.types import StopReason

HIDDEN = 64  # with two heads of 32: vLLM has no kernel for smaller ones on a CPU
FREE = SamplingParams(temperature=1.0, max_tokens=8, max_context=200)


def scripted(small_policy):
    return lambda: ScriptedEngine(script, end_ids=(END,), logprob=-1.0)


def torch_engine(small_policy):
    return lambda: TorchEngine(small_policy(hidden_size=HIDDEN).decoder())


def static_torch_engine(small_policy):
    policy = small_policy(hidden_size=HIDDEN)
    return lambda: TorchEngine(
        StaticDecoder(policy.model, pad_id=policy.pad_id, end_ids=policy.end_ids)
    )


def streaming_script(small_policy):
    return lambda: StreamingScript(script, end_ids=(END,), logprob=-1.0)


MAKERS = {
    "scripted": scripted,
    "scripted-streaming": streaming_script,
    "torch": torch_engine,
    "torch-static": static_torch_engine,
}
PAIRS = {
    "scripted-process": "_scripted_process_pair",
    "torch-process": "_torch_process_pair",
    "scripted-replicas": "_replicas_pair",
    "torch-shared": "_torch_shared_pair",
    "vllm": "_vllm_pair",
    "vllm-process": "_vllm_process_pair",
}
SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("scripted-replicas", "torch-process", "torch-shared")
]
VLLM = [pytest.param(name, marks=pytest.mark.vllm) for name in ("vllm", "vllm-process")]


@pytest.fixture(params=[*MAKERS, "scripted-process", *SLOW, *VLLM])
def make_engine(request, small_policy, two_engines):
    """Return a maker of engines over one policy; what an engine computed before is forgotten."""
    if request.param in PAIRS:
        return two_engines(PAIRS[request.param])
    return MAKERS[request.param](small_policy)


@pytest.fixture
def engine(make_engine):
    return make_engine()


@pytest.fixture(params=["scripted", "torch", VLLM[0]])
def own_engine(request, small_policy):
    """Return an engine that no other test uses; those in processes are closed by their fixtures."""
    if request.param in PAIRS:
        return request.getfixturevalue("vllm_engine_of")(small_policy(hidden_size=HIDDEN))
    return MAKERS[request.param](small_policy)()


def requests(n=24, *, seed=0):
    """Return prompts of 3 to 9 tokens; every third is shared by its neighbour."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index in range(n):
        length = int(torch.randint(3, 10, (), generator=generator))
        prompt = torch.randint(4, 16, (length,), generator=generator).tolist()
        made.append(Request(index, made[-1].prompt_ids if index % 3 == 1 else prompt, 1000 + index))
    return made


def ids_of(completions):
    return [completion.token_ids for completion in completions]


def assert_same(got, want):
    assert ids_of(got) == ids_of(want)
    assert [c.stop_reason for c in got] == [c.stop_reason for c in want]
    for one, other in zip(got, want, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def following(asked, completions, *, rows):
    """Return the next turn of some conversations: what was said, and 1 to 4 new tokens."""
    return [
        Request(
            asked[row].conversation,
            [*asked[row].prompt_ids, *completions[row].token_ids, *range(4, 5 + row % 4)],
            asked[row].seed,
        )
        for row in rows
    ]


def test_no_requests(engine):
    assert engine.generate([], FREE) == []


def test_stop_and_length(engine):
    completions = engine.generate(requests(), FREE)
    for completion in completions:
        assert len(completion.logprobs) == len(completion.token_ids)
        assert END not in completion.token_ids[:-1]
        if completion.token_ids[-1] == END:
            assert completion.stop_reason is StopReason.STOP
        else:
            assert completion.stop_reason is StopReason.LENGTH
            assert len(completion.token_ids) == FREE.max_tokens
    assert {c.stop_reason for c in completions} == {StopReason.STOP, StopReason.LENGTH}


def test_an_end_token_at_the_limit_is_a_stop(make_engine):
    asked = requests()
    stopped = [
        (completion.token_ids, request)
        for request, completion in zip(asked, make_engine().generate(asked, FREE), strict=True)
        if completion.stop_reason is StopReason.STOP
    ]
    ids, request = max(stopped, key=lambda pair: len(pair[0]))
    assert len(ids) > 1
    exact = SamplingParams(1.0, len(ids), FREE.max_context)
    (whole,) = make_engine().generate([request], exact)
    assert (whole.token_ids, whole.stop_reason) == (ids, StopReason.STOP)
    (cut,) = make_engine().generate([request], SamplingParams(1.0, len(ids) - 1, 200))
    assert (cut.token_ids, cut.stop_reason) == (ids[:-1], StopReason.LENGTH)


def test_context_limit(engine):
    limit = 12
    params = SamplingParams(1.0, 8, limit)
    asked = [Request(n, [4 + n % 12] * n, n) for n in (3, 9, 11, 12, 15)]
    completions = engine.generate(asked, params)
    for request, completion in zip(asked, completions, strict=True):
        room = limit - len(request.prompt_ids)
        if room <= 0:
            assert completion.token_ids == completion.logprobs == ()
            assert completion.stop_reason is StopReason.CONTEXT
        else:
            assert 1 <= len(completion.token_ids) <= room
            assert (completion.stop_reason is StopReason.STOP) == (completion.token_ids[-1] == END)
            cut = StopReason.LENGTH if room >= params.max_tokens else StopReason.CONTEXT_CUT
            assert completion.stop_reason in (StopReason.STOP, cut)


def test_the_limit_that_cuts_is_named(engine):
    """Three tokens fit into the context: the response limit of eight did not cut the response."""
    asked = [Request(n, [4 + n % 12] * n, n) for n in range(3, 33)]
    for request in asked:
        space = 3 if request.seed % 2 else 8
        params = SamplingParams(1.0, 8, len(request.prompt_ids) + space)
        (completion,) = engine.generate([request], params)
        cut = StopReason.CONTEXT_CUT if space == 3 else StopReason.LENGTH
        is_ended = completion.token_ids[-1] == END
        assert completion.stop_reason is (StopReason.STOP if is_ended else cut)


def test_nobody_has_room(engine):
    asked = [Request(0, [4] * 12, 0), Request(1, [4] * 20, 1)]
    for completion in engine.generate(asked, SamplingParams(1.0, 8, 12)):
        assert (completion.token_ids, completion.stop_reason) == ((), StopReason.CONTEXT)


def test_a_full_context_does_not_disturb_the_others(make_engine):
    fits = [request for request in requests() if len(request.prompt_ids) < 9]
    params = SamplingParams(1.0, 8, 30)
    full = [Request(100 + i, [5] * (30 + i), i) for i in range(2)]
    mixed = make_engine().generate([full[0], *fits, full[1]], params)
    assert_same(mixed[1:-1], make_engine().generate(fits, params))


def test_samples_depend_on_no_batch_mate_and_no_order(make_engine):
    asked = requests()
    together = make_engine().generate(asked, FREE)
    assert_same(make_engine().generate(asked[::-1], FREE)[::-1], together)
    assert_same(make_engine().generate(asked[5:11], FREE), together[5:11])
    alone = make_engine()
    assert_same([alone.generate([request], FREE)[0] for request in asked], together)


def test_the_same_call_twice_gives_the_same(engine):
    first = engine.generate(requests(), FREE)
    assert_same(engine.generate(requests(), FREE), first)
    engine.sync()
    assert_same(engine.generate(requests(), FREE), first)


def test_the_conversation_number_is_only_a_name(make_engine):
    asked = requests()
    renamed = [Request(900 - r.conversation, r.prompt_ids, r.seed) for r in asked]
    assert_same(make_engine().generate(renamed, FREE), make_engine().generate(asked, FREE))


def test_greedy_ignores_the_seed(make_engine):
    greedy = SamplingParams(0.0, 8, 200)
    asked = requests()
    reseeded = [Request(r.conversation, r.prompt_ids, r.seed + 77) for r in asked]
    assert_same(make_engine().generate(reseeded, greedy), make_engine().generate(asked, greedy))


def test_going_on_equals_starting_afresh(make_engine):
    """Three turns, rows ending early, in a new order, with prompts of different lengths."""
    engine = make_engine()
    asked = requests()
    for rows in (range(24), [20, 3, 4, 5, 11, 0], [2, 0]):
        completions = engine.generate(asked, FREE)
        assert_same(make_engine().generate(asked, FREE), completions)
        asked = following(asked, completions, rows=[row for row in rows if row < len(asked)])
    assert_same(engine.generate(asked, FREE), make_engine().generate(asked, FREE))


def test_a_changed_past_is_noticed(make_engine):
    """A request whose prompt is not what was said before is computed anew."""
    engine = make_engine()
    asked = requests(6)
    completions = engine.generate(asked, FREE)
    changed = [
        Request(r.conversation, [15 if r.prompt_ids[0] != 15 else 14, *r.prompt_ids[1:]], r.seed)
        for r in following(asked, completions, rows=range(6))
    ]
    assert_same(engine.generate(changed, FREE), make_engine().generate(changed, FREE))
    newcomers = [*changed[:3], Request(99, [4, 5, 6], 5)]
    assert_same(engine.generate(newcomers, FREE), make_engine().generate(newcomers, FREE))


def test_two_requests_may_continue_one_conversation(make_engine):
    engine = make_engine()
    asked = requests(3)
    completions = engine.generate(asked, FREE)
    (onward,) = following(asked, completions, rows=[1])
    twice = [onward, Request(onward.conversation, [*onward.prompt_ids, 7, 8], 5)]
    assert_same(engine.generate(twice, FREE), make_engine().generate(twice, FREE))


def test_many_requests_may_continue_one_conversation(make_engine):
    """A context that branches after a turn, and whose branches are continued."""
    engine = make_engine()
    asked = requests(3)
    (onward,) = following(asked, engine.generate(asked, FREE), rows=[1])
    for _ in range(2):
        asked = [Request(10 + i, [*onward.prompt_ids, 7, 4 + i % 3], i) for i in range(40)]
        asked[0] = Request(onward.conversation, asked[0].prompt_ids, asked[0].seed)
        assert_same(engine.generate(asked, FREE), make_engine().generate(asked, FREE))
        asked = [Request(asked[0].conversation, r.prompt_ids, r.seed) for r in asked]
        assert_same(engine.generate(asked, FREE), make_engine().generate(asked, FREE))


def test_equal_turns_after_different_ones(make_engine):
    """Conversations of one prompt that said the same see the same; others see something else."""
    engine = make_engine()
    asked = [Request(i, [4 + i // 12, 9, 5], i) for i in range(24)]
    for turn in range(3):
        completions = engine.generate(asked, FREE)
        assert_same(make_engine().generate(asked, FREE), completions)
        asked = [
            Request(r.conversation, [*r.prompt_ids, *c.token_ids, 4 + c.token_ids[0] % 8], r.seed)
            for r, c in zip(asked, completions, strict=True)
        ][turn:]


def test_rest_changes_nothing(make_engine):
    engine = make_engine()
    asked = requests(6)
    completions = engine.generate(asked, FREE)
    engine.release()
    engine.release()
    assert_same(engine.generate(asked, FREE), completions)
    onward = following(asked, completions, rows=range(6))
    engine.release()
    assert_same(engine.generate(onward, FREE), make_engine().generate(onward, FREE))


def test_prompts_up_to_the_context(make_engine):
    """Long prompts, some of which leave room for a few tokens or for none."""
    asked = [Request(n, [4 + (n * i) % 12 for i in range(n)], n) for n in (150, 193, 199, 200, 230)]
    completions = make_engine().generate(asked, FREE)
    for request, completion in zip(asked, completions, strict=True):
        room = min(FREE.max_tokens, FREE.max_context - len(request.prompt_ids))
        is_full = room <= 0
        assert (completion.stop_reason is StopReason.CONTEXT) == is_full
        assert 0 < len(completion.token_ids) <= room or (is_full and not completion.token_ids)
    assert_same(make_engine().generate(asked[::-1], FREE)[::-1], completions)


def test_an_end_token_at_once_is_all_that_is_said(engine):
    """The shortest answer of all is one token long, and has its logprob."""
    asked = requests(60, seed=3)
    shortest = min(engine.generate(asked, FREE), key=lambda completion: len(completion.token_ids))
    assert shortest.token_ids == (END,)
    assert (len(shortest.logprobs), shortest.stop_reason) == (1, StopReason.STOP)


def streamed(engine, asked, params=FREE):
    """Return what requests get that join others: three at first, then one after each pass."""
    completions, waiting = {}, list(asked)
    joining, waiting = waiting[:3], waiting[3:]
    while len(completions) < len(asked):
        engine.submit(joining, params)
        completions |= dict(engine.advance())
        joining, waiting = waiting[:1], waiting[1:]
    return [completions[request.conversation] for request in asked]


def test_streamed_requests_get_what_a_batch_gets(make_engine):
    engine, asked = streaming(make_engine()), requests()
    params = SamplingParams(1.0, 8, 9)  # some have no room
    for limits in (FREE, params):
        assert_same(streamed(engine, asked, limits), make_engine().generate(asked, limits))


def test_each_conversation_goes_on_as_soon_as_it_can(make_engine):
    """Three turns: an ended response is followed at once, while others are still sampled."""
    engine, asked = streaming(make_engine()), requests()
    turns = {request.conversation: [] for request in asked}
    last = {request.conversation: request for request in asked}
    engine.submit(asked, FREE)
    while any(len(of_one) < 3 for of_one in turns.values()):
        for number, completion in engine.advance():
            turns[number].append(completion)
            (last[number],) = following([last[number]], [completion], rows=[0])
            if len(turns[number]) < 3:
                engine.submit([last[number]], FREE)
    for turn in range(3):
        want = make_engine().generate(asked, FREE)
        assert_same([turns[request.conversation][turn] for request in asked], want)
        rows = range(len(asked))
        asked = [following([asked[row]], [want[row]], rows=[0])[0] for row in rows]


def test_requests_that_were_abandoned_leave_nothing_behind(make_engine):
    engine, asked = streaming(make_engine()), requests(7)
    engine.submit(requests(12, seed=5), FREE)
    engine.abandon()
    engine.submit(asked, FREE)
    engine.advance()
    engine.abandon()
    engine.abandon()
    assert engine.advance() == []
    assert_same(engine.generate(asked, FREE), make_engine().generate(asked, FREE))
    engine.sync()
    assert_same(streamed(engine, asked), make_engine().generate(asked, FREE))


class Interrupted(BaseException):
    """As KeyboardInterrupt is, but nobody else's."""


def test_an_interrupted_call_leaves_nothing_behind(make_engine, interrupt):
    engine = make_engine()
    with pytest.raises(Interrupted), interrupt(engine, Interrupted):
        engine.generate(requests(12, seed=5), FREE)
    asked = requests(7)
    assert_same(engine.generate(asked, FREE), make_engine().generate(asked, FREE))


@pytest.fixture
def interrupt(request):
    """Return what makes an engine raise in the middle of its next call."""

    @contextmanager
    def interrupting(engine, error):
        owner, name, last = _inner_step(engine)
        step, calls = getattr(owner, name), []

        def raising(*args, **kwargs):
            calls.append(1)
            if len(calls) == last:
                raise error
            return step(*args, **kwargs)

        setattr(owner, name, raising)
        try:
            yield
        finally:
            setattr(owner, name, step)

    return interrupting


def _inner_step(engine):
    """Return what an engine calls within one call of `generate`, and at which time to stop it."""
    if isinstance(engine, ScriptedEngine):
        return engine, "_script", 3
    if isinstance(engine, TorchEngine):
        return engine._model, "extend", 3
    if isinstance(engine, Replicas):
        engine = engine.engines[1]
    if isinstance(engine, DistantEngine):
        return engine, "_receive", 1
    return engine._llm.llm_engine, "step", 3


def test_close_may_be_called_twice(own_engine):
    engine = own_engine
    engine.generate(requests(2), FREE)
    engine.close()
    engine.close()

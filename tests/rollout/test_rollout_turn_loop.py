"""Who waits for whom: each engine's episodes are the same, and none waits without need."""

import math
import threading
import time

import pytest
from cases import each
from patience import HANG_S
from waiting_envs import END, ThreeTurnsThatMeet, Untroubled, played

from rltune.errors import DivergedError
from rltune.rollout.engine import Batching, Request, SamplingParams
from rltune.rollout.lockstep import Lockstep, streaming
from rltune.rollout.scripted_engine import ScriptedEngine, StreamingScript
from rltune_envs.base import Step
from rltune_envs.errors import EnvError

PARAMS = SamplingParams(1.0, 8, 1000)


def uneven(request):
    """Answer with 1 to 6 tokens: by the conversation, and by the turn."""
    n = (3 * request.conversation + len(request.prompt_ids)) % 6
    return [4 + request.conversation % 2] * n + [END]


def streamed(batching=Batching.CONTINUOUS, script=uneven, kind=StreamingScript):
    return kind(script, end_ids=[END], batching=batching)


@each("max_context", [1000, 16], ids=["room", "out of context"])
@each("workers", [1, 5])
@each("batching", Batching)
def test_episodes_are_those_of_turns_in_lockstep(batching, workers, max_context):
    want = played(1, Untroubled, 11, ScriptedEngine(uneven, end_ids=[END]), max_context)
    got = played(workers, Untroubled, 11, streamed(batching), max_context)
    assert got == want
    assert any(episode.is_out_of_context for episode in want) == (max_context < 1000)


@pytest.fixture(scope="module")
def in_lockstep():
    """Return the episodes of 14 environments, of which some hang, that play turn by turn."""
    return played(1, engine=ScriptedEngine(uneven, end_ids=[END]))


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("batching", Batching)
def test_what_hangs_ends_the_same_calls_however_far_the_others_are(in_lockstep, batching, workers):
    """14 episodes, three hang in turn 2: the others' third turns are over long before that."""
    want = in_lockstep
    assert played(workers, engine=streamed(batching)) == want
    said = "not called: 3 calls before it did not return within 0.1 s"
    lengths = {n: len(e.turns) for n, e in enumerate(want) if e.turns and said in e.turns[-1].fault}
    assert lengths == {0: 3, 1: 3, 2: 3, 5: 3, 7: 3, 9: 2, 10: 2, 12: 2, 13: 2}


def test_an_episode_ends_while_another_waits_for_its_environment():
    is_over = threading.Event()

    class Patient(ThreeTurnsThatMeet):
        def reset(self, *, seed):
            self.number = seed
            return super().reset(seed=seed)

        def step(self, response):
            self.turn += 1
            if self.number == 0:
                assert is_over.wait(HANG_S)
            elif self.turn == 3:
                is_over.set()
            return Step("on", 0.0, self.turn == 3)

    episodes = played(2, Patient, 2, streamed())
    assert [len(episode.turns) for episode in episodes] == [3, 3]


class Watched(StreamingScript):
    """Tells how many requests came together; once a response has ended, may wait to go on."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.sizes, self.go_on, self.has_ended = [], threading.Event(), False

    def submit(self, requests, params):
        self.sizes.append(len(requests))
        super().submit(requests, params)

    def advance(self):
        assert not self.has_ended or self.go_on.wait(HANG_S)
        time.sleep(0.005)  # a real pass takes longer than an environment that only computes
        ended = super().advance()
        self.has_ended = self.has_ended or bool(ended)
        return ended


@pytest.mark.parametrize("batching", [Batching.REPEATABLE, Batching.CONTINUOUS])
def test_an_environment_steps_while_others_sample(batching):
    """The engine makes no second pass before the first environment was called."""
    engine = streamed(batching, lambda request: [4] * request.conversation + [END], Watched)

    def make():
        return ThreeTurnsThatMeet(engine.go_on.set)

    assert len(played(2, make, 2, engine)) == 2


def test_where_a_clock_would_decide_requests_of_a_turn_go_in_together():
    """On a CPU a trial repeats to the last bit, and rounding follows the batch."""
    sizes = {}
    for workers in (1, 4):
        engine = streamed(Batching.REPEATABLE, kind=Watched)
        engine.go_on.set()
        played(workers, ThreeTurnsThatMeet, 4, engine)
        sizes[workers] = engine.sizes
    assert sizes[4] == [4, 4, 4]
    assert sum(sizes[1]) == 12
    assert len(sizes[1]) > 3


@pytest.mark.parametrize("workers", [1, 4])
def test_an_error_leaves_nothing_under_way(workers):
    class Endless(ThreeTurnsThatMeet):
        def step(self, response):
            return Step("on", math.inf)

    engine = streamed()
    with pytest.raises(EnvError, match="the reward inf in turn 0"):
        played(workers, Endless, 4, engine)
    assert engine._under_way == {}


def test_tokens_of_no_distribution_end_it_at_once():
    engine = StreamingScript(uneven, end_ids=[END], logprob=math.nan)
    with pytest.raises(DivergedError, match="logprobs are not finite"):
        played(1, ThreeTurnsThatMeet, 4, engine)
    assert engine._under_way == {}


@pytest.mark.parametrize("workers", [2, 8])
def test_of_several_errors_the_first_in_order_is_raised(workers):
    barrier = threading.Barrier(2)

    class Broken(ThreeTurnsThatMeet):
        def reset(self, *, seed):
            self.number = seed
            return super().reset(seed=seed)

        def step(self, response):
            barrier.wait(HANG_S)
            if self.number == 0:
                is_late.wait(0.05)
            raise ZeroDivisionError(self.number)

    is_late = threading.Event()
    with pytest.raises(ZeroDivisionError, match=r"^0$"):
        played(workers, Broken, 2, streamed(script=lambda request: [END]))


def test_an_engine_of_batches_decodes_what_was_submitted_in_one_call():
    asked = []

    def script(request):
        asked.append(request.conversation)
        return [4, END]

    engine = streaming(ScriptedEngine(script, end_ids=[END]))
    assert isinstance(engine, Lockstep)
    engine.submit([Request(1, [5], 0)], PARAMS)
    engine.submit([Request(0, [5], 0)], PARAMS)
    assert asked == []
    assert [number for number, _ in engine.advance()] == [1, 0]
    assert engine.advance() == []
    engine.submit([Request(2, [5], 0)], PARAMS)
    with pytest.raises(ValueError, match=r"^params are "):
        engine.submit([Request(3, [5], 0)], SamplingParams(0.5, 8, 1000))
    engine.abandon()
    assert engine.advance() == []
    assert asked == [1, 0]

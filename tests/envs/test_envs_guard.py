"""Custom code: what it raises, returns or never returns is one error with its line."""

import os
import random
import signal
import sys
import threading
from contextlib import suppress

import pytest

from rltune_envs import guarded as guarded_module
from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv
from rltune_envs.errors import CustomCodeError, HungCodeError, ProtocolError, SearchLimitError
from rltune_envs.guard import Waiting, call, limit_of, supervised
from rltune_envs.guard_batch import MAX_HUNG, new_batch
from rltune_envs.guarded import guarded_env, guarded_score
from rltune_envs.wrapper import EnvWrapper

HERE = __name__
FOREVER = threading.Event()  # never set


@pytest.fixture(autouse=True)
def fresh():
    new_batch()
    yield
    new_batch()


def ask(function, **options):
    return call("f()", function, module=HERE, **options)


def test_a_value_comes_back_as_it_is():
    thing = object()
    assert ask(lambda: thing) is thing


def test_what_it_raises_is_named_with_its_deepest_own_line():
    def down():
        return {}["gone"]

    line = down.__code__.co_firstlineno + 1
    with pytest.raises(CustomCodeError) as caught:
        ask(down)
    said = f"f(): it raised KeyError: 'gone' ({__file__}:{line}, in down)"
    assert str(caught.value) == said
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_the_process_is_an_error_of_the_call(error):
    def leave():
        raise error

    with pytest.raises(CustomCodeError, match=f"it raised {type(error).__name__}"):
        ask(leave)
    assert ask(lambda: 1) == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_os_exit_is_an_error_of_the_call_and_still_ends_a_forked_child():
    def leave():
        os._exit(7)

    def fork():
        child = os.fork()
        if not child:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    before, line = os._exit, leave.__code__.co_firstlineno + 1
    with supervised(lambda waiting: None):
        with pytest.raises(CustomCodeError) as caught:
            ask(leave)
        assert ask(fork) == 7
    said = f"f(): it raised SystemExit: os._exit(7) ({__file__}:{line}, in leave)"
    assert str(caught.value) == said
    assert os._exit is before


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_a_call_forks_does_not_live_on_as_another_caller():
    child = ask(os.fork)
    assert os.waitpid(child, 0) == (child, 0)


def test_an_exception_that_cannot_say_what_it_is():
    class MuteError(Exception):
        def __str__(self):
            raise ValueError

    def mute():
        raise MuteError

    with pytest.raises(CustomCodeError, match=r"it raised MuteError \("):
        ask(mute)


def test_a_search_that_would_take_too_long_passes():
    def answer():
        raise SearchLimitError("no")

    with pytest.raises(SearchLimitError, match=r"^no$"):
        ask(answer)


def test_a_coroutine_is_no_answer():
    async def late():
        return 1

    with pytest.raises(CustomCodeError, match=r"returned a coroutine; define it with def, not as"):
        ask(late)


def _sleeps():
    FOREVER.wait()


def _spins():
    while True:
        pass


@pytest.mark.parametrize("hang", [_sleeps, _spins])
def test_a_call_that_never_returns_ends_at_its_limit(hang):
    with pytest.raises(HungCodeError) as caught:
        ask(hang, limit_s=0.1)
    said = str(caught.value)
    assert said.startswith(f"f(): it did not return within 0.1 s ({__file__}:")
    assert said.endswith(f", in {hang.__name__})")
    assert ask(lambda: 1) == 1


def test_a_loop_that_nobody_waits_for_is_interrupted():
    thread: list[threading.Thread] = []

    def spin():
        thread.append(threading.current_thread())
        _spins()

    with pytest.raises(HungCodeError):
        ask(spin, limit_s=0.1)
    thread[0].join()  # it ends


def test_after_some_calls_that_hang_the_rest_of_a_batch_is_not_made():
    for _ in range(MAX_HUNG):
        with pytest.raises(HungCodeError, match="did not return"):
            ask(_sleeps, limit_s=0.05)
    made: list[int] = []
    with pytest.raises(HungCodeError, match=r"not called: 3 calls before it did not return"):
        ask(lambda: made.append(1), limit_s=0.05)
    assert not made
    new_batch()
    ask(lambda: made.append(1))
    assert made == [1]


def test_calls_are_made_one_after_the_other_in_one_thread():
    seen = [ask(threading.get_ident) for _ in range(3)]
    assert len(set(seen)) == 1
    assert seen[0] != threading.get_ident()


def test_a_call_inside_a_call_is_made_there():
    assert ask(lambda: (threading.get_ident(), ask(threading.get_ident))) == (
        ask(threading.get_ident),
        ask(threading.get_ident),
    )


def test_a_slow_call_is_told_and_may_be_given_up(monkeypatch):
    monkeypatch.setattr("rltune_envs.guard.SLOW_S", 0.1)
    told: list[Waiting] = []

    def stop(waiting):
        told.append(waiting)
        raise InterruptedError

    with pytest.raises(InterruptedError), supervised(stop), suppress(Exception):
        ask(_sleeps, limit_s=1e6)  # no code in between takes it for a failure of the call
    assert (told[0].what, told[0].limit_s) == ("f()", 1e6)
    assert told[0].place.endswith(", in _sleeps")
    assert ask(lambda: 1) == 1


def test_a_signal_ends_the_wait_at_once():
    def raising(number, frame):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, raising)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            ask(_sleeps, limit_s=1e6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_limit_of_its_own():
    def slow():
        return 0.0

    assert limit_of(slow) == 30
    slow.time_limit_s = 120
    assert limit_of(slow) == 120
    slow.time_limit_s = "two minutes"
    assert limit_of(slow) == 30


# --- environments and scores --------------------------------------------------------------------


class Plain(TextEnv):
    """One turn."""

    auxiliary_names = ("n",)
    action_names = ("Up",)
    system_prompt = "s"
    response_prefix = "p"
    last = Step("o", 1.0, True, False, True, auxiliary={"n": 1.0})

    def reset(self, *, seed):
        return f"task {seed}, luck {self.noise_seed}"

    def step(self, response):
        return self.last

    def task(self, seed):
        return Task(f"t-{seed}", seed, f"h{seed}", "n", 1)

    def format_response(self, actions):
        return "p" + "".join(actions)

    def expert_actions(self):
        return ("Up",)

    def random_actions(self, rng):
        return ["Up"]

    def random_success_probability(self, seed):
        return 0.5

    def optimal_success_probability(self, seed):
        return 1


def guarded(kind=Plain, **changes):
    made = type("Mine", (kind,), {**changes, "__module__": HERE})
    return guarded_env(made, f"{HERE}:Mine", {})


def test_every_member_of_the_contract_goes_through_the_guard():
    inherited = {
        name for name in vars(TextEnv) if not name.startswith("_") and name not in vars(EnvWrapper)
    }
    set_when_made = {"is_deterministic", "difficulty_unit", "auxiliary_names", "noise_seed"}
    assert inherited == set_when_made
    without_call = {"system_prompt", "response_prefix", "unwrapped", "supports_protocol"}
    asked = set(vars(EnvWrapper)) - set_when_made - without_call
    assert {name for name in asked if not name.startswith("_")} == set(guarded_module._CHECKS)


def test_it_plays_as_what_it_guards():
    env = guarded()
    env.noise_seed = 7
    assert env.reset(seed=3) == "task 3, luck 7"
    assert (env.system_prompt, env.response_prefix) == ("s", "p")
    assert env.step("p") == Plain.last
    assert env.random_actions(random.Random(0)) == ("Up",)
    assert env.action_names == ("Up",)
    with pytest.raises(ProtocolError, match=r"^Mine has no distance_to_go\(\)\. Define it$"):
        env.distance_to_go()
    with pytest.raises(AttributeError):
        env.nothing  # noqa: B018


WRONG = {
    "no step": (None, "it returned None, a NoneType, for a step, which is a Step"),
    "reward": (
        Step("o", float("nan"), False, False, False),
        "it returned nan, a float, for a reward, which is a finite number",
    ),
    "text reward": (
        Step("o", "1", False, False, False),
        "it returned '1', a str, for a reward, which is a finite number",
    ),
    "observation": (
        Step(None, 0.0, False, False, False),
        "it returned None, a NoneType, for an observation, which is a str",
    ),
    "half a character": (
        Step("o\ud83d", 0.0, False, False, False),
        "it returned U+D83D, half of a character, in an observation",
    ),
    "action": (
        Step("o", 0.0, False, False, False, actions=(1,)),
        "it returned 1, a int, for one of its names, which is a str",
    ),
    "actions": (
        Step("o", 0.0, False, False, False, actions="Up"),
        "it returned 'Up', a str, for actions, which are a tuple of names",
    ),
    "measure": (
        Step("o", 0.0, True, False, False, auxiliary={"n": float("inf")}),
        "it returned inf, a float, for the measure 'n', which is a finite number",
    ),
    "no measure": (
        Step("o", 0.0, True, False, False),
        "its last step lacks the measure 'n' (auxiliary_names)",
    ),
}


@pytest.mark.parametrize(("step", "said"), WRONG.values(), ids=WRONG)
def test_a_step_that_is_none(step, said):
    with pytest.raises(CustomCodeError) as caught:
        guarded(last=step).step("p")
    assert str(caught.value) == f"env Mine.step(): {said}"


@pytest.mark.parametrize(
    "facts", [{"a": {1}}, {"a": float("nan")}, {1: "a"}, {"a": (1,)}, {"a": ...}]
)
def test_facts_that_no_record_keeps(facts):
    made = guarded(task=lambda self, seed: Task("t", seed, "h", "n", 1, facts))
    with pytest.raises(CustomCodeError, match=r"for facts, which are what JSON keeps"):
        made.task(3)


def test_facts_that_a_record_keeps():
    facts = {"kind": "easy", "n": 1, "share": 0.5, "is_new": True}
    assert (
        guarded(task=lambda self, seed: Task("t", seed, "h", "n", 1, facts)).task(3).facts == facts
    )
    assert guarded(task=lambda self, seed: Task("t", seed, "h", "n", 1, None)).task(3).facts == {}


def test_a_task_of_another_seed():
    made = guarded(task=lambda self, seed: Task("t", seed + 1, "h", "n", 1))
    with pytest.raises(CustomCodeError, match=r"it returned a task of seed 4 for seed 3$"):
        made.task(3)


def test_other_wrong_answers():
    for method, value, arguments, said in [
        ("reset", 3, {"seed": 0}, "for an observation, which is a str"),
        ("task", "t", {"seed": 0}, "for a task, which is a Task"),
        ("optimal_success_probability", 2, {"seed": 0}, "which is from 0 to 1"),
        ("random_success_probability", None, {"seed": 0}, "which is a finite number"),
        ("gold", [], {"seed": 0}, "for gold, which is a mapping"),
        ("expert_actions", "Up", {}, "which are a tuple of names"),
        ("gold_response", "Up", {}, "which is a GoldResponse"),
        ("gold_response", GoldResponse("", "Up", ""), {}, "golds, which are a tuple of texts"),
        ("gold_response", GoldResponse(None, ("Up",), ""), {}, "before the gold, which is a str"),
        ("distance_to_go", "3", {}, "which is a finite number"),
    ]:
        env = guarded(**{method: lambda self, value=value, **_: value})
        if method != "reset" and "seed" in arguments:
            env = guarded(**{method: lambda self, seed, value=value: value})
        with pytest.raises(CustomCodeError, match=rf"^env Mine\.{method}\(\): .*{said}$"):
            getattr(env, method)(**arguments)


def test_numbers_and_names_of_other_types_are_made_plain():
    step = Step("o", True, 1, 0, 0, actions=["Up"], failure_class="wrong", auxiliary={"n": 1})
    made = guarded(last=step).step("p")
    assert made == Step(
        "o",
        1.0,
        True,
        False,
        False,
        ("Up",),
        failure_class=FailureClass.WRONG,
        auxiliary={"n": 1.0},
    )
    assert type(made.reward) is float


def test_an_env_that_cannot_be_made_or_copied():
    import copy

    def lost(self):
        raise ConnectionError("refused")

    with pytest.raises(CustomCodeError, match=r"^env Mine\(\): it raised ConnectionError: refused"):
        guarded(__init__=lost)
    env = guarded(__deepcopy__=lambda self, memo: lost(self))
    with pytest.raises(CustomCodeError, match=r"^env Mine.__deepcopy__\(\): it raised Conn"):
        copy.deepcopy(env)
    apart = copy.deepcopy(guarded())
    assert apart.reset(seed=1) == "task 1, luck 0"


def test_a_score_is_guarded_with_the_limit_of_its_function():
    def slow(attempt):
        FOREVER.wait()

    slow.time_limit_s = 0.1
    with pytest.raises(HungCodeError, match=r"^score slow\(\): it did not return within 0.1 s"):
        guarded_score(slow, f"{HERE}:slow")(None)


def test_code_that_never_gives_up_the_interpreter_ends_its_process(tmp_path):
    """A runaway regular expression holds the lock of the interpreter; no thread can end it."""
    import subprocess

    program = """
import re, sys
from rltune_envs import guard
guard._GRACE_S = 0.2
def runaway():
    re.match(r"(a+)+$", "a" * 60 + "b")
with open(sys.argv[1], "w") as file, guard.supervised(lambda waiting: None, file):
    guard.call("score f()", runaway, limit_s=0.2)
"""
    words = tmp_path / "last"
    done = subprocess.run([sys.executable, "-c", program, str(words)], capture_output=True)
    assert done.returncode == -signal.SIGALRM, done.stderr
    assert "in runaway" in words.read_text()


def test_calls_share_one_thread():
    ask(lambda: 1)
    before = threading.active_count()
    for _ in range(100):
        ask(lambda: 1)
    assert threading.active_count() == before

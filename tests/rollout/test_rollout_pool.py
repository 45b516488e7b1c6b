"""Work in several threads: what comes of it depends on its place, never on who was faster."""

import threading
import time

import pytest
from patience import HANG_S, wait_until
from waiting_envs import FOREVER, ThreeTurnsThatMeet, played

from rltune.rollout.pool import Pool
from rltune_envs.errors import CustomCodeError, HungCodeError
from rltune_envs.guard import call, supervised
from rltune_envs.guard_batch import new_batch
from rltune_envs.guarded import GuardedEnv

WORKERS = [1, 2, 3, 8]


@pytest.fixture(autouse=True)
def fresh():
    new_batch()
    yield
    new_batch()


def work(ask, n=8):
    return {key: (lambda key=key: ask(key)) for key in range(n)}


@pytest.mark.parametrize("workers", WORKERS)
def test_results_have_their_key_and_the_order_given(workers):
    def later_is_faster(key):
        time.sleep(0.002 * (7 - key))
        return key * key

    with Pool(workers) as pool:
        done = pool.run(dict(reversed(work(later_is_faster).items())))
    assert list(done.items()) == [(key, key * key) for key in reversed(range(8))]


def test_the_work_of_a_key_is_done_in_one_thread():
    def thread(key):
        return threading.get_ident()

    with Pool(3) as pool:
        first, second = pool.run(work(thread)), pool.run(work(thread))
    assert first == second
    assert len(set(first.values())) == 3
    with Pool(1) as pool:
        assert set(pool.run(work(thread)).values()) == {threading.get_ident()}


def test_as_many_wait_at_a_time_as_there_are_workers():
    """All waits meet: with one fewer at a time they would never get past the barrier."""
    barrier = threading.Barrier(8)
    with Pool(8) as pool:
        assert set(pool.run(work(lambda key: barrier.wait(HANG_S) >= 0))) == set(range(8))


def test_never_more():
    lock, running, most = threading.Lock(), set(), []

    def run(key):
        with lock:
            running.add(key)
            most.append(len(running))
        time.sleep(0.001)
        with lock:
            running.remove(key)

    with Pool(3) as pool:
        pool.run(work(run, 30))
    assert max(most) <= 3


@pytest.mark.parametrize("workers", WORKERS)
def test_of_several_errors_the_first_in_order_is_raised(workers):
    def fail(key):
        time.sleep(0.002 * (7 - key))
        if key >= 4:
            raise ValueError(key)

    with Pool(workers) as pool, pytest.raises(ValueError, match=r"^4$"):
        pool.run(work(fail))


def test_a_stop_does_not_wait_for_the_others():
    class StopError(BaseException):
        pass

    is_over = threading.Event()

    def stop(key):
        if key == 1:
            raise StopError
        is_over.wait(HANG_S)

    with Pool(2) as pool, pytest.raises(StopError):
        pool.run(work(stop, 2))
    is_over.set()


def test_a_slow_call_is_told_once_and_may_be_given_up(monkeypatch):
    monkeypatch.setattr("rltune_envs.guard.SLOW_S", 0.1)
    told = []

    def stop(waiting):
        told.append(waiting.is_new)
        raise InterruptedError

    def hang(key):
        return call("f()", FOREVER.wait, limit_s=1e6)

    with pytest.raises(InterruptedError), supervised(stop), Pool(2) as pool:
        pool.run(work(hang, 2))
    assert told[0]


def test_its_threads_end_with_it():
    before = set(threading.enumerate())
    with Pool(4) as pool:
        pool.run(work(lambda key: call("f()", lambda: key)))
        assert len(set(threading.enumerate()) - before) == 8  # each with the one that it asks
    wait_until(lambda: set(threading.enumerate()) <= before, every_s=0.005)


def test_without_workers_nothing_is_done():
    with pytest.raises(ValueError, match=r"^workers: 0 is below 1; at least one does the work$"):
        Pool(0)


@pytest.mark.parametrize("workers", WORKERS)
def test_what_comes_after_the_last_hang_of_a_batch_is_refused_whoever_was_faster(workers):
    """Works 1, 2 and 4 hang. 3 came before the third of them; 6 calls nothing that could hang."""

    def ask(key):
        if key == 6:
            return key
        return call(f"f{key}()", FOREVER.wait if key in (1, 2, 4) else lambda: key, limit_s=0.1)

    def attempt(key):
        try:
            return ask(key)
        except HungCodeError as error:
            return str(error)

    with Pool(workers) as pool:
        done = pool.run(work(attempt))
        again = pool.run({key: (lambda key=key: attempt(key)) for key in (0, 6)})
    hung = {key: str(done[key])[:30] for key in (1, 2, 4)}
    assert hung == {key: f"f{key}(): it did not return within"[:30] for key in (1, 2, 4)}
    assert (done[0], done[3], done[6]) == (0, 3, 6)
    said = "not called: 3 calls before it did not return within 0.1 s"
    assert [str(done[key]) for key in (5, 7)] == [f"f5(): {said}", f"f7(): {said}"]
    assert (str(again[0]), again[6]) == (f"f0(): {said}", 6)


# --- episodes -----------------------------------------------------------------------------------


def test_no_number_depends_on_how_many_play():
    alone, many = played(1), played(8)
    without_place = [[str(turn.fault).partition(" (")[0] for turn in one.turns] for one in alone]
    hung = "env Three.step(): it did not return within 0.1 s"
    gone = "env Three.step(): it raised ConnectionError: gone for 4"
    refused = "env Three.step(): not called: 3 calls before it did not return within 0.1 s"
    assert without_place[2] == ["", "", refused]
    assert without_place[3] == without_place[6] == without_place[8] == ["", hung]
    assert without_place[4] == ["", gone]
    assert without_place[9] == without_place[13] == ["", refused]
    assert "no such task" in alone[11].early_fault
    assert many == alone


def test_episodes_wait_for_a_service_at_the_same_time():
    """128 episodes meet three times, once a turn; one that waited alone would wait forever."""
    barrier, turns = threading.Barrier(128), []

    def meet():
        if barrier.wait(HANG_S) == 0:
            turns.append(1)

    episodes = played(128, lambda: ThreeTurnsThatMeet(meet), n=128)
    assert all(len(episode.turns) == 3 for episode in episodes)
    assert len(turns) == 3


def test_the_first_environment_is_made_before_the_others():
    made, is_alone = [], threading.Event()

    def make():
        made.append(threading.get_ident())
        if len(made) == 1:
            time.sleep(0.05)
            is_alone.set()
        assert is_alone.is_set()
        return ThreeTurnsThatMeet()

    assert len(played(8, make)) == 14


def test_an_environment_stays_in_its_thread():
    class Bound(ThreeTurnsThatMeet):
        def __init__(self):
            super().__init__(lambda: self.require_home())
            self.home = threading.get_ident()

        def require_home(self):
            if threading.get_ident() != self.home:
                raise CustomCodeError("env", "elsewhere")

    def make():
        return GuardedEnv(Bound, name="Bound", module=__name__, limit_s=HANG_S)

    assert not any(episode.fault for episode in played(4, make))

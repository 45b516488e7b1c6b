"""Trials that share an engine: to each it is as if the engine were its own, whatever others do."""

import threading
import time
from functools import partial
from multiprocessing.connection import Client

import pytest
import torch
from patience import wait_until
from shared_engines import Adapter, Alone, Continuous, Counting, Rounding, Weighing
from shared_host import server_here

from rltune.rollout.distant_engine import ASK
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.shared import server
from rltune.rollout.shared.client import SharedEngine

PARAMS = SamplingParams(temperature=1.0, max_tokens=8, max_context=200)


class Hosted:
    """A server in this process, and its clients."""

    def __init__(self, address, *, idle_s):
        self.address = address
        self.server = server_here(address, idle_s=idle_s)

    def client(self, word, make=Rounding):
        model = Adapter(word)
        return SharedEngine(make, model, dtype=torch.float32, address=self.address)

    @property
    def engine(self):
        return self.server._made.adapters


@pytest.fixture
def hosted(tmp_path):
    """Return a maker of servers; whoever is idle for so long loses its turn: by default at once."""
    return partial(Hosted, tmp_path / "socket", idle_s=0.0)


def requests(count, *, first=0):
    return [Request(n, [4 + first, 5 + n], seed=10 * first + n) for n in range(count)]


def play(engine, count, *, first=0, turns=3):
    """Yield after each call to an engine; return what was said, as a loop over episodes does."""
    said, calls, played = [], 0, dict.fromkeys(range(count), 0)
    asked = requests(count, first=first)
    last = {one.conversation: one for one in asked}
    engine.submit(asked, PARAMS)
    yield
    while min(played.values()) < turns:
        assert (calls := calls + 1) < 100, "its requests are gone"
        ended = engine.advance()
        yield
        for number, completion in ended:
            said.append((number, completion))
            played[number] += 1
            before = last[number]
            last[number] = Request(
                number, [*before.prompt_ids, *completion.token_ids, 9], before.seed
            )
        going_on = [last[number] for number, _ in ended if played[number] < turns]
        if going_on:
            engine.submit(going_on, PARAMS)
            yield
    return said


def results(*players):
    """Run players in turns, a call each, and return what each said."""
    said, running = {}, dict(enumerate(players))
    while running:
        for name, player in list(running.items()):
            try:
                next(player)
            except StopIteration as stop:
                said[name] = stop.value
                del running[name]
    return [said[name] for name in range(len(players))]


def alone(word, count, **options):
    return results(play(Alone(Adapter(word)), count, **options))[0]


def test_each_trial_samples_what_it_would_alone_though_all_lose_their_turn_at_each_call(hosted):
    host = hosted()
    first, second = host.client("red"), host.client("blue")
    got = results(play(first, 5), play(second, 3, first=1))
    assert got == [alone("red", 5), alone("blue", 3, first=1)]
    assert got[0] != alone("blue", 5)
    # Other episodes, over new weights: nothing of the first is left.
    first._model.word = "green"
    first.sync()
    again = results(play(first, 2, first=2), play(second, 4, first=3))
    assert again == [alone("green", 2, first=2), alone("blue", 4, first=3)]


def test_where_nothing_repeats_to_the_last_bit_only_what_is_under_way_is_sampled_again(hosted):
    """As on a GPU: each response comes once, and says what it says."""
    host = hosted(idle_s=1e9)
    first, second = host.client("red", make=Continuous), host.client("blue", make=Continuous)
    player = play(first, 5)
    for _ in range(7):  # in the second turn of some
        next(player)
    first.release()  # it gives its turn up with requests under way
    results(play(second, 3))
    second.release()
    (said,), want = results(player), alone("red", 5)
    tokens = [sorted((n, one.token_ids) for n, one in pairs) for pairs in (said, want)]
    assert tokens[0] == tokens[1]
    assert said != want


def drop_refused(engine, other):
    with pytest.raises(ValueError, match="it is too long"):
        engine.submit(requests(4), "too long")


def drop_abandoned(engine, other):
    engine.submit(requests(4), PARAMS)
    engine.abandon()
    results(play(other, 1))


def drop_abandoned_meanwhile(engine, other):
    engine.submit(requests(4), PARAMS)
    results(play(other, 1))
    engine.abandon()


def drop_generated(engine, other):
    assert len(engine.generate(requests(4), PARAMS)) == 4
    results(play(other, 1))


@pytest.mark.parametrize(
    "drop", [drop_refused, drop_abandoned, drop_abandoned_meanwhile, drop_generated]
)
def test_there_what_is_over_is_not_sampled_again(hosted, drop):
    host = hosted()
    engine, other = (host.client(word, make=Continuous) for word in ("red", "blue"))
    drop(engine, other)
    (said,) = results(play(engine, 2))  # an answer of another conversation would be an error
    assert sorted(n for n, _ in said) == [0, 0, 0, 1, 1, 1]


def test_a_new_conversation_beside_those_under_way_forgets_none_of_them(hosted):
    def joined(engine):
        asked, said = requests(5), []
        engine.submit(asked[:3], PARAMS)
        yield
        engine.advance()
        yield
        engine.submit(asked[3:], PARAMS)  # they go on with nothing
        for _ in range(20):
            yield
            said += engine.advance()
        return said

    host = hosted()
    said = results(joined(host.client("red")), play(host.client("blue"), 3))[0]
    assert said == results(joined(Alone(Adapter("red"))))[0]
    assert sorted(n for n, _ in said) == [0, 1, 2, 3, 4]


def test_only_the_calls_since_the_episodes_began_are_made_again(hosted):
    """A trial that never syncs would else repeat ever more."""
    host = hosted()
    first, second = (host.client(word, make=Counting) for word in ("red", "blue"))
    results(play(first, 2))
    player = play(first, 2, first=1)
    for _ in range(3):  # a submit, and two of advance
        next(player)
    results(play(second, 1))
    before = host.engine.calls
    next(player)
    assert host.engine.calls - before == 3 + 1


def test_a_trial_keeps_its_turn_until_it_releases_the_engine(hosted):
    """Its calls are made once: a second trial's wait, and are made once, too."""
    host = hosted(idle_s=1e9)
    first, second = host.client("red"), host.client("blue")
    said = []
    player = play(first, 4)
    next(player)
    other = threading.Thread(target=lambda: said.extend(results(play(second, 2))), daemon=True)
    other.start()
    (got,) = results(player)
    assert got == alone("red", 4)
    assert said == []
    first.release()
    other.join()
    assert said == [alone("blue", 2)]


def test_one_that_nobody_interrupts_samples_with_its_new_adapter_after_a_sync(hosted):
    engine = hosted(idle_s=1e9).client("red")
    assert results(play(engine, 2)) == [alone("red", 2)]
    engine._model.word = "green"
    engine.sync()
    assert results(play(engine, 2)) == [alone("green", 2)]


def test_a_sync_of_one_leaves_the_episodes_of_another_alone(hosted):
    host = hosted(idle_s=1e9)
    first, second = host.client("red"), host.client("blue")
    player = play(first, 4)
    for _ in range(3):
        next(player)
    second._model.word = "green"
    second.sync()
    assert results(player) == [alone("red", 4)]
    first.release()
    assert results(play(second, 2)) == [alone("green", 2)]


def test_what_a_trial_abandons_or_releases_while_another_has_the_engine_counts_when_it_returns(
    hosted,
):
    host = hosted()
    engine, other, own = host.client("red"), host.client("blue"), Alone(Adapter("red"))
    for each in (engine, own):
        each.submit(requests(4), PARAMS)
        each.advance()
        results(play(other, 2))
        each.abandon()
        each.release()
    assert results(play(engine, 3), play(other, 2))[0] == results(play(own, 3))[0]


def test_a_dead_trial_leaves_its_place_and_its_requests(hosted):
    host = hosted(idle_s=1e9)
    first, second = host.client("red"), host.client("blue")
    assert sorted(host.engine.adapters.values()) == ["blue", "red"]
    first.submit(requests(4), PARAMS)
    first.advance()
    first.end()  # the socket is closed, as when its process dies
    wait_until(lambda: list(host.engine.adapters.values()) == ["blue"])
    assert host.engine._under_way == {}
    assert results(play(second, 3)) == [alone("blue", 3)]


def test_the_call_of_a_trial_that_dies_while_it_waits_is_not_made(hosted):
    host = hosted(idle_s=1e9)
    first, second, third = (host.client(word) for word in ("red", "blue", "green"))
    first.submit(requests(2), PARAMS)
    second._send(("generate", (requests(3), PARAMS)))
    wait_until(lambda: host.server._turns._waiting)
    second.end()
    wait_until(lambda: not host.server._turns._waiting)
    first.release()
    assert results(play(third, 2)) == [alone("green", 2)]
    wait_until(lambda: sorted(host.engine.adapters.values()) == ["green", "red"])


def test_a_trial_that_does_not_read_holds_up_nobody_else(hosted):
    """Its answer is larger than a socket holds; its writing of an adapter never ends."""
    host = hosted()
    stuck, slow, other = (host.client(word) for word in ("red", "blue", "green"))
    many = [Request(n, [4, n], n) for n in range(8_000)]
    stuck._send(("generate", (many, PARAMS)))
    slow._send(("sync", ()))
    assert results(play(other, 3)) == [alone("green", 3)]


def test_a_refused_call_is_its_callers_alone(hosted):
    host = hosted()
    first, second = host.client("red"), host.client("blue")
    player = play(second, 3)
    next(player)
    with pytest.raises(ValueError, match="it is too long"):
        first.submit(requests(2), "too long")
    assert results(player, play(first, 2)) == [alone("blue", 3), alone("red", 2)]


def test_a_first_trial_that_cannot_start_the_engine_leaves_that_to_the_next(hosted):
    host = hosted()
    host_made = []

    class Dead:
        end_ids, adapter_rank = (3,), 1

        def write_adapter(self, folder):
            host_made.append(folder)
            raise KeyError("it dies")

    with pytest.raises(KeyError, match="it dies"):
        SharedEngine(Rounding, Dead(), dtype=torch.float32, address=host.address)
    assert host_made
    assert results(play(host.client("blue"), 2)) == [alone("blue", 2)]


def test_one_that_does_not_hand_over_the_base_gives_way_to_the_next(hosted, monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE_S", 0.1)
    host = hosted()
    with Client(str(host.address)) as silent:
        silent.send(("start", (Weighing, (3,), 1)))
        assert silent.recv()[0] == ASK
        second = host.client("blue", make=Weighing)
        assert host.engine.weights["base"].tolist() == [1.0, 1.0, 1.0]
        assert results(play(second, 2)) == [alone("blue", 2)]


def test_the_first_one_has_as_long_as_it_takes_for_its_adapter(hosted, monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE_S", 0.1)

    class Slow(Adapter):
        def write_adapter(self, folder):
            time.sleep(0.3)
            super().write_adapter(folder)

    host = hosted()
    engine = SharedEngine(Weighing, Slow("red"), dtype=torch.float32, address=host.address)
    assert results(play(engine, 2)) == [alone("red", 2)]


def test_closing_twice_and_coming_back(hosted):
    host = hosted()
    engine = host.client("red")
    engine.close()
    engine.close()
    wait_until(lambda: not host.engine.adapters)
    assert results(play(engine, 2)) == [alone("red", 2)]  # a new place


def test_a_call_that_is_killed_from_another_thread_raises(hosted):
    from rltune.errors import EngineDiedError

    host = hosted(idle_s=1e9)
    first, second = host.client("red"), host.client("blue")
    first.submit(requests(2), PARAMS)
    errors = []

    def wait():
        with pytest.raises(EngineDiedError) as caught:
            second.generate(requests(2), PARAMS)
        errors.append(str(caught.value))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_until(lambda: host.server._turns._waiting)
    second.kill()
    thread.join()
    assert "that the trials of this sweep share is gone" in errors[0]
    assert results(play(first, 2)) == [alone("red", 2)]

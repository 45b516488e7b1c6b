"""Signs of life of ranks: who is ended, and after how many beats of the first one."""

import os

import pytest

from rltune.trainer.ranks.watch import (
    FIRST_BEATS,
    SILENT_BEATS,
    Sign,
    Watch,
    _written,
    beat,
)


class Beats:
    """Two ranks whose signs a test gives, and what became of them."""

    def __init__(self):
        self._pipes = {rank: os.pipe() for rank in (1, 2)}
        for heard, _ in self._pipes.values():
            os.set_blocking(heard, False)
        self.ended = []
        heard = {rank: pipe[0] for rank, pipe in self._pipes.items()}
        self.watch = Watch(heard, self.ended.append)

    def give(self, rank, *signs):
        for sign in signs or [Sign()]:
            os.write(self._pipes[rank][1], _written(sign))

    def end(self, rank):
        os.close(self._pipes[rank][1])
        self._pipes[rank] = self._pipes[rank][:1]

    def count(self, n):
        for _ in range(n):
            self.watch.count()

    def close(self):
        for pipe in self._pipes.values():
            for descriptor in pipe:
                os.close(descriptor)


@pytest.fixture
def beats():
    made = Beats()
    yield made
    made.close()


def test_who_gives_a_sign_in_time_lives_and_who_gives_none_is_ended_once(beats):
    for rank in (1, 2):
        beats.give(rank)
    beats.count(SILENT_BEATS)  # the first of them hears both
    beats.give(2, Sign(), Sign(), Sign())
    assert beats.ended == []
    beats.count(1)
    assert beats.ended == [1]
    assert beats.watch.silent == {1}
    beats.count(SILENT_BEATS - 1)
    assert beats.ended == [1]
    beats.count(1)
    assert beats.ended == [1, 2]
    beats.count(2 * SILENT_BEATS)
    assert beats.ended == [1, 2]


def test_a_rank_that_ended_by_itself_did_not_stand_still(beats):
    """It may be long before the first rank needs it: then its own end is to be told."""
    beats.give(1)
    beats.count(1)
    beats.end(1)
    beats.count(FIRST_BEATS)
    assert beats.ended == [2]
    assert beats.watch.silent == {2}


def test_a_rank_has_longer_for_its_first_sign(beats):
    assert FIRST_BEATS > SILENT_BEATS
    beats.count(FIRST_BEATS - 1)
    assert beats.ended == []
    beats.give(2)
    beats.count(1)
    assert beats.ended == [1]


def test_the_last_sign_says_where_a_rank_is(beats):
    """Also where many have gathered, and the name of a call is long."""
    call = "scoring of step 12" + 100 * "0"
    beats.give(1, *(Sign(n, call) for n in range(200)))
    beats.give(2, Sign(7, "update of step 3"))
    beats.count(1)
    assert beats.watch.signs[2] == Sign(7, "update of step 3")
    assert beats.watch.signs[1] == Sign(63, call[:61])  # 64 signs are read at a beat
    beats.count(3)
    assert beats.watch.signs[1] == Sign(199, call[:60])


def test_signs_come_by_themselves_and_end_where_nobody_reads(monkeypatch):
    monkeypatch.setattr("rltune.trainer.ranks.watch.BEAT_S", 0.01)
    heard, given = os.pipe()
    signs = iter([Sign(1, "one"), Sign(2, "two")])
    beat(given, lambda: next(signs, Sign()))
    assert os.read(heard, 64).split() == [b"1", b"one"]
    assert os.read(heard, 64).split() == [b"2", b"two"]
    os.close(heard)

"""Which rank an error is about: one that ended, or one that the others waited for in vain."""

import time
from collections.abc import Mapping, Sequence

from rltune.errors import RankDiedError
from rltune.trainer.ranks.process import STACKS, RankProcess
from rltune.trainer.ranks.watch import BEAT_S, SILENT_BEATS, Sign

_LAST_WORDS = 2000  # characters
_STACKS_S = 1.0  # for a rank to write where it is
_GOES_ON = "The same command goes on from the last checkpoint"


def is_consequence(error: Exception | None) -> bool:
    """Tell whether an error is what a rank sees when another one has ended, or does not come."""
    return error is not None and any(word in str(error).lower() for word in ("gloo", "nccl"))


def is_timeout(error: Exception | None) -> bool:
    """Tell whether an error is what a rank sees when another one does not come."""
    return is_consequence(error) and any(
        word in str(error).lower() for word in ("timed out", "timeout")
    )


def first_to_end(ranks: Sequence[RankProcess]) -> tuple[RankProcess, Exception | None] | None:
    """Return the rank that ended before the others, and why it says it did; None where all live.

    Who ended without a word was the first; the others lost it.
    """
    told = [(rank, rank.last_message()) for rank in ranks if rank.has_ended]
    if not told:
        return None
    return min(told, key=lambda own: (own[1] is not None, is_consequence(own[1])))


def died_error(
    rank: RankProcess, error: Exception | None, what: str, *, size: int, is_silent: bool
) -> RankDiedError:
    """Return the error of a trial one of whose ranks has ended.

    Args:
        rank: That one.
        error: That it told.
        what: The call that the ranks were in.
        size: Number of ranks.
        is_silent: Whether it was ended for giving no sign of life.

    """
    code = rank.process.returncode
    how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    why = f": {str(error).splitlines()[0]}" if error is not None else ""
    advice = "If it was killed for its memory (see `dmesg`), lower optim.tokens_per_micro_batch."
    if is_silent:
        how = f"gave no sign of life for {SILENT_BEATS * BEAT_S:g} s, and was ended,"
        advice = "A machine without free memory (see `vmstat 1`) can be the cause."
    died = RankDiedError(
        f"rank {rank.number} of {size} (process {rank.process.pid}) {how} in {what}{why}. {advice} "
        f"{_GOES_ON}"
    )
    return _with_words(died, rank, "\n".join(getattr(error, "__notes__", ())))


def late_ranks(
    ranks: Sequence[RankProcess], signs: Mapping[int, Sign], exchanges: int
) -> list[RankProcess]:
    """Return the ranks that live and have begun fewer exchanges than the first rank has."""
    return [
        rank
        for rank in ranks
        if not rank.has_ended and rank.number in signs and signs[rank.number].exchanges < exchanges
    ]


def late_error(
    rank: RankProcess, sign: Sign, what: str, *, size: int, exchanges: int
) -> RankDiedError:
    """Return the error of a trial one of whose ranks lives and does not come to an exchange.

    Args:
        rank: That one.
        sign: Its last sign of life.
        what: The call that the first rank is in.
        size: Number of ranks.
        exchanges: That the first rank has begun.

    """
    rank.process.send_signal(STACKS)
    time.sleep(_STACKS_S)
    late = RankDiedError(
        f"rank {rank.number} of {size} (process {rank.process.pid}) did not come to the others in "
        f"{what}: it lives, but it has begun {sign.exchanges} of {exchanges} exchanges with them, "
        f"the last in {sign.call}. The trial's log says where it is. {_GOES_ON}"
    )
    return _with_words(late, rank)


def _with_words(error: RankDiedError, rank: RankProcess, told: str = "") -> RankDiedError:
    """Add what a rank wrote: for the trial's log; the line for people has no room for it."""
    for note in (rank.written[-_LAST_WORDS:], told):
        if note:
            error.add_note(f"Its last words:\n{note}")
    return error

"""A probe of a training service on throwaway adapters, before a sweep pays for anything.

A step with betas 0 and eps 1 moves a weight by lr g / (1 + |g|): by lr g, as long as gradients are
small. So steps that must make the same update tell what the service makes of a gradient: a row X
at lr; X twice, between rows without advantages, at lr / 2, as losses are sums over tokens, rows and
passes; and X at 4 lr, clipped to a quarter of its norm. From one start all raise the logprobs of X
alike, by about D = lr A |grad sum log p|^2 with advantages A, which gives the norm.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rltune.errors import InputError, Problem, RemoteError
from rltune.remote.datum import datum, logprobs_in, prompt_logprobs
from rltune.remote.session import Session, address

_ROW, _PLACES = [5, 6, 7, 3, 9, 4], [2, 3, 4, 5]  # ids that every vocabulary has
_LONG = [*_ROW, *(5, 6, 7, 3, 9, 4) * 3]  # X with what follows it: causal, so X is the same
_ADVANTAGE = 0.02  # small, so that gradients are
_FIRST_LR, _FASTER, _LAST_LR = 3e-5, 3.0, 10.0
_MOVED = 0.1  # nats that X has to rise in a step, far above rounding
_TWICE = (0.8, 1.3)  # of D; a mean gives 0.63 at most
_CLIPPED = (0.6, 1.6)  # of D, as the norm is known to first order; no clipping gives about 4
_GAP = 0.1  # nats between a token's logprob as sampled and as scored; bfloat16 gives 0.02


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a service did, and what it was expected to do."""

    did: str
    expected: str


def require_faithful(session: Session, *, rank: int, where: str) -> None:
    """Refuse a service that does not do what training relies on; the adapters are thrown away.

    Args:
        session: The connection; it is closed.
        rank: Of the adapters.
        where: The key, for an error.

    Raises:
        InputError: It deviates, or an answer failed.

    """
    try:
        found = list(_deviations(session, rank))
    except RemoteError as error:
        what = f"the probe of the service failed: {str(error).partition('. The last')[0]}."
        raise InputError(Problem(where, what, action="See that it offers all of this.")) from error
    finally:
        session.close()
    if found:
        did = f"the training service at {address()} deviates: "
        parts = (f"{one.did}; expected: {one.expected}" for one in found)
        action = (
            "Use a service that keeps to the Tinker protocol; docs/tinker.md says what is probed."
        )
        raise InputError(Problem(where, f"{did}{'. '.join(parts)}.", action=action))


def _deviations(session: Session, rank: int) -> Iterator[Deviation]:
    lr, rise = _Probe(session, rank).calibrate()
    if rise >= _MOVED:
        rise = _Probe(session, rank).step(lr, [[_ROW]])  # from the start, as the others
    if rise < _MOVED / 2:
        did = f"a step on tokens with a positive advantage moved their logprobs by {rise:.2g}"
        yield Deviation(did, "a rise (loss importance_sampling, AdamParams with eps 1)")
        return
    norm = float(np.sqrt(rise * _ADVANTAGE / lr))
    clipped = _Probe(session, rank).step(4 * lr, [[_ROW]], clip=norm / 4) / rise
    if not _CLIPPED[0] < clipped < _CLIPPED[1]:
        did = (
            f"a gradient clipped to a quarter moved {clipped:.2f} times as far at 4 times the rate"
        )
        yield Deviation(did, "1 (grad_clip_norm of AdamParams)")
    probe = _Probe(session, rank)
    moved = probe.step(lr / 2, [[_LONG, *[_ROW] * 3], [_ROW]])
    if not _TWICE[0] < moved / rise < _TWICE[1]:
        did = f"a row twice in a step moved {moved / rise:.2f} times as far at half the rate"
        yield Deviation(did, "1, as losses are sums over tokens, rows and passes until the step")
    yield from _sampling(probe, moved=moved)


def _sampling(probe: "_Probe", *, moved: float) -> Iterator[Deviation]:
    """Yield in what sampling deviates, from a snapshot of the weights of now."""
    import tinker

    call = probe.adapter.save_weights_and_get_sampling_client()
    sampler = probe.session.wait(call, "take a snapshot of the weights")
    scores = probe.session.wait(
        sampler.compute_logprobs(tinker.ModelInput.from_ints(_ROW)), "score a prompt"
    )
    scores = prompt_logprobs(scores, len(_ROW))
    gap = sum(scores[place] or 0.0 for place in _PLACES) - float(probe.scored().sum())
    if abs(gap) > moved / 2:
        did = (
            f"a snapshot scores a row {gap:+.2f} nats from the adapter, which had moved {moved:.2f}"
        )
        yield Deviation(did, "0: a snapshot has the weights of now")
    drawn = _sample(probe, sampler, tinker.SamplingParams(max_tokens=6, seed=1, stop=[]))
    ids = [*_ROW, *drawn.tokens]
    places = list(range(len(_ROW), len(ids)))
    if len(drawn.logprobs or ()) != len(drawn.tokens):
        yield Deviation("sampled tokens came without their logprobs", "a logprob for each token")
        return
    worst = float(np.abs(probe.scored(ids, places) - np.array(drawn.logprobs)).mean())
    if worst > _GAP:
        did = f"sampled tokens have logprobs {worst:.2f} nats from those of a forward pass"
        yield Deviation(did, f"less than {_GAP:g}")
    greedy = _sample(probe, sampler, tinker.SamplingParams(max_tokens=4, temperature=0, stop=[]))
    end = greedy.tokens[0]
    stop = tinker.SamplingParams(max_tokens=4, temperature=0, stop=[end])
    ended = _sample(probe, sampler, stop)
    if list(ended.tokens) != [end] or ended.stop_reason != "stop":
        did = f"a response with its first token as stop token has {len(ended.tokens)} tokens"
        yield Deviation(f"{did}, ended by {ended.stop_reason}", "1, the stop token, ended by stop")


def _sample(probe: "_Probe", sampler: Any, params: Any) -> Any:
    import tinker

    call = sampler.sample(tinker.ModelInput.from_ints(_ROW), 1, params)
    (sequence,) = probe.session.wait(call, "sample").sequences
    return sequence


class _Probe:
    """Steps of a throwaway adapter, and how far each moved the row X. All begin alike."""

    def __init__(self, session: Session, rank: int) -> None:
        self.session = session
        self.adapter = session.new_adapter(rank=rank, seed=0)

    def scored(self, ids: list[int] = _ROW, places: list[int] = _PLACES) -> np.ndarray:
        """Return the logprobs of a row's places."""
        call = self.adapter.forward([datum(ids, places, weights=0.0)], "cross_entropy")
        (output,) = self.session.wait(call, "make a forward pass").loss_fn_outputs
        return logprobs_in(output, places)

    def calibrate(self) -> tuple[float, float]:
        """Return the first learning rate by which X moves enough, and how far it moves."""
        lr, rise = _FIRST_LR, 0.0
        while abs(rise) < _MOVED and lr < _LAST_LR:
            lr *= _FASTER
            rise = self.step(lr, [[_ROW]])
        return lr, rise

    def step(self, lr: float, passes: list[list[list[int]]], *, clip: float = 0.0) -> float:
        """Return how far X moves in a step on passes of rows; the first of each is X."""
        import tinker

        before = self.scored()
        calls = []
        for first, *rest in passes:
            rows = [datum(first, _PLACES, logprobs=before, advantages=_ADVANTAGE)]
            rows += [datum(row, _PLACES, logprobs=before, advantages=0.0) for row in rest]
            calls.append(self.adapter.forward_backward(rows, "importance_sampling"))
        adam = tinker.AdamParams(
            learning_rate=lr, beta1=0.0, beta2=0.0, eps=1.0, weight_decay=0.0, grad_clip_norm=clip
        )
        stepped = self.adapter.optim_step(adam)
        for call in calls:
            self.session.wait(call, "make a backward pass")
        self.session.wait(stepped, "make an optimiser step")
        return float((self.scored() - before).sum())

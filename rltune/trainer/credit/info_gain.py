"""Information gain of a batch: gold answers scored at every context of its episodes."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from rltune.policy.gold import GoldCopy, encode_gold
from rltune.policy.gold_scores import gold_logprobs
from rltune.policy.load import Policy
from rltune.policy.logprobs import head_chunk
from rltune.rollout.tokens import TokenBatch
from rltune.signals.info_gain import IgType, InfoGains, InformationGain, best_alias
from rltune.trainer.batches.micro_batches import Limit, cut_batch
from rltune.types import Episode

Encode = Callable[[str, str, str], tuple[tuple[int, ...], tuple[bool, ...]]]
"""Takes the text before an answer, the answer and the text after it; see `encode_gold`."""


class GoldReader:
    """The gold answers of a batch, and their scores, some of its rows at a time.

    A row that is not trained on has no gain, nor has a turn whose environment knows no gold answer;
    a dead end is probability 0. The episodes were played with the gold probe.
    """

    def __init__(
        self,
        policy: Policy,
        batch: TokenBatch,
        episodes: Sequence[Episode],
        *,
        ig_type: IgType,
    ) -> None:
        self._ig_type, self._n_turns = ig_type, batch.n_turns
        self._played = [episodes[row] for row in batch.episode_N.tolist()]
        self._is_trained_N = batch.is_trained_N
        self._answers = _answers(policy, self._played, self._is_trained_N)
        shape, device = (len(batch), self._n_turns), batch.ids_NT.device
        self._mean_logp_NC = torch.full(shape, torch.nan, device=device)
        self._n_contexts_N = torch.zeros_like(batch.episode_N)

    def copies(self, index: Tensor) -> list[list[GoldCopy]]:
        """Return the answers of some rows of the batch, each at every context that has it."""
        return [[copy for _, copy in self._answers[row]] for row in index.tolist()]

    def keep(self, index: Tensor, scores_BJ: Tensor) -> None:
        """Keep the mean log-probability of each of these copies, in nats; once a row."""
        on_B = self._is_trained_N[index]
        contexts_BJ = torch.full_like(scores_BJ, -1, dtype=torch.int64)
        for nth, row in enumerate(index.tolist()):
            own = [context for context, _ in self._answers[row]]
            contexts_BJ[nth, : len(own)] = torch.tensor(own, dtype=torch.int64)
        best_BC = best_alias(scores_BJ, contexts_BJ, n_contexts=self._n_turns)
        rows = index[on_B]
        played = [self._played[row] for row in rows.tolist()]
        is_dead_BC = _dead_ends(played, self._n_turns).to(index.device)
        self._mean_logp_NC[rows] = best_BC[on_B].where(~is_dead_BC, -torch.inf)
        self._n_contexts_N[rows] = torch.tensor([len(e.turns) for e in played], device=index.device)

    def gains(self) -> InfoGains:
        """Return what each turn of the rows that were read added to the answer's probability."""
        return InformationGain(self._ig_type)(self._mean_logp_NC, self._n_contexts_N)


def information_gain(
    policy: Policy,
    batch: TokenBatch,
    episodes: Sequence[Episode],
    *,
    ig_type: IgType,
    limit: Limit,
) -> InfoGains:
    """Return what each turn added to the gold answer's probability under the current policy.

    Costs a forward pass over the rows and their gold answers. `score_batch` costs the answers alone
    where it reads the rows anyway.
    """
    reader, model = GoldReader(policy, batch, episodes, ig_type=ig_type), policy.model
    for part in cut_batch(batch, limit):
        ids, copies = batch.rows(part.rows).ids_NT, reader.copies(part.rows)
        reader.keep(part.rows, gold_logprobs(model, ids, copies, chunk=head_chunk(model)))
    return reader.gains()


def _answers(
    policy: Policy, episodes: Sequence[Episode], is_wanted_N: Tensor
) -> list[list[tuple[int, GoldCopy]]]:
    """Return the gold answers of the episodes that are wanted, each with its context's index."""
    encode = cache(partial(encode_gold, policy.tokenizer))  # a group asks for one answer often
    return [
        _copies(encode, episode) if is_wanted else []
        for episode, is_wanted in zip(episodes, is_wanted_N.tolist(), strict=True)
    ]


def _copies(encode: Encode, episode: Episode) -> list[tuple[int, GoldCopy]]:
    copies, end = [], 0
    for context, turn in enumerate(episode.turns):
        start = end + len(turn.prompt_ids)
        if turn.gold is not None:
            for answer in turn.gold.golds:
                ids, scored = encode(turn.gold.before, answer, turn.gold.after)
                copies.append((context, GoldCopy(start, ids, scored)))
        end = start + len(turn.sampled_ids)
    return copies


def _dead_ends(episodes: Sequence[Episode], n_turns: int) -> Tensor:
    """Return, (B, K) boolean, where a perfect player has nothing right to say any more."""
    is_dead_BK = torch.zeros(len(episodes), n_turns, dtype=torch.bool)
    for row, episode in enumerate(episodes):
        for nth, turn in enumerate(episode.turns):
            is_dead_BK[row, nth] = turn.gold is not None and not turn.gold.golds
    return is_dead_BK

"""Information gain of a batch: gold answers scored at every context of its episodes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rltune.policy.gold import GoldCopy, encode_gold
from rltune.policy.gold_scores import gold_logprobs
from rltune.policy.kv_cache import KVCache
from rltune.policy.load import Policy
from rltune.policy.logprobs import head_chunk
from rltune.rollout.tokens import TokenBatch
from rltune.signals.info_gain import IgType, InfoGains, InformationGain, best_alias
from rltune.trainer.batches.micro_batches import Limit, cut_batch
from rltune.types import Episode


class GoldReader:
    """Scores the gold answers of a batch, some of its rows at a time.

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
        self._policy, self._ig_type, self._n_turns = policy, ig_type, batch.n_turns
        self._played = [episodes[row] for row in batch.episode_N.tolist()]
        self._is_trained_N = batch.is_trained_N
        shape, device = (len(batch), self._n_turns), batch.ids_NT.device
        self._mean_logp_NC = torch.full(shape, torch.nan, device=device)
        self._n_contexts_N = torch.zeros_like(batch.episode_N)

    def read(self, index: Tensor, ids_BT: Tensor, prefix: KVCache | None = None) -> None:
        """Score the answers of some rows, once.

        Args:
            index: Rows of the batch.
            ids_BT: Their token ids.
            prefix: Keys and values of `ids_BT` (the last column may be missing), under the same
                policy; they are used up. None: the rows go through the policy here.

        """
        device = ids_BT.device
        on_B = self._is_trained_N[index]
        answers = [
            _copies(self._policy, self._played[row]) if is_on else []
            for row, is_on in zip(index.tolist(), on_B.tolist(), strict=True)
        ]
        copies = [[copy for _, copy in of_row] for of_row in answers]
        model = self._policy.model
        scores_BJ = gold_logprobs(model, ids_BT, copies, prefix=prefix, chunk=head_chunk(model))
        contexts_BJ = torch.full(scores_BJ.shape, -1, dtype=torch.int64, device=device)
        for row, of_row in enumerate(answers):
            contexts_BJ[row, : len(of_row)] = torch.tensor([context for context, _ in of_row])
        best_BC = best_alias(scores_BJ, contexts_BJ, n_contexts=self._n_turns)
        rows = index[on_B]
        played = [self._played[row] for row in rows.tolist()]
        self._mean_logp_NC[rows] = best_BC[on_B].where(
            ~_dead_ends(played, self._n_turns).to(device), -torch.inf
        )
        self._n_contexts_N[rows] = torch.tensor([len(e.turns) for e in played], device=device)

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

    Costs a forward pass over the rows and their gold answers. `GoldReader` costs the answers alone
    where the rows are read anyway.
    """
    reader = GoldReader(policy, batch, episodes, ig_type=ig_type)
    for part in cut_batch(batch, limit):
        reader.read(part.rows, batch.rows(part.rows).ids_NT)
    return reader.gains()


def _copies(policy: Policy, episode: Episode) -> list[tuple[int, GoldCopy]]:
    """Return the gold answers of an episode, each with the index of its context."""
    copies, end = [], 0
    for context, turn in enumerate(episode.turns):
        start = end + len(turn.prompt_ids)
        if turn.gold is not None:
            before, after = turn.gold.before, turn.gold.after
            for answer in turn.gold.golds:
                ids, scored = encode_gold(policy.tokenizer, before, answer, after)
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

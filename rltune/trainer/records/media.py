"""Media for trackers: episodes of a gate, the filter's choice, distributions.

Nothing here is drawn at random or computed a second time: showing changes no number.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rltune.track.base import Histogram, Table
from rltune.trainer.filtering import FilterResult
from rltune.trainer.records.outcomes import valid
from rltune.types import Episode

EPISODES = 16  # of a gate: the first tasks, the same at each gate
_TEXT = 4000  # characters of an episode's text
_BINS = 64


def episode_table(episodes: Sequence[Episode]) -> Table:
    """Return the first episodes of a gate, each with its boards and responses as one text."""
    columns = ("task_id", "success", "reward", "failure_class", "turns", "fault", "text")
    rows = tuple(
        (
            episode.task_id,
            episode.success,
            episode.reward,
            episode.failure_class,
            len(episode.turns),
            episode.fault,
            _text(episode),
        )
        for episode in episodes[:EPISODES]
    )
    return Table(columns, rows)


def _text(episode: Episode) -> str:
    parts = [
        f"{turn.observation}\n\n> {turn.response}\n= {', '.join(turn.actions) or 'no action'}"
        for turn in episode.turns
    ]
    text = "\n\n".join(parts)
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def filter_table(episodes: Sequence[Episode], chosen: FilterResult) -> Table:
    """Return one row a group of a training step: its score, its outcomes, whether it was kept."""
    columns = ("group", "task_id", "score", "reward_mean", "success_rate", "kept", "faults")
    size = len(episodes) // len(chosen.scores_G)
    rows = []
    for group, score in enumerate(chosen.scores_G.tolist()):
        place = slice(group * size, (group + 1) * size)
        members = episodes[place]
        counted = valid(members)
        n = max(1, len(counted))
        means = sum(e.reward for e in counted) / n, sum(e.success for e in counted) / n
        kept = bool(chosen.keep_N[place].any())
        rows.append((group, members[0].task_id, score, *means, kept, len(members) - len(counted)))
    return Table(columns, tuple(rows))


def distributions(entropies: Sequence[Tensor], model: nn.Module | None) -> dict[str, Histogram]:
    """Return how the entropy of a step's tokens and a model's last gradient are distributed."""
    histograms = {
        "actor/token_entropy": value_histogram(entropies),
        "actor/gradient": None if model is None else gradient_histogram(model),
    }
    return {name: one for name, one in histograms.items() if one is not None}


def value_histogram(values: Sequence[Tensor]) -> Histogram | None:
    """Return the distribution of some numbers; None without any."""
    whole = torch.cat(
        [part.detach().float().flatten().cpu() for part in values] or [torch.empty(0)]
    )
    if not whole.numel():
        return None
    counts, edges = np.histogram(whole.numpy(), bins=_BINS)
    return Histogram(tuple(counts.tolist()), tuple(edges.tolist()))


def gradient_histogram(model: nn.Module) -> Histogram | None:
    """Return the distribution of the gradient's entries as they are; None when all are 0.

    They are those of the last optimiser step, after clipping. One bin edge is 0.
    """
    gradients = [p.grad.detach() for p in model.parameters() if p.grad is not None]
    largest = max((float(grad.abs().max()) for grad in gradients), default=0.0)
    if largest == 0.0:
        return None
    counts = sum(
        torch.histc(grad.float(), bins=_BINS, min=-largest, max=largest).cpu() for grad in gradients
    )
    edges = np.linspace(-largest, largest, _BINS + 1)
    return Histogram(tuple(int(n) for n in torch.as_tensor(counts)), tuple(edges.tolist()))

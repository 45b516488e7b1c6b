"""Problems of reasoning-gym: what is asked of its data sets, and the process that answers."""

from rltune_envs.generated.dataset import Dataset, about, entry_of, score_of

__all__ = ["Dataset", "about", "entry_of", "score_of"]

"""The trained weights on their way to a rollout engine: from all ranks, one weight at a time."""

from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Engine
from rltune.rollout.replicas import replicas_of
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.train_state import TrainState


def hand_over(train_state: TrainState, engine: Engine, lora: LoraConfig) -> None:
    """Have an engine take over the trained weights.

    Where no rank has them whole, the first passes on each weight as the ranks put it together:
    replicas take them one after the other.

    Args:
        train_state: What is trained.
        engine: Serves it.
        lora: The policy's adapters; rank 0 is none.

    """
    if train_state.sharded is None or train_state.is_copied:
        engine.sync()
        return
    for replica in replicas_of(engine):
        train_state.group.beside("a sync of the engine", replica.sync, give, lora)


def give(train_state: TrainState, lora: LoraConfig) -> None:
    """Put each weight together with the first rank, which passes it on."""
    for _ in ServedPolicy(train_state.policy, lora).trained():
        pass

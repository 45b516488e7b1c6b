"""The engine `torch` over weights of its own, as in a process of its own, in this one."""

from rltune.policy.serve import ServedPolicy
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.engines import TorchCopyEngine


def copy_engine(policy, *, rank=0):
    """Make the engine over a copy of a policy; `rank` is that of its adapters."""
    lora = LoraConfig(rank=rank)
    served = ServedPolicy(policy, lora)
    return TorchCopyEngine(served, lora=lora, dtype="float32", pad_id=policy.pad_id)

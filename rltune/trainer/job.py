"""Everything that one trial needs, handed to `rltune.trainer.loop.train`."""

from collections.abc import Callable
from dataclasses import dataclass

from rltune.policy.load import Policy
from rltune.rollout.engine import Engine
from rltune.spec.schema.sweep import Metric
from rltune.spec.schema.trial import TrialConfig
from rltune.store.rundir import TrialDir
from rltune.track.base import Tracker
from rltune.trainer.ranks.group import ALONE, Group
from rltune_envs.base import TextEnv
from rltune_envs.splits import Manifest


@dataclass(frozen=True)
class Job:
    """Everything that one trial needs."""

    config: TrialConfig  # resolved config
    config_hash: str  # identity of the config
    trial: TrialDir  # where the records go
    manifest: Manifest  # frozen tasks
    make_env: Callable[[], TextEnv]  # makes a fresh environment
    policy: Policy  # freshly loaded weights; they are trained in place
    engine: Engine  # samples with those weights
    tracker: Tracker  # gets each step's metrics
    metric: Metric  # the held-out metric that chooses the checkpoint
    should_stop: Callable[[], bool]  # asked between steps; true ends the attempt with a checkpoint
    warn: Callable[[str], None]  # gets one line for what a person should know
    say: Callable[[str], None]  # gets one line at the start and one a gate
    # asked between steps; a sentence that says which limit of the sweep is reached ends the attempt
    overspent: Callable[[], str] = str
    group: Group = ALONE  # the ranks that train it; this process is the first

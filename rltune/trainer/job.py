"""Everything that one trial needs, handed to `rltune.trainer.loop.train`."""

from collections.abc import Callable
from dataclasses import dataclass

from rltune.policy.load import Policy
from rltune.rollout.engine import Engine
from rltune.spec.schema.sweep import Metric
from rltune.spec.schema.trial import TrialConfig
from rltune.store.rundir import TrialDir
from rltune.track.base import Tracker
from rltune_envs.base import TextEnv
from rltune_envs.splits import Manifest


@dataclass(frozen=True)
class Job:
    """Everything that one trial needs.

    Attributes:
        config: Resolved config.
        config_hash: Identity of the config.
        trial: Where the records go.
        manifest: Frozen tasks.
        make_env: Makes a fresh environment.
        policy: Freshly loaded weights; they are trained in place.
        engine: Samples with those weights.
        tracker: Gets each step's metrics.
        metric: The held-out metric that chooses the checkpoint.
        should_stop: Asked between steps; true ends the attempt with a checkpoint.
        warn: Gets one line for what a person should know.
        say: Gets one line at the start and one a gate.

    """

    config: TrialConfig
    config_hash: str
    trial: TrialDir
    manifest: Manifest
    make_env: Callable[[], TextEnv]
    policy: Policy
    engine: Engine
    tracker: Tracker
    metric: Metric
    should_stop: Callable[[], bool]
    warn: Callable[[str], None]
    say: Callable[[str], None]

"""One trial of a benchmark in this process: no Ray, metrics to its folder, warnings printed."""

from functools import partial
from pathlib import Path

from rltune.policy.load import policy_of
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.sweep import Metric
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import append_jsonl
from rltune.store.rundir import TrialDir
from rltune.track.jsonl import JsonlTracker
from rltune.trainer.job import Job
from rltune.trainer.tasks import env_maker, freeze_tasks


def job_of(config: TrialConfig, trial: TrialDir, config_hash: str) -> Job:
    policy = policy_of(config, Path(), device="cuda" if config.resources.gpus else "cpu")
    return Job(
        config=config,
        config_hash=config_hash,
        trial=trial,
        manifest=freeze_tasks(config),
        make_env=env_maker(config.env, config.reward),
        policy=policy,
        engine=TorchEngine(policy.decoder()),
        tracker=JsonlTracker(partial(append_jsonl, trial.metrics)),
        metric=Metric(),
        should_stop=lambda: False,
        warn=print,
        say=lambda line: None,
    )

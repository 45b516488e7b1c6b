"""Shipped environments with the shipped tiny policy, and episodes written by hand."""

import json
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import torch
from killing import Dying

from rltune.policy.gold_scores import gold_logprobs
from rltune.policy.load import policy_of
from rltune.rollout.tokens import to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.sweep import Metric
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import append_jsonl, read_metrics
from rltune.store.rundir import TrialDir
from rltune.track.jsonl import JsonlTracker
from rltune.trainer.batches.micro_batches import Limit, cut_batch, limit_of
from rltune.trainer.collect import collect
from rltune.trainer.credit.attribution import by_verdicts, gold_reader
from rltune.trainer.credit.estimate import episode_advantages
from rltune.trainer.job import Job
from rltune.trainer.loop import train
from rltune.trainer.tasks import env_maker, freeze_tasks
from rltune.trainer.train_state import Signals
from rltune.types import Distance, Episode, StopReason, Turn

HASH = "e" * 64
ANY = 10**9  # tokens of a micro-batch: no limit
GRPO = {"kind": "grpo", "ddof": 0}


def config_of(kind="frozen_lake", *, env=None, **sections):
    """Build a config on a shipped environment; each section is laid over small defaults."""
    defaults = {
        "rollout": {
            "groups": 2, "group_size": 4, "max_response_tokens": 12, "max_context": 300,
        },
        "optim": {"lr": 1e-3, "mini_batch_size": 4, "micro_batch_size": 4},
        "gate": {"every": 3, "tasks": 4, "test_tasks": 0, "temperature": 1.0},
        "budget": {"steps": 4},
        "checkpoint": {"every": 2},
    }  # fmt: skip
    tree = {
        "env": {"kind": kind, "prompt": "compact", "train_tasks": 8, **(env or {})},
        "policy": {"model": "tiny"},
        "advantage": GRPO,
        **defaults,
    }
    for name, section in sections.items():
        is_over = name in defaults
        tree[name] = {**defaults[name], **section} if is_over else section
    return TrialConfig.model_validate(tree)


def load(config):
    return policy_of(config, Path(), device="cpu")


@cache
def shipped(kind):
    """Return the shipped policy of an environment, to be looked at only."""
    return load(config_of(kind))


def sample(kind, *, probes, seeds=(0, 1, 2), temperature=1.5, group_size=4):
    """Play the shipped policy; it is tried at a temperature at which it errs now and then."""
    rollout = {
        "groups": len(seeds), "group_size": group_size, "temperature": temperature,
    }  # fmt: skip
    config = config_of(kind, rollout=rollout)
    make_env = env_maker(config.env)
    tasks = [make_env().task(seed) for seed in seeds]
    policy = shipped(kind)
    engine = TorchEngine(policy.decoder())
    return collect(config, policy, engine, tasks, step=1, make_env=make_env, probes=probes)


def make_turn(sampled, *, prompt=(5, 6), reward=0.0, before=None, after=None, **known):
    """Write a turn by hand; `before` and `after` are its distances."""
    if before is not None:
        known["distance"] = Distance(before, after)
    return Turn(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(sampled),
        logprobs=(-1.0,) * len(sampled),
        stop_reason=StopReason.STOP,
        observation=known.pop("observation", "seen"),
        response=known.pop("response", "said"),
        actions=(),
        reward=reward,
        is_valid=True,
        n_invalid=0,
        n_over_limit=0,
        **known,
    )


def make_episode(turns, *, group=0, reward=None, success=False):
    total = sum(turn.reward for turn in turns) if reward is None else reward
    return Episode("t", 0, group, 0, tuple(turns), True, False, success, total)


def walk(distances, *, reward, group=0, n_tokens=2):
    """Write an episode that goes by these distances; a success when it earned anything."""
    turns = [
        make_turn(range(2, 2 + n_tokens + k), before=a, after=b)
        for k, (a, b) in enumerate(pairwise(distances))
    ]
    return make_episode(turns, group=group, reward=reward, success=reward > 0)


def batch_of(episodes):
    return to_batch(episodes, pad_id=0)


def parts_of(batch, rows):
    """Return a batch in micro-batches of so many rows."""
    return cut_batch(batch, Limit(ANY, rows))


def signals_of(batch, *, old_logp=None, values=None, entropy=None):
    mask = batch.action_mask_NT
    if old_logp is None:
        old_logp = torch.full(mask.shape, -1.0).where(mask, 0)
    return Signals(old_logp, None, values, entropy)


def nobody(_):
    """Stand for a judge that must not be asked."""
    raise AssertionError("the judge was asked")


# MATHS 7: trajectory 0 has R=1 and flags G,G,B; trajectory 1 R=0 and flags B,G.
PAIR = [walk([3, 2, 1, 1], reward=1.0), walk([3, 3, 2], reward=0.0)]


def verdicts(config, episodes, *, batch=None, step=1, ask=nobody):
    """Return the credit of `by_verdicts`, beside the outcome by the config's estimator."""
    batch = batch_of(episodes) if batch is None else batch
    outcome_N = episode_advantages(batch, config.advantage)
    policy = shipped(config.env.kind)
    return by_verdicts(
        policy,
        batch,
        outcome_N,
        episodes,
        config.attribution,
        step=step,
        limit=limit_of(policy, config),
        ask=ask,
    )


def gains_for(policy, batch, episodes, config):
    """Return the gains of a config's attribution, by a forward of its own; None without one."""
    reader = gold_reader(policy, batch, episodes, config.attribution)
    if reader is None:
        return None
    index = torch.arange(len(batch))
    reader.keep(index, gold_logprobs(policy.model, batch.ids_NT, reader.copies(index)))
    return reader.gains()


# Estimators that return what no estimator may.
def too_short(outcome_N, group_N):
    return outcome_N[:-1]


def one_column(outcome_N, group_N):
    return outcome_N[:, None]


def not_a_number(outcome_N, group_N):
    return outcome_N / outcome_N


def no_tensor(outcome_N, group_N):
    return outcome_N.tolist()


def yes_or_no(outcome_N, group_N):
    return outcome_N > 0


def divided(outcome_N, group_N):
    return 1 / 0


# And estimators that may be.
def below(outcome_N, group_N, *, dtype="float32"):
    is_same = group_N[:, None] == group_N
    return (is_same & (outcome_N[:, None] > outcome_N)).sum(1).to(getattr(torch, dtype))


def over_the_best(outcome_N, group_N):
    return outcome_N - outcome_N.max()  # there is no best of nothing


def nothing(episode):
    """Score every episode alike."""
    return 0.0


@cache
def _tasks(env, gate):
    """Freeze the tasks of two sections, given as JSON."""
    sections = {"env": json.loads(env), "gate": json.loads(gate)}
    return freeze_tasks(TrialConfig.model_validate({**sections, "policy": {"model": "tiny"}}))


@dataclass
class Trial:
    """A trial of a shipped environment in a folder; `run` is one attempt with fresh weights."""

    folder: TrialDir
    config: TrialConfig
    policy: object = None
    warnings: list = field(default_factory=list)

    def run(self, *, die_at=None):
        self.policy = load(self.config)
        config = self.config
        tasks = _tasks(*(section.model_dump_json() for section in (config.env, config.gate)))
        tracker = JsonlTracker(partial(append_jsonl, self.folder.metrics))
        job = Job(
            config=config,
            config_hash=HASH,
            trial=self.folder,
            manifest=tasks,
            make_env=env_maker(config.env, config.reward),
            policy=self.policy,
            engine=TorchEngine(self.policy.decoder()),
            tracker=Dying(tracker, die_at),
            metric=Metric(name="heldout/reward_mean"),
            should_stop=lambda: False,
            warn=self.warnings.append,
            say=lambda _: None,
        )
        return train(job)

    @property
    def rows(self):
        return read_metrics(self.folder.metrics).rows


def make_trial(folder, kind="frozen_lake", **sections):
    return Trial(TrialDir(folder).create(), config_of(kind, **sections))


def lasting(row):
    """Return a metrics row without what a clock measured."""
    timed = ("timing_s/", "perf/")
    return {
        name: value for name, value in row.items()
        if not name.startswith(timed) and name != "time"
    }  # fmt: skip

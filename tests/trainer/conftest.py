"""A small env in the tiny tokenizer's words, and trials of a second over it."""

from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from killing import Dying, Killed
from small_config import config_of

from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.sweep import Metric
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import append_jsonl, read_metrics
from rltune.store.rundir import TrialDir
from rltune.track.base import MultiTracker
from rltune.track.jsonl import JsonlTracker
from rltune.trainer.job import Job
from rltune.trainer.loop import train
from rltune.trainer.ranks.group import ALONE
from rltune_envs.base import FailureClass, Step, Task, TextEnv
from rltune_envs.bounds import Floor, FloorKind
from rltune_envs.splits import Manifest

CELLS = "#_OX√PS"
HASH = "c" * 64


class UpEnv(TextEnv):
    """Pays 1 for each Up and -0.5 for each Down; solved by a Right; two turns.

    Observations differ in length, and those of seeds 0 and 10 are the same text. An episode whose
    seed `is_faulty` says yes to has a fault in every turn.
    """

    auxiliary_names = ("ups",)

    system_prompt = ""
    response_prefix = "<answer>"
    action_names = ("Up", "Down", "Left", "Right")

    def __init__(self, *, is_constant: bool = False, is_faulty=lambda seed: False):
        self.is_constant = is_constant
        self.is_faulty = is_faulty

    def reset(self, *, seed):
        self._seed, self._turn, self._ups = seed % 10, 0, 0
        self._fault = "retriever: it is down" if self.is_faulty(seed) else ""
        return self._show()

    def step(self, response):
        self._turn += 1
        success = "Right" in response
        reward = 1.0 * response.count("Up") - 0.5 * response.count("Down")
        self._ups += response.count("Up")
        is_over = success or self._turn == 2
        return Step(
            self._show(),
            reward=0.0 if self.is_constant else reward,
            terminated=success,
            truncated=self._turn == 2 and not success,
            success=success,
            is_valid=response.endswith("</answer>"),
            n_invalid=int(not response.endswith("</answer>")),
            n_over_limit=response.count("Left"),
            failure_class=FailureClass.UNFINISHED if is_over and not success else FailureClass.NONE,
            auxiliary={"ups": float(self._ups)} if is_over else {},
            fault=self._fault,
        )

    def task(self, seed):
        return Task(f"up-{seed}", seed, f"hash-{seed}", f"near-{seed}", 1)

    def format_response(self, actions):
        return f"<answer>{'||'.join(actions)}</answer>"

    def expert_actions(self):
        return ("Right",)

    def random_actions(self, rng):
        return (rng.choice(self.action_names),)

    def random_success_probability(self, seed):
        return 0.25

    def optimal_success_probability(self, seed):
        return 1.0

    def _show(self):
        return CELLS[: 3 + (self._seed + self._turn) % 4] + CELLS[self._seed % 7]


def manifest(*, train=12, heldout=5):
    env = UpEnv()
    return Manifest(
        train=tuple(env.task(seed) for seed in range(train)),
        heldout=tuple(env.task(seed) for seed in range(100, 100 + heldout)),
        heldout_floor=Floor(FloorKind.EXACT, 0.25),
        heldout_ceiling=1.0,
        n_duplicates=0,
    )


def with_adapter(policy, config):
    """Return a policy with the adapter of its config, as `policy_of` loads it."""
    from rltune.policy.load import weights_digest
    from rltune.policy.lora import add_adapter

    if not config.policy.lora.rank:
        return policy
    add_adapter(policy.model, config.policy.lora, seed=config.seed)
    return replace(policy, weights_sha256=weights_digest(policy.model))


@dataclass
class Trial:
    """A trial in a folder; `run` is one attempt with freshly loaded weights."""

    folder: TrialDir
    config: TrialConfig
    make_policy: object
    is_constant: bool = False
    is_faulty: object = lambda seed: False
    make_env: object = None
    warnings: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    policy: object = None

    def run(
        self,
        *,
        stop_at=None,
        die_at=None,
        config_hash=HASH,
        make_engine=None,
        mode="max",
        metric="heldout/reward_mean",
        watcher=None,
        group=ALONE,
    ):
        """Train; stop politely before step `stop_at`, or die when step `die_at` is logged."""
        self.policy = with_adapter(self.make_policy(), self.config)
        make_engine = make_engine or (lambda policy: TorchEngine(policy.decoder()))
        job = Job(
            config=self.config,
            config_hash=config_hash,
            trial=self.folder,
            manifest=manifest(),
            make_env=self.make_env
            or (lambda: UpEnv(is_constant=self.is_constant, is_faulty=self.is_faulty)),
            policy=self.policy,
            engine=make_engine(self.policy),
            tracker=Dying(self._tracker(watcher), die_at),
            metric=Metric(name=metric, mode=mode),
            should_stop=lambda: stop_at is not None and self.last_step >= stop_at - 1,
            warn=self.warnings.append,
            say=self.lines.append,
            group=group,
        )
        return train(job)

    def _tracker(self, watcher):
        record = JsonlTracker(partial(append_jsonl, self.folder.metrics))
        return MultiTracker((record, *([watcher] if watcher else [])))

    @property
    def rows(self):
        return read_metrics(self.folder.metrics).rows

    @property
    def last_step(self):
        return self.rows[-1]["step"]

    @property
    def checkpoints(self):
        return sorted(int(p.name[5:]) for p in self.folder.checkpoints.glob("step-*"))


@pytest.fixture
def make_config():
    return config_of


@pytest.fixture(scope="session")
def small_policy(small_policy):
    """Return a maker of policies of one layer: nothing here depends on how many there are."""
    return partial(small_policy, layers=1)


@pytest.fixture(scope="session")
def make_trial_in(small_policy):
    def make(folder, *, is_constant=False, is_faulty=lambda seed: False, **changes):
        made = TrialDir(folder).create()
        flags = {"is_constant": is_constant, "is_faulty": is_faulty}
        return Trial(made, config_of(**changes), small_policy, **flags)

    return make


@pytest.fixture
def make_trial(tmp_path, make_trial_in):
    """Return a maker of trials: `make_trial(name, **config changes)`."""
    return lambda name="trial", **changes: make_trial_in(tmp_path / name, **changes)


@pytest.fixture(scope="session")
def plain(tmp_path_factory, make_trial_in):
    """Return a trial of the defaults that has ended, and its result; nobody changes it."""
    trial = make_trial_in(tmp_path_factory.mktemp("plain"))
    return trial, trial.run()


@pytest.fixture
def killed():
    return Killed


@pytest.fixture
def up_env():
    return UpEnv


@pytest.fixture
def make_manifest():
    return manifest


@pytest.fixture(scope="session")
def sample_batch():
    """Return a maker of (episodes, batch) that a policy sampled in `UpEnv`.

    What an engine of its own sampled with the same weights and settings is not sampled again.
    """
    from rltune.policy.load import weights_digest
    from rltune.policy.precision import compute_dtype
    from rltune.rollout.tokens import to_batch
    from rltune.trainer.collect import collect

    played = {}

    def play(config, policy, engine, step, seeds):
        env = UpEnv()
        tasks = [env.task(seed) for seed in seeds]
        return collect(config, policy, engine, tasks, step=step, make_env=UpEnv)

    def sample(config, policy, *, engine=None, step=1, seeds=None):
        seeds = tuple(seeds or range(config.rollout.groups))
        if engine is not None:
            episodes = play(config, policy, engine, step, seeds)
        else:
            weights = weights_digest(policy.model), compute_dtype(policy.model.base_model)
            key = config.rollout.model_dump_json(), config.seed, weights, step, seeds
            if key not in played:
                played[key] = play(config, policy, TorchEngine(policy.decoder()), step, seeds)
            episodes = list(played[key])
        return episodes, to_batch(episodes, pad_id=policy.pad_id)

    return sample

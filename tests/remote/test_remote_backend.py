"""Both backends make the same step: with equal weights and AdamW, equal logprobs afterwards.

The other side is the project's own Tinker server on loopback, with the real SDK as its client.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rltune.rollout.tokens import to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import TrialConfig
from rltune.store.rundir import TrialDir
from rltune.trainer.batches.micro_batches import limit_of
from rltune.trainer.batches.mini_batches import plan_scoring, plan_update
from rltune.trainer.checkpoint import Progress, load_checkpoint, save_checkpoint
from rltune.trainer.collect import collect
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.engines import make_engine
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.start import policy_at_start
from rltune.trainer.tasks import env_maker
from rltune.trainer.train_state import make_train_state, score_batch

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # see `_sdk_garbage`
TOLERANCE = 1e-4  # of a logprob after a step that moves some by more than 0.01
KL = {"use_kl_loss": True, "kl_loss_coef": 0.3}


def config_of(backend, **sections):
    tree = {
        "env": {"kind": "sokoban", "prompt": "compact", "train_tasks": 8},
        "policy": {"model": "tiny", "lora": {"rank": 4, "alpha": 32.0}},
        "rollout": {
            "groups": 2, "group_size": 4, "max_response_tokens": 8, "max_context": 256,
        },
        "advantage": {"kind": "grpo"},
        "optim": {"lr": 1e-3, "mini_batch_size": 4, "epochs": 2},
        "gate": {"tasks": 4, "test_tasks": 0},
        "trainer": {"backend": backend, "timeout_s": 120.0},
    }  # fmt: skip
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return TrialConfig.model_validate(tree)


@pytest.fixture
def state_of(tmp_path, connected):
    """Return a maker of (train state, config) of a backend; sessions end with the test."""
    models = []

    def make(backend, **sections):
        config = config_of(backend, **sections)
        trial = TrialDir(tmp_path / backend).create()
        policy = policy_at_start(trial, config, Path(), device="cpu")
        if backend == "tinker":
            models.append(policy.model)
        return make_train_state(policy, config), config

    yield make
    for model in models:
        model.session.close()


@pytest.fixture(scope="session")
def played():
    """Episodes of the base policy; its groups have a spread of rewards."""
    config = config_of("torch")
    policy = policy_at_start(TrialDir(Path("nowhere")), config, Path(), device="cpu")
    make_env = env_maker(config.env)
    tasks = [make_env().task(seed) for seed in range(config.rollout.groups)]
    engine = TorchEngine(policy.decoder())
    return collect(config, policy, engine, tasks, step=1, make_env=make_env)


def one_step(state, config, episodes):
    """Make the update of a training step; return its metrics and the batch."""
    batch = to_batch(episodes, pad_id=state.policy.pad_id)
    limit = limit_of(state.policy, config)
    scoring = plan_scoring(batch, plan_update(batch, config, step=1, limit=limit), config, limit)
    signals = score_batch(
        state, batch, temperature=1.0, parts=scoring.parts, pending=scoring.pending
    )
    data = MiniBatch(batch, signals, estimate(batch, signals, config.advantage))
    metrics = update(state, data, config, step=1, kl_coef=config.loss.kl_loss_coef)
    return metrics, batch


def scores(state, batch):
    with torch.no_grad():
        model = state.policy.model
        return score_actions(
            model, batch.ids_NT, batch.action_mask_NT, temperature=1.0
        ).tokens.logprobs_M


SLOW = pytest.mark.slow  # one step of torch and one of the service are seconds
CASES = [
    pytest.param({"loss": {"kind": "ppo", "clip_low": 0.01, "clip_high": 0.02}}, id="ppo"),
    pytest.param({"loss": {"kind": "ppo", "dual_clip": 1.01}}, id="dual-clip", marks=SLOW),
    pytest.param({"loss": {"kind": "cispo", "clip_high": 0.01}}, id="cispo", marks=SLOW),
    pytest.param(
        {"loss": {"kind": "gspo", "clip_low": 3e-3, "clip_high": 4e-3}}, id="gspo", marks=SLOW
    ),
    pytest.param({"loss": {"kind": "turn"}}, id="turn", marks=SLOW),
    pytest.param({"loss": {"kind": "reinforce"}}, id="reinforce", marks=SLOW),
    pytest.param({"loss": {**KL, "kl_type": "k2"}}, id="k2"),
    pytest.param({"loss": {**KL, "kl_type": "k3+"}}, id="k3+", marks=SLOW),
    pytest.param({"loss": {**KL, "kl_type": "k1+"}}, id="k1+", marks=SLOW),
    pytest.param(
        {"loss": {"aggregation": "seq-mean-token-mean"}}, id="seq-mean-token-mean", marks=SLOW
    ),
    pytest.param(
        {"loss": {"aggregation": "seq-mean-token-sum-norm", "sum_norm": 20.0}},
        id="sum-norm",
        marks=SLOW,
    ),
    pytest.param({"optim": {"micro_batch_size": 3}}, id="micro-batches"),
    pytest.param(
        {"optim": {"grad_clip": 0.01, "weight_decay": 0.1}}, id="clip-and-decay", marks=SLOW
    ),
    pytest.param({"advantage": {"kind": "reinforce_pp"}}, id="reinforce_pp", marks=SLOW),
]


@pytest.mark.parametrize("sections", CASES)
def test_a_step_of_the_service_is_the_step_of_torch(state_of, played, sections):
    local, config = state_of("torch", **sections)
    remote, remote_config = state_of("tinker", **sections)
    before = scores(local, to_batch(played, pad_id=local.policy.pad_id))
    ours, batch = one_step(local, config, played)
    theirs, _ = one_step(remote, remote_config, played)
    assert (scores(local, batch) - before).abs().max() > 100 * TOLERANCE
    torch.testing.assert_close(scores(remote, batch), scores(local, batch), rtol=0, atol=TOLERANCE)
    assert remote.actor_optimizer.state["adapter"]["step"] == 4  # two mini-batches, two epochs
    assert "actor/entropy" not in theirs  # absent, and not 0
    assert theirs["actor/grad_norm"] > 0
    for name in theirs:
        assert theirs[name] == pytest.approx(ours[name], rel=1e-3, abs=1e-5), name


def test_a_checkpoint_goes_on_as_if_nothing_had_been(state_of, played, tmp_path):
    remote, config = state_of("tinker", optim={"epochs": 1})
    one_step(remote, config, played)
    trial = TrialDir(tmp_path / "saved").create()
    folder = save_checkpoint(trial, remote, Progress(step=1), config_hash="h")
    again, _ = state_of("tinker", optim={"epochs": 1})
    progress = load_checkpoint(folder, again, config_hash="h")
    assert (progress.step, progress.policy_updates) == (1, 2)
    _, batch = one_step(remote, config, played)
    one_step(again, config, played)
    assert torch.equal(scores(again, batch), scores(remote, batch))


def test_the_engine_samples_what_the_trainer_scores(state_of, played):
    remote, config = state_of("tinker", optim={"epochs": 1})
    one_step(remote, config, played)
    engine = make_engine(config, remote.policy)
    make_env = env_maker(config.env)
    tasks = [make_env().task(seed) for seed in range(2)]
    engine.sync()
    episodes = collect(config, remote.policy, engine, tasks, step=2, make_env=make_env)
    assert len({episode.turns[0].sampled_ids for episode in episodes}) > 1
    batch = to_batch(episodes, pad_id=remote.policy.pad_id)
    sampled = batch.rollout_logprobs_NT[batch.action_mask_NT]
    torch.testing.assert_close(scores(remote, batch), sampled, rtol=0, atol=1e-5)


def test_a_mini_batch_without_anything_to_train_on_still_makes_its_step(state_of, played):
    remote, config = state_of("tinker")
    state, _ = state_of("torch")
    for one in (remote, state):
        batch = to_batch(played, pad_id=one.policy.pad_id)
        batch = replace(batch, action_mask_NT=torch.zeros_like(batch.action_mask_NT))
        signals = score_batch(one, batch, temperature=1.0, parts=())
        credit = estimate(batch, signals, config.advantage)
        update(one, MiniBatch(batch, signals, credit), config, step=1, kl_coef=0.0)
    batch = to_batch(played, pad_id=remote.policy.pad_id)
    torch.testing.assert_close(scores(remote, batch), scores(state, batch), rtol=0, atol=1e-5)

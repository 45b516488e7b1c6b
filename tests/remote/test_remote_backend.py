"""Both backends make the same step: with equal weights and AdamW, equal logprobs afterwards.

The other side is the project's own Tinker server on loopback, with the real SDK as its client; or
any server, as `served` says.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from served import MODEL, tie_equal_matrices

from rltune.rollout.tokens import to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import TrialConfig
from rltune.store.rundir import TrialDir
from rltune.trainer.batches.micro_batches import limit_of
from rltune.trainer.batches.mini_batches import plan_scoring, plan_update
from rltune.trainer.checkpoint import Progress, load_checkpoint, save_checkpoint
from rltune.trainer.collect import collect
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.credit.stages import assign_credit
from rltune.trainer.engines import make_engine
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.start import policy_at_start
from rltune.trainer.tasks import env_maker
from rltune.trainer.train_state import make_train_state, score_batch

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # see `_sdk_garbage`
TOLERANCE = 1e-4  # of a logprob after a step that moves some by more than 0.01
BETAS, EPS = (0.9, 0.999), 1e-8  # of AdamW on both sides
KL = {"use_kl_loss": True, "kl_loss_coef": 0.3}


def config_of(backend, **sections):
    tree = {
        "env": {"kind": "sokoban", "prompt": "compact", "train_tasks": 8},
        "policy": {"model": "tiny", "lora": {"rank": 4, "alpha": 32.0}},
        "rollout": {
            "groups": 2, "group_size": 4, "max_response_tokens": 8, "max_context": 256,
        },
        "advantage": {"kind": "grpo"},
        "optim": {"lr": 1e-3, "mini_batch_size": 4, "epochs": 2, "grad_clip": 100.0},
        "gate": {"tasks": 4, "test_tasks": 0},
        "trainer": {"backend": backend, "timeout_s": 120.0},
    }  # fmt: skip
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return TrialConfig.model_validate(tree)


@pytest.fixture
def state_of(tmp_path, service):
    """Return a maker of (train state, config) of a backend; sessions end with the test."""
    models = []

    def make(backend, **sections):
        config = config_of(backend, policy=service.policy(backend), **sections)
        trial = TrialDir(tmp_path / backend).create()
        policy = policy_at_start(trial, config, Path(), device="cpu")
        if backend == "tinker":
            models.append(policy.model)
        else:
            tie_equal_matrices(policy.model)
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
    assigned = assign_credit(
        state.policy, batch, signals, episodes, config, step=1, sepa_lambda=0.5, scale=1.0, ask=None
    )
    data = MiniBatch(batch, signals, assigned.credit)
    metrics = update(state, data, config, step=1, kl_coef=config.loss.kl_loss_coef)
    return metrics | assigned.metrics, batch


def scores(state, batch):
    with torch.no_grad():
        model = state.policy.model
        return score_actions(
            model, batch.ids_NT, batch.action_mask_NT, temperature=1.0
        ).tokens.logprobs_M


SHAPING = {  # SEPA, GTPO and HICRA, where a move up is a plan
    "gtpo_beta": 0.5, "hicra_alpha": 0.3, "sepa": {"schedule": "linear"}, "grams": ["Up"],
}  # fmt: skip
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
    pytest.param(
        {"loss": {**KL, "kl_type": "k2"}, "optim": {"micro_batch_size": 3}},
        id="k2-in-micro-batches",
        marks=SLOW,
    ),
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
    pytest.param({"optim": {"micro_batch_size": 3}}, id="micro-batches", marks=SLOW),
    pytest.param(
        {"optim": {"grad_clip": 0.01, "weight_decay": 0.1}}, id="clip-and-decay", marks=SLOW
    ),
    pytest.param({"advantage": {"kind": "reinforce_pp"}}, id="reinforce_pp", marks=SLOW),
    pytest.param({"advantage": {"shaping": SHAPING}}, id="shaping", marks=SLOW),
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
    assert 0 < theirs.get("planning/token_ratio", 0.5) < 1  # some tokens are a plan, where asked
    for name in theirs:
        assert theirs[name] == pytest.approx(ours[name], rel=1e-3, abs=1e-5), name


@pytest.mark.slow
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


@pytest.mark.slow
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


# What is left between both after a step is the rounding of the gradient, as AdamW takes it: its
# first step moves a weight by lr g / (|g| + eps). Where |g| is near eps, 1e-8, and so as small as
# the rounding of a sum over all tokens, two sums in another order move it differently.


def first_updates(gradients, *, eps):
    weights = torch.zeros(len(gradients), requires_grad=True)
    weights.grad = torch.tensor(gradients)
    torch.optim.AdamW([weights], lr=1.0, eps=eps, weight_decay=0.0).step()
    return -weights.detach()


def test_where_a_gradient_is_as_small_as_eps_its_rounding_is_in_the_update():
    # a tenth of 1e-8 more: 1.1 / 2.1 - 1 / 2 = 0.0238; and of 1e-4: 1 / 1.0001 twice
    one, other = (first_updates([g, 1e4 * g], eps=1e-8) for g in (1e-8, 1.1e-8))
    assert (other - one).tolist() == pytest.approx([0.0238, 1e-5], rel=0.1)
    # beside eps 1e-5 both are small, and so is what they differ in: 1e-9 / 1e-5
    one, other = (first_updates([g], eps=1e-5) for g in (1e-8, 1.1e-8))
    assert (other - one).item() == pytest.approx(1e-4, rel=0.01)


def replayed(gradients, lr):
    """Return the updates of AdamW over steps of gradients, in float64."""
    first = second = torch.zeros_like(gradients[0], dtype=torch.float64)
    updates = []
    for step, gradient in enumerate(gradients, start=1):
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient.double()
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient.double() ** 2
        mean, spread = first / (1 - BETAS[0] ** step), second / (1 - BETAS[1] ** step)
        updates.append(-lr * mean / (spread.sqrt() + EPS))
    return torch.stack(updates)


@pytest.fixture
def recorded(monkeypatch):
    """Return, for each AdamW that makes steps, its gradients and its updates."""
    steps = {}
    make_step = torch.optim.AdamW.step

    def flat(tensors):
        return torch.cat([tensor.detach().flatten() for tensor in tensors])

    def step(self, *args, **kwargs):
        weights = [weight for group in self.param_groups for weight in group["params"]]
        gradient, before = flat([weight.grad for weight in weights]), flat(weights)
        made = make_step(self, *args, **kwargs)
        steps.setdefault(id(self), []).append((gradient, flat(weights) - before))
        return made

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    return steps


@pytest.mark.slow
@pytest.mark.skipif(bool(MODEL), reason="the optimiser of another service is not here")
def test_both_sides_are_adamw_of_gradients_that_differ_by_rounding(state_of, played, recorded):
    lr = 3e-3  # at which it shows
    sections = {
        "loss": {"aggregation": "seq-mean-token-sum-norm", "sum_norm": 20.0},
        "optim": {"lr": lr, "weight_decay": 0.0},
    }
    for backend in ("torch", "tinker"):
        state, config = state_of(backend, **sections)
        one_step(state, config, played)
    sides = [tuple(map(torch.stack, zip(*steps, strict=True))) for steps in recorded.values()]
    for gradients, updates in sides:  # no step has anything else in it
        want = replayed(gradients, lr)
        torch.testing.assert_close(updates.double(), want, rtol=0, atol=1e-5 * lr)
    (here, moved_here), (there, moved_there) = sides
    assert len(here) == 4
    for step in (0, 1):  # later ones have the differences of weights in them
        rounding = 1e-5 * here[step].abs().max()
        torch.testing.assert_close(there[step], here[step], rtol=0, atol=rounding.item())
        differs = (moved_there[step] - moved_here[step]).abs() > 1e-3 * lr
        assert differs.sum() < 1e-3 * len(differs)
        assert (here[step][differs].abs() < 100 * EPS).all()

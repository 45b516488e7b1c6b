"""A trial from start to end: what it records, empty steps (B8), stale engines, tasks (A2 kind)."""

import copy
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from rltune.errors import DivergedError, StaleEngineError
from rltune.policy.load import weights_digest
from rltune.rollout.torch_engine import TorchEngine
from rltune.store.jsonl import read_jsonl
from rltune.trainer.collect import tasks_of_step
from rltune.trainer.sync_check import check_sync, probe_prompt
from rltune.trainer.train_state import TrainState, actor_logprobs
from rltune.types import TrialStatus

STATS = ("mean", "max", "min")
NOTHING = {"rollout_filter": {"include_zero": False}, "optim__weight_decay": 0.0}
TWO_STEPS = {"budget__steps": 2, "gate__every": 2}
EVERY_STEP = {
    *("actor/pg_loss", "actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/ppo_kl"),
    *("actor/entropy", "actor/grad_norm", "actor/lr", "perf/max_rss_gb"),
    "perf/padding_share",
    *(
        f"critic/{what}/{stat}"
        for what in ("score", "advantages")
        for stat in ("mean", "max", "min")
    ),
    *(f"response_length/{stat}" for stat in ("mean", "max", "min", "clip_ratio")),
    *("rollout/success_rate", "rollout/reward_mean", "rollout/in_group_reward_std"),
    *("rollout/filter_kept_ratio", "rollout/filter_zero_count", "rollout/invalid_action_rate"),
    *(
        "rollout/over_limit_actions",
        "rollout/context_clip_ratio",
        "rollout/out_of_context_ratio",
        "rollout/turns",
        "rollout/task_hash",
        "rollout/task_digests",
        "rollout/sampled_hash",
        "rollout/empty_after_filter",
        "rollout/fault_count",
        "rollout/ups",
    ),
    *(f"rollout_corr/{name}" for name in ("logprob_diff_max", "kl", "k3_kl", "ppl_ratio")),
    *(f"rollout_corr/{name}" for name in ("chi2_token", "chi2_seq", "log_ppl_abs_diff")),
    *(f"rollout_corr/log_ppl_diff{stat}" for stat in ("", "_max", "_min")),
    *(
        f"rollout_corr/{who}_{what}"
        for who in ("training", "rollout")
        for what in ("ppl", "log_ppl")
    ),
    *("timing_s/collect", "timing_s/score", "timing_s/credit", "timing_s/update", "timing_s/sync"),
    *("timing_s/checkpoint", "perf/tokens_per_s"),
    *("budget/rollouts", "budget/generated_tokens", "budget/optimizer_steps"),
    *("budget/policy_updates", "budget/critic_updates"),
}
WITH_CRITIC = {
    *("critic/vf_loss", "critic/vf_clipfrac", "critic/vf_explained_var", "critic/grad_norm"),
    *(f"critic/{what}/{stat}" for what in ("returns", "values") for stat in STATS),
}
GATE = {"heldout/success_rate", "heldout/reward_mean", "heldout/turns"}
GATE |= {"heldout/invalid_action_rate", "heldout/fault_count", "heldout/ups", "timing_s/eval"}
GATE |= {f"heldout/{cut}" for cut in ("clip_ratio", "context_clip_ratio", "out_of_context_ratio")}
GATE |= {f"heldout/failure/{name}" for name in ("wrong", "lost", "unfinished", "malformed")}


@pytest.fixture(scope="module")
def of_equal_rewards(tmp_path_factory, make_trial_in):
    """Return a trial of equal rewards, of which the filter keeps no group, and its result."""
    trial = make_trial_in(tmp_path_factory.mktemp("equal"), is_constant=True, **NOTHING)
    return trial, trial.run()


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        pytest.param({}, set(), id="grpo"),
        pytest.param({"advantage": {"kind": "gae"}}, WITH_CRITIC, id="gae"),
        pytest.param(
            {"loss__use_kl_loss": True, "loss__kl_loss_coef": 0.1, "loss__kl_type": "full"},
            {"actor/kl_loss", "actor/kl_coef"},
            id="kl",
        ),
    ],
)
def test_what_is_recorded(make_trial, plain, changes, more):
    trial, result = plain
    if changes:
        trial = make_trial(**changes)
        result = trial.run()
    names = {row["step"]: set(row) - {"step", "time"} for row in trial.rows}
    assert sorted(names) == [0, 1, 2, 3, 4]
    assert names[0] == GATE | {"timing_s/sync", "timing_s/checkpoint", "perf/max_rss_gb"}
    assert names[1] == names[3] == EVERY_STEP | more
    assert names[2] == names[4] == EVERY_STEP | more | GATE
    last = trial.rows[-1]
    assert last["budget/rollouts"] == result.budget["rollouts"] == 4 * 8
    assert last["budget/optimizer_steps"] == result.budget["optimizer_steps"] == 4 * 2
    episodes = read_jsonl(trial.folder.episodes).rows
    assert len(episodes) == 4 * 8
    names = {"group", "kept", "member", "reward", "step", "success"}
    names |= {"task_id", "task_seed", "truncated", "turns", "failure_class", "auxiliary", "fault"}
    names |= {"noise_seed"}
    assert all(set(row) == names for row in episodes)
    turns = [turn for row in episodes for turn in row["turns"]]
    names = {"response", "actions", "reward", "is_valid", "n_invalid", "n_over_limit", "fault"}
    assert all(set(turn) == names for turn in turns)
    assert {(turn["is_valid"], turn["n_invalid"]) for turn in turns} == {(True, 0), (False, 1)}
    assert all(turn["n_over_limit"] == turn["response"].count("Left") for turn in turns)
    assert any(turn["n_over_limit"] for turn in turns)
    heldout = read_jsonl(trial.folder.heldout).rows
    assert [(row["step"], row["n"], row["temperature"], row["do_sample"]) for row in heldout] == [
        (step, 5, 1.0, True) for step in (0, 2, 4)
    ]
    for row in heldout:
        ups, failed = row["auxiliary"]["ups"], row["failure_class"]
        assert (len(ups), len(failed), row["fault"]) == (5, 5, [""] * 5)
        assert [name == "none" for name in failed] == [bool(won) for won in row["success"]]
    assert len({row["tasks_sha256"] for row in heldout}) == 1
    assert trial.folder.read_done() == result
    assert result.status is TrialStatus.DONE
    rates = [row["rollout/success_rate"] for row in trial.rows[1:]]
    assert result.pool_metric == pytest.approx(sum(rates) / 4)


def test_the_record_says_whether_a_gate_was_sampled(make_trial):
    """Case E4: greedy or sampled is in the record, not hidden in code."""
    trial = make_trial(gate__temperature=0.0, budget__steps=1, gate__every=1)
    trial.run()
    for row in read_jsonl(trial.folder.heldout).rows:
        assert (row["temperature"], row["do_sample"], row["n"]) == (0.0, False, 5)


def test_a_healthy_trial_says_a_line_at_the_start_and_one_a_gate(plain, make_manifest):
    trial, _ = plain
    start, *gates = trial.lines
    digests = trial.policy.weights_sha256[:12], make_manifest().sha256[:12]
    assert start == "policy {}, tasks {}, from the start".format(*digests)
    rows = {row["step"]: row for row in trial.rows}
    metric = "heldout/reward_mean"
    assert gates == [
        f"step 0: {metric} {rows[0][metric]:.4g}",
        *(
            f"step {s}: {metric} {rows[s][metric]:.4g}, {rows[s]['perf/tokens_per_s']:.0f} tokens/s"
            for s in (2, 4)
        ),
    ]


@pytest.mark.parametrize("kind", ["grpo", "gae"])
def test_training_earns_more(make_trial, kind):
    """The env pays for Up; a policy that starts at random finds out."""
    trial = make_trial(
        advantage={"kind": kind},
        budget__steps=8,
        gate__every=8,
        rollout__group_size=8,
        optim__mini_batch_size=16,
        optim__micro_batch_size=16,
        optim__lr=1e-2,
    )
    result = trial.run()
    assert result.final_metric > result.base_metric + 0.5


def test_when_no_group_is_left_the_step_is_skipped_and_counted(of_equal_rewards):
    trial, result = of_equal_rewards
    assert result.status is TrialStatus.DONE  # four empty steps; five would end it early
    assert result.budget["optimizer_steps"] == 0
    assert result.budget["rollouts"] == 32
    assert [row["rollout/empty_after_filter"] for row in trial.rows[1:]] == [1.0] * 4
    assert [row["rollout/filter_zero_count"] for row in trial.rows[1:]] == [2.0] * 4
    assert weights_digest(trial.policy.model) == trial.policy.weights_sha256
    assert trial.checkpoints == [0, 2, 4]
    assert not any(row["kept"] for row in read_jsonl(trial.folder.episodes).rows)


@pytest.mark.parametrize("kind", ["grpo", "gae"])
def test_when_all_groups_are_masked_the_steps_are_made(make_trial, kind):
    filter_ = {"include_zero": False, "on_drop": "mask"}
    trial = make_trial(
        is_constant=True,
        **{**NOTHING, "rollout_filter": filter_},
        advantage={"kind": kind},
        **TWO_STEPS,
    )
    result = trial.run()
    assert result.budget["optimizer_steps"] == 4  # as many as without a filter
    assert [row["rollout/empty_after_filter"] for row in trial.rows[1:]] == [1.0] * 2
    assert [row["actor/grad_norm"] for row in trial.rows[1:]] == [0.0] * 2
    assert weights_digest(trial.policy.model) == trial.policy.weights_sha256


def counted(trial, name):
    return [row[f"budget/{name}"] for row in trial.rows[1:]]


def test_updates_of_the_policy_and_of_the_critic_are_counted_apart(make_trial):
    """Two mini-batches a step; the policy stands still in the first of two steps."""
    trial = make_trial(advantage={"kind": "gae"}, critic__warmup_steps=1, **TWO_STEPS)
    result = trial.run()
    assert counted(trial, "optimizer_steps") == [2, 4]
    assert counted(trial, "policy_updates") == [0, 2]
    assert counted(trial, "critic_updates") == [2, 4]
    assert (result.budget["policy_updates"], result.budget["critic_updates"]) == (2, 4)


def test_without_a_critic_every_mini_batch_updates_the_policy(make_trial):
    trial = make_trial(critic__warmup_steps=3, **TWO_STEPS)
    trial.run()
    assert counted(trial, "policy_updates") == counted(trial, "optimizer_steps") == [2, 4]
    assert counted(trial, "critic_updates") == [0, 0]


@pytest.mark.parametrize("kind", ["grpo", "gae"])
@pytest.mark.parametrize("on_drop", ["mask", "drop"])
def test_mask_keeps_the_number_of_optimiser_steps(make_trial, kind, on_drop):
    trial = make_trial(
        rollout_filter={"strategy": "top_k", "value": 0.5, "on_drop": on_drop},
        advantage={"kind": kind},
        **TWO_STEPS,
    )
    result = trial.run()
    assert [row["rollout/filter_kept_ratio"] for row in trial.rows[1:]] == [0.5] * 2
    made = {"mask": 4, "drop": 2}[on_drop]
    assert result.budget["optimizer_steps"] == result.budget["policy_updates"] == made


def test_equal_rewards_teach_nothing_without_a_filter(make_trial):
    trial = make_trial(is_constant=True, optim__weight_decay=0.0, **TWO_STEPS)
    result = trial.run()
    assert result.budget["optimizer_steps"] == 4
    assert [row["actor/grad_norm"] for row in trial.rows[1:]] == [0.0] * 2
    assert weights_digest(trial.policy.model) == trial.policy.weights_sha256


def test_tasks_and_first_rollouts_are_those_of_the_seed_whatever_learns_from_them(make_trial):
    """A2: equal tasks, and equal luck before any update; others after it or of another seed."""
    base = {**TWO_STEPS, "optim__lr": 0.05}
    trials = [
        make_trial("a", **base),
        make_trial("b", **base, advantage={"kind": "gae"}, loss__entropy_coeff=0.1),
        make_trial("c", **base, rollout_filter={"strategy": "top_k", "value": 0.5}),
        make_trial("d", **base, rollout__temperature=2.0),
        make_trial("e", **base, seed=1),
    ]
    tasks, digests = [], []
    for trial in trials:
        trial.run()
        tasks.append([row["rollout/task_hash"] for row in trial.rows[1:]])
        digests.append([row["rollout/sampled_hash"] for row in trial.rows[1:]])
    assert tasks[0] == tasks[1] == tasks[2] == tasks[3] != tasks[4]
    assert len(set(tasks[0])) == 2
    firsts = [own[0] for own in digests]
    assert firsts[0] == firsts[1] == firsts[2]
    assert len({firsts[0], firsts[3], firsts[4]}) == 3
    assert len({own[1] for own in digests}) == len(trials)


def test_steps_of_another_size_draw_the_same_stream(make_trial):
    """A2 for a group-size axis: task by task, the smaller steps are behind."""
    few = make_trial("few", **TWO_STEPS, rollout__groups=2, rollout__group_size=4)
    many = make_trial("many", **TWO_STEPS, rollout__groups=4, rollout__group_size=2)
    streams = []
    for trial in (few, many):
        trial.run()
        rows = [row["rollout/task_digests"].split() for row in trial.rows[1:]]
        streams.append([task for row in rows for task in row])
    assert (len(streams[0]), len(streams[1])) == (4, 8)
    assert streams[1][:4] == streams[0]


def test_tasks_go_through_the_split_once_an_epoch(make_manifest):
    train = make_manifest(train=12).train
    steps = [tasks_of_step(train, seed=0, step=step, groups=5) for step in range(1, 13)]
    drawn = [task.task_id for tasks in steps for task in tasks]  # 60 = 5 epochs of 12
    epochs = [drawn[start : start + 12] for start in range(0, 60, 12)]
    assert all(sorted(epoch) == sorted(t.task_id for t in train) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5
    assert tasks_of_step(train, seed=0, step=7, groups=5) == steps[6]
    assert tasks_of_step(train, seed=1, step=7, groups=5) != steps[6]


def test_groups_are_told_apart_by_place(small_policy, make_config, sample_batch, up_env):
    """B4: seeds 0 and 10 show the same text; they stay two groups."""
    env = up_env()
    assert env.reset(seed=0) == env.reset(seed=10)
    episodes, batch = sample_batch(make_config(), small_policy(), seeds=[0, 10])
    assert batch.group_N.tolist() == [0] * 4 + [1] * 4
    assert Counter(e.task_seed for e in episodes) == {0: 4, 10: 4}
    assert len({e.turns[0].sampled_ids for e in episodes}) > 2  # members sample apart


def stale(policy):
    return TorchEngine(copy.deepcopy(policy).decoder())


def test_an_engine_with_older_weights_is_refused(make_trial):
    trial = make_trial(optim__lr=1e-2)
    with pytest.raises(
        StaleEngineError,
        match=r"^after sync the rollout engine's logprobs differ from the trainer's by [\d.e-]+ "
        r"\(allowed 0\.001 in torch\.float32\): it serves other weights\. Restart the trial",
    ):
        trial.run(make_engine=stale)
    assert trial.last_step == 0  # noticed before the first step's record was written


class Snapshot:
    """Serves the weights of its last sync, as an engine in another process does."""

    def __init__(self, policy):
        self._policy = policy

    def sync(self):
        self._engine = stale(self._policy)

    def release(self):
        self._engine.release()

    def generate(self, requests, params):
        return self._engine.generate(requests, params)


def test_an_engine_with_its_own_weights_is_synced_before_it_is_used(make_trial, plain):
    _, want = plain
    assert make_trial().run(make_engine=Snapshot).metrics_sha256 == want.metrics_sha256


def test_an_engine_that_keeps_old_prefixes_is_refused(make_trial):
    class Forgetless(TorchEngine):
        def sync(self):
            pass

    trial = make_trial(optim__lr=1e-2)
    with pytest.raises(StaleEngineError):
        # Asked again for the same probe, it would answer from what it computed before.
        trial.run(make_engine=lambda policy: Remembering(Forgetless(policy.decoder())))


class Remembering:
    """Answers a request that it has seen with what it said then."""

    def __init__(self, engine):
        self._engine, self._answers = engine, {}

    def generate(self, requests, params):
        for request in requests:
            key = tuple(request.prompt_ids), request.seed
            if key not in self._answers:
                (self._answers[key],) = self._engine.generate([request], params)
        return [self._answers[tuple(r.prompt_ids), r.seed] for r in requests]

    def sync(self):
        pass

    def release(self):
        pass


def by(policy):
    state = TrainState(policy, None, None, None, None)
    return partial(actor_logprobs, state, temperature=1.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_honest_engine_is_proven(small_policy, up_env, dtype):
    policy = small_policy(dtype=dtype)
    gap = check_sync(
        TorchEngine(policy.decoder()),
        policy,
        probe_prompt(policy, up_env().task(0), up_env()),
        score=by(policy),
    )
    assert gap < (1e-4 if dtype == "float32" else 0.3)


def test_weights_that_are_not_finite_are_divergence_not_staleness(small_policy, up_env):
    policy = small_policy()
    engine = TorchEngine(policy.decoder())
    with torch.no_grad():
        next(policy.model.parameters()).fill_(torch.nan)
    engine.sync()
    with pytest.raises(DivergedError, match="logprobs are not finite"):
        check_sync(
            engine, policy, probe_prompt(policy, up_env().task(0), up_env()), score=by(policy)
        )


def test_what_is_drawn_from_no_distribution_is_divergence(small_policy, make_config, sample_batch):
    policy = small_policy()
    with torch.no_grad():
        next(policy.model.parameters()).fill_(torch.nan)
    with pytest.raises(DivergedError, match=r"^task 'up-0', turn 0: .* not finite\. .*optim\.lr"):
        sample_batch(make_config(), policy)


def test_a_gradient_without_an_end_ends_as_diverged(make_trial):
    trial = make_trial(loss__entropy_coeff=1e30)  # its square is more than a float32 holds
    with pytest.raises(DivergedError, match="actor/grad_norm is inf"):
        trial.run()
    assert trial.checkpoints == [0]
    assert trial.folder.read_done() is None


def test_gates_of_one_trial_share_their_luck(of_equal_rewards):
    """An unchanged policy scores the same at every gate."""
    trial, _ = of_equal_rewards
    rows = read_jsonl(trial.folder.heldout).rows
    assert len(rows) == 3
    assert len({(tuple(row["success"]), tuple(row["reward"])) for row in rows}) == 1


def test_greedy_gate(make_trial):
    trial = make_trial(gate__temperature=0.0, budget__steps=1)
    trial.run()
    other = make_trial("other", gate__temperature=0.0, budget__steps=1, seed=1)
    other.run()
    first = [read_jsonl(t.folder.heldout).rows[0]["reward"] for t in (trial, other)]
    assert first[0] == first[1]
    assert np.isfinite(first[0]).all()

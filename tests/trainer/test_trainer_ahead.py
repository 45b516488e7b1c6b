"""`rollout.ahead: 1`: the rollouts of a step are a step old, whatever interrupts the trial."""

import json
import math
import os
import signal
import threading
from functools import partial

import pytest
import torch
from copy_engine import copy_engine

from rltune.errors import EngineDiedError, InterruptedRun
from rltune.store.digest import deterministic_row
from rltune.track.base import Tracker
from rltune.trainer.ahead.rollouts import FILE, as_restored, dump_rollouts, parse_rollouts
from rltune.trainer.ahead.sampler import Sampler
from rltune.trainer.collect import collect, sampled_digest, tasks_of_step
from rltune.trainer.engines import make_engine
from rltune.trainer.stopwatch import Stopwatch
from rltune.types import Episode, StopReason, Turn
from rltune_envs.base import GoldResponse

AHEAD = {
    "rollout__ahead": 1,
    "rollout_correction": {"kind": "tis"},
    "resources__engine": "own",
    "budget__steps": 5,
    "checkpoint__every": 2,
    "gate__every": 3,
    "rollout__max_response_tokens": 3,
    "optim__lr": 1e-2,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make_trial_in):
    trial = make_trial_in(tmp_path_factory.mktemp("whole"), **AHEAD)
    return trial, trial.run(make_engine=copy_engine)


def facts(trial):
    return [deterministic_row(row) for row in trial.rows]


def assert_same(trial, whole):
    assert facts(trial) == facts(whole)
    assert trial.folder.episodes.read_bytes() == whole.folder.episodes.read_bytes()
    assert trial.folder.heldout.read_bytes() == whole.folder.heldout.read_bytes()


def test_each_step_says_how_old_its_rollouts_are(whole):
    rows = whole[0].rows
    assert [row.get("rollout/staleness") for row in rows] == [None, 0, 1, 1, 1, 1]
    assert ["perf/ahead_s" in row for row in rows] == [False, True, True, True, True, False]
    assert all(row["timing_s/collect"] >= 0 for row in rows[1:])


class Watching(Tracker):
    """A tracker that samples what the policy of now would sample for the step after the next."""

    def __init__(self, sample):
        self.seen, self._sample = {}, sample

    def log(self, step, metrics):
        self.seen[step + 2] = self._sample(step + 2)


def test_a_step_learns_from_what_the_policy_of_the_step_before_sampled(
    make_trial, make_manifest, up_env, whole
):
    """The policy after step 2 begins step 3 and samples for step 4."""
    trial = make_trial(**AHEAD)

    def sample(step):
        tasks = tasks_of_step(make_manifest().train, seed=0, step=step, groups=2)
        engine = copy_engine(trial.policy)
        played = collect(trial.config, trial.policy, engine, tasks, step=step, make_env=up_env)
        return sampled_digest(played)

    watcher = Watching(sample)
    trial.run(make_engine=copy_engine, watcher=watcher)
    assert_same(trial, whole[0])
    seen = watcher.seen
    recorded = {row["step"]: row["rollout/sampled_hash"] for row in trial.rows[1:]}
    assert {step: seen[step] for step in (2, 3, 4, 5)} == {s: recorded[s] for s in (2, 3, 4, 5)}
    assert len(set(recorded.values())) == 5


def test_the_correction_weighs_what_a_step_moved(whole):
    """The first batch is new: engine and trainer agree; later ones are a step apart."""
    gaps = [row["rollout_corr/logprob_diff_max"] for row in whole[0].rows[1:]]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 1e-3
    stds = [row["rollout_corr/rollout_is_std"] for row in whole[0].rows[1:]]
    assert stds[0] < 1e-5 < min(stds[1:])


def test_on_policy_it_is_another_trial(make_trial, whole):
    """Step 1 is the same, and step 2 samples with the newest weights."""
    trial = make_trial(**{**AHEAD, "rollout__ahead": 0})
    trial.run(make_engine=copy_engine)
    ours, theirs = ([row["rollout/sampled_hash"] for row in t.rows[1:]] for t in (whole[0], trial))
    assert ours[0] == theirs[0]
    assert ours[1] != theirs[1]
    assert not any("rollout/staleness" in row for row in trial.rows)
    assert not list(trial.folder.checkpoints.glob(f"*/{FILE}"))


def test_no_number_depends_on_where_the_engine_is(make_trial):
    """`ahead: 0` over a copy of the weights is the trial over the weights themselves."""
    settings = {**AHEAD, "rollout__ahead": 0, "budget__steps": 2}
    own, shared = make_trial("own", **settings), make_trial("shared", **settings)
    own.run(make_engine=copy_engine)
    shared.run()
    assert_same(own, shared)


@pytest.mark.parametrize("stop_at", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_stopped_and_resumed_is_bit_equal(make_trial, whole, stop_at):
    trial = make_trial(**AHEAD)
    with pytest.raises(InterruptedRun):
        trial.run(make_engine=copy_engine, stop_at=stop_at)
    kept = trial.folder.checkpoint(stop_at - 1) / FILE
    assert json.loads(kept.read_text())["step"] == stop_at
    trial.run(make_engine=copy_engine)
    assert_same(trial, whole[0])


@pytest.mark.parametrize("die_at", [pytest.param(1, marks=pytest.mark.slow), 3, 4])
def test_killed_and_resumed_is_bit_equal(make_trial, whole, killed, die_at):
    trial = make_trial(**AHEAD)
    with pytest.raises(killed):
        trial.run(make_engine=copy_engine, die_at=die_at)
    trial.run(make_engine=copy_engine)
    assert_same(trial, whole[0])


def test_adapters(make_trial):
    changes = {**AHEAD, "policy__lora__rank": 2, "budget__steps": 3}
    make_copy = partial(copy_engine, rank=2)
    first, second = make_trial("first", **changes), make_trial("second", **changes)
    first.run(make_engine=make_copy)
    with pytest.raises(InterruptedRun):
        second.run(make_engine=make_copy, stop_at=3)
    second.run(make_engine=make_copy)
    assert_same(second, first)


def test_a_batch_that_was_changed_is_a_torn_checkpoint(make_trial, whole):
    trial = make_trial(**AHEAD)
    with pytest.raises(InterruptedRun):
        trial.run(make_engine=copy_engine, stop_at=4)
    path = trial.folder.checkpoint(3) / FILE
    path.write_text(path.read_text().replace('"member": 1', '"member": 2', 1))
    trial.run(make_engine=copy_engine)
    assert any(f"{FILE} was changed" in warning for warning in trial.warnings)
    assert_same(trial, whole[0])


class Dying:
    """An engine that dies while it samples ahead for step 3."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, requests, params):
        name = threading.current_thread().name
        if name == "rollouts of step 3":
            raise EngineDiedError(f"it ended in {name}")
        return self._engine.generate(requests, params)


def test_a_failure_while_it_samples_ahead_ends_the_trial_by_name(make_trial, whole):
    trial = make_trial(**AHEAD)
    with pytest.raises(EngineDiedError, match=r"^it ended in rollouts of step 3$"):
        trial.run(make_engine=lambda policy: Dying(copy_engine(policy)))
    assert trial.last_step == 1
    trial.run(make_engine=copy_engine)
    assert_same(trial, whole[0])


def episodes(*rewards):
    return [Episode("t", 1, 0, n, (), True, False, False, r) for n, r in enumerate(rewards)]


def make_sampler(sample, *, ahead=1, steps=3, watch=None, give_up=lambda: None):
    return Sampler(sample, ahead=ahead, steps=steps, watch=watch or Stopwatch(), give_up=give_up)


def test_nothing_is_sampled_beyond_the_last_step():
    asked = []
    sampler = make_sampler(lambda step: asked.append(step) or episodes(step))
    for step in (1, 2, 3):
        taken = sampler.take(step)
        with sampler.beside(step):
            pass
        assert (taken.step, taken.staleness) == (step, min(1, step - 1))
    assert asked == [1, 2, 3]
    assert sampler.next is None


def test_training_and_sampling_are_under_way_at_once():
    trained, sampled = threading.Event(), threading.Event()

    def sample(step):
        sampled.set()
        assert trained.wait(60)  # ends while the block runs, or never
        return []

    sampler = make_sampler(sample)
    with sampler.beside(1):
        assert sampled.wait(60)
        trained.set()
    assert sampler.next.step == 2


class Interrupting(Stopwatch):
    """Ctrl-C while a step waits for what is sampled."""

    def timed(self, name):
        raise KeyboardInterrupt


def failing():
    raise ValueError("first")


@pytest.mark.parametrize(
    ("learn", "watch", "error"),
    [(failing, Stopwatch, ValueError), (int, Interrupting, KeyboardInterrupt)],
)
def test_sampling_is_given_up_where_nobody_will_learn_from_it(learn, watch, error):
    given_up = threading.Event()

    def sample(step):
        assert given_up.wait(60)
        raise EngineDiedError("too late to matter")

    sampler = make_sampler(sample, watch=watch(), give_up=given_up.set)
    with pytest.raises(error), sampler.beside(1):
        learn()
    assert given_up.is_set()
    assert sampler.next is None
    assert not [t for t in threading.enumerate() if t.name.startswith("rollouts")]


def test_rollouts_of_another_step_are_not_taken():
    sampler = make_sampler(lambda step: episodes(step))
    with sampler.beside(1):
        pass
    assert sampler.take(3).episodes[0].reward == 3
    assert sampler.next is None


def test_rollouts_go_through_their_file_bit_by_bit():
    turn = Turn(
        prompt_ids=(1, 2),
        sampled_ids=(3,),
        logprobs=(float(torch.tensor(-0.1)),),
        stop_reason=StopReason.CONTEXT_CUT,
        observation="a √\nb",
        response="<answer>",
        actions=("Up",),
        reward=1 / 3,
        is_valid=True,
        n_invalid=0,
        n_over_limit=0,
        gold=GoldResponse("<answer>", ("Up", "Down"), "</answer>"),
    )
    episode = Episode("t", 1, 0, 1, (turn,), False, True, False, -0.0, auxiliary={"em": math.nan})
    made = as_restored(4, 2, [episode], seconds=1.5)
    again = parse_rollouts(dump_rollouts(made))
    assert (made.step, made.weights_step, made.staleness, made.seconds) == (4, 2, 1, 1.5)
    (back,) = again.episodes
    assert back.turns == (turn,)
    assert isinstance(back.turns[0].stop_reason, StopReason)
    assert math.copysign(1, back.reward) == -1
    assert math.isnan(back.auxiliary["em"])


def test_a_whole_number_is_the_same_before_and_after_an_interruption():
    """An environment may return 1 where 1.0 is meant; a file of records shows which."""
    made = as_restored(2, 0, episodes(1), seconds=0.0)
    assert dump_rollouts(parse_rollouts(dump_rollouts(made))) == dump_rollouts(made)
    assert repr(made.episodes[0].reward) == "1.0"


class Killing(Tracker):
    """A tracker that kills the engine's process when a step is recorded."""

    def __init__(self, engines, at):
        self._engines, self._at = engines, at

    def log(self, step, metrics):
        if step == self._at:
            os.kill(self._engines[-1].pid, signal.SIGKILL)


@pytest.mark.slow
def test_with_an_engine_in_a_process_and_after_its_death_it_is_the_same_trial(make_trial, whole):
    trial, engines = make_trial(**AHEAD), []

    def own(policy):
        engines.append(make_engine(trial.config, policy))
        return engines[-1]

    try:
        with pytest.raises(EngineDiedError, match="ended by signal 9"):
            trial.run(make_engine=own, watcher=Killing(engines, at=3))
        assert trial.last_step == 3
        trial.run(make_engine=own)
    finally:
        for engine in engines:
            engine.close()
    assert_same(trial, whole[0])

"""The final test over trials of a second; by hand where a number is claimed."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

from rltune.errors import StoreError, TrialError
from rltune.gate import wilson_interval
from rltune.maths.streams import stream_seed
from rltune.policy.load import weights_digest
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.sweep import Metric
from rltune.store.jsonl import append_jsonl
from rltune.store.rundir import TrialDir
from rltune.track.jsonl import JsonlTracker
from rltune.trainer.checkpoint import load_checkpoint
from rltune.trainer.final_test import (
    TestJob,
    checkpoint_step,
    read_manifest,
    read_record,
    record_path,
    run_final_test,
)
from rltune.trainer.heldout import task_digest
from rltune.trainer.job import Job
from rltune.trainer.loop import train
from rltune.trainer.train_state import make_train_state
from rltune_envs.bounds import Floor, FloorKind
from rltune_envs.splits import Manifest

HASH = "c" * 64
TEST_SEEDS = tuple(range(1000, 1006))


class Touched(Exception):
    """A test task was played."""


@pytest.fixture
def with_test(make_manifest, up_env):
    tasks = tuple(up_env().task(seed) for seed in TEST_SEEDS)
    return replace(
        make_manifest(), test=tasks, test_floor=Floor(FloorKind.EXACT, 0.25), test_ceiling=0.75
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory, make_trial_in):
    """A finished trial of two steps, with a gate after each."""
    changes = {"gate__every": 1, "checkpoint__every": 1, "checkpoint__keep_last": 9}
    trial = make_trial_in(tmp_path_factory.mktemp("ended"), budget__steps=2, **changes)
    trial.run()
    return trial


@pytest.fixture
def trained(ended, tmp_path):
    """A copy of that one."""
    folder = shutil.copytree(ended.folder.path, tmp_path / "trained", symlinks=True)
    return replace(ended, folder=TrialDir(folder))


@pytest.fixture
def make_job(trained, with_test, small_policy, up_env):
    def make(*, is_faulty=lambda seed: False, manifest=with_test, **changes):
        job = TestJob(
            trial=trained.folder,
            config=trained.config,
            config_hash=HASH,
            manifest=manifest,
            make_env=lambda: up_env(is_faulty=is_faulty),
            policy=small_policy(),
            make_engine=lambda policy: TorchEngine(policy.decoder()),
        )
        return replace(job, **changes)

    return make


def test_training_never_plays_a_test_task(make_trial, with_test, small_policy, up_env):
    class Guarded(up_env):
        def reset(self, *, seed):
            if seed in TEST_SEEDS:
                raise Touched(seed)
            return super().reset(seed=seed)

        def task(self, seed):
            if seed in TEST_SEEDS:
                raise Touched(seed)
            return super().task(seed)

    trial = make_trial(budget__steps=2)
    policy = small_policy()
    job = Job(
        config=trial.config,
        config_hash=HASH,
        trial=trial.folder,
        manifest=with_test,
        make_env=Guarded,
        policy=policy,
        engine=TorchEngine(policy.decoder()),
        tracker=JsonlTracker(partial(append_jsonl, trial.folder.metrics)),
        metric=Metric(name="heldout/reward_mean"),
        should_stop=lambda: False,
        warn=lambda line: None,  # an untrained policy is cut at its limit, and says so
        say=lambda line: None,
    )
    assert train(job).final_step == 2
    assert not record_path(trial.folder).exists()
    test = TestJob(
        trial=trial.folder,
        config=trial.config,
        config_hash=HASH,
        manifest=with_test,
        make_env=Guarded,
        policy=small_policy(),
        make_engine=lambda made: TorchEngine(made.decoder()),
    )
    with pytest.raises(Touched):  # and the guard does guard
        run_final_test(test)


def test_the_record_is_what_the_checkpoint_plays(make_job, trained, with_test, small_policy):
    job = make_job(code={"commit": "abc"})
    record = run_final_test(job, which="2")
    policy = small_policy()
    load_checkpoint(
        trained.folder.checkpoint(2), make_train_state(policy, trained.config), config_hash=HASH
    )
    slots = [
        Slot(task, i, 0, stream_seed(trained.config.seed, "test", i))
        for i, task in enumerate(with_test.test)
    ]
    episodes = play(
        slots,
        make_env=job.make_env,
        renderer=policy.renderer,
        engine=TorchEngine(policy.decoder()),
        params=SamplingParams(1.0, 4, 120),  # gate.temperature, and the limits of rollout
    )
    solved = sum(episode.success for episode in episodes)
    assert record["success"] == [int(episode.success) for episode in episodes]
    assert (record["n"], record["successes"], record["success_rate"]) == (6, solved, solved / 6)
    assert record["interval"] == wilson_interval(solved, 6)
    floor = {"kind": "exact", "rate": 0.25, "successes": None, "n": None}
    assert (record["floor"], record["ceiling"]) == (floor, 0.75)
    assert (record["temperature"], record["do_sample"]) == (1.0, True)
    assert record["tasks_sha256"] == task_digest(with_test.test)
    assert record["manifest_sha256"] == with_test.sha256
    assert record["tasks"] == [task.task_id for task in with_test.test]
    ups = [episode.auxiliary.get("ups", 0.0) for episode in episodes]
    assert record["auxiliary"] == {"ups": pytest.approx(sum(ups) / 6)}
    assert (record["step"], record["checkpoint"], record["looks"]) == (2, "step", 1)
    assert record["checkpoint_sha256"] == weights_digest(policy.model)  # of the restored one
    assert record["tokenizer_sha256"] == policy.tokenizer_sha256
    assert record["code"] == {"commit": "abc"}
    assert json.loads(record_path(trained.folder).read_text()) == json.loads(json.dumps(record))


def test_checkpoints_play_differently(make_job, trained):
    """Else the restored weights would not matter to the tests above."""
    trained_weights = {
        step: (trained.folder.checkpoint(step) / "policy.safetensors").read_bytes()
        for step in (0, 1, 2)
    }
    assert len(set(trained_weights.values())) == 3
    job = make_job()
    before = job.policy.model.get_input_embeddings().weight.clone()
    run_final_test(job, which="latest")
    assert not before.equal(job.policy.model.get_input_embeddings().weight)


def test_a_greedy_gate_is_tested_greedily(make_job, trained):
    config = trained.config
    greedy = config.model_copy(update={"gate": config.gate.model_copy(update={"temperature": 0.0})})
    record = run_final_test(make_job(config=greedy))
    assert (record["temperature"], record["do_sample"]) == (0.0, False)


def test_each_look_is_counted_and_none_is_forgotten(make_job, trained):
    assert read_record(trained.folder) is None
    records = [run_final_test(make_job(), which=which) for which in ("0", "1", "best")]
    assert [record["looks"] for record in records] == [1, 2, 3]
    assert records[2]["checkpoint"] == "best"
    assert [one["step"] for one in records[2]["earlier"]] == [0, 1]
    for key in ("success_rate", "checkpoint_sha256", "code"):
        assert records[2]["earlier"][0][key] == records[0][key]
    assert len({record["checkpoint_sha256"] for record in records[:2]}) == 2
    assert read_record(trained.folder)["looks"] == 3


def test_faults_are_counted_and_in_no_rate(make_job):
    record = run_final_test(make_job(is_faulty=lambda seed: seed in (1001, 1004)))
    assert (record["n"], record["fault_count"]) == (4, 2)
    kept = [record["success"][i] for i in (0, 2, 3, 5)]
    assert record["success_rate"] == sum(kept) / 4
    assert [bool(fault) for fault in record["fault"]] == [False, True, False, False, True, False]


def test_a_look_in_which_all_had_a_fault_is_none(make_job, trained):
    with pytest.raises(TrialError, match=r"^final test: 6 of 6 episodes had a fault"):
        run_final_test(make_job(is_faulty=lambda seed: True))
    assert not record_path(trained.folder).exists()


def test_best_is_what_the_gate_chose(trained):
    assert checkpoint_step(trained.folder, "best") == trained.folder.read_done().best_step
    assert checkpoint_step(trained.folder, "latest") == 2
    assert checkpoint_step(trained.folder, "1") == 1


@pytest.mark.parametrize(
    ("which", "line"),
    [
        ("9", "{0}: checkpoint '9' is missing. There are those of steps 0, 1, 2."),
        ("last", "{0}: 'last' names no checkpoint. Choose best, latest, or one of the "
         "steps 0, 1, 2."),
        ("²", "{0}: '²' names no checkpoint. Choose best, latest, or one of the "
         "steps 0, 1, 2."),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_not_there_is_refused(trained, which, line):
    with pytest.raises(StoreError) as caught:
        checkpoint_step(trained.folder, which)
    assert str(caught.value) == line.format(trained.folder.path)


def test_a_dangling_choice_is_refused(trained):
    shutil.rmtree(trained.folder.best_heldout.resolve())
    with pytest.raises(StoreError, match=r"checkpoint 'best' is missing\. There are those of"):
        checkpoint_step(trained.folder, "best")


def test_a_trial_without_a_gate_is_refused(trained):
    trained.folder.heldout.write_text("")
    with pytest.raises(StoreError) as caught:
        checkpoint_step(trained.folder, "best")
    assert str(caught.value) == (
        f"{trained.folder.path}: no gate has finished, so no checkpoint is chosen. "
        "Let the trial run first."
    )


def test_a_torn_checkpoint_is_refused_and_left_alone(make_job, trained):
    path = trained.folder.checkpoint(1) / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StoreError, match=r"step-000001 cannot be read"):
        run_final_test(make_job(), which="1")
    assert path.exists()
    assert not record_path(trained.folder).exists()


def test_another_start_is_refused(make_job, small_policy):
    with pytest.raises(StoreError, match=r"began with other weights"):
        run_final_test(make_job(policy=small_policy(seed=9)))


def test_a_folder_with_another_step_inside_is_refused(make_job, trained):
    shutil.rmtree(trained.folder.checkpoint(1))
    shutil.copytree(trained.folder.checkpoint(2), trained.folder.checkpoint(1))
    with pytest.raises(StoreError, match=r"holds the state of step 2\. Restore the folder\.$"):
        run_final_test(make_job(), which="1")


def test_no_test_tasks_is_refused(make_job, make_manifest):
    with pytest.raises(StoreError, match=r"no test split \(gate\.test_tasks is 0\)"):
        run_final_test(make_job(manifest=make_manifest()))


def test_a_file_that_is_no_record_is_refused(trained):
    record_path(trained.folder).write_text('{"looks": 1}')
    what = r"test\.json: is not a record of a final test\. Restore it"
    with pytest.raises(StoreError, match=what):
        read_record(trained.folder)


def test_the_manifest_is_found_by_its_digest(tmp_path, make_manifest, with_test):
    other = make_manifest()
    (tmp_path / "tasks-1.json").write_text(json.dumps(other.to_json()))
    (tmp_path / "tasks-2.json").write_text(json.dumps(with_test.to_json()))
    assert read_manifest(tmp_path, with_test.sha256) == Manifest.from_json(
        json.loads((tmp_path / "tasks-2.json").read_text())
    )
    with pytest.raises(StoreError, match=r"no tasks\*\.json here holds the tasks of the trial"):
        read_manifest(tmp_path, "f" * 64)


def test_an_edited_manifest_is_refused(tmp_path, with_test):
    data = with_test.to_json()
    data["test_ceiling"] = 0.0
    (tmp_path / "tasks.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"does not match its sha256; it was edited or torn\."):
        read_manifest(tmp_path, with_test.sha256)

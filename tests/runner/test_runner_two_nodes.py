"""A sweep over two real Ray nodes that share a folder; one node is switched off while it trains.

Told once and then asserted. Launch 1: a trial on each node; the worker's plug is pulled; the head
does the rest. Launch 2, the same command: the trial that died goes on from its last checkpoint.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray_nodes import TwoNodes
from small_sweep import small_sweep

from rltune.report.audit import judge_folder
from rltune.report.folder import read_folder, read_records
from rltune.runner.trial import read_provenance
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.lineage import LineageStore
from rltune.store.rundir import RunDir, TrialDir

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("drive_sweep.py")
STEPS = 40
PATIENCE_S = 180


@dataclass
class Story:
    """What happened.

    Attributes:
        run: The sweep's folder.
        trials: Its trials, in order.
        lost: The trial that was on the node that was switched off.
        outcomes: What each launch said.
        digests: Metrics of the trials that were done when the first launch ended.
        left: Processes of either node that were alive once both were off.

    """

    run: RunDir
    trials: list[TrialDir]
    lost: TrialDir
    outcomes: list[dict]
    digests: dict[str, bytes]
    left: int


def wait(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, f"the driver ended early: {process.communicate()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def node_of(trial: TrialDir) -> str:
    return str(read_provenance(trial).get("node", "")).partition(" ")[0]


def steps_of(trial: TrialDir) -> int:
    return len(trial.metrics.read_bytes().splitlines()) if trial.metrics.is_file() else 0


def tell(loaded: LoadedSweep, runs: Path, nodes: TwoNodes) -> Story:
    run = RunDir(runs / loaded.run_name).create()
    trials = [run.trial(spec.trial_id).create() for spec in expand(loaded)]

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, str(DRIVER), str(loaded.path), str(runs), "2", nodes.address]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=nodes.environment, cwd=runs
        )

    def outcome(process: subprocess.Popen[str]) -> dict:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, stderr
        return json.loads(stdout.splitlines()[-1])

    def on_worker() -> list[TrialDir]:
        return [t for t in trials if node_of(t) == "worker" and 6 < steps_of(t) < STEPS]

    process = start()
    wait(lambda: bool(on_worker()), process)
    lost = on_worker()[0]
    nodes.worker.power_off()
    outcomes = [outcome(process)]
    done = [trial for trial in trials if trial.read_done() is not None]
    digests = {trial.trial_id: trial.metrics.read_bytes() for trial in done}
    outcomes.append(outcome(start()))
    worker, head = nodes.worker, nodes.head
    nodes.power_off()
    left = len(worker.processes()) + len(head.processes())
    return Story(run, trials, lost, outcomes, digests, left)


@pytest.fixture(scope="module")
def story(small_policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    text = small_sweep(
        policy=small_policy,
        steps=STEPS,
        gate_every=STEPS,
        checkpoint_every=4,
        values="[0.0, 0.01, 0.1]",
    )
    path = tmp_path_factory.mktemp("sweep") / "small.yaml"
    path.write_text(text, encoding="utf-8")
    loaded = load_sweep(path)
    folder = Path(tempfile.mkdtemp(prefix="rl"))  # short: the path of a socket has 107 bytes
    nodes = TwoNodes(folder)
    try:
        yield tell(loaded, tmp_path_factory.mktemp("runs"), nodes)
    finally:
        nodes.power_off()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_records_name_the_node_of_each_trial(story):
    earlier = read_provenance(story.lost)["earlier"]
    assert [attempt["node"].partition(" ")[0] for attempt in earlier] == ["worker"]
    assert {node_of(trial) for trial in story.trials} == {"head"}


def test_a_node_that_is_gone_ends_its_trial_by_name(story):
    failure = json.loads((story.lost.path / "FAILED.1").read_text())
    assert failure["kind"] == "preempted"
    assert failure["reason"].startswith("its machine is gone")
    statuses = story.outcomes[0]["statuses"]
    assert statuses.pop(story.lost.trial_id) == "interrupted"
    assert set(statuses.values()) == {"done"}


def test_the_same_command_goes_on_from_the_last_checkpoint(story):
    assert set(story.outcomes[1]["statuses"].values()) == {"done"}
    assert story.outcomes[1]["launched"] == 1
    said = story.lost.log.read_text()
    resumed = int(said.rpartition("resumed from step ")[2].split()[0])
    assert resumed >= 4
    steps = [json.loads(line)["step"] for line in story.lost.metrics.read_text().splitlines()]
    assert steps == list(range(STEPS + 1))


def test_nothing_finished_is_lost(story):
    assert len(story.digests) == len(story.trials) - 1
    for trial in story.trials:
        if trial.trial_id in story.digests:
            assert trial.metrics.read_bytes() == story.digests[trial.trial_id]
    rows = LineageStore.open(story.run.results).read().rows
    mine = [row.status.value for row in rows if row.trial_id == story.lost.trial_id]
    assert mine[0] == "preempted"
    assert len(rows) == len(story.trials) + 1


def test_the_audit_passes_and_tells_of_the_other_node(story):
    folder = read_folder(story.run)
    audit = judge_folder(folder, read_records(folder))
    assert audit.report.ok
    assert audit.finished == len(story.trials)


def test_no_process_is_left(story):
    assert story.left == 0

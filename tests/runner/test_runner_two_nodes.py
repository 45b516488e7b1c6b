"""A sweep over two real Ray nodes that share a folder; one node is switched off while it trains.

Told once and then asserted. A trial on each node; the worker's plug is pulled; the head does the
rest, and then goes on with the trial that died, from its last checkpoint: one command. The nodes
want a token, and nobody tells the driver so. A third node, a cluster of its own, wants none.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from patience import HANG_S, wait_while_it_runs
from ray_nodes import TwoNodes, free_port, start_head
from small_sweep import small_sweep

from rltune.analysis.audit import judge_folder
from rltune.errors import ResourceError
from rltune.lineage.table import LineageStore
from rltune.runner.cluster_auth import choose_auth_mode
from rltune.runner.trial import run_trial
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.digest import metrics_digest
from rltune.store.provenance import read_provenance
from rltune.store.run_folder import read_folder, read_records
from rltune.store.rundir import RunDir, TrialDir

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("drive_sweep.py")
STEPS = 40


@dataclass
class Story:
    """What happened.

    Attributes:
        loaded: The sweep.
        run: Its folder.
        trials: Its trials, in order.
        lost: The trial that was on the node that was switched off.
        outcome: What the driver said.
        modes: What `choose_auth_mode` chose, or said, at each cluster with each token.
        left: Processes of any node that were alive once all were off.

    """

    loaded: LoadedSweep
    run: RunDir
    trials: list[TrialDir]
    lost: TrialDir
    outcome: dict
    modes: dict[str, str]
    left: int


def node_of(trial: TrialDir) -> str:
    return str(read_provenance(trial).get("node", "")).partition(" ")[0]


def steps_of(trial: TrialDir) -> int:
    return len(trial.metrics.read_bytes().splitlines()) if trial.metrics.is_file() else 0


def mode_at(address: str, environment: dict[str, str], **token: str) -> str:
    """Return what is chosen for a driver that has this token, or the refusal."""
    chosen = {name: text for name, text in environment.items() if "RAY_AUTH" not in name} | token
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", chosen)
        try:
            choose_auth_mode(address)
        except ResourceError as error:
            return str(error)
    return chosen["RAY_AUTH_MODE"]


def modes_of(nodes: TwoNodes, open_address: str) -> dict[str, str]:
    other = {"RAY_AUTH_TOKEN": "f" * 64}
    nowhere = {"RAY_AUTH_TOKEN_PATH": "/nowhere"}
    return {
        "another": mode_at(nodes.address, nodes.environment, **other),
        "none": mode_at(nodes.address, nodes.environment, **nowhere),
        "told to send none": mode_at(nodes.address, nodes.environment, RAY_AUTH_MODE="disabled"),
        "not wanted": mode_at(open_address, nodes.environment, **other),
    }


def tell(loaded: LoadedSweep, runs: Path, nodes: TwoNodes, folder: Path) -> Story:
    run = RunDir(runs / loaded.run_name).create()
    trials = [run.trial(spec.trial_id).create() for spec in expand(loaded)]
    token = folder / "token"
    environment = {**nodes.environment, "RAY_AUTH_TOKEN_PATH": str(token)}
    token.write_text(environment.pop("RAY_AUTH_TOKEN"), encoding="utf-8")
    del environment["RAY_AUTH_MODE"]
    command = [sys.executable, str(DRIVER), str(loaded.path), str(runs), "2", nodes.address]
    pipe = subprocess.PIPE

    def on_worker() -> list[TrialDir]:
        return [t for t in trials if node_of(t) == "worker" and 6 < steps_of(t) < STEPS]

    open_address = f"127.0.0.1:{free_port()}"
    disabled = {**environment, "RAY_AUTH_MODE": "disabled"}
    with ExitStack() as ends:
        process = ends.enter_context(
            subprocess.Popen(
                command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=runs
            )
        )
        ends.callback(process.kill)
        lost = wait_while_it_runs(process, on_worker)[0]
        nodes.worker.power_off()
        open_node = start_head("open", disabled, open_address, folder / "open")
        ends.callback(open_node.power_off)
        modes = modes_of(nodes, open_address)
        stdout, stderr = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, stderr
    nodes.power_off()
    left = sum(len(node.processes()) for node in (nodes.worker, nodes.head, open_node))
    outcome = json.loads(stdout.splitlines()[-1])
    return Story(loaded, run, trials, lost, outcome, modes, left)


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
        yield tell(loaded, tmp_path_factory.mktemp("runs"), nodes, folder)
    finally:
        nodes.power_off()
        shutil.rmtree(folder, ignore_errors=True)


def test_one_command_ends_every_trial(story):
    assert set(story.outcome["statuses"].values()) == {"done"}
    assert len(story.outcome["begun"]) == len(story.trials)
    assert not story.outcome["is_interrupted"]
    (said,) = story.outcome["said"]
    spec = story.lost.read_spec()
    assert said == (
        f"{spec.condition}, seed 0: its machine is gone; "
        "launched again on what is left of the cluster, from its last checkpoint"
    )


def test_the_records_name_the_node_of_each_attempt(story):
    earlier = read_provenance(story.lost)["earlier"]
    assert [attempt["node"].partition(" ")[0] for attempt in earlier] == ["worker"]
    assert read_provenance(story.lost)["attempt"] == 2
    assert {node_of(trial) for trial in story.trials} == {"head"}


def test_a_node_that_is_gone_ends_its_attempt_by_name(story):
    failure = json.loads((story.lost.path / "FAILED.1").read_text())
    assert failure["kind"] == "preempted"
    node = read_provenance(story.lost)["earlier"][0]["node"]
    assert failure["reason"] == f"its machine is gone ({node})"


def test_the_trial_goes_on_from_its_last_checkpoint(story):
    said = story.lost.log.read_text()
    resumed = int(said.rpartition("resumed from step ")[2].split()[0])
    assert resumed >= 4
    steps = [json.loads(line)["step"] for line in story.lost.metrics.read_text().splitlines()]
    assert steps == list(range(STEPS + 1))


def test_its_numbers_are_those_of_an_undisturbed_run(story, make_payload):
    place = [trial.trial_id for trial in story.trials].index(story.lost.trial_id)
    payload = make_payload(story.loaded, condition=place)
    run_trial(replace(payload, manifest=story.run.tasks()))
    whole = TrialDir(payload.folder)
    assert metrics_digest(whole.metrics) == metrics_digest(story.lost.metrics)


def test_each_attempt_has_a_row_of_its_launch_and_the_controls_is_the_parent(story):
    rows = LineageStore.open(story.run.results).read().rows
    mine = [(row.status.value, row.job_name) for row in rows if row.trial_id == story.lost.trial_id]
    assert len(rows) == len(story.trials) + 1
    assert mine[0] == ("preempted", "launch-0001")
    assert mine[1][1] == "launch-0002"
    (control,) = [row for row in rows if row.status.value == "baseline"]
    ended = [row for row in rows if row.core_metric is not None and row is not control]
    assert {row.parent_exp for row in ended} == {control.exp_id}


def test_the_audit_passes_and_tells_of_the_other_node(story):
    folder = read_folder(story.run)
    audit = judge_folder(folder, read_records(folder))
    assert audit.report.ok
    assert audit.finished == len(story.trials)


def test_a_token_is_used_where_the_cluster_wants_one_and_nowhere_else(story):
    assert story.modes["not wanted"] == "disabled"
    another, none, told = (story.modes[key] for key in ("another", "none", "told to send none"))
    assert another.startswith("--ray-address: the cluster at 127.0.0.1:")
    assert (
        "requires another token than the one in RAY_AUTH_TOKEN. Put the cluster's token in"
        in another
    )
    assert "requires a token, and /nowhere holds none. Put the cluster's token in" in none
    assert told.startswith("environment: RAY_AUTH_MODE: it is 'disabled', and the cluster at 127")
    assert told.endswith("requires a token. Unset it.")


def test_no_process_is_left(story):
    assert story.left == 0

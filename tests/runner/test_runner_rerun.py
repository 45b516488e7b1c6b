"""A rerun of a trial of each kind of env is bit-equal: Sokoban, FrozenLake, multi-hop QA."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_sweep import levels, small_sweep

from rltune.cli.rerun import verdict_text
from rltune.errors import StoreError
from rltune.runner.child import run_child
from rltune.runner.folder import freeze_all
from rltune.runner.provenance import driver_provenance
from rltune.runner.rerun import RerunVerdict, rerun_trial
from rltune.runner.single import open_source, spec_to_repeat
from rltune.runner.trial import TrialPayload, _record_edits, run_trial
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.sweep import Metric
from rltune.store.files import read_json
from rltune.store.inputs import base_of
from rltune.store.rundir import RunDir
from rltune.types import TrialStatus
from rltune_envs.sokoban.levels import load_levels

METRIC = Metric(name="heldout/reward_mean")


def trained(
    tmp_path: Path, base: str, *, policy="tiny", stop_after: int | None = None, env: str = ""
):
    """Train a trial of two steps and return it as a source; env is a line of its hold."""
    text = small_sweep(policy=policy, gate_every=1, checkpoint_every=1, values="[0.0, 0.1]")
    text = text.replace("base: sokoban", f"base: {base}")
    text = text.replace("hold:\n", f"hold:\n{env}", 1)
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    run = RunDir(tmp_path / "run").create()
    spec = expand(load_sweep(path))[1]
    tasks = freeze_all(run, [spec], base=tmp_path)
    payload = TrialPayload(
        spec=spec,
        folder=run.trial(spec.trial_id).path,
        manifest=tasks[spec.trial_id].path,
        metric=METRIC,
        attempt=1,
        driver=driver_provenance(["test"]),
        stop_file=tmp_path / "stop",
        base=tmp_path,
        stop_after=stop_after,
    )
    status = run_trial(payload)
    return status, open_source(run, run.trial(spec.trial_id), metric=METRIC)


def again(source, tmp_path, *, steps=None):
    return rerun_trial(source, steps=steps, argv=("test",), base=tmp_path, on_start=lambda *_: None)


def test_what_is_run_again_differs_in_its_mirror_alone(tmp_path):
    (tmp_path / "small.yaml").write_text(small_sweep(policy="tiny"), encoding="utf-8")
    spec = expand(load_sweep(tmp_path / "small.yaml"))[0]
    online = spec.config | {"tracking": spec.config["tracking"] | {"wandb": "online"}}
    again = spec_to_repeat(spec, online, source="config.yaml")
    mirrorless = online | {"tracking": online["tracking"] | {"wandb": "disabled"}}
    assert again == replace(spec, config=mirrorless)


def assert_bit_equal(source, base):
    torch.manual_seed(99)  # what happened before in this process must not matter
    found = again(source, base)
    assert found.verdict is RerunVerdict.REPRODUCED
    assert found.comparison is not None
    assert (found.comparison.metric_rows, found.comparison.gates) == (3, 3)
    assert found.comparison.checkpoints[-1] == 2


@pytest.mark.slow  # Sokoban is below, with levels of a file
@pytest.mark.parametrize("base", ["frozen_lake", "multihop_qa"])
@pytest.mark.usefixtures("threads")
def test_a_rerun_is_bit_equal(tmp_path, base):
    status, source = trained(tmp_path, base)
    assert status is TrialStatus.DONE
    assert_bit_equal(source, tmp_path)


@pytest.mark.usefixtures("threads")
def test_a_trial_that_was_stopped_is_compared_as_far_as_it_came(tmp_path, small_policy):
    status, source = trained(tmp_path, "sokoban", policy=small_policy, stop_after=1)
    assert status is TrialStatus.INTERRUPTED
    found = again(source, tmp_path)
    assert (found.verdict, found.last, found.status) == (
        RerunVerdict.REPRODUCED,
        1,
        TrialStatus.INTERRUPTED,
    )
    assert source.trial.read_failed() is not None  # the original is as it was


@pytest.mark.usefixtures("threads")
def test_a_rerun_is_bit_equal_and_with_other_inputs_no_repetition_and_no_start(
    tmp_path, monkeypatch, small_policy
):
    """Levels behind those that are played: bit-equal, and still another file."""
    text, file = levels(24), tmp_path / "levels.txt"
    file.write_text(text, encoding="utf-8")
    keys = "  env.levels: levels.txt\n"
    status, source = trained(tmp_path, "sokoban", policy=small_policy, env=keys)
    assert status is TrialStatus.DONE
    of_policy = {str(path) for path in small_policy.iterdir()}
    assert set(source.provenance["inputs"]) - of_policy == {"levels.txt"}
    log, before = logging.getLogger("test"), read_json(source.trial.provenance)
    _record_edits(source.trial, before, tmp_path, log)
    assert read_json(source.trial.provenance) == before
    _record_edits(source.trial, {**before, "inputs": {"levels.txt": "0" * 64}}, tmp_path, log)
    assert read_json(source.trial.provenance)["inputs_changed"] == ["levels.txt"]
    monkeypatch.chdir("/")
    base = base_of(source.provenance, otherwise=Path("/"))
    assert_bit_equal(source, base)
    file.write_text(text + "\n; a comment\n", encoding="utf-8")
    load_levels.cache_clear()
    found = again(source, base)
    assert (found.verdict, found.comparison.difference) == (RerunVerdict.OTHER_INPUTS, None)
    assert [change.name for change in found.changes if change.is_input] == ["levels.txt"]
    said = verdict_text(source, found)
    assert "not the same inputs; bit-equal in steps 0 to 2" in said
    assert "It read other files than the trial: levels.txt. Put them back" in said
    child = {"checkpoint": "best", "seed": None, "overrides": (), "argv": ("test",), "base": base}
    with pytest.raises(StoreError, match=r"^levels\.txt: has changed .* read it\. Restore it"):
        run_child(source, **child, on_start=lambda *_: None)
    assert not source.run.children.exists()

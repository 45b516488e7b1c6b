"""Problems of a file with a verifier of one's own, from the files to an audited sweep on Ray."""

import hashlib
import json
import tempfile

import pytest
import yaml
from test_runner_own_env import ROOT, SMALL, drive, read_passed

from rltune.store.files import read_json
from rltune.store.jsonl import read_jsonl

VERIFIER = """
def score(prompt, response, row):
    assert prompt.startswith(row["question"])
    if len(response) % 2:
        raise ValueError("odd")
    return len(set(response)) / (len(response) + int(row["answer"]))
"""


def settle(folder, policy):
    """Write the sweep, its problems and its verifier to a folder; return the sweep's path."""
    folder.mkdir()
    (folder / "my_scores.py").write_text(VERIFIER)
    problems = ({"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(200))
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    sweep = yaml.safe_load((ROOT / "examples" / "my_env.yaml").read_text())
    env = {"kind": "verified", "train": "p.jsonl", "verifier": "my_scores:score"}
    small = yaml.safe_load(SMALL.format(policy=policy))
    sweep["hold"] |= {**small, "env": env, "reward": None, "gate.tasks": 8, "gate.test_tasks": 4}
    sweep |= {"name": "problems", "seeds": [0]}
    path = folder / "problems.yaml"
    path.write_text(yaml.safe_dump(sweep, sort_keys=False))
    return path


@pytest.mark.slow
def test_a_sweep_over_problems_of_a_file_runs_end_to_end(bytes_policy, tmp_path):
    sweep = settle(tmp_path / "work", bytes_policy)
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 107 bytes
        done = drive(sweep, tmp_path / "runs", TMPDIR=short)
    run, read = read_passed(done, tmp_path / "runs")
    digest = hashlib.sha256((sweep.parent / "p.jsonl").read_bytes()).hexdigest()
    tasks = read_json(run.tasks())
    assert tasks["files"] == {"train: p.jsonl": digest}
    assert tasks["heldout_floor"]["kind"] == "start"
    for record in read.records:
        assert record.provenance["inputs"]["p.jsonl"] == digest
        assert 0 < record.metrics[0]["heldout/score"] < 1
        rows = read_jsonl(run.trial(record.spec.trial_id).episodes).rows
        assert {row["failure_class"] for row in rows} <= {"wrong", "fault", "malformed"}
        assert {bool(row["fault"]) for row in rows} == {True, False}
        for row in rows:
            is_odd = len(row["turns"][-1]["response"]) % 2
            start, _, cause = row["fault"].partition(": it raised ")
            assert start.startswith("verifier score() on p.jsonl:" if is_odd else "")
            assert cause.startswith("ValueError: odd (" if is_odd else "")

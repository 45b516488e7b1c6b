"""Every metric that a trial writes is defined in docs/metrics.md, once."""

import re
from pathlib import Path

import pytest
from copy_engine import copy_engine

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def documented():
    """Return the names in the first column, and patterns for those with a star or a blank."""
    names = []
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            names += re.findall(r"`([^`]+)`", line.split("|")[1])
    return names


def pattern(name):
    text = re.escape(name).replace(r"\*", r"\w+").replace(r"<k>", r"\d+")
    return re.compile(text.replace("<measure>", r"\w+"))


def test_every_name_is_there_once():
    names = documented()
    assert len(names) == len(set(names)) > 60


CASES = {
    "gae": {"advantage": {"kind": "gae"}, "loss__use_kl_loss": True, "loss__kl_loss_coef": 0.1},
    "tis": {"rollout_correction__kind": "tis", "collapse__every": 1, "collapse__prompts": 2},
    "ahead": {
        "rollout__ahead": 1,
        "resources__engine": "own",
        "rollout_correction__kind": "tis",
    },
    "shaped": {
        "advantage": {
            "kind": "grpo",
            "shaping": {"gtpo_beta": 0.1, "sepa": {"schedule": "linear"}, "grams": ["Up"]},
        }
    },
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_what_a_trial_writes_is_documented(make_trial, changes):
    trial = make_trial(budget__steps=2, gate__every=2, **changes)
    trial.run(make_engine=copy_engine if "rollout__ahead" in changes else None)
    known = [pattern(name) for name in documented()]
    written = {name for row in trial.rows for name in row} - {"step"}
    assert len(written) > 40
    unknown = [name for name in written if not any(p.fullmatch(name) for p in known)]
    assert not unknown

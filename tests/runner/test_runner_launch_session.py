"""What a launch refuses before anything starts."""

import pytest

from rltune.errors import ResourceError
from rltune.runner.launch_session import require_one_machine
from rltune.types import TrialSpec


def spec(engine):
    config = {
        "policy": {},
        "env": {"kind": "sokoban", "prompt": "compact"},
        "rollout": {"engine": "torch", "max_context": 9, "vllm": {}},
        "resources": {"engine": engine, "threads": 1, "gpus": 0},
    }
    return TrialSpec("a", "sweep", "loss.kind", "a", "a", True, 0, config, "")


def test_trials_share_an_engine_on_one_machine_alone():
    own, shared = spec("own"), spec("shared_by_sweep")
    require_one_machine([own, shared], None)
    require_one_machine([own], "10.0.0.1:6379")
    with pytest.raises(ResourceError) as caught:
        require_one_machine([own, shared], "10.0.0.1:6379")
    assert str(caught.value) == (
        "resources.engine: 'shared_by_sweep' is one process of this machine, and --ray-address "
        "may have others. Set it to own, or run without --ray-address."
    )

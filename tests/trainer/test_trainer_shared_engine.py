"""A trial whose engine another one uses as well measures what it does with one of its own."""

from functools import partial

import pytest
from copy_engine import copy_engine
from engine_makers import adapted
from shared_host import sampling, server_here

from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.shared.host import EnginePlace
from rltune.store.digest import deterministic_row
from rltune.trainer.engines import make_engine

pytestmark = pytest.mark.slow

SHARED = {
    "policy__lora__rank": 2,
    "optim__lr": 1e-2,
    "budget__steps": 2,
    "resources__engine": "shared_by_sweep",
}
AHEAD = {**SHARED, "rollout__ahead": 1, "rollout_correction": {"kind": "tis"}}
PARAMS = SamplingParams(temperature=1.0, max_tokens=6, max_context=120)


@pytest.mark.parametrize("changes", [SHARED, AHEAD], ids=["in-turn", "ahead"])
def test_a_trial_beside_one_that_samples_all_the_time_is_bit_equal(
    make_trial, small_policy, tmp_path, changes
):
    """Both lose their turn to the other at every call."""
    alone, shared = make_trial("alone", **changes), make_trial("shared", **changes)
    alone.run(make_engine=partial(copy_engine, rank=2))
    place = EnginePlace(tmp_path / "socket", seats=2)
    server_here(place.address)

    def engine_of(policy):
        return make_engine(shared.config, policy, place)

    other = engine_of(adapted(small_policy(), shared.config.policy.lora, seed=3))
    with sampling(other, [Request(n, [4, 5 + n], n) for n in range(3)], PARAMS) as calls:
        shared.run(make_engine=engine_of)
    assert len(calls) > 5
    assert list(map(deterministic_row, shared.rows)) == list(map(deterministic_row, alone.rows))
    assert shared.folder.episodes.read_bytes() == alone.folder.episodes.read_bytes()

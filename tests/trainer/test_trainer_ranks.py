"""Several ranks compute what one computes, up to rounding."""

from functools import partial
from pathlib import Path

import pytest
import torch
from rank_cases import LENGTHS, handed_over, one_step, trained
from small_config import config_of

from rltune.losses.reduce import AGGREGATIONS
from rltune.policy.byte_policy import save
from rltune.policy.load import policy_of
from rltune.store.files import sha256_file
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import Progress, load_checkpoint, save_checkpoint
from rltune.trainer.ranks.launch import ranks_for
from rltune.trainer.train_state import make_train_state

pytestmark = pytest.mark.slow

RANKS = 3
ALL_TERMS = {
    "optim__mini_batch_size": 8,
    "optim__micro_batch_size": 2,
    "optim__grad_clip": 1e9,
    "loss__use_kl_loss": True,
    "loss__kl_loss_coef": 0.1,
    "loss__entropy_coeff": 0.01,
}
PPO = {"advantage": {"kind": "gae"}}
LORA = {"policy__lora__rank": 4, "policy__lora__alpha": 8}
AGAIN = {"optim__gradient_checkpointing": True}
CASES = {
    **{f"aggregation {mode}": ({"loss__aggregation": mode}, LENGTHS) for mode in AGGREGATIONS},
    **{
        f"loss {kind}": ({"loss__kind": kind}, LENGTHS)
        for kind in ("gspo", "cispo", "reinforce", "turn")
    },
    "a rank without rows": ({}, (40, 0, 0, 23, 0, 0, 0, 0)),
    "one row for all ranks": (PPO, (0, 0, 0, 0, 0, 31, 0, 0)),
    "no row at all": (PPO, (8,) * 8),
    "adapters": (LORA, LENGTHS),
    "adapters, PPO": (LORA | PPO, LENGTHS),
    "checkpointing": (AGAIN | PPO, LENGTHS),
    "checkpointing of adapters": (AGAIN | LORA, LENGTHS),
    "PPO, critic with a backbone of its own": (PPO, LENGTHS),
    "PPO, critic on the policy": (PPO | {"critic__backbone": "policy"}, LENGTHS),
    "two optimiser steps": (PPO | {"optim__mini_batch_size": 4}, LENGTHS),
    "two epochs": ({"optim__epochs": 2, "optim__lr": 1e-5}, LENGTHS),
    "rows apart": ({"rollout__max_context": 60, "optim__minibatch_by": "group"}, LENGTHS),
}


WHOLE = {**PPO, "loss__use_kl_loss": True, "loss__kl_loss_coef": 0.1}


@pytest.fixture(scope="module")
def model(small_policy, tmp_path_factory):
    """Return the folder of a small model, which every rank reads."""
    folder = tmp_path_factory.mktemp("model")
    save(small_policy(layers=2), folder)
    return str(folder)


@pytest.fixture(scope="module")
def state(model, tmp_path_factory):
    """Return the first rank's state of a trial; the cases make their own on its ranks."""
    config = config_of(**WHOLE, policy__model=model, resources__ranks=RANKS)
    folder = tmp_path_factory.mktemp("ranks")
    with ranks_for(config, trial=folder, base=Path.cwd()) as group:
        yield make_train_state(policy_of(config, Path.cwd(), device="cpu"), config, group)


@pytest.mark.parametrize("name", CASES)
def test_ranks_compute_what_one_computes(state, model, name):
    changes, lengths = CASES[name]
    config = config_of(**{**ALL_TERMS, **changes}, policy__model=model)
    alone = trained(None, config, lengths)
    together = state.group.everywhere(name, trained, state, config, lengths)
    assert together.keys() == alone.keys()
    assert any(key.startswith("gradient") for key in alone)
    for key, expected in alone.items():
        found, limit = together[key], 1e-6 * max(1.0, float(expected.abs().max()))
        if key.startswith("weight"):
            # AdamW steps by a gradient over its own size, also where it is rounding alone, as that
            # of a bias of keys is: there any step within the learning rate is as right.
            is_clear = alone[key.replace("weight", "gradient", 1)].abs() > 1e-5
            expected, found = expected[is_clear], found[is_clear]
            limit = 1e-2 * config.optim.lr
        message = partial("{}: {}".format, key)
        torch.testing.assert_close(found, expected, rtol=0, atol=limit, msg=message)


@pytest.mark.parametrize("changes", [{}, LORA], ids=["all weights", "adapters"])
def test_an_engine_of_its_own_takes_over_the_same_weights_and_no_rank_has_them_whole(
    state, model, changes
):
    configs = [
        config_of(**PPO, **changes, policy__model=model, resources__engine=engine)
        for engine in ("shared", "own")
    ]
    (whole, copied), (parts, held) = (
        state.group.everywhere("a sync", handed_over, state, config) for config in configs
    )
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[name], whole[name]) for name in whole)
    assert copied / RANKS <= held < 1.1 * copied / RANKS  # some are padded


def saved(folder, state):
    """Return the digests of what a checkpoint of a state holds."""
    trial = TrialDir(folder).create()
    path = save_checkpoint(trial, state, Progress(step=1), config_hash="h")
    return {file.name: sha256_file(file) for file in path.glob("*.safetensors")}


def test_a_checkpoint_moves_between_numbers_of_ranks_and_goes_on_bit_by_bit(state, model, tmp_path):
    config = config_of(**WHOLE, policy__model=model)
    step = ("a step", one_step, state, config)
    state.group.everywhere(*step)
    files = saved(tmp_path / "ranks", state)
    assert len(files) == 4
    folder = TrialDir(tmp_path / "ranks").checkpoint(1)
    alone = make_train_state(policy_of(config, Path.cwd(), device="cpu"), config)
    load_checkpoint(folder, alone, config_hash="h")
    assert saved(tmp_path / "alone", alone) == files
    state.group.everywhere(*step)
    later = saved(tmp_path / "later", state)
    assert all(later[name] != files[name] for name in files)
    load_checkpoint(TrialDir(tmp_path / "alone").checkpoint(1), state, config_hash="h")
    assert saved(tmp_path / "back", state) == files
    state.group.everywhere(*step)
    assert saved(tmp_path / "again", state) == later

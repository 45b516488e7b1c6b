import subprocess
import sys

import numpy as np
import pytest

from rltune.maths.streams import permutation, stream_seed, uniforms

# First outputs of SplitMix64 from state 0 and from 1234567: the reference C code of S. Vigna
# (prng.di.unimi.it/splitmix64.c) and Rosetta Code's check values.
SPLITMIX64 = [
    pytest.param(
        0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC], id="0"
    ),
    pytest.param(
        1234567,
        [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431],
        id="1234567",
    ),
]


def draws(seed, counters):
    counters = np.asarray(counters, dtype=np.int64)
    return uniforms(np.full(len(counters), seed, dtype=np.uint64), counters)


@pytest.mark.parametrize(("seed", "outputs"), SPLITMIX64)
def test_uniforms_are_the_top_53_bits_of_splitmix64(seed, outputs):
    assert draws(seed, range(4)).tolist() == [(out >> 11) / 2**53 for out in outputs]


def test_a_row_does_not_depend_on_its_batch_mates():
    seeds = np.array([stream_seed(0, "sampling", i) for i in range(50)], dtype=np.uint64)
    counters = np.arange(50) % 7
    together = uniforms(seeds, counters)
    order = permutation(50, 3)
    assert (uniforms(seeds[order], counters[order]) == together[order]).all()
    alone = [uniforms(seeds[i : i + 1], counters[i : i + 1])[0] for i in range(50)]
    assert alone == together.tolist()


def test_uniforms_are_uniform():
    u = draws(stream_seed(0, "sampling"), range(20_000))
    assert u.min() >= 0
    assert u.max() < 1
    # 20 bins of 1000 +- sqrt(1000 * 0.95) = 31; five sigma
    assert np.abs(np.histogram(u, bins=20, range=(0, 1))[0] - 1000).max() < 155
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / np.sqrt(20_000)


def test_largest_seed_is_used_whole():
    assert draws(2**64 - 1, [0])[0] != draws(2**63 - 1, [0])[0]


def test_stream_seed_by_hand():
    # printf '3/tasks/7' | sha256sum, first 16 hex digits
    assert stream_seed(3, "tasks", 7) == 0x7B465A586634CACD
    assert stream_seed(0, "critic") < 2**64


def test_streams_of_different_names_differ():
    keys = [
        (seed, what, step) for seed in (0, 1) for what in ("tasks", "heldout") for step in (0, 1)
    ]
    assert len({stream_seed(*key) for key in keys}) == len(keys)
    # Indices are separated: (1, 11) and (11, 1) are two streams.
    assert stream_seed(0, "sampling", 1, 11) != stream_seed(0, "sampling", 11, 1)


def test_permutation_is_one():
    assert sorted(permutation(100, 5).tolist()) == list(range(100))
    assert permutation(0, 5).tolist() == []
    assert permutation(100, 5).tolist() != permutation(100, 6).tolist()


def test_equal_in_another_process_whatever_its_hash_seed():
    code = (
        "from rltune.maths.streams import permutation, stream_seed\n"
        "print(permutation(20, stream_seed(4, 'minibatch', 2, 0)).tolist())"
    )
    here = permutation(20, stream_seed(4, "minibatch", 2, 0)).tolist()
    for hash_seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.strip() == str(here)


def test_the_global_generators_are_left_alone():
    before = np.random.get_state()[1].tolist()
    permutation(10, 1)
    draws(1, [0])
    assert np.random.get_state()[1].tolist() == before

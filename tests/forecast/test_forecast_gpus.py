import pytest

from rltune.forecast.gpus import GPUS, gpus_that_hold, names, usable


def test_a_gpu_holds_what_leaves_a_twentieth_free():
    h200 = next(gpu for gpu in GPUS if gpu.name == "H200")
    assert h200.memory == 143_771 * 2**20  # 150.75 GB; 95 % of it are 143.2 GB
    assert usable(h200) == pytest.approx(143.217e9, rel=1e-5)
    assert [gpu.name for gpu in gpus_that_hold(143 * 10**9)] == ["H200", "B200"]
    assert [gpu.name for gpu in gpus_that_hold(144 * 10**9)] == ["B200"]
    assert gpus_that_hold(200 * 10**9) == ()
    # a quarter of an H200 is 35.8 GB
    assert [gpu.name for gpu in gpus_that_hold(35 * 10**9, share=0.25)] == ["H200", "B200"]


def test_the_smallest_comes_first_and_sizes_share_brackets():
    found = gpus_that_hold(20 * 10**9)
    assert names(found) == (
        "A10, L4 (24 GB), RTX 4090, RTX 3090 (26 GB), RTX 5090 (34 GB) and larger"
    )
    assert names(found[-2:]) == "H200 (151 GB), B200 (192 GB)"
    assert [gpu.memory for gpu in found[-3:]] == sorted(gpu.memory for gpu in found)[-3:]


def test_every_gpu_has_its_own_name():
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)

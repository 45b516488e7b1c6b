import pytest

from rltune.forecast.gpus import CARDS, card_named, cards_that_hold, names, usable


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_a_card_is_known_by_the_name_that_torch_gives(device, name):
    assert card_named(device).name == name


@pytest.mark.parametrize("device", ["cpu", "NVIDIA L40", "NVIDIA A10G", "AMD Instinct MI300X"])
def test_another_card_is_not_taken_for_one_that_is_alike(device):
    assert card_named(device) is None


def test_a_card_holds_what_leaves_a_twentieth_free():
    h200 = card_named("NVIDIA H200")
    assert h200.memory == 143_771 * 2**20  # 150.75 GB; 95 % of it are 143.2 GB
    assert usable(h200) == pytest.approx(143.217e9, rel=1e-5)
    assert [card.name for card in cards_that_hold(143 * 10**9)] == ["H200", "B200"]
    assert [card.name for card in cards_that_hold(144 * 10**9)] == ["B200"]
    assert cards_that_hold(200 * 10**9) == ()
    # a quarter of an H200 is 35.8 GB
    assert [card.name for card in cards_that_hold(35 * 10**9, share=0.25)] == ["H200", "B200"]


def test_the_smallest_comes_first_and_sizes_share_brackets():
    found = cards_that_hold(20 * 10**9)
    assert names(found) == (
        "A10, L4 (24 GB), RTX 4090, RTX 3090 (26 GB), RTX 5090 (34 GB) and larger"
    )
    assert names(found[-2:]) == "H200 (151 GB), B200 (192 GB)"
    assert [card.memory for card in found[-3:]] == sorted(card.memory for card in found)[-3:]


def test_every_card_has_its_own_name():
    assert len({card.name for card in CARDS}) == len(CARDS)

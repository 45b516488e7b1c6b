from dataclasses import replace
from pathlib import Path

import pytest

from rltune.comparability.check import check_sweep
from rltune.comparability.protocol import check_protocol
from rltune.errors import SpecError
from rltune.spec.load import load_sweep

PROTOCOL = """\
name: pair
title: Two toy sweeps
free:
  loss.kl_loss_coef: an axis
  loss.use_kl_loss: goes with it
  optim.lr: an axis
"""
IN_PROTOCOL = ("base: sokoban", "base: sokoban\nprotocol: pair")


@pytest.fixture
def two(tmp_path, load):
    """Load the toy sweep as a.yaml, and an lr sweep with changes as b.yaml, in one protocol."""
    folder = tmp_path / "configs" / "protocols"
    folder.mkdir(parents=True)
    (folder / "pair.yaml").write_text(PROTOCOL, encoding="utf-8")

    def write(*changes, options=None):
        load(IN_PROTOCOL)
        text = Path("toy.yaml").read_text(encoding="utf-8")
        start, end = text.index("axis:"), text.index("seeds:")
        axis = "axis: {key: optim.lr, values: [1e-4, 2e-4], control: 1e-4}\n"
        other = text[:start] + axis + text[end:]
        other = other.replace("  loss.kl_type: k2", "  loss.kl_type: k2\n  loss.kl_loss_coef: 0.0")
        for old, new in changes:
            assert old in other
            other = other.replace(old, new, 1)
        Path("a.yaml").write_text(text, encoding="utf-8")
        Path("b.yaml").write_text(other, encoding="utf-8")
        return [load_sweep(Path("a.yaml")), load_sweep(Path("b.yaml"), **(options or {}))]

    return write


def test_sweeps_that_differ_in_free_keys_only_agree(two):
    assert check_protocol(two()) == ()
    assert check_protocol(two(options={"overrides": ["tracking.wandb=offline"]})) == ()


def test_every_difference_is_named_with_both_files(two):
    sweeps = two(
        ("loss.entropy_coeff: 0.0", "loss.entropy_coeff: 0.5"),
        ("[0, 1, 2]", "[0, 1, 3]"),
        options={"overrides": ["budget.steps=7"]},
    )
    assert [str(finding) for finding in check_protocol(sweeps)] == [
        "S9 error: a.yaml and b.yaml follow protocol pair but differ in budget.steps (80 and 7), "
        "loss.entropy_coeff (0.0 and 0.5), seeds ([0, 1, 2] and [0, 1, 3]). "
        "Give both one value, or free the key in protocol pair."
    ]


def test_a_key_is_free_when_both_protocol_files_free_it(two):
    a, b = two(options={"overrides": ["budget.steps=7"]})
    more = {**a.protocol.free, "budget.steps": "lengths may differ"}
    free = a.protocol.model_copy(update={"free": more})
    assert len(check_protocol([a, replace(b, protocol=free)])) == 1
    assert check_protocol([replace(a, protocol=free), replace(b, protocol=free)]) == ()


def test_keys_of_a_variant_are_free_with_the_key_that_chooses_it(two):
    a, b = two(options={"overrides": ["loss.kind=turn"]})
    assert "loss.dual_clip" in check_protocol([a, b])[0].message
    free = a.protocol.model_copy(update={"free": {**a.protocol.free, "loss.kind": "may differ"}})
    assert check_protocol([replace(one, protocol=free) for one in (a, b)]) == ()
    _, b = two(options={"overrides": ["loss.kind=turn", "loss.clip_low=0.003"]})
    (finding,) = check_protocol([replace(one, protocol=free) for one in (a, b)])
    assert "differ in loss.clip_low (0.2 and 0.003)." in finding.message  # both have it


def test_another_profile_is_a_difference(two):
    (finding,) = check_protocol(two(options={"profile": "paper"}))
    assert "policy.model ('tiny' and 'Qwen/Qwen2.5-3B')" in finding.message
    assert "profile ('laptop' and 'paper')" in finding.message


def test_an_axis_outside_the_free_keys_is_refused(two):
    sweeps = two(("{key: optim.lr, values: [1e-4, 2e-4], control: 1e-4}",
                  "{key: critic.lr, values: [3e-3, 2e-3], control: 3e-3}"))  # fmt: skip
    assert [str(finding) for finding in check_protocol(sweeps)] == [
        "S9 error: b.yaml moves critic.lr, which protocol pair does not free. "
        "Add the key under free in protocol pair with a reason, or leave the protocol."
    ]
    report = check_sweep(sweeps[1])  # no other file is needed to see it
    assert not report.ok
    assert report.errors == check_protocol(sweeps)
    assert check_sweep(sweeps[0]).ok


def test_sweeps_without_a_protocol_are_skipped(load):
    assert check_protocol([load(), load(overrides=["budget.steps=7"])]) == ()


def test_protocol_file_problems(two, tmp_path):
    path = tmp_path / "configs" / "protocols" / "pair.yaml"
    text = PROTOCOL.replace("optim.lr: an axis", "optim.lrr: an axis")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        two()
    assert str(caught.value).splitlines() == [
        "configs/protocols/pair.yaml:6: free: 'optim.lrr' is not a config key. "
        "Did you mean 'optim.lr'?"
    ]

import pytest
from goldens import assert_golden, drawn
from run_folders import SWEEP, write_sweep

from rltune.comparability.check import check_sweep
from rltune.report.render_check import check_json, proof_view, protocol_view
from rltune.spec.load import load_sweep

CONFOUNDED = SWEEP.replace("  loss.entropy_coeff: 0.0\n", "").replace("[0, 1, 2]", "[0, 1]")


def proof(folder, text, width, monkeypatch):
    monkeypatch.chdir(folder)
    write_sweep(folder, text)
    loaded = load_sweep("sweeps/kl.yaml")
    return drawn(proof_view(loaded, check_sweep(loaded)), width)


@pytest.mark.parametrize("width", [80, 120])
def test_proof_text(tmp_path, monkeypatch, width):
    assert_golden(f"check_{width}", proof(tmp_path, SWEEP, width, monkeypatch))


@pytest.mark.parametrize("width", [80, 120])
def test_refused_proof_text(tmp_path, monkeypatch, width):
    assert_golden(f"check_refused_{width}", proof(tmp_path, CONFOUNDED, width, monkeypatch))


def test_accepted_warning_shows_its_reason(tmp_path, monkeypatch):
    text = SWEEP.replace("[0, 1, 2]", "[0]") + "accept: {S8: never found here}\n"
    said = proof(tmp_path, text, 80, monkeypatch)
    assert "No claim can be made from 1 seed." in said
    text = SWEEP.replace("kl_type: k2", "kl_type: k1")
    text += "accept: {S8.k1_loss: it is the published loss}\n"
    said = proof(tmp_path, text, 80, monkeypatch)
    assert "S8 accepted" in said
    assert "accepted: it is the published loss" in said


def test_a_bundle_says_why_its_keys_are_one_axis(tmp_path, monkeypatch):
    bundle = """axis:
  key: optim
  values: {slow: {lr: 1e-4, epochs: 1}, fast: {lr: 2e-4, epochs: 1}}
  control: slow
  why: the product of both is what is asked about
"""
    text = SWEEP[: SWEEP.index("axis:")] + bundle + SWEEP[SWEEP.index("seeds:") :]
    text = text.replace("protocol: figure3\n", "").replace(
        "hold:\n", "hold:\n  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0\n"
    )
    said = proof(tmp_path, text, 120, monkeypatch)
    assert "one intervention, because the product of both is what is asked about" in said
    loaded = load_sweep("sweeps/kl.yaml")
    found = check_json([loaded], [check_sweep(loaded)])
    assert found["sweeps"][0]["why"] == "the product of both is what is asked about"


def test_a_held_key_names_the_conditions_that_do_not_have_it(tmp_path, monkeypatch):
    axis = "axis: {key: loss.kind, values: [ppo, gspo], control: ppo}\n"
    text = SWEEP[: SWEEP.index("axis:")] + axis + SWEEP[SWEEP.index("seeds:") :]
    text = text.replace("hold:\n", "hold:\n  loss.dual_clip: 2.0\n  loss.clip_low: 0.1\n")
    said = proof(tmp_path, text, 200, monkeypatch)
    assert "loss.dual_clip: 2.0 (no key of kind=gspo), loss.clip_low: 0.1, " in said


def test_json_of_a_refused_sweep(tmp_path):
    loaded = load_sweep(write_sweep(tmp_path, CONFOUNDED))
    found = check_json([loaded], [check_sweep(loaded)])
    assert found["ok"] is False
    assert [item["rule"] for item in found["sweeps"][0]["errors"]] == ["S3"]
    assert [item["rule"] for item in found["sweeps"][0]["warnings"]] == ["S4"]


def test_protocol_text(tmp_path):
    first = load_sweep(write_sweep(tmp_path))
    other = write_sweep(tmp_path).with_name("other.yaml")
    other.write_text(SWEEP.replace("budget.steps: 20", "budget.steps: 21"))
    said = " ".join(drawn(protocol_view([first, load_sweep(other)]), 200).split())
    assert "follow protocol figure3 but differ in budget.steps (20 and 21)." in said
    assert "S9 ok: kl, kl agree" in drawn(protocol_view([first, first]), 200)

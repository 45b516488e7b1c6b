"""`rltune model` over run folders with one finished trial of two steps."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from patience import HANG_S
from trained_folder import adapted, trained_folder

from rltune.policy.tiny import SHIPPED

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder whose first trial is done: all weights, with a critic."""
    run, _ = trained_folder(tmp_path_factory.mktemp("finished"), which=0)
    return run.path


@pytest.fixture(scope="module")
def lora32(tmp_path_factory):
    """A run folder whose trial trained an adapter, with blocks computed again."""
    return adapted(tmp_path_factory.mktemp("lora32"), "float32")


@pytest.fixture(scope="module")
def lora16(tmp_path_factory):
    return adapted(tmp_path_factory.mktemp("lora16"), "bfloat16")


@pytest.fixture(params=["lora32", "lora16"])
def lora(request):
    return request.getfixturevalue(request.param)


def gate_of(folder, trial, step, *, lora=None, base=None):
    """Play a trial's gate with the policy of a folder; return rewards, successes, digests."""
    from rltune.policy.load import load_policy
    from rltune.rollout.torch_engine import TorchEngine
    from rltune.spec.schema.trial import TrialConfig
    from rltune.trainer.final_test import read_manifest
    from rltune.trainer.heldout import evaluate
    from rltune.trainer.tasks import env_maker

    config = TrialConfig.model_validate(trial.read_spec().config)
    policy = load_policy(
        str(base or folder),
        dtype=config.policy.dtype,
        template=config.policy.template,
        is_bare=True,
        env_kind="",
        device="cpu",
        lora=lora,
    )
    origin = json.loads(trial.provenance.read_text())
    manifest = read_manifest(trial.path.parents[1], origin["manifest_sha256"])
    result = evaluate(
        config,
        policy,
        TorchEngine(policy.decoder()),
        manifest.heldout,
        make_env=env_maker(config.env, config.reward, Path.cwd()),
        step=step,
    )
    return {
        "success": [int(one.success) for one in result.episodes],
        "reward": [one.reward for one in result.episodes],
        "tasks_sha256": result.tasks_sha256,
    }


def recorded_gate(trial, step):
    rows = [json.loads(line) for line in trial.heldout.read_text().splitlines()]
    (row,) = [row for row in rows if row["step"] == step]
    return {key: row[key] for key in ("success", "reward", "tasks_sha256")}


def exported(rltune, *arguments):
    result = rltune("model", *arguments, "--json")
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


@pytest.mark.parametrize("which", ["best", "best_heldout", "latest", "1"])
def test_the_gate_of_the_folder_is_the_recorded_one(rltune, trial, which, tmp_path):
    facts = exported(rltune, "0.0@0", "--out", "out", "--checkpoint", which)
    best = trial.read_done().best_step
    assert facts["step"] == {"best": best, "best_heldout": best, "latest": 2, "1": 1}[which]
    assert gate_of(tmp_path / "out", trial, facts["step"]) == recorded_gate(trial, facts["step"])


def test_the_checkpoint_and_the_folder_hold_the_same_weights(rltune, trial):
    from rltune.trainer.start import checkpoint_digest

    facts = exported(rltune, "0.0@0", "--out", "out", "--checkpoint", "latest")
    assert facts["weights_sha256"] == checkpoint_digest(trial.checkpoint(2))
    assert facts["weights_sha256"] != checkpoint_digest(trial.checkpoint(1))


def test_the_adapter_of_a_trial_plays_its_gate_again(lora, rltune, tmp_path):
    from rltune.spec.schema.trial import TrialConfig

    (trial,) = lora.trial_dirs()
    facts = exported(rltune, str(trial.path), "--out", "out", "--checkpoint", "2")
    assert facts["kind"] == "adapter"
    config = TrialConfig.model_validate(trial.read_spec().config)
    again = config.policy.lora.model_copy(update={"init": str(tmp_path / "out")})
    played = gate_of(tmp_path / "out", trial, 2, lora=again, base=config.policy.model)
    assert played == recorded_gate(trial, 2)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")  # peft's use of it
def test_merged_agrees_with_peft_over_the_same_base(lora, rltune, tmp_path):
    """In bfloat16 the trial rounds its base; the merged model is that of the base in float32."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    (trial,) = lora.trial_dirs()
    exported(rltune, str(trial.path), "--out", "adapter")
    assert exported(rltune, str(trial.path), "--out", "merged", "--merge")["kind"] == "model"
    base = AutoModelForCausalLM.from_pretrained(trial.read_spec().config["policy"]["model"])
    unmerged = PeftModel.from_pretrained(base, tmp_path / "adapter")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    ids = torch.arange(2, 14)[None]
    with torch.no_grad():
        difference = unmerged(input_ids=ids).logits - merged(input_ids=ids).logits
    assert difference.abs().max() < 1e-5


def test_the_card_says_what_was_measured(rltune, trial, run):
    facts = exported(rltune, "0.0@0", "--out", "out", "--checkpoint", "2")
    text = Path("out/README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    data = yaml.safe_load(head)
    row = recorded_gate(trial, 2)
    heldout = data["rltune"]["heldout"]
    assert (heldout["n"], heldout["successes"]) == (4, sum(row["success"]))
    low, high = heldout["interval"]
    rate = sum(row["success"]) / 4
    assert low <= rate <= high
    manifest = json.loads(run.tasks().read_text())
    assert heldout["floor"] == manifest["heldout_floor"]
    assert data["rltune"]["manifest_sha256"] == manifest["sha256"]
    assert data["library_name"] == "transformers"
    assert "base_model" not in data  # a folder is no model of the hub
    (result,) = data["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "success_rate", "value": rate, "name": "held-out"}]
    assert f"- held-out: {rate:.3f} [{low:.3f}, {high:.3f}] (95 % Wilson, " in body
    assert f"- random player: {manifest['heldout_floor']['rate']:.3f}\n" in body
    assert "The critic is not part of the model" in body
    assert f"rltune rerun {trial.trial_id} --verify\n" in body
    origin = json.loads(trial.provenance.read_text())
    for name, digest in origin["inputs"].items():
        assert f"- `{name}`: {digest}\n" in body
    written = json.loads(Path("out/rltune.json").read_text())
    assert {"folder": "out", **written} == facts


@pytest.mark.parametrize("given", [["--runs-dir", "my runs"], ["--runs-dir=my runs"]])
def test_the_commands_of_the_card_look_where_the_launch_wrote(rltune, trial, given):
    origin = json.loads(trial.provenance.read_text())
    argv = ["/bin/rltune", "sweep", "kl.yaml", *given]
    trial.provenance.write_text(json.dumps({**origin, "argv": argv}))
    exported(rltune, "0.0@0", "--out", "out")
    text = Path("out/README.md").read_text(encoding="utf-8")
    commands = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)[0].splitlines()[1:]
    assert [shlex.split(line)[1] for line in commands] == ["sweep", "rerun", "model"]
    assert all(shlex.split(line)[-len(given) :] == given for line in commands)


def test_a_final_test_of_this_checkpoint_is_in_the_card(rltune, trial):
    record = json.loads(rltune("test", "0.0@0", "--json").out)
    facts = exported(rltune, "0.0@0", "--out", "out")
    assert facts["test"]["success_rate"] == record["success_rate"]
    other = next(step for step in (0, 1, 2) if step != record["step"] and step)
    facts = exported(rltune, "0.0@0", "--out", "other", "--checkpoint", str(other))
    assert facts["test"] is None


def test_an_adapter_says_which_base_it_changes_and_has_no_critic(lora32, rltune):
    (trial,) = lora32.trial_dirs()
    folder = Path(trial.read_spec().config["policy"]["model"])
    exported(rltune, str(trial.path), "--out", "out")
    text = Path("out/README.md").read_text(encoding="utf-8")
    assert "library_name: peft\n" in text
    assert 'from_pretrained("BASE_FOLDER")' in text
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert f"BASE_FOLDER is a copy of the folder {folder.name!r}" in text
    assert f"`model.safetensors` has the sha256 {digest}." in text
    saved = json.loads(Path("out/adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == folder.name
    assert "critic" not in text


@pytest.mark.parametrize("merge", [[], ["--merge"]])
def test_no_file_names_a_path_of_the_base_on_this_machine(lora32, rltune, merge):
    """The config gives the base by its whole path."""
    (trial,) = lora32.trial_dirs()
    folder = Path(trial.read_spec().config["policy"]["model"])
    assert folder.is_absolute()
    exported(rltune, str(trial.path), "--out", "out", *merge)
    for path in Path("out").iterdir():
        assert str(folder).encode() not in path.read_bytes(), path.name


def test_an_adapter_is_trained_on_in_another_place_and_refused_on_other_weights(lora32, rltune):
    from safetensors.torch import load_file, save_file

    from rltune.errors import InputError
    from rltune.policy.load import policy_of
    from rltune.spec.schema.trial import TrialConfig

    (trial,) = lora32.trial_dirs()
    exported(rltune, str(trial.path), "--out", "out")
    config = TrialConfig.model_validate(trial.read_spec().config)
    for name in ("policy", "renamed"):
        shutil.copytree(config.policy.model, Path("there", name))
    lora = config.policy.lora.model_copy(update={"init": "out"})
    for name in ("policy", "renamed"):
        section = config.policy.model_copy(update={"model": f"there/{name}", "lora": lora})
        policy_of(config.model_copy(update={"policy": section}), Path.cwd(), device="cpu")
    weights = Path("there/policy/model.safetensors")
    changed = {name: tensor * 2 for name, tensor in load_file(weights).items()}
    save_file(changed, weights, metadata={"format": "pt"})
    section = config.policy.model_copy(update={"model": "there/policy", "lora": lora})
    with pytest.raises(InputError, match="it was made for the base model 'policy'"):
        policy_of(config.model_copy(update={"policy": section}), Path.cwd(), device="cpu")


LICENSES = [
    pytest.param("", {"license": "unknown"}, id="no card"),
    pytest.param("# no metadata\n", {"license": "unknown"}, id="no metadata"),
    pytest.param("---\ntags: [a\n---\n", {"license": "unknown"}, id="broken"),
    pytest.param("---\nlicense: mit\n---\n", {"license": "mit"}, id="mit"),
    pytest.param(
        "---\nlicense: other\nlicense_name: qwen-research\ntags: [a]\n---\n",
        {"license": "other", "license_name": "qwen-research"},
        id="other",
    ),
]


@pytest.mark.parametrize(("card", "metadata"), LICENSES)
def test_the_licence_of_a_folder_is_that_of_its_card(tmp_path, card, metadata):
    from rltune.trainer.models.base import license_of

    if card:
        (tmp_path / "README.md").write_text(card)
    assert license_of(tmp_path) == metadata


def test_the_licence_of_the_base_is_in_the_card_or_said_to_be_unknown(rltune, trial):
    folder = Path(trial.read_spec().config["policy"]["model"])
    exported(rltune, "0.0@0", "--out", "unknown")
    text = Path("unknown/README.md").read_text(encoding="utf-8")
    assert "\nlicense: unknown\n" in text
    assert "- licence of the base: unknown, its folder does not say" in text
    try:
        (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
        exported(rltune, "0.0@0", "--out", "known")
    finally:
        (folder / "README.md").unlink()
    text = Path("known/README.md").read_text(encoding="utf-8")
    assert "\nlicense: apache-2.0\n" in text
    assert "- licence of the base: apache-2.0\n" in text


def test_the_checksums_are_of_all_files(rltune, trial):
    exported(rltune, "0.0@0", "--out", "out")
    lines = Path("out/SHA256SUMS").read_text().splitlines()
    names = {line[66:] for line in lines}
    assert names == {path.name for path in Path("out").iterdir()} - {"SHA256SUMS"}
    for line in lines:
        assert hashlib.sha256((Path("out") / line[66:]).read_bytes()).hexdigest() == line[:64]


def test_the_text_says_what_it_is_and_how_to_use_it(rltune, trial):
    result = rltune("model", "0.0@0", "--out", "out", "--checkpoint", "latest")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"out: model of {trial.trial_id}, step 2\nheld-out success ")
    assert result.out.endswith("Load it: out/README.md. Train on: --set policy.model=out\n")


def test_a_folder_with_files_is_refused_before_anything_is_loaded(rltune, trial):
    Path("out").mkdir()
    Path("out/mine").write_text("1")
    result = rltune("model", "0.0@0", "--out", "out")
    assert (result.code, result.err) == (
        2,
        "error: --out out: the folder has files in it. Give a new folder.\n",
    )
    assert [path.name for path in Path("out").iterdir()] == ["mine"]


def test_merging_all_weights_is_refused(rltune, trial):
    result = rltune("model", "0.0@0", "--out", "out", "--merge")
    assert result.code == 2
    assert "--merge: the trial trained all weights, so there is no adapter to merge." in result.err


@pytest.mark.parametrize("which", ["9", "last"])
def test_a_checkpoint_that_is_not_there_is_refused(rltune, trial, which):
    result = rltune("model", "0.0@0", "--out", "out", "--checkpoint", which)
    assert result.code == 2
    assert repr(which) in result.err
    assert "0, 1, 2" in result.err or "steps 1, 2" in result.err
    assert not Path("out").exists()


def test_a_trial_that_has_not_started_is_refused(rltune, trial):
    result = rltune("model", "0.01@1", "--out", "out")
    assert result.code == 2
    assert "the trial has not started" in result.err


def test_a_trial_that_still_runs_gets_a_warning(rltune, trial):
    trial.done.unlink()
    result = rltune("model", "0.0@0", "--out", "out")
    assert result.code == 0
    assert result.err == (
        "The trial has not finished: its gate may still choose another checkpoint.\n"
    )
    assert json.loads(Path("out/rltune.json").read_text())["status"] == "running"


def test_a_damaged_checkpoint_is_refused_and_nothing_is_left(rltune, trial):
    path = trial.checkpoint(2) / "policy.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()  # it may be a hard link
    path.write_bytes(data)
    result = rltune("model", "0.0@0", "--out", "out", "--checkpoint", "2")
    assert result.code == 2
    assert "policy.safetensors was changed after it was written: its sha256 differs" in result.err
    assert not [name for name in os.listdir() if "out" in name]


def test_another_base_than_the_trials_is_refused(lora32, rltune, tmp_path):
    from safetensors.torch import load_file, save_file

    (trial,) = lora32.trial_dirs()
    shutil.copytree(lora32.path.parent, tmp_path / "moved", symlinks=True)
    there = tmp_path / "moved" / lora32.path.name / "trials" / trial.trial_id
    spec, origin = (json.loads((there / n).read_text()) for n in ("spec.json", "provenance.json"))
    weights = tmp_path / "moved" / "policy" / "model.safetensors"
    changed = {name: tensor * 2 for name, tensor in load_file(weights).items()}
    save_file(changed, weights, metadata={"format": "pt"})
    spec["config"]["policy"]["model"] = str(tmp_path / "moved" / "policy")
    (there / "spec.json").write_text(json.dumps(spec))
    (there / "provenance.json").write_text(json.dumps({**origin, "base": str(tmp_path)}))
    result = rltune("model", str(there), "--out", "out")
    assert result.code == 2
    assert "began with other weights" in result.err


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_is_left(rltune, trial, tmp_path):
    """A file system of 40 KiB, which only root can mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(disk)], check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        result = rltune("model", "0.0@0", "--out", str(disk / "out"))
        assert result.code == 2
        assert "no space is left on its disk" in result.err
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_the_ten_lines_of_the_page_play_a_level(tmp_path):
    """As they stand there, in a process of its own, over the shipped policy in an export."""
    from rltune.policy.export import Sampling, write_model
    from rltune.policy.load import load_policy

    page = (ROOT / "docs" / "take-away.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in lines.splitlines() if line]) <= 12
    (tmp_path / "my-model").mkdir()
    tiny = load_policy(
        "tiny", dtype="float32", template="plain", is_bare=True, env_kind="sokoban", device="cpu"
    )
    write_model(tiny, tmp_path / "my-model", Sampling(1.0, 8))
    done = subprocess.run(
        [sys.executable, "-c", lines + "\nimport sys; print('rltune' in sys.modules)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    text, _, last = done.stdout.strip().rpartition("\n")
    assert text.endswith(("True", "False"))
    assert text.count("<answer>") >= 1
    assert last == "False"


def test_the_shipped_policy_is_named_by_its_folder_in_the_package(rltune, trial):
    from rltune.spec.schema.trial import TrialConfig
    from rltune.trainer.models.base import base_model

    config = TrialConfig.model_validate(trial.read_spec().config)
    tiny = config.model_copy(update={"policy": config.policy.model_copy(update={"model": "tiny"})})
    base = base_model(tiny, Path.cwd())
    assert base.name == "rltune/policy/weights/sokoban"
    assert base.license == {"license": "apache-2.0"}
    digest = hashlib.sha256((SHIPPED / "sokoban" / "model.safetensors").read_bytes()).hexdigest()
    assert base.files == {"model.safetensors": digest}

"""An adapter that a service trained comes here as peft saves it, and computes the same."""

import json

import httpx
import pytest
import torch

from rltune.errors import RemoteError, StoreError
from rltune.policy.adapter_folder import CONFIG, WEIGHTS
from rltune.policy.lora import add_adapter
from rltune.policy.source import read_model
from rltune.remote.download import download_adapter
from rltune.remote.model import RemoteModel
from rltune.remote.session import Session
from rltune.spec.schema.trial import LoraConfig, TrialConfig
from rltune.store.files import sha256_file
from rltune.store.rundir import TrialDir
from rltune.trainer.models.export import Trained, trained_policy
from rltune.trainer.ranks.scoring import score_actions

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # see `_sdk_garbage`
IDS = torch.tensor([[5, 6, 7, 3, 9, 2]])
MASK = torch.tensor([[0, 0, 0, 1, 1, 1]], dtype=torch.bool)


@pytest.fixture
def trained(connected):
    """A model after a step, and the path of its state."""
    session = Session("tiny/sokoban", timeout_s=60.0)
    model = RemoteModel(session, rank=4, seed=1)
    torch.autograd.backward(-model.logprobs(IDS, MASK).sum())
    model.step(lr=1e-2, betas=(0.9, 0.999), decay=0.0, clip=1.0)
    yield model, model.save("step-000001")
    session.close()


@torch.no_grad()
def test_what_was_downloaded_scores_as_the_service_does(trained, tmp_path):
    model, path = trained
    download_adapter(model.session, path, tmp_path)
    network, _ = read_model("tiny", "sokoban")
    base = score_actions(network.eval(), IDS, MASK, temperature=1.0).tokens.logprobs_M
    add_adapter(network, LoraConfig(rank=4, alpha=32, init=str(tmp_path)), seed=0)
    here = score_actions(network, IDS, MASK, temperature=1.0).tokens.logprobs_M
    torch.testing.assert_close(here, model.logprobs(IDS, MASK), rtol=0, atol=1e-5)
    assert (here - base).abs().max() > 0.1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((CONFIG, WEIGHTS))


def test_nothing_is_left_on_the_service(trained, tmp_path, connected):
    model, path = trained
    folder = connected._service.external._folder
    before = sorted(folder.rglob("*"))
    download_adapter(model.session, path, tmp_path)
    assert sorted(folder.rglob("*")) == before


def test_a_service_that_hands_out_no_adapters_is_named(trained, tmp_path, connected, monkeypatch):
    model, path = trained
    monkeypatch.delitem(connected._service.calls, "save_weights_external")
    with pytest.raises(RemoteError, match="did not write its adapter for other programs: "):
        download_adapter(model.session, path, tmp_path)


def test_other_files_than_those_of_peft_are_named(trained, tmp_path, connected, monkeypatch):
    model, path = trained
    answer = {"urls": {"model.safetensors": connected.url}, "expires": "2030-01-01T00:00:00Z"}
    external = connected._service.external
    monkeypatch.setattr(external, "addresses", lambda model, name, root: answer)
    with pytest.raises(RemoteError, match=r"wrote model.safetensors for an adapter, and not adapt"):
        download_adapter(model.session, path, tmp_path)


@pytest.mark.parametrize(
    ("now", "config_hash", "said"),
    [
        ('{"path": "tinker://another"}', "h", "remote.json was changed after it was written"),
        ('{"path": "tinker://one"}', "other", "belongs to config h, not other"),
    ],
)
def test_a_checkpoint_that_is_torn_or_of_another_config_is_named(tmp_path, now, config_hash, said):
    trial = TrialDir(tmp_path / "trial").create()
    folder = trial.checkpoint(3)
    folder.mkdir(parents=True)
    (folder / "remote.json").write_text('{"path": "tinker://one"}')
    digests = {"remote.json": sha256_file(folder / "remote.json")}
    (folder / "state.json").write_text(json.dumps({"config_hash": "h", "sha256": digests}))
    (folder / "remote.json").write_text(now)
    policy = {"model": "tiny", "lora": {"rank": 4, "alpha": 32.0}}
    env = {"kind": "sokoban", "prompt": "compact"}
    tree = {"env": env, "policy": policy, "advantage": {"kind": "grpo"}}
    config = TrialConfig.model_validate({**tree, "trainer": {"backend": "tinker"}})
    source = Trained(trial, config, config_hash, tmp_path, 3)
    with pytest.raises(StoreError, match=said):
        trained_policy(source)


@pytest.mark.parametrize("file", ["files/..%2fsecret", "files/state.json", "files/", ""])
def test_no_other_file_is_served(connected, file):
    place = f"{connected.url}/api/v1/training_runs/a:train:0/checkpoints/external_weights/b/{file}"
    answer = httpx.get(place)
    assert answer.status_code in (404, 422)
    assert "there is no" in answer.text

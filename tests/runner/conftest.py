"""A sweep small enough to train in seconds, with an untrained policy in a folder."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from small_sweep import save_policy, small_sweep
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rltune.runner.folder import freeze_all
from rltune.runner.provenance import driver_provenance
from rltune.runner.trial import TrialPayload
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.rundir import RunDir
from rltune.types import TrialSpec

WriteSweep = Callable[..., Path]
MakePayload = Callable[..., TrialPayload]


@pytest.fixture(scope="session")
def small_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def bytes_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model that can write every text: one token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate(["<end>", "<pad>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    ids = {"vocab_size": len(vocabulary), "eos_token_id": 0, "pad_token_id": 1}
    folder = tmp_path_factory.mktemp("bytes")
    Qwen2ForCausalLM(Qwen2Config(**ids, **shape, **heads)).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def write_sweep(small_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> WriteSweep:
    """Return a function that writes the small sweep and returns its path."""

    def write(*, steps: int = 2, gate_every: int = 2, checkpoint_every: int = 3) -> Path:
        path = tmp_path_factory.mktemp("sweep") / "small.yaml"
        text = small_sweep(
            policy=small_policy,
            steps=steps,
            gate_every=gate_every,
            checkpoint_every=checkpoint_every,
            turns=2,
        )
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def small(write_sweep: WriteSweep) -> LoadedSweep:
    return load_sweep(write_sweep())


@pytest.fixture
def models_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out that a process reads the models before a launch."""
    monkeypatch.setattr("rltune.trainer.preflight.models.require_readable", lambda readings: None)


@pytest.fixture
def threads() -> Iterator[None]:
    """Give torch its threads back after a trial that set them."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def payload_in() -> MakePayload:
    """Return a function that prepares one attempt of a trial in a run folder below a folder."""

    def make(
        folder: Path,
        loaded: LoadedSweep,
        *,
        condition: int = 0,
        attempt: int = 1,
        name: str = "run",
        stop_file: Path | None = None,
    ) -> TrialPayload:
        run = RunDir(folder / name).create()
        spec: TrialSpec = expand(loaded)[condition]
        tasks = freeze_all(run, [spec])
        return TrialPayload(
            spec=spec,
            folder=run.trial(spec.trial_id).path,
            manifest=tasks[spec.trial_id].path,
            metric=loaded.spec.metric,
            attempt=attempt,
            driver=driver_provenance(["test"]),
            stop_file=stop_file or folder / "stop",
            base=folder,
        )

    return make


@pytest.fixture
def make_payload(tmp_path: Path, threads: None, payload_in: MakePayload) -> MakePayload:
    """Return a function that prepares one attempt of a trial in a run folder of its own."""
    return partial(payload_in, tmp_path)

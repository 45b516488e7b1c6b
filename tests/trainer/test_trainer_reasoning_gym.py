"""Ten data sets of reasoning-gym, one a kind: two training steps each, with their own scorers."""

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rltune.policy.load import policy_of
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.sweep import Metric
from rltune.store.jsonl import append_jsonl, read_jsonl, read_metrics
from rltune.store.rundir import TrialDir
from rltune.track.base import MultiTracker
from rltune.track.jsonl import JsonlTracker
from rltune.trainer.job import Job
from rltune.trainer.loop import train
from rltune.trainer.preflight.learnable import require_learnable
from rltune.trainer.tasks import env_maker, freeze_tasks
from rltune_envs.generated import Dataset, entry_of
from rltune_envs.splits import Proof

pytestmark = pytest.mark.slow  # each starts a process that imports reasoning-gym, and trains

DATA_SETS = {  # name -> its arguments
    "simple_equations": {},  # algebra
    "word_sorting": {"max_words": 4},  # algorithmic
    "chain_sum": {"max_terms": 2},  # arithmetic
    "bf": {"difficulty": 1},  # code
    "figlet_font": {"max_word_len": 4},  # cognition
    "countdown": {"min_numbers": 3, "max_numbers": 3},  # games
    "simple_geometry": {},  # geometry
    "shortest_path": {"max_rows": 5, "max_cols": 5},  # graphs
    "list_functions": {},  # induction
    "knights_knaves": {},  # logic
}


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory):
    """Return the folder of an untrained model of one layer whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("bytes")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<end>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4096,
        bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def config_of(make_config, name, folder):
    return make_config(
        env={
            "kind": "verified",
            "source": f"reasoning_gym:{name}",
            "arguments": DATA_SETS[name],
            "verifier": {"kind": "reasoning_gym", "extract": "whole"},
            "train_tasks": 8,
        },
        policy__model=str(folder),
        rollout__max_response_tokens=12,
        rollout__max_context=4000,
        gate__tasks=4,
        gate__test_tasks=0,
        budget__steps=2,
        checkpoint__every=2,
    )


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_data_set_trains_with_its_own_scorer(make_config, tmp_path, byte_model, name):
    config = config_of(make_config, name, byte_model)
    manifest, make_env = freeze_tasks(config), env_maker(config.env)
    assert manifest.proved is Proof.GOLD_RESPONSE
    policy = policy_of(config, tmp_path, device="cpu")
    warnings = []
    require_learnable(policy, config.rollout, manifest, make_env(), warn=warnings.append)
    assert warnings == []
    trial = TrialDir(tmp_path / "trial").create()
    train(
        Job(
            config=config,
            config_hash="c" * 64,
            trial=trial,
            manifest=manifest,
            make_env=make_env,
            policy=policy,
            engine=TorchEngine(policy.decoder()),
            tracker=MultiTracker((JsonlTracker(record_of(trial)),)),
            metric=Metric(name="heldout/reward_mean"),
            should_stop=lambda: False,
            warn=lambda line: None,  # an untrained model stops nowhere
            say=lambda line: None,
        )
    )
    assert [row["step"] for row in read_metrics(trial.metrics).rows] == [0, 1, 2]
    episodes = read_jsonl(trial.episodes).rows
    assert [one["fault"] for one in episodes] == [""] * 16
    assert [one["reward"] for one in episodes] == [scored(name, one) for one in episodes]


def record_of(trial):
    return lambda row: append_jsonl(trial.metrics, row)


def scored(name, episode):
    """Return what the data set itself says to the response of an episode."""
    import reasoning_gym

    entry = entry_of(Dataset(name, json.dumps(DATA_SETS[name])), episode["task_seed"])
    answer = episode["turns"][0]["response"].strip()
    dataset = reasoning_gym.create_dataset(name, **DATA_SETS[name], seed=0, size=1)
    return round(dataset.score_answer(answer, entry), 6) if answer else 0.0

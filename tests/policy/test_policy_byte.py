"""The small policy that reads any text: its tokens, its folder, and what it is taught."""

import pytest
import torch

from rltune.policy.byte_policy import Demonstration, byte_policy, byte_tokenizer, save, teach
from rltune.policy.load import load_policy


@pytest.mark.parametrize("text", ["1 + 1", " two  blanks\n", "äß", "東京", "🙂", ""])
def test_each_byte_is_a_token_and_every_text_comes_back(text):
    policy = byte_policy(context=64)
    ids = policy.renderer.written(text)
    assert len(ids) == len(text.encode())
    assert policy.renderer.decode([*ids, policy.end_ids[0]]) == text


def test_the_text_of_its_end_in_a_problem_ends_nothing():
    policy = byte_policy(context=64)
    assert policy.end_ids[0] not in policy.renderer.first("<end>", "<end>", "")


def test_its_folder_is_the_same_policy(tmp_path):
    policy = byte_policy(context=700)
    save(policy, tmp_path / "policy")
    loaded = load_policy(
        str(tmp_path / "policy"),
        dtype="float32",
        template="auto",
        is_bare=False,
        env_kind="verified",
        device="cpu",
    )
    assert loaded.weights_sha256 == policy.weights_sha256
    assert loaded.end_ids == policy.end_ids == (byte_tokenizer().eos_token_id,)
    assert loaded.renderer.first("", "5?", "") == policy.renderer.first("", "5?", "")
    assert loaded.model.config.max_position_embeddings == 700


@pytest.mark.slow
def test_it_learns_what_it_is_shown_and_the_end():
    policy = byte_policy(context=64)
    shown = [Demonstration("", "2+2", "4"), Demonstration("", "3+3", "6")]
    before = teach(policy, shown, steps=1)
    after = teach(policy, shown, steps=60)
    assert after < 0.1 < before
    prompt = policy.renderer.first("", "3+3", "")
    for expected in (*policy.renderer.written("6"), policy.end_ids[0]):
        logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1]
        assert logits.argmax() == expected
        prompt.append(expected)

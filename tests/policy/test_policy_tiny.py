import pytest

from rltune.policy.tiny import END, UNKNOWN, tiny_model, tiny_tokenizer
from rltune_envs.sokoban import SokobanEnv


def test_cells_actions_and_tags_are_single_tokens():
    tokenizer = tiny_tokenizer()
    text = "<answer>Up||Down||Left||Right</answer>#_OX√PS"
    pieces = tokenizer.convert_ids_to_tokens(tokenizer.encode(text))
    assert pieces == [
        *("<answer>", "Up", "||", "Down", "||", "Left", "||", "Right", "</answer>"),
        *"#_OX√PS",
    ]
    assert tokenizer.eos_token == END
    assert len(tokenizer) == 16


@pytest.mark.parametrize("seed", range(5))
def test_every_compact_observation_and_answer_is_read_without_loss(seed):
    tokenizer, env = tiny_tokenizer(), SokobanEnv(prompt="compact")
    text = env.reset(seed=seed) + env.format_response(["Up", "Left"])
    ids = tokenizer.encode(text)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == text


def test_foreign_text_is_unknown_not_lost():
    tokenizer = tiny_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("Up z")) == ["Up", UNKNOWN, UNKNOWN]


def test_about_a_million_parameters():
    n = sum(p.numel() for p in tiny_model(16).parameters())
    assert 0.7e6 < n < 1.1e6

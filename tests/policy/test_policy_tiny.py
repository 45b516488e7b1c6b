import pytest
from cases import each

from rltune.policy.tiny import END, UNKNOWN, language, tiny_model, tiny_tokenizer
from rltune.spec.warmstart_data import TAUGHT_ENVS
from rltune.trainer.warmstart import school_env


def pieces(kind, text):
    tokenizer = tiny_tokenizer(kind)
    return tokenizer.convert_ids_to_tokens(tokenizer.encode(text))


def test_cells_actions_and_tags_are_single_tokens():
    text = "<answer>Up||Down||Left||Right</answer>#_OX√PS"
    want = ["<answer>", "Up", "||", "Down", "||", "Left", "||", "Right", "</answer>", *"#_OX√PS"]
    assert pieces("sokoban", text) == want
    assert tiny_tokenizer("sokoban").eos_token == END
    assert len(tiny_tokenizer("sokoban")) == 16


def test_digits_signs_and_the_box_are_single_tokens():
    want = [*"12-3+4=9,", "\\boxed{", *"13}"]
    assert pieces("arithmetic", r"12-3+4=9,\boxed{13}") == want
    assert tiny_tokenizer("arithmetic").eos_token == "}"


def test_words_names_and_tags_of_the_closed_world_are_single_tokens():
    text = "Who is it?<search>Elba Birchford</search> <information>Its seat.</information>"
    assert pieces("multihop_qa", text) == [
        *("Who", "is", UNKNOWN, "?", "<search>", "Elba", "Birchford", "</search>"),
        *("<information>", "Its", "seat", ".", "</information>"),
    ]


def play(kind, seed):
    """Return what an expert's episode shows and answers, piece by piece."""
    env = school_env(kind)()
    texts = [env.reset(seed=seed)]
    while actions := env.expert_actions():
        response = env.format_response(actions)
        step = env.step(response)
        texts += [response, step.observation]
        if step.terminated or step.truncated:
            break
    return texts


@each("seed", range(5))
@each("kind", TAUGHT_ENVS)
def test_every_compact_observation_and_response_is_read_without_loss(kind, seed):
    tokenizer, spoken = tiny_tokenizer(kind), language(kind)
    for text in play(kind, seed):
        ids = tokenizer.encode(text)
        assert tokenizer.unk_token_id not in ids
        decoded = tokenizer.decode(ids)
        if spoken.is_spaced:  # blanks are no tokens
            decoded, text = decoded.replace(" ", ""), text.replace(" ", "")
        assert decoded == text


@pytest.mark.parametrize("kind", TAUGHT_ENVS)
def test_responses_end_where_the_model_stops(kind):
    tokenizer, env = tiny_tokenizer(kind), school_env(kind)()
    env.reset(seed=0)
    ends = tiny_model(kind).generation_config.eos_token_id
    last = tokenizer.encode(env.format_response(env.expert_actions()))[-1]
    assert last in (ends if isinstance(ends, list) else [ends])


def test_foreign_text_is_unknown_not_lost():
    assert pieces("sokoban", "Up z") == ["Up", UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("kind", TAUGHT_ENVS)
def test_at_most_about_a_million_parameters(kind):
    least, most = (0.2e6, 0.25e6) if kind == "arithmetic" else (0.7e6, 1.1e6)
    assert least < sum(p.numel() for p in tiny_model(kind).parameters()) < most

from cases import each

from rltune.store.secret import is_secret, masked

ENVIRON = {
    "OPENAI_API_KEY": "sk-abcdefgh",
    "WANDB_API_KEY": "sk-abcdefgh-longer",
    "SHORT_TOKEN": "1234567",
    "MONKEY": "a-primate-of-some-sort",
    "HOME": "/home/somebody",
}


@each(
    ("text", "written"),
    [
        ("401 for key sk-abcdefgh.", "401 for key ***."),
        ("sk-abcdefgh-longer", "***"),  # the longer one first, or `***-longer` would be left
        ("seed 1234567", "seed 1234567"),
        ("/home/somebody/runs", "/home/somebody/runs"),
        ("--set env.arguments.api_key=hunter2", "--set env.arguments.api_key=***"),
        ("https://h/?token=hunter2 failed", "https://h/?token=*** failed"),
        ("PASSWORD=hunter2", "PASSWORD=***"),
        ("rollout.max_response_tokens=400", "rollout.max_response_tokens=400"),
        ("judge.max_tokens=2e6", "judge.max_tokens=2e6"),
        ("a monkey=banana", "a monkey=banana"),
        ("--set env.arguments.password=12345678", "--set env.arguments.password=***"),
        ("Client(api_key='hunter2', n=1)", "Client(api_key='***', n=1)"),
        ('{"api_key": "hunter2", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("hf_token=hf_a1b2c3, seed=0", "hf_token=***, seed=0"),
        ("http://me:hunter2@proxy:8080/x failed", "http://***@proxy:8080/x failed"),
        # A program about language: its tokens are none.
        ("decode(max_tokens=400, tokens=tokens)", "decode(max_tokens=400, tokens=tokens)"),
        ("eos_token=<|im_end|>, pad_token=0", "eos_token=<|im_end|>, pad_token=0"),
        ("http://127.0.0.1:8000/retrieve", "http://127.0.0.1:8000/retrieve"),
    ],
)
def test_secrets_are_blotted_out_and_nothing_else(text, written):
    assert masked(text, ENVIRON) == written


def test_names_that_merely_end_like_one_are_masked_rather_than_leaked():
    # MONKEY ends in KEY: its value is long enough to be a key, so it goes.
    assert masked("a-primate-of-some-sort", ENVIRON) == "***"


@each(
    ("name", "value", "expected"),
    [
        ("env.arguments.api_key", "hunter2", True),
        ("env.arguments.hf_token", "hunter2", True),
        ("tracking.project", "of-sk-abcdefgh", True),
        ("attribution.llm.api_key_env", "OPENAI_API_KEY", False),
        ("env.arguments.stop_token", "</answer>", False),
        ("env.arguments.password", "", False),
    ],
)
def test_a_config_may_name_a_key_and_not_hold_it(name, value, expected):
    assert is_secret(name, value, ENVIRON) is expected

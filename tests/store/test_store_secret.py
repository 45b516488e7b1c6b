import pytest

from rltune.store.secret import masked

ENVIRON = {
    "OPENAI_API_KEY": "sk-abcdefgh",
    "WANDB_API_KEY": "sk-abcdefgh-longer",
    "SHORT_TOKEN": "1234567",
    "MONKEY": "a-primate-of-some-sort",
    "HOME": "/home/somebody",
}


@pytest.mark.parametrize(
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
    ],
)
def test_secrets_are_blotted_out_and_nothing_else(text, written):
    assert masked(text, ENVIRON) == written


def test_names_that_merely_end_like_one_are_masked_rather_than_leaked():
    # MONKEY ends in KEY: its value is long enough to be a key, so it goes.
    assert masked("a-primate-of-some-sort", ENVIRON) == "***"

"""Fixtures of the tests of `rltune.policy`."""

import pytest
from chat_tokenizers import make_chat_tokenizer


@pytest.fixture
def chat_tokenizer():
    """Return a maker of fast tokenizers, each with one of `TEMPLATES`."""
    return make_chat_tokenizer

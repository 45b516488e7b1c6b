"""A chat tokenizer made on the spot: characters, one merge, and ChatML's special tokens."""

import string

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINK_STRIPPED = CHATML.replace("m['content']", "m['content'].split('</think>')[-1]")
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
)
INST = (  # closes a response with a space and the end-of-text token
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }} <|endoftext|>"
    "{% else %}[{{ m['content'] }}]{% endif %}{% endfor %}"
)
TEMPLATES = {"chatml": CHATML, "stripped": THINK_STRIPPED, "no system": NO_SYSTEM, "inst": INST}


def make_chat_tokenizer(template: str = "chatml", *, eos: str = "<|im_end|>"):
    characters = string.ascii_letters + string.digits + string.punctuation + " \n√"
    tokens = ["<unk>", *characters, "ab"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("a", "b")], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token=eos,
        additional_special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        chat_template=TEMPLATES[template],
    )


@pytest.fixture
def chat_tokenizer():
    """Return a maker of fast tokenizers, each with one of `TEMPLATES`."""
    return make_chat_tokenizer

"""Chat tokenizers made on the spot: characters, one merge, and ChatML's special tokens."""

import string

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
TRIMMED = CHATML.replace("m['content']", "m['content'] | trim")
FORGETFUL = CHATML.replace("for m in messages", "for m in messages[-5:]")  # two turns, no more
MOVED = (  # the system text stands with the last question
    "{% for m in messages %}{% if m['role'] == 'user' %}[{% if loop.last %}{{ "
    "messages[0]['content'] }} {% endif %}{{ m['content'] }}]{% elif m['role'] == 'assistant' %}"
    "{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}"
)
NUMBERED = CHATML.replace("<|im_start|>{{", "<|im_start|>{{ loop.index }} {{")
DATED = "Today is {{ strftime_now('%d %b %Y') }}.\n" + CHATML
CHANCE = "{{ range(99999) | random }}\n" + CHATML
OPENS_THOUGHT = THINK_STRIPPED.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
EMPTY_THOUGHT = CHATML.replace(
    "{{ m['content'] }}",
    "{% if m['role'] == 'assistant' and '</think>' not in m['content'] and not loop.last %}"
    "<think></think>{% endif %}{{ m['content'] }}",
)
TEMPLATES = {
    "chatml": CHATML,
    "stripped": THINK_STRIPPED,
    "trimmed": TRIMMED,
    "forgetful": FORGETFUL,
    "moved": MOVED,
    "numbered": NUMBERED,
    "dated": DATED,
    "chance": CHANCE,
    "opens thought": OPENS_THOUGHT,
    "empty thought": EMPTY_THOUGHT,
    "no system": NO_SYSTEM,
    "inst": INST,
}


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

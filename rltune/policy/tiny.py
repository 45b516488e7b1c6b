"""The tiny policy: a Qwen2 of about 0.9 M parameters; cells and actions are single tokens.

The package ships its weights; `rltune warmstart` makes them again.
"""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SHIPPED = Path(__file__).parent / "weights"
PAD, UNKNOWN, END = "<pad>", "<unk>", "</answer>"
_WORDS = ("<answer>", END, "||", "Up", "Down", "Left", "Right")
_CELLS = "#_OX√PS"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token per cell, action and tag; `</answer>` ends a response."""
    vocabulary = {token: index for index, token in enumerate((PAD, UNKNOWN, *_WORDS, *_CELLS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    pattern = "|".join(word.replace("|", r"\|") for word in _WORDS) + "|."
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN, eos_token=END
    )


def tiny_model(
    vocabulary_size: int, *, hidden_size: int = 128, layers: int = 4, heads: int = 4
) -> Qwen2ForCausalLM:
    """Return the untrained model; its weights follow torch's global random state."""
    config = Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1 + 1 + _WORDS.index(END),
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config)

"""The tiny policies: Qwen2 models of 0.2 to 0.9 M parameters, one for each environment.

Each knows only the compact prompt of its environment: a cell, an action, a tag, a digit, or a word
of the closed world is one token. The package ships their weights; `rltune warmstart` makes them
again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rltune.policy.model_folder import SHIPPED as SHIPPED  # the weights of these policies

PAD, UNKNOWN, END = "<pad>", "<unk>", "</answer>"


@dataclass(frozen=True, slots=True)
class Language:
    """The vocabulary of a tiny policy."""

    words: tuple[str, ...]  # tokens of more than one character, tags included
    symbols: str  # tokens of one character
    ends: tuple[str, ...] = (END,)  # the words that end a response
    # whether spaces separate words; they are not tokens and come back on decoding
    is_spaced: bool = False
    width: int = 128  # of the network

    @property
    def vocabulary(self) -> dict[str, int]:
        """Token -> id; padding is 0 and the unknown token 1."""
        tokens = (PAD, UNKNOWN, *self.words, *self.symbols)
        return {token: index for index, token in enumerate(tokens)}


_UNSPACED = {
    "sokoban": Language(("<answer>", END, "||", "Up", "Down", "Left", "Right"), "#_OX√PS"),
    "frozen_lake": Language(("<answer>", END, "||", "Left", "Down", "Right", "Up"), "P_OGX√"),
    "arithmetic": Language(("\\boxed{",), "},0123456789+-=", ends=("}",), width=64),
}


def language(env_kind: str) -> Language:
    """Return the language of an environment's compact prompt.

    Raises:
        KeyError: There is no tiny policy for this environment.

    """
    return _multihop_qa() if env_kind == "multihop_qa" else _UNSPACED[env_kind]


def tiny_tokenizer(env_kind: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token per cell, action, word and tag."""
    spoken = language(env_kind)
    tokenizer = Tokenizer(models.WordLevel(spoken.vocabulary, unk_token=UNKNOWN))
    pattern = "|".join(re.escape(word) for word in spoken.words if not word.isalnum())
    if spoken.is_spaced:
        pieces = Regex(pattern + r"|\w+|[^\w\s]")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(pieces, behavior="isolated"),
                pre_tokenizers.Split(Regex(r"\s+"), behavior="removed"),
            ]
        )
    else:
        pattern = "|".join(map(re.escape, spoken.words)) + "|."
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN, eos_token=spoken.ends[-1]
    )


def tiny_model(
    env_kind: str, *, hidden_size: int | None = None, layers: int = 4, heads: int = 4
) -> Qwen2ForCausalLM:
    """Return the untrained model; its weights follow torch's global random state."""
    spoken = language(env_kind)
    return small_model(
        len(spoken.vocabulary),
        ends=[spoken.vocabulary[end] for end in spoken.ends],
        hidden_size=hidden_size or spoken.width,
        layers=layers,
        heads=heads,
    )


def small_model(
    vocabulary: int,
    *,
    ends: Sequence[int],
    context: int = 512,
    hidden_size: int = 128,
    layers: int = 4,
    heads: int = 4,
) -> Qwen2ForCausalLM:
    """Return an untrained model; its weights follow torch's global random state.

    Args:
        vocabulary: Number of token ids; 0 is padding.
        ends: Ids that end a response.
        context: Longest text, in tokens.
        hidden_size: Width of the network.
        layers: Its blocks.
        heads: Attention heads of a block.

    """
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=list(ends) if len(ends) > 1 else ends[0],
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config)


def _multihop_qa() -> Language:
    from rltune_envs.multihop_qa.world import WORDS

    tags = ("<search>", "</search>", "<answer>", END, "<information>", "</information>")
    return Language((*tags, *WORDS), "", ends=("</search>", END), is_spaced=True)

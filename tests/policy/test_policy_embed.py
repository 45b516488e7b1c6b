"""An embedding model of transformers: means over a text's own tokens, prefixes, cut texts."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rltune.errors import InputError
from rltune.policy.embed import TransformersEmbedder

WORDS = ["[PAD]", "[UNK]", "query:", "passage:", "amber", "bell", "castle"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


def test_a_vector_does_not_depend_on_what_is_embedded_beside_it(model):
    embedder = TransformersEmbedder(model, prefixes=("query: ", "passage: "))
    together = embedder.embed(["amber", "amber bell castle"], is_query=False)
    alone = embedder.embed(["amber"], is_query=False)
    assert together.shape == (2, 16)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together[:1], alone, atol=1e-6)  # padding counts for nothing


def test_queries_and_passages_have_their_prefixes(model):
    embedder = TransformersEmbedder(model, prefixes=("query: ", "passage: "))
    plain = TransformersEmbedder(model, prefixes=("", ""))
    query, passage = (embedder.embed(["amber"], is_query=one) for one in (True, False))
    np.testing.assert_array_equal(query, plain.embed(["query: amber"], is_query=True))
    np.testing.assert_array_equal(passage, plain.embed(["passage: amber"], is_query=True))
    assert embedder.name != plain.name


def test_a_long_text_is_cut(model):
    embedder = TransformersEmbedder(model, prefixes=("", ""))
    cut, long = (embedder.embed(["bell " * n], is_query=False) for n in (512, 600))
    np.testing.assert_array_equal(cut, long)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"--dense .*none: cannot be loaded: .* Give a folder"):
        TransformersEmbedder(str(tmp_path / "none"), prefixes=("", ""))

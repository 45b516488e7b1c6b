"""Gold answers as ids: which tokens are the answer's, be they words, letters, merges or bytes."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rltune.policy.gold import GoldCopy, encode_gold
from rltune.policy.tiny import tiny_tokenizer


def scored_text(tokenizer, before, gold, after):
    ids, scored = encode_gold(tokenizer, before, gold, after)
    assert len(ids) == len(scored)
    picked = [token for token, is_scored in zip(ids, scored, strict=True) if is_scored]
    return tokenizer.convert_ids_to_tokens(picked)


def test_the_tiny_sokoban_policy():
    # the response prefix <answer> is in the context already: the answer stands first
    got = scored_text(tiny_tokenizer("sokoban"), "", "Up||Left", "</answer>")
    assert got == ["Up", "||", "Left"]


def test_the_tiny_qa_policy_whose_tokens_leave_spaces_out():
    tokenizer = tiny_tokenizer("multihop_qa")
    words = [word for word in tokenizer.get_vocab() if word.isalpha()][:2]
    got = scored_text(tokenizer, "<answer> ", " ".join(words), " </answer>")
    assert got == words


def test_only_the_answer_is_scored_and_the_whole_response_is_kept(chat_tokenizer):
    tokenizer = chat_tokenizer()
    ids, scored = encode_gold(tokenizer, "x</think> <answer>", "Bob", "</answer><|im_end|>")
    assert tokenizer.decode(ids) == "x</think> <answer>Bob</answer><|im_end|>"
    assert [index for index, flag in enumerate(scored) if flag] == [18, 19, 20]  # after 18 letters
    assert not scored[-1]


@pytest.mark.parametrize(
    ("before", "gold", "after", "want"),
    [
        ("xa", "bc", "d", ["ab", "c"]),  # one token on both sides of the first border
        ("x", "ca", "by", ["c", "ab"]),  # and of the last one
        ("a", "b", "", ["ab"]),
        ("ab", "ab", "ab", ["ab"]),  # neighbours that only touch the answer do not count
        ("", "c", "", ["c"]),
    ],
)
def test_tokens_that_merge_across_a_border_count(chat_tokenizer, before, gold, after, want):
    assert scored_text(chat_tokenizer(), before, gold, after) == want


def test_all_bytes_of_one_character_count():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {token: index for index, token in enumerate(sorted(alphabet))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    got = scored_text(fast, "é ", "Zoë", " é")
    assert len(got) == 4  # Z, o, and two bytes
    assert got[:2] == ["Z", "o"]


def test_the_context_does_not_get_special_tokens(chat_tokenizer):
    tokenizer = chat_tokenizer()
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)]
    )
    assert tokenizer("c")["input_ids"][0] == start  # what a text of its own would begin with
    ids, _ = encode_gold(tokenizer, "", "c", "")
    assert ids == tuple(tokenizer.convert_tokens_to_ids(["c"]))


@pytest.mark.parametrize("gold", ["", " "])
def test_an_answer_without_a_token_is_refused(gold):
    with pytest.raises(ValueError, match=rf"^the gold answer '{gold}' has no token of its own; "):
        encode_gold(tiny_tokenizer("multihop_qa"), "<answer>", gold, "</answer>")


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match=r"^Slow does not know the characters .* load a fast"):
        encode_gold(Slow(), "", "a", "")


@pytest.mark.parametrize(
    ("context_end", "ids", "scored", "message"),
    [
        (0, (1,), (True,), r"^context_end is 0; a first token needs a context\.$"),
        (1, (1, 2), (True,), r"^2 ids and 1 flags, 1 of them True; "),
        (1, (1, 2), (False, False), r"^2 ids and 2 flags, 0 of them True; "),
        (1, (), (), r"^0 ids and 0 flags, 0 of them True; "),
    ],
)
def test_a_copy_without_a_score_is_refused(context_end, ids, scored, message):
    with pytest.raises(ValueError, match=message):
        GoldCopy(context_end, ids, scored)


def test_a_copy_is_read_up_to_its_last_scored_token():
    assert GoldCopy(1, (5, 6, 7, 8), (False, True, False, False)).n_read == 2

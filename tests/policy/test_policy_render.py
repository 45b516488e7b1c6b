"""From observations to ids (D1, D2, A7): a conversation only grows, and keeps what was sampled."""

import pytest
from tokenizers.processors import TemplateProcessing

from rltune.errors import InputError
from rltune.policy.render import ChatRenderer, PlainRenderer
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune.rollout.tokens import to_batch
from rltune.types import StopReason
from rltune_envs.base import Task
from rltune_envs.sokoban import SokobanEnv

SLOT = Slot(Task("t", 3, "", "", 1), group=0, member=0, seed=0)


def chat(tokenizer):
    return ChatRenderer(tokenizer, end_ids=[tokenizer.eos_token_id])


def plain(tokenizer):
    return PlainRenderer(tokenizer, user="\nUser: ", assistant="\nAssistant: ")


def play_script(tokenizer, renderer, responses, *, max_tokens=400, cap=2, turns=5):
    """Play one episode; return it and the context of each request."""
    contexts = []

    def script(request):
        contexts.append(list(request.prompt_ids))
        return responses[len(contexts) - 1]

    (episode,) = play(
        [SLOT],
        make_env=lambda: SokobanEnv(max_actions_per_turn=cap, max_turns=turns),
        renderer=renderer,
        engine=ScriptedEngine(script, end_ids=[tokenizer.eos_token_id], logprob=-0.5),
        params=SamplingParams(1.0, max_tokens, 20_000),
    )
    return episode, contexts


def answer(tokenizer, text, *, end=True):
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [*ids, tokenizer.eos_token_id] if end else ids


def as_messages(episode, system):
    messages = [{"role": "system", "content": system}]
    for turn in episode.turns:
        messages.append({"role": "user", "content": turn.observation})
        messages.append({"role": "assistant", "content": turn.response})
    return messages


@pytest.mark.parametrize("make_renderer", [chat, plain])
def test_the_context_of_a_turn_starts_with_all_that_came_before(chat_tokenizer, make_renderer):
    tokenizer = chat_tokenizer()
    texts = [
        "hm</think> <answer>Up</answer>",
        "no answer",
        "a</think><answer>Down || Up</answer> x",
    ]
    responses = [answer(tokenizer, text) for text in texts]
    episode, contexts = play_script(tokenizer, make_renderer(tokenizer), responses, turns=3)
    assert len(contexts) == len(episode.turns) == 3
    for turn, context, onward in zip(episode.turns, contexts, contexts[1:], strict=False):
        assert onward[: len(context) + len(turn.sampled_ids)] == [*context, *turn.sampled_ids]
        assert len(onward) > len(context) + len(turn.sampled_ids)
    assert [list(turn.sampled_ids) for turn in episode.turns] == responses


def test_the_whole_text_is_what_the_template_writes(chat_tokenizer):
    """The newline after <|im_end|> is there, and no end token is written twice."""
    tokenizer = chat_tokenizer()
    texts = ["hm</think> <answer>Up</answer>", "x</think> <answer>Down</answer>", "junk"]
    responses = [answer(tokenizer, text) for text in texts]
    episode, contexts = play_script(tokenizer, chat(tokenizer), responses, turns=3)
    env = SokobanEnv()
    want = tokenizer.apply_chat_template(
        as_messages(episode, env.system_prompt)[:-1], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(contexts[-1]) == want + env.response_prefix
    assert contexts[-1] == tokenizer.encode(want + env.response_prefix, add_special_tokens=False)


def test_a_response_that_was_cut_off_gets_its_end_from_the_template(chat_tokenizer):
    tokenizer = chat_tokenizer()
    responses = [answer(tokenizer, "abcdefghijkl"), answer(tokenizer, "x")]
    episode, contexts = play_script(tokenizer, chat(tokenizer), responses, max_tokens=5, turns=2)
    first = episode.turns[0]
    assert first.stop_reason is StopReason.LENGTH
    assert tokenizer.eos_token_id not in first.sampled_ids  # supplied as prompt, never trained
    assert episode.turns[1].prompt_ids[0] == tokenizer.eos_token_id
    want = tokenizer.apply_chat_template(
        as_messages(episode, SokobanEnv().system_prompt)[:-1],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert tokenizer.decode(contexts[1]) == want + "<think>"


REWRITING = ["stripped", "forgetful", "moved", "opens thought", "empty thought"]


@pytest.mark.parametrize("template", REWRITING)
def test_a_template_that_rewrites_history_is_refused(chat_tokenizer, template):
    """D2: thoughts, old turns or the system text go, or what the policy never wrote comes."""
    with pytest.raises(InputError) as caught:
        chat(chat_tokenizer(template))
    assert str(caught.value) == (
        "policy.template: the tokenizer's chat template is not prefix-preserving: it rewrites an "
        "earlier message when the conversation goes on, so trained tokens would differ from "
        "sampled ones. Set policy.template: append to use its frames around responses that stay "
        "as sampled, plain for no template, or use a model that only appends."
    )


@pytest.mark.parametrize("is_appended", [True, False])
@pytest.mark.parametrize(
    ("template", "why"), [("numbered", "same two frames"), ("chance", "it is random")]
)
def test_a_template_whose_frames_differ_is_refused(chat_tokenizer, template, why, is_appended):
    tokenizer = chat_tokenizer(template)
    with pytest.raises(InputError, match=rf"^policy\.template: .*{why}.* Set policy\.template: pl"):
        ChatRenderer(tokenizer, end_ids=[tokenizer.eos_token_id], is_appended=is_appended)


@pytest.mark.parametrize("template", ["chatml", "trimmed", *REWRITING])
def test_appended_frames_keep_every_sampled_id(chat_tokenizer, template):
    """D2: prompt(t + 1) starts with prompt(t) + sampled(t), and thoughts stay."""
    tokenizer = chat_tokenizer(template)
    renderer = ChatRenderer(tokenizer, end_ids=[tokenizer.eos_token_id], is_appended=True)
    texts = ["hm</think> <answer>Up</answer> ", "b</think><answer>Up</answer>", "no tags"]
    responses = [answer(tokenizer, text) for text in texts]
    episode, contexts = play_script(tokenizer, renderer, responses, turns=3)
    for context, onward, sampled in zip(contexts, contexts[1:], responses, strict=False):
        assert onward[: len(context) + len(sampled)] == [*context, *sampled]
    assert [list(turn.sampled_ids) for turn in episode.turns] == responses
    whole = tokenizer.decode(contexts[2])
    assert whole.count("<think>\n" if template == "opens thought" else "<think>") >= 3
    assert "<think>\n<think>" not in whole  # also where the template writes its own
    assert "hm</think> <answer>Up</answer> <|im_end|>" in whole


def test_the_date_of_a_template_stands_still(chat_tokenizer):
    tokenizer = chat_tokenizer("dated")
    assert tokenizer.decode(chat(tokenizer).first("S", "A", "")).startswith("Today is 26 Jul 2024")


def test_a_template_without_system_role_is_refused(chat_tokenizer):
    with pytest.raises(InputError, match=r"^policy\.template: .*\(no system role\)\. Set policy"):
        chat(chat_tokenizer("no system"))


def test_the_template_s_own_end_token_ends_a_response(chat_tokenizer):
    """A base model's config names <|endoftext|>; its chat template closes with <|im_end|>."""
    tokenizer = chat_tokenizer(eos="<|endoftext|>")
    text_end, im_end = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    renderer = ChatRenderer(tokenizer, end_ids=[text_end])
    assert set(renderer.end_ids) == {text_end, im_end}
    for is_ended in (True, False):
        between = tokenizer.decode(renderer.following("B", "", is_ended=is_ended))
        assert between == ("" if is_ended else "<|im_end|>") + (
            "\n<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\n"
        )


def test_an_end_token_behind_a_space_is_not_written_twice(chat_tokenizer):
    tokenizer = chat_tokenizer("inst", eos="<|endoftext|>")
    renderer = chat(tokenizer)
    assert set(renderer.end_ids) == {tokenizer.eos_token_id}
    assert tokenizer.decode(renderer.following("B", "", is_ended=True)) == "[B]"
    assert tokenizer.decode(renderer.following("B", "", is_ended=False)) == " <|endoftext|>[B]"


def test_no_system_message_without_system_text(chat_tokenizer):
    tokenizer = chat_tokenizer()
    ids = chat(tokenizer).first("", "A", "<think>")
    assert tokenizer.decode(ids) == "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>"


@pytest.mark.parametrize("user", ["", "\nUser: "])
def test_a_plain_conversation_begins_as_the_tokenizer_begins_a_text(chat_tokenizer, user):
    """D7: the model has never been without its begin-of-text token. The end is not for prompts."""
    tokenizer = chat_tokenizer()
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|endoftext|>"])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A <|endoftext|>",
        special_tokens=[("<|im_start|>", start), ("<|endoftext|>", end)],
    )
    renderer = PlainRenderer(tokenizer, user=user, assistant="")
    without = PlainRenderer(chat_tokenizer(), user=user, assistant="")
    assert renderer.first("S", "A", "") == [start, *without.first("S", "A", "")]
    assert renderer.following("B", "", is_ended=True) == without.following("B", "", is_ended=True)


def test_plain_pieces(chat_tokenizer):
    tokenizer = chat_tokenizer()
    renderer = plain(tokenizer)
    assert tokenizer.decode(renderer.first("S", "A", "<think>")) == "S\nUser: A\nAssistant: <think>"
    for is_ended in (True, False):
        ids = renderer.following("B", "<t>", is_ended=is_ended)
        assert tokenizer.decode(ids) == "\nUser: B\nAssistant: <t>"
    assert renderer.decode([*tokenizer.encode("hi"), tokenizer.eos_token_id]) == "hi"


@pytest.mark.parametrize("make_renderer", [chat, plain])
def test_sampled_ids_survive_another_way_to_write_their_text(chat_tokenizer, make_renderer):
    """D1: "ab" is one token to the encoder; what was sampled is [a, b]."""
    tokenizer = chat_tokenizer()
    a, b, ab = tokenizer.convert_tokens_to_ids(["a", "b", "ab"])
    assert tokenizer.encode("ab", add_special_tokens=False) == [ab]
    sampled = [a, b, ab, a, b, tokenizer.eos_token_id]
    episode, contexts = play_script(
        tokenizer, make_renderer(tokenizer), [sampled, sampled], turns=2
    )
    batch = to_batch([episode], pad_id=0)
    assert batch.ids_NT[batch.action_mask_NT].tolist() == sampled * 2
    assert (batch.rollout_logprobs_NT[batch.action_mask_NT] == -0.5).all()
    assert batch.ids_NT[0].tolist() == [*contexts[1], *sampled]
    assert episode.turns[0].response == "<think>ababab"


@pytest.mark.parametrize("cap", [2, 5])
def test_trailing_junk_and_too_many_actions_are_trained_on_as_sampled(chat_tokenizer, cap):
    """A7: parsing executes a part of the text; the ids stay whole."""
    tokenizer = chat_tokenizer()
    names = " || ".join(["Up", "Down", "Up", "Down", "Up", "Down", "Up"])
    sampled = answer(tokenizer, f"t</think><answer>{names}</answer> and then <answer>Left</answer>")
    episode, _ = play_script(tokenizer, chat(tokenizer), [sampled] * 5, cap=cap)
    assert episode.turns[0].actions == ("Up", "Down", "Up", "Down", "Up")[:cap]
    assert all(turn.sampled_ids == tuple(sampled) for turn in episode.turns)
    batch = to_batch([episode], pad_id=0)
    assert batch.ids_NT[batch.action_mask_NT].tolist() == sampled * len(episode.turns)

"""Nothing can be learned here, said before step 1 (K3, K5, K10)."""

from dataclasses import replace

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rltune.errors import InputError
from rltune.policy.load import assemble
from rltune.policy.tiny import tiny_model, tiny_tokenizer
from rltune.spec.schema.rollout import RolloutConfig
from rltune.trainer.preflight.learnable import require_learnable
from rltune_envs.base import GoldResponse
from rltune_envs.bounds import Floor, FloorKind
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.guarded import GuardedEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.rewards import SCORES, Rubric, Term
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.splits import Manifest
from rltune_envs.verified import VerifiedEnv
from tests.bare_env import BareEnv

LETTERS = [chr(code) for code in range(33, 127)]


def policy_over(tokenizer):
    model = tiny_model("sokoban")
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return assemble(model, tokenizer, template="plain", is_bare=False)


def characters(*, without="", normalizer=None, special=(), eos="<eos>", more="√"):
    """A tokenizer of characters that knows its own end token, and more special tokens."""
    known = ["<unk>", *(c for c in [*LETTERS, " ", "\n", *more] if c not in without)]
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token=eos,
        additional_special_tokens=[AddedToken(text, special=True) for text in special],
    )


def manifest_of(env, *, train=3, heldout=3):
    tasks = [env.task(seed) for seed in range(train + heldout)]
    return Manifest(
        tuple(tasks[:train]), tuple(tasks[train:]), Floor(FloorKind.EXACT, 0.25), 1.0, 0
    )


def look(policy, env, *, response=None, context=3600, manifest=None):
    """Return the warnings."""
    lines = []
    response = response or min(400, context - 1)
    limits = RolloutConfig(max_response_tokens=response, max_context=context)
    require_learnable(policy, limits, manifest or manifest_of(env), env, warn=lines.append)
    return lines


def refusal(policy, env, **limits):
    with pytest.raises(InputError) as caught:
        look(policy, env, **limits)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "env"),
    [
        ("sokoban", SokobanEnv(prompt="compact")),
        ("frozen_lake", FrozenLakeEnv(prompt="compact")),
        ("multihop_qa", MultihopQaEnv(prompt="compact")),
    ],
)
def test_the_shipped_policies_can_learn(kind, env):
    model, tokenizer = tiny_model(kind), tiny_tokenizer(kind)
    policy = assemble(model, tokenizer, template="plain", is_bare=True)
    assert look(policy, env, response=12, context=400) == []


@pytest.mark.parametrize("make", [SokobanEnv, FrozenLakeEnv, MultihopQaEnv])
def test_a_tokenizer_of_characters_can_write_the_natural_prompts(make):
    assert look(policy_over(characters()), make()) == []


def test_a_first_prompt_that_fills_the_context(small_policy):
    """K3. Sixteen cells and the opening tag."""
    env = SokobanEnv(prompt="compact")
    assert refusal(small_policy(), env, context=16) == (
        "rollout.max_context: the first prompt has 17 tokens, rollout.max_context is 16: no "
        "episode would get a valid answer. Raise it to 19 at least."
    )
    assert "has 17 tokens, rollout.max_context is 17" in refusal(small_policy(), env, context=17)
    assert refusal(small_policy(), env, context=18).startswith(
        "rollout.max_context: the first prompt has 17 tokens and the shortest valid answer 2, "
        "rollout.max_context is 18:"
    )
    assert look(small_policy(), env, context=19) == []


def test_tasks_that_do_not_fit_are_counted_and_named(small_policy, up_env, make_manifest):
    """With the opening tag, these show seven and eight tokens."""
    held_out, training = look(small_policy(), up_env(), context=7, manifest=make_manifest())
    said = "have a first prompt that leaves no room for an answer, and can only fail"
    assert training == (
        f"rollout.max_context is 7: 4 of 12 training tasks {said} (up-2, up-3, up-6, up-7). Raise "
        "it to 9, or take these tasks out."
    )
    assert held_out == (
        f"rollout.max_context is 7: 2 of 5 held-out tasks {said} (up-102, up-103). Raise it to 9, "
        "or take these tasks out."
    )


def test_a_response_limit_below_the_shortest_answer(small_policy):
    """K10. `Up</answer>` after the given opening tag."""
    env = SokobanEnv(prompt="compact")
    assert refusal(small_policy(), env, response=1) == (
        "rollout.max_response_tokens: the shortest valid answer, such as '<answer>Up</answer>', "
        "has 2 tokens to be sampled, rollout.max_response_tokens is 1. Raise it to 2 at least."
    )
    assert look(small_policy(), env, response=2) == []
    verified = VerifiedEnv(env, Rubric((Term("success", 1.0, SCORES["success"]),)))
    assert "has 2 tokens to be sampled" in refusal(small_policy(), verified, response=1)


def test_the_end_token_need_not_fit():
    """A cut response with a complete answer counts: `</think><answer>Up</answer>` is 27 long."""
    policy, env = policy_over(characters()), SokobanEnv()
    assert look(policy, env, response=27) == []
    assert "has 27 tokens" in refusal(policy, env, response=26)


def test_tags_that_are_special_tokens_are_read():
    """K5."""
    tags = ("<answer>", "</answer>", "<think>", "</think>")
    policy = policy_over(characters(special=tags))
    assert look(policy, SokobanEnv()) == []
    said = policy.renderer.written("</think><answer>Up</answer>")
    assert len(said) == 5
    assert policy.renderer.decode(said) == "</think><answer>Up</answer>"


def test_an_end_token_that_is_a_tag():
    policy = policy_over(characters(eos="</answer>"))
    assert refusal(policy, SokobanEnv()) == (
        "policy.model: its tokenizer cannot write '</answer>': "
        "'<think></think><answer>Up</answer>' comes back as '<think></think><answer>Up', which the "
        "environment reads as something else. Use a model whose tokenizer keeps these texts apart "
        "from its end and padding tokens."
    )
    within = refusal(policy_over(characters(eos="</think>")), SokobanEnv())
    assert within.startswith(
        "policy.model: its end token '</think>' stands inside '<think></think><answer>Up</answer>'"
    )


@pytest.mark.parametrize("lost", [{"without": "<"}, {"normalizer": normalizers.Replace("<", "")}])
def test_tags_that_the_tokenizer_does_not_know(lost):
    said = refusal(policy_over(characters(**lost)), SokobanEnv())
    assert "its tokenizer cannot write '</think>', '<answer>', '</answer>': " in said


def test_a_tokenizer_that_lowers_letters_can_play_with_standard_symbols():
    """Actions are read without case; the letters of the other set stay different, too."""
    policy = policy_over(characters(normalizer=normalizers.Lowercase()))
    assert look(policy, SokobanEnv()) == look(policy, SokobanEnv(symbols="letters")) == []


def test_symbols_that_the_tokenizer_does_not_know_or_writes_alike():
    policy = policy_over(characters(more=""))
    assert refusal(policy, SokobanEnv()) == (
        "policy.model: its tokenizer does not know the symbols of the board '√'. Use another "
        "model, or another env.symbols or env.observation."
    )
    assert look(policy, SokobanEnv(observation="coord")) == []
    assert look(policy, SokobanEnv(symbols="letters")) == []
    merging = policy_over(characters(normalizer=normalizers.Replace("X", "O")))
    assert "writes different symbols of the board alike: 'O' and 'X'." in refusal(
        merging, SokobanEnv()
    )
    stripping = policy_over(characters(normalizer=normalizers.Replace("#", "")))
    assert "does not know the symbols of the board '#'." in refusal(stripping, SokobanEnv())


def test_text_of_tasks_that_the_tokenizer_does_not_know_is_named(small_policy, up_env):
    """An env of one's own has no list of symbols."""

    class Lake(up_env):
        def _show(self):
            return "#ß# O" if self._seed % 2 else "#ö# O"

    lines = look(small_policy(), Lake())
    assert lines[0] == (
        "policy.model: 3 of 3 held-out tasks hold text that the tokenizer does not know, such as "
        "'#ß#', '#ö#' (up-3, up-4, up-5)."
    )
    assert lines[1] == (
        "policy.model: the tokenizer shows 1 of 3 held-out tasks like another one: up-3 and up-4."
    )


def test_a_reset_that_fails_is_left_to_the_episodes(small_policy, up_env):
    class Failing(up_env):
        def reset(self, *, seed):
            if seed > 0:
                raise ConnectionError("away")
            return super().reset(seed=seed)

        def shortest_responses(self):
            raise ConnectionError("away")

    guarded = GuardedEnv(Failing, name="Failing", module="", limit_s=30.0)
    assert look(small_policy(), guarded) == []


def test_an_env_of_ones_own_is_asked_what_its_random_player_says(up_env):
    policy = replace(policy_over(characters(eos="</answer>")))
    assert "cannot write '</answer>'" in refusal(policy, up_env())


def test_an_env_that_knows_no_valid_response_is_not_judged():
    policy = policy_over(characters())
    (line,) = look(policy, BareEnv(), response=1)
    assert line == (
        "the environment names no valid response (shortest_responses, random_actions or "
        "gold_response), so nobody knows before training whether the policy can write one."
    )


def test_without_a_random_player_the_gold_response_is_spelt():
    class Golden(BareEnv):
        def step(self, response):
            return replace(super().step(response), actions=(response,))

        def gold_response(self):
            return GoldResponse("", ("<7>",), "")

    assert look(policy_over(characters(special=["<9>"])), Golden()) == []
    assert "cannot write '<7>'" in refusal(policy_over(characters(without="7")), Golden())

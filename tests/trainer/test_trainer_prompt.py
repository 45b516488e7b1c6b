"""D7: one sentence, one special token, one template more or less is another prompt."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltune.policy.render import ChatRenderer, PlainRenderer
from rltune.trainer.prompt import RESPONSE, prompt_of

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</answer>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def env(up_env):
    """An env of one's own whose prompt stands in a file, which no config and no code names."""

    class FromFile(up_env):
        def __init__(self, path):
            super().__init__()
            self.system_prompt = Path(path).read_text(encoding="utf-8")

    return FromFile


def digest(policy, env, make_manifest):
    return prompt_of(policy, make_manifest().heldout[0], env).sha256


def test_one_sentence_in_a_file_is_another_prompt(env, small_policy, make_manifest, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("Up||Down")
    before = digest(small_policy(), env(path), make_manifest)
    assert digest(small_policy(), env(path), make_manifest) == before
    path.write_text("Up||Down||Up")
    assert digest(small_policy(), env(path), make_manifest) != before


def test_the_text_is_the_frame_of_a_conversation(up_env, small_policy, make_manifest):
    # Seed 100 shows CELLS[:3] and CELLS[0], twice: the second observation is that of the first.
    made = prompt_of(small_policy(), make_manifest().heldout[0], up_env())
    assert made.text == f"#_O#<answer>{RESPONSE}#_O#<answer>"


def test_markup_is_part_of_the_prompt(up_env, small_policy, make_manifest):
    policy = small_policy()
    digests = {digest(policy, up_env(), make_manifest)}
    for chat_template in (TEMPLATE, TEMPLATE.replace("user", "human"), "#" + TEMPLATE):
        policy.tokenizer.chat_template = chat_template
        renderer = ChatRenderer(policy.tokenizer, end_ids=policy.end_ids)
        digests.add(digest(replace(policy, renderer=renderer), up_env(), make_manifest))
    for user in ("#", "_"):
        renderer = PlainRenderer(policy.tokenizer, user=user, assistant="")
        digests.add(digest(replace(policy, renderer=renderer), up_env(), make_manifest))
    assert len(digests) == 5  # "user" and "human" are one unknown token to this tokenizer

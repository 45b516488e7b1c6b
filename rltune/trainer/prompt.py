"""The prompt of a conversation, as text and as a digest."""

import json
from dataclasses import dataclass

from rltune.policy.load import Policy
from rltune.spec.identity import sha256_hex
from rltune_envs.base import Task, TextEnv

RESPONSE = "⟦response⟧"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The beginning of a conversation.

    Attributes:
        text: All that is written up to the second response, special tokens included; `RESPONSE`
            stands for the first. The observation of the second turn is that of the first.
        sha256: Digest of the token ids.

    """

    text: str
    sha256: str


def prompt_of(policy: Policy, task: Task, env: TextEnv) -> Prompt:
    """Return what a policy is shown of a task.

    One sentence more or less in a prompt moves a base model by points. What it is made of may lie
    outside the config and the code, such as a file that a custom env reads.
    """
    observation, prefix = env.reset(seed=task.seed), env.response_prefix
    render, decode = policy.renderer, policy.tokenizer.decode
    first = render.first(env.system_prompt, observation, prefix)
    ended = render.following(observation, prefix, is_ended=True)
    cut_off = render.following(observation, prefix, is_ended=False)
    text = f"{decode(first)}{RESPONSE}{decode(cut_off)}"
    return Prompt(text, sha256_hex(json.dumps([first, ended, cut_off])))

"""Sokoban's texts, byte for byte: a changed prompt is another experiment.

`python tests/envs/test_envs_prompts.py` (with rltune_envs importable) writes the golden file anew.
"""

import json
from pathlib import Path

import pytest

from rltune_envs.sokoban import SokobanEnv

GOLDEN = Path(__file__).parents[1] / "golden" / "sokoban_prompts.json"
HEADER = {
    "source": "rltune_envs.sokoban, written down when the tiny policy's weights were trained on it",
    "version": "rltune 0.1.0",
    "command": "python tests/envs/test_envs_prompts.py",
    "tolerance": "exact",
}
SEED = 11


def rendered(prompt):
    """Return every kind of text that a policy can read."""
    env = SokobanEnv(search_depth=30, prompt=prompt)
    texts = {"system_prompt": env.system_prompt, "response_prefix": env.response_prefix}
    texts["reset"] = env.reset(seed=SEED)
    texts["format_response"] = env.format_response(("Up", "Left"))
    texts["step"] = env.step(env.format_response(("Up", "Down"))).observation
    texts["bad step"] = env.step(env.format_response(("Up", "Jump"))).observation
    texts["no answer"] = env.step("Up").observation
    env.reset(seed=SEED)
    while not (step := env.step(env.format_response(env.expert_actions()))).terminated:
        pass
    texts["solved"] = step.observation
    return texts


@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_texts_are_the_written_down_ones(prompt):
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))

    assert golden["header"] == HEADER
    assert rendered(prompt) == golden[prompt]


def test_the_compact_prompt_shows_the_inner_cells_only():
    # 6x6 without its border: 16 cells, no line breaks.
    texts = rendered("compact")

    assert len(texts["reset"]) == 16
    assert set(texts["reset"]) <= set("#_OX√PS")
    assert texts["system_prompt"] == ""


def main():
    golden = {"header": HEADER, **{prompt: rendered(prompt) for prompt in ("natural", "compact")}}
    text = json.dumps(golden, indent=2, ensure_ascii=False) + "\n"
    GOLDEN.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

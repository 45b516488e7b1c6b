"""Into how many parts vLLM can split a model, by its config.json."""

import json

import pytest
from small_sweep import small_sweep

from rltune.spec.load import load_sweep
from rltune.trainer.preflight.references import preflight
from rltune.trainer.preflight.tensor_parallel import undivided_by

# SmolLM2-135M: 9 heads, 3 of keys and values
SMOLLM2 = {"num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536}
QWEN_3B = {"num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 11008}


@pytest.mark.parametrize(
    ("shape", "parts", "expected"),
    [
        (SMOLLM2, 3, []),
        (SMOLLM2, 2, ["9 heads", "3 heads of keys and values"]),
        (SMOLLM2, 9, ["1536 MLP columns"]),  # 3 heads of keys: each in three processes
        (QWEN_3B, 4, []),  # 2 heads of keys: each in two processes
        (QWEN_3B, 3, ["16 heads", "11008 MLP columns", "2 heads of keys and values"]),
        ({"num_attention_heads": 12, "num_key_value_heads": 4}, 6, ["4 heads of keys and values"]),
        ({"num_attention_heads": 6}, 4, ["6 heads", "6 heads of keys and values"]),
        ({}, 7, []),
    ],
)
def test_heads_and_the_mlp_are_dealt_evenly(shape, parts, expected):
    assert undivided_by(parts, shape) == expected


@pytest.fixture
def problems(tmp_path):
    """Return what a sweep with a model of such a shape, and these keys, is refused for."""

    def found(shape, **keys):
        model = tmp_path / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(shape))
        held = {"rollout.engine": "vllm", "resources.engine": "own", "policy.model": str(model)}
        lines = [f"  {key}: {value}\n" for key, value in {**held, **keys}.items()]
        text = small_sweep(policy="tiny").replace("  policy.model: tiny\n", "")
        path = tmp_path / "small.yaml"
        path.write_text(text.replace("axis:", f"{''.join(lines)}axis:", 1))
        return {str(problem) for problem in preflight(load_sweep(path), tmp_path)}

    return found


def test_the_rule_and_the_numbers_that_would_do_are_named(problems):
    (told,) = [
        line
        for line in problems(SMOLLM2, **{"rollout.vllm.tensor_parallel": 4})
        if "tensor_parallel" in line
    ]
    assert "4 processes cannot share the 9 heads and the 3 heads of keys and values of" in told
    assert told.endswith("Below 4: 1, 3. Choose one of them.")

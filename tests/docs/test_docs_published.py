"""Profile `paper` is the published protocol, but for what docs/published.md declares."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_build"))

import published  # noqa: E402

from rltune.spec.load import load_sweep  # noqa: E402


def test_every_difference_is_declared_with_its_reason():
    assert {one.key for one in published.differences()} == set(published.WHY)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env.observation", "grid"),
        ("env.search_depth", 100),
        ("early_stop.reward_std_share", None),
        ("early_stop.heldout_success", None),
        ("rollout_filter.empty_stop_steps", 10),
        ("policy.model", "Qwen/Qwen2.5-0.5B"),
    ],
)
def test_another_value_is_a_difference(monkeypatch, key, value):
    def load(path, *, profile):
        loaded = load_sweep(path, profile=profile)
        section, name = key.split(".")
        conditions = tuple(
            replace(c, config={**c.config, section: {**c.config[section], name: value}})
            for c in loaded.conditions
        )
        return replace(loaded, conditions=conditions)

    monkeypatch.setattr(published, "load_sweep", load)
    found = {one.key: one for one in published.differences()}
    assert found[key].here == value
    assert "kl" in found[key].sweeps


def test_the_tables_hold_every_value_and_difference():
    table = published.published_table().splitlines()
    assert len(table) == 2 + len(published.WHY) + len(published.NOT_KEYS)
    assert all(line.count("|") == 6 for line in table)
    assert "| `loss.kl_type` | `'k1'` | `'k2'` | `kl`, `rv_filter` |" in "\n".join(table)
    rows = published.protocol_table()
    for key in ("env.observation", "env.search_depth", "early_stop.heldout_success"):
        assert f"| `{key}` |" in rows


def test_the_sweeps_of_the_page_are_those_compared():
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in published.OF_SWEEP)
    assert "<!-- generated: published-differences -->" in page

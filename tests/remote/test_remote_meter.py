"""What a trial asks of a service is counted once, over all attempts; no SDK is needed."""

from rltune.remote import meter as module
from rltune.remote.meter import Meter
from rltune.store.prices import Price
from rltune.store.service_usage import read_usage

PRICE = Price("p.yaml", "EUR", "2026-01-31", "me", prefill=1e6, sample=2e6, train=4e6)


def test_a_row_is_what_came_since_the_last_and_the_file_is_all(tmp_path):
    path = tmp_path / "service.json"
    meter = Meter(path, PRICE)
    meter.count(requests=1)
    meter.count(prompt_tokens=3, forward_tokens=2)
    assert meter.take_row() == {
        "tinker/requests": 1.0,
        "tinker/prompt_tokens": 3.0,
        "tinker/sampled_tokens": 0.0,
        "tinker/forward_tokens": 2.0,
        "tinker/trained_tokens": 0.0,
        "tinker/cost": 5.0,  # 3 and 2 tokens at 1 each
    }
    meter.count(sampled_tokens=2, trained_tokens=1)
    assert meter.take_row()["tinker/cost"] == 8.0  # 2 x 2 + 1 x 4
    assert read_usage(path).paid == {"EUR": 13.0}


def test_the_next_attempt_counts_on_and_without_prices_says_so(tmp_path):
    path = tmp_path / "service.json"
    first = Meter(path, PRICE)
    first.count(requests=4, trained_tokens=1)
    first.save()
    second = Meter(path)
    second.count(requests=2, trained_tokens=5)
    assert "tinker/cost" not in second.take_row()
    usage = read_usage(path)
    assert (usage.requests, usage.unpriced, usage.trained_tokens) == (6, 2, 6)
    assert usage.paid == {"EUR": 4.0}


def test_a_kill_forgets_some_seconds_at_most(tmp_path, monkeypatch):
    path, now = tmp_path / "service.json", [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    meter = Meter(path)
    meter.count(requests=1)
    assert not path.exists()
    now[0] = 6.0
    meter.count(requests=1)
    assert read_usage(path).requests == 2

"""The price file of a user, and what trials used of a training service."""

from pathlib import Path

import pytest

from rltune.errors import InputError, StoreError
from rltune.store.prices import price_of
from rltune.store.service_usage import (
    ServiceUsage,
    known_usage,
    money,
    read_usage,
    write_usage,
)

PRICES = """
currency: EUR
date: 2026-01-31
source: an invoice
models:
  my/model: {prefill: 1.0, sample: 2, train: 4.0}
"""
BAD = """
currency: eur
models:
  my/model: {prefill: -1, sample: 2}
"""


@pytest.fixture
def price(tmp_path):
    (tmp_path / "prices.yaml").write_text(PRICES)
    return price_of("prices.yaml", "my/model", tmp_path, "trainer.prices")


def test_a_price_is_that_of_a_million_tokens(price):
    # (1.5 M + 0.5 M) x 1 + 0.25 M x 2 + 0.5 M x 4 = 2 + 0.5 + 2
    cost = price.of(
        prompt_tokens=1_500_000,
        forward_tokens=500_000,
        sampled_tokens=250_000,
        trained_tokens=500_000,
    )
    assert cost == 4.5
    assert (price.currency, price.date, price.source) == ("EUR", "2026-01-31", "an invoice")


def test_without_a_file_there_is_no_price():
    assert price_of(None, "my/model", Path(), "trainer.prices") is None


def refusal(folder, text, model="my/model"):
    if text is not None:
        (folder / "prices.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        price_of("prices.yaml", model, folder, "trainer.prices")
    return str(caught.value).replace(f"{folder}/", "")


def test_what_is_no_price_file_is_refused_whole(tmp_path):
    assert refusal(tmp_path, None) == ("trainer.prices: prices.yaml: There is no such price file.")
    assert refusal(tmp_path, BAD).splitlines() == [
        "prices.yaml:2: currency: 'eur' has the wrong form. Of every price: three capital letters, "
        "such as those of ISO 4217.",
        "prices.yaml: date: 'date' is missing from this file. Day on which they were read, as "
        "2026-01-31.",
        "prices.yaml: source: 'source' is missing from this file. Where they were read.",
        "prices.yaml:4: models.my/model.prefill: -1 is out of range. Give at least 0.0.",
        "prices.yaml:4: models.my/model.train: 'train' is missing from models.my/model.",
    ]
    assert refusal(tmp_path, PRICES, "my/modem") == (
        "trainer.prices: prices.yaml has no price of 'my/modem'. It has those of my/model. "
        "Did you mean 'my/model'?"
    )


def test_amounts_of_one_currency_are_added():
    first = ServiceUsage(requests=2, prompt_tokens=5, unpriced=2)
    second = ServiceUsage(requests=3, paid={"EUR": 1.5})
    third = ServiceUsage(requests=1, paid={"EUR": 1.0, "USD": 0.25})
    whole = sum((first, second, third), ServiceUsage())
    want = ServiceUsage(requests=6, prompt_tokens=5, unpriced=2, paid={"EUR": 2.5, "USD": 0.25})
    assert whole == want
    text = "6 service calls (2 of them without a price), 2.50 EUR and 0.250 USD"
    assert whole.text == text
    assert first.text == "2 service calls"
    assert ServiceUsage().text == ""
    assert money({"USD": 1234.5}) == "1,234.50 USD"
    assert money({"USD": 0.000123456}) == "0.000123 USD"
    assert money({"USD": 0.9949}) == "0.995 USD"
    for value in (0.9999, 1, 1.004):
        assert money({"USD": value}) == "1.00 USD"
    assert money({"USD": 0.0, "EUR": 9.999}) == "0.00 USD and 10.00 EUR"
    assert money({"USD": 1e-7}) == "0.000000100 USD"


def test_a_file_of_usage_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "service.json"
    assert read_usage(path) == ServiceUsage()
    usage = ServiceUsage(requests=2, trained_tokens=7, paid={"EUR": 0.1})
    write_usage(path, usage)
    assert read_usage(path) == usage
    path.write_text("[1]")
    assert known_usage(path) == ServiceUsage()
    with pytest.raises(StoreError):
        read_usage(path)

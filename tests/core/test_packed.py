"""Binary updates: the same books as JSON, from both implementations, read with the schema."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest

import onebook.core
from core.both import COMPILED, EACH, apply, book_of, needs_compiled
from onebook.client.packed import PackedBook
from onebook.client.view import BookView
from onebook.core import reference
from onebook.updates import Update

NAMES = ("bitstamp", "kraken", "okx", "xt")
SEEDS = 200  # `PYTHONPATH=tests python tests/core/test_packed.py 10000` runs more
STEPS = (None, None, "0.5", "7")
TIME_US = 1_700_000_000_000_000
REST = Update(stale=[3]).SerializeToString()
FEES = (None, None, ("0", "0.1", "0.075", "-0.02"))


def number(rng: random.Random, *, price: bool) -> str:
    whole = rng.randint(95, 105) if price else rng.randint(0, 50)
    return f"{whole}.{rng.randint(0, 10 ** rng.randint(1, 4))}"


def changed(rng: random.Random, books: list[Any]) -> None:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(NAMES))
        bids = [
            (number(rng, price=True), number(rng, price=False)) for _ in range(rng.randint(0, 4))
        ]
        asks = [
            (number(rng, price=True), number(rng, price=False)) for _ in range(rng.randint(0, 4))
        ]
        apply(books[at], bids, asks)


def in_json(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document, parse_float=Decimal)
    return found


def shown(view: BookView) -> Any:
    gross = [getattr(level, "gross", None) for level in (*view.bids, *view.asks)]
    return list(view.bids), list(view.asks), view.market_stats, gross, view.checksum()


def check(core: Any, seed: int) -> None:
    """Full JSON, JSON deltas and both kinds of binary updates result in equal books."""
    rng = random.Random(seed)
    split, fees = rng.random() < 0.5, rng.choice(FEES)
    options = {"depth": rng.randint(1, 12), "group": rng.choice(STEPS), "fees": fees}
    options["split"] = split or fees is not None
    view = core.View(NAMES, **options)
    packer = core.Packer(view)
    books = [book_of(core, [], []) for _ in NAMES]
    reader = PackedBook(NAMES)
    by_json, by_delta = BookView("A/B"), BookView("A/B")
    whole, by_changes = BookView("A/B"), BookView("A/B")
    scales, at = None, 0
    for _ in range(rng.randint(1, 12)):
        changed(rng, books)
        if not view.merge([each if rng.random() < 0.9 else None for each in books]):
            continue
        at += 1
        head = b'{"timestamp":"2026-11-27T00:00:00Z","update_number":%d' % at
        data, tail = b',"data":{', b',"stale_exchanges":[]}}'
        kind = b',"type":"aggregated_orderbook_update"'
        by_json.apply(in_json(view.full(head + kind + data, tail)))
        checksum = view.checksum()
        update = Update.FromString(packer.whole(at, TIME_US, REST, checked=False))
        assert (update.update_number, update.time_us) == (at, TIME_US)
        assert not update.HasField("checksum")
        assert whole.apply_packed(update, reader)
        kind = b',"type":"aggregated_orderbook_delta","previous_update_number":%d,"checksum":%d'
        delta = view.delta(head + kind % (at - 1, checksum) + data, tail)
        elapsed_us = rng.choice((0, 100_000, -1))
        changes = packer.changes(at, elapsed_us, REST)
        if delta is None:
            assert changes is None
            by_delta.apply(
                in_json(view.full(head + b',"type":"aggregated_orderbook_update"' + data, tail))
            )
        else:
            assert by_delta.apply(in_json(delta))
        if changes is None or packer.scales != scales:
            changes = packer.whole(at, TIME_US, REST, checked=True)
            elapsed_us = None
        update = Update.FromString(changes)
        assert (update.update_number, update.checksum, *update.stale) == (at, checksum, 3)
        assert (update.elapsed_us if update.HasField("elapsed_us") else None) == elapsed_us
        assert by_changes.apply_packed(update, reader)
        scales = packer.scales
        expected = shown(by_json)
        assert shown(by_delta) == expected, seed
        assert shown(whole) == expected, seed
        assert shown(by_changes) == expected, seed


@pytest.mark.parametrize("core", EACH)
def test_binary_updates_give_the_books_of_json(core: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(onebook.core, "PackedLevels", core.PackedLevels)
    for seed in range(SEEDS):
        check(core, seed)


@needs_compiled
def test_both_implementations_write_the_same_bytes() -> None:
    for seed in range(SEEDS):
        rng = random.Random(seed)
        options = {"depth": rng.randint(1, 12), "group": rng.choice(STEPS), "split": True}
        if rng.random() < 0.5:
            options["fees"] = FEES[2]
        sides = []
        for core in (reference, COMPILED):
            again = random.Random(seed)
            view = core.View(NAMES, **options)
            packer = core.Packer(view)
            books = [book_of(core, [], []) for _ in NAMES]
            texts: list[Any] = []
            for number in range(6):
                changed(again, books)
                view.merge(books)
                texts += [
                    packer.whole(number, seed << 40, REST, checked=number % 2 == 0),
                    packer.changes(number, (seed - SEEDS // 2) << 20, REST),
                    packer.scales,
                ]
            sides.append(texts)
        assert sides[0] == sides[1], seed


@pytest.mark.parametrize("core", EACH)
@pytest.mark.parametrize("number", [0, 127, 128, (1 << 64) - 1])
@pytest.mark.parametrize("elapsed_us", [0, 63, 64, -1, -64, -65, (1 << 63) - 1, -1 << 63])
def test_the_fields_of_an_update_are_those_of_protobuf(
    core: Any, number: int, elapsed_us: int
) -> None:
    view = core.View(NAMES, depth=3)
    packer = core.Packer(view)
    for price in ("99", "99.5"):
        view.merge([book_of(core, [(price, "1.5")]), None, None, None])
    changes = Update.FromString(packer.changes(number, elapsed_us, REST))
    shared = {"update_number": number, "checksum": view.checksum(), "stale": [3]}
    assert changes == Update(elapsed_us=elapsed_us, bids=[995, 15, 1, 5, 0], **shared)
    whole = Update.FromString(packer.whole(number, number, REST, checked=True))
    scales = {"price_scale": 1, "amount_scale": 1}
    assert whole == Update(time_us=number, bids=[995, 15, 1], **scales, **shared)


@pytest.mark.parametrize("core", EACH)
def test_numbers_beyond_64_bits_are_not_packed(core: Any) -> None:
    view = core.View(("a", "b"), depth=3)
    packer = core.Packer(view)
    fine = book_of(core, [("0.000000000000000001", "1")])
    large = book_of(core, [("99999999999999999", "1")])
    view.merge([fine, large])
    assert packer.whole(1, 1, REST, checked=True) is None
    view.merge([None, book_of(core, [("99", "1")])])
    assert packer.changes(2, 1, REST) is None
    whole = packer.whole(2, 1, REST, checked=True)
    if whole is not None:  # the compiled core keeps the form for a while
        assert Update.FromString(whole).bids


if __name__ == "__main__":
    import sys

    for seed_ in range(int(sys.argv[1])):
        check(COMPILED, seed_)
    print(f"{sys.argv[1]} seeds: equal")

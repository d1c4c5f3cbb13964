"""Views by net price: both implementations against raw levels in exact fractions."""

import json
import random
from binascii import crc32
from fractions import Fraction
from itertools import groupby, product
from typing import Any

import pytest

from core.both import COMPILED, EACH, apply, book_of, needs_compiled

NAMES = ("bitstamp", "kraken", "okx", "xt")
PERCENTS = ("0", "0.1", "0.075", "-0.02", "0.25", "0.000001", "10", "-10")
STEPS = (None, None, "0.5", "0.03", "7")
SEEDS = 40  # `PYTHONPATH=tests python tests/core/test_net.py 10000` runs more


@pytest.mark.parametrize("core", EACH)
def test_a_net_level_has_its_net_price_and_the_price_of_each_exchange(core: Any) -> None:
    books = [
        book_of(core, [("99.5", "1")], [("100", "2")]),
        book_of(core, [("99.4", "3")], [("100.1", "4")]),
        None,
    ]
    view = core.View(("dear", "cheap", "gone"), depth=9, split=True, fees=("0.4", "0", "0.1"))
    view.merge(books)
    found = json.loads(view.full(b"{", b"}"), parse_float=str, parse_int=str)
    assert found["asks"] == [
        {
            "price": "100.1",
            "amount": "4",
            "exchanges": ["cheap"],
            "exchange_count": "1",
            "gross": ["100.1"],
            "value": "400.4",
            "amounts": ["4"],
        },
        {
            "price": "100.4",
            "amount": "2",
            "exchanges": ["dear"],
            "exchange_count": "1",
            "gross": ["100"],
            "value": "200.8",
            "amounts": ["2"],
        },
    ]
    assert [(each["price"], each["gross"]) for each in found["bids"]] == [
        ("99.4", ["99.4"]),
        ("99.102", ["99.5"]),
    ]
    assert found["market_stats"]["spread"] == "0.7"
    assert found["market_stats"]["mid_price"] == "99.75"


@pytest.mark.parametrize("core", EACH)
def test_equal_net_prices_are_one_level_with_different_gross_prices(core: Any) -> None:
    books = [book_of(core, [], [("100", "1")]), book_of(core, [], [("100.1", "2")])]
    view = core.View(("a", "b"), depth=9, split=True, arrays=True, fees=("0.1", "0"))
    view.merge(books)
    asks = json.loads(view.full(b"{", b"}"))["asks"]
    assert asks == [[100.1, 3, [["a", 1, 100], ["b", 2, 100.1]]]]


@pytest.mark.parametrize("core", EACH)
@pytest.mark.parametrize("fee", ["", "1e-3", "11", "-10.1", "0.0000001", "--1", "x", "1,5", "+1"])
def test_what_is_no_fee_is_refused(core: Any, fee: str) -> None:
    with pytest.raises(ValueError, match="fee is a decimal number of percent"):
        core.View(("a",), depth=1, fees=(fee,))


@pytest.mark.parametrize("core", EACH)
def test_a_view_needs_a_fee_for_each_member(core: Any) -> None:
    with pytest.raises(ValueError, match="has 1 fees, not 2"):
        core.View(("a",), depth=1, fees=("0", "0"))


Sides = tuple[dict[str, str], dict[str, str]]


def expected(sides: list[Sides], fees: list[str], depth: int, step: str | None) -> Any:
    """Return each side as (net price, amount, [(name, amount, gross price or None)])."""
    sides_found = []
    for side in (0, 1):
        sign = 1 if side else -1
        raw = []
        for name, levels, fee in zip(NAMES, sides, fees, strict=True):
            for price, amount in levels[side].items():
                net = Fraction(price) * (1 + sign * Fraction(fee) / 100)
                if step is not None:
                    steps = net / Fraction(step)
                    net = (-(-steps // 1) if side else steps // 1) * Fraction(step)
                if net:
                    gross = Fraction(price) if step is None else None
                    raw.append((sign * net, name, Fraction(amount), gross))
        raw.sort(key=lambda row: row[:2])
        levels_found = []
        for key, rows in groupby(raw, key=lambda row: row[0]):
            parts: dict[str, Any] = {}
            for _, name, amount, gross in rows:
                parts[name] = (parts.get(name, (0,))[0] + amount, gross)
            total = sum(amount for amount, _ in parts.values())
            listed = [(name, *part) for name, part in parts.items()]
            levels_found.append((sign * key, total, listed))
        sides_found.append(levels_found[:depth])
    return sides_found


def checksum_of(full: Any) -> int:
    """Return the checksum of a view's text, by the rule in `gateway/replies.py`."""
    levels = full["bids"][:25] + full["asks"][:25]
    return crc32(":".join(f"{each['price']}:{each['amount']}" for each in levels).encode())


def read(found: Any, side: str) -> Any:
    return [
        (
            Fraction(level["price"]),
            Fraction(level["amount"]),
            [
                (name, Fraction(amount), None if gross is None else Fraction(gross))
                for name, amount, gross in zip(
                    level["exchanges"],
                    level["amounts"],
                    level.get("gross") or [None] * len(level["exchanges"]),
                    strict=True,
                )
            ],
        )
        for level in found[side]
    ]


def random_level(random_: random.Random) -> tuple[str, str]:
    if random_.random() < 0.03:  # a coin of many decimals: beyond 64 bits with a fee
        return f"{random_.randrange(1, 10**15)}", f"0.{random_.randrange(1, 10**12):012}"
    price = f"{random_.randrange(1, 60)}.{random_.randrange(0, 10) * 25:03}"
    return price, f"{random_.randrange(1, 9_999) / 100:.2f}"


def check(core: Any, seed: int) -> None:
    """Merge random books a few times; compare full views and replayed deltas with fractions."""
    random_ = random.Random(seed)
    fees = [random_.choice(PERCENTS) for _ in NAMES]
    depth, step = random_.choice((1, 3, 8, 40)), random_.choice(STEPS)
    arguments: Any = {"depth": depth, "group": step, "split": True, "fees": fees}
    view, replayed = core.View(NAMES, **arguments), ({}, {})
    sides: list[Sides] = [({}, {}) for _ in NAMES]
    books = [core.Book() for _ in NAMES]
    for turn in range(4):
        for levels, book in zip(sides, books, strict=True):
            for side in (0, 1):
                changes = dict(random_level(random_) for _ in range(random_.randrange(0, 7)))
                gone = [each for each in levels[side] if random_.random() < 0.2]
                levels[side].update(changes)
                for price in gone:
                    del levels[side][price]
                rows = [*changes.items(), *((price, "0") for price in gone)]
                apply(book, *((rows, ()) if side == 0 else ((), rows)))
        changed = view.merge(books)
        wanted = expected(sides, fees, depth, step)
        full = json.loads(view.full(b"{", b"}"), parse_float=str, parse_int=str)
        assert [read(full, side) for side in ("bids", "asks")] == wanted, seed
        fresh = core.View(NAMES, **arguments)
        fresh.merge(books)
        assert fresh.full(b"{", b"}") == view.full(b"{", b"}"), seed
        replay(view, full, replayed, first=turn == 0)
        for side, sign in ((0, -1), (1, 1)):
            assert sorted(replayed[side], key=lambda price: sign * Fraction(price)) == [
                level["price"] for level in full["bids" if side == 0 else "asks"]
            ], seed
            for level in full["bids" if side == 0 else "asks"]:
                assert replayed[side][level["price"]] == level, seed
        assert changed or turn
        best = [levels[0][0] if levels else None for levels in wanted]
        crossed = None not in best and best[0] >= best[1]
        assert full["market_stats"]["crossed"] == crossed, seed
        assert view.checksum() == checksum_of(full), seed


def replay(view: Any, full: Any, kept: Any, *, first: bool) -> None:
    """Apply the delta of a merge to the levels before it."""
    changes = full
    if not first:
        changes = json.loads(view.delta(b"{", b"}"), parse_float=str, parse_int=str)
    for side, name in enumerate(("bids", "asks")):
        for level in changes[name]:
            if level["amount"] == "0":
                del kept[side][level["price"]]
            else:
                kept[side][level["price"]] = level


@pytest.mark.parametrize("core", EACH)
def test_net_views_are_what_exact_fractions_say(core: Any) -> None:
    for seed in range(SEEDS):
        check(core, seed)


@needs_compiled
@pytest.mark.parametrize(
    ("split", "arrays", "group"), [*product((True, False), (True, False), (None, "0.5"))]
)
def test_both_implementations_print_the_same_bytes(
    split: bool, arrays: bool, group: str | None
) -> None:
    from onebook.core import reference

    random_ = random.Random(f"{split}{arrays}{group}")
    for _ in range(20):
        fees = [random_.choice(PERCENTS) for _ in NAMES]
        sides = [
            [[random_level(random_) for _ in range(random_.randrange(0, 9))] for _ in range(2)]
            for _ in NAMES
        ]
        found = []
        for core in (COMPILED, reference):
            options: Any = {"depth": 5, "group": group, "split": split, "arrays": arrays}
            view = core.View(NAMES, **options, fees=fees)
            books = [core.Book() for _ in NAMES]
            printed = []
            for turn in range(2):
                for book, levels in zip(books, sides, strict=True):
                    for side, rows in enumerate(levels):
                        kept = [*dict(rows).items()][turn:]
                        apply(book, *((kept, ()) if side == 0 else ((), kept)))
                view.merge(books)
                levels_found = view.levels()
                printed += [view.full(b"{", b"}"), view.delta(b"{", b"}"), view.checksum()]
                printed += [levels_found.price_scale, levels_found.best_bid, levels_found.best_ask]
            found.append(printed)
        assert found[0] == found[1]


if __name__ == "__main__":
    import sys

    for seed_ in range(int(sys.argv[1])):
        check(COMPILED, seed_)
    print(f"{sys.argv[1]} seeds: equal")

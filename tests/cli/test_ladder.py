"""The lines below the ladder: cost of a size, crossed exchanges, age of data.

With `ONEBOOK_PICTURES=docs/images` the picture of the ladder in the documentation is made anew.
"""

import os
import re
from datetime import date
from decimal import Decimal
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from onebook.cli.ladder import Ladder, joined, market_lines, read_fees, transits_of
from onebook.client import BookLevel, BookTimes, BookView, ExchangeTimes, Fill, FillPart
from onebook.crossings import Crossing, CrossingReport
from onebook.fees import PublishedFee
from onebook.orderbook import LayerTimes, NetLevel
from onebook.routes import Route, RoutePart
from onebook.transfers import Transferable

MONO = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"
PICTURES = os.environ.get("ONEBOOK_PICTURES")
PICTURE = Path(__file__).parents[2] / "docs/images/watch.svg"


def level(price, **amounts):
    parts = {name: Decimal(amount) for name, amount in amounts.items()}
    return BookLevel(Decimal(price), sum(parts.values()), tuple(parts), tuple(parts.values()))


def fill(**changes):
    return Fill(
        direction="buy",
        by="amount",
        size=Decimal("2.5"),
        amount=Decimal("2.5"),
        notional=Decimal("253.5"),
        average=Decimal("101.4"),
        worst=Decimal(102),
        levels=2,
        complete=True,
        uncovered=(),
        split={
            "okx": FillPart(Decimal("1.5"), Decimal("151.5")),
            "kraken": FillPart(Decimal(1), Decimal(102)),
        },
    )._replace(**changes)


def written(picture):
    """The text of a picture without styles."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)


@pytest.fixture
def view():
    return BookView(
        "BTC/USDT",
        live=True,
        bids=[level("100.5", okx="1"), level("100", kraken="2")],
        asks=[level("101.0", okx="1.5"), level("102", kraken="4")],
        market_stats={"mid_price": Decimal("100.75")},
        ages={"okx": 40, "kraken": 2_500},
        fills={"buy": [fill()], "sell": [fill(average=Decimal("100.1"), worst=Decimal(100))]},
    )


def net(shown):
    """A level priced after fees."""
    found = NetLevel(*shown)
    found.gross = (shown.price,) * len(shown.exchanges)
    return found


def lines(view, *, with_fees=False, width=None):
    return [line.plain for line in market_lines(view, with_fees=with_fees, width=width)]


def test_a_size_has_its_average_slippage_worst_price_and_split(view):
    bought, sold, *_ = lines(view)
    assert bought == (
        "buy  2.5 BTC  average 101.400  slippage 0.6452 %  worst 102  okx 1.5  kraken 1"
    )
    assert sold.startswith("sell 2.5 BTC  average 100.100  slippage 0.6452 %  worst 100")


def test_a_route_has_its_average_before_and_after_fees(view):
    part = RoutePart(Decimal("2.5"), Decimal(250), Decimal("0.25"), Decimal(100))
    route = Route(
        "buy", "amount", Decimal(3), Decimal("2.5"), Decimal(250), Decimal("0.25"),
        Decimal("250.25"), Decimal(100), Decimal("100.1"), Decimal("100.1"), False, Decimal("0.5"),
        Decimal("0.02"), True, (), (), {"okx": part},
    )  # fmt: skip
    view.fills["buy"] = [route]
    assert lines(view, with_fees=True)[0] == (
        "buy  3 BTC  only 2.5 filled  average 100.000  after fees 100.100  lots cost 0.020  "
        "lots leave 0.5  slippage -0.7444 %  worst 100.1  okx 2.5"
    )
    # The size of a route in the quote is what is paid: with fees, which the notional is without.
    by_cost = {"by": "notional", "size": Decimal(300), "unplaced": Decimal(0)}
    view.fills["buy"] = [route._replace(**by_cost)]
    assert lines(view, with_fees=True)[0].startswith("buy  300 USDT  only 250.25 on the books")


def test_an_old_published_fee_is_marked_with_its_date(view):
    of = date(2026, 3, 26)
    view.published_fees = (
        PublishedFee("kucoin", "BTC/USDT", "0.1", "page", of, "https://x.example", old=True),
        PublishedFee("kucoin", "BTC/USDC", "0.1", "page", of, "https://x.example", old=True),
        PublishedFee("kraken", "BTC/USDT", "0.4", "instruments", of),
    )
    assert lines(view, with_fees=True)[-1].endswith("okx 40 ms  kucoin: fee of 2026-03-26")


def test_what_the_books_do_not_hold_or_state_is_reported(view):
    short = fill(complete=False, size=Decimal(9), uncovered=["okx", "kraken"])
    none = fill(
        amount=Decimal(0), notional=Decimal(0), average=None, worst=None, complete=False, split={}
    )
    view.fills = {"buy": [short], "sell": [none]}
    bought, sold, *_ = lines(view)
    assert bought.startswith("buy  9 BTC  only 2.5 on the books  average 101.400")
    assert "maybe cheaper: 2 books not known to this depth" in bought
    assert sold == "sell 2.5 BTC  nothing on the books"
    view.fills = {"buy": [fill(by="notional", size=Decimal(300), complete=False)], "sell": [fill()]}
    assert lines(view)[0].startswith("buy  300 USDT  only 253.5 on the books")


def test_a_crossing_names_both_sides_their_ages_and_what_is_left(view):
    assert lines(view)[2] == "not crossed: okx sells 1.0 above the bid of kraken"
    view.bids.insert(0, level("101.5", kraken="0.5", okx="9"))
    # Of okx's own bid and ask nothing is said: one exchange does not cross itself.
    assert lines(view)[2] == (
        "crossed:  buy okx 101.0 (40 ms)  sell kraken 101.5 (2.5 s)  gap 0.5  amount 0.5"
    )
    view.asks, view.bids = [], []
    assert lines(view)[2] == "crossed: needs two exchanges"


def test_a_crossing_after_fees_has_its_profit_first_and_an_ended_one_is_not_shown(view):
    assert lines(view, with_fees=True)[2] == "not crossed after fees"
    view.asks[0] = net(view.asks[0])
    view.bids[0] = net(view.bids[0])
    assert lines(view, with_fees=True)[2] == ("after fees okx sells 0.5 above the bid of okx")
    best = Crossing("okx", "kraken", *map(Decimal, ("0.5", "101", "101.5", "0.25", "0.149", "0.3")))
    poorer = best._replace(sell="xt", profit=Decimal("0.01"))
    view.crossings = (
        CrossingReport("ended", "htx", "okx", 900, None, None, None),
        CrossingReport("changed", "okx", "xt", 10, poorer, 40, 1),
        CrossingReport("lasts", "okx", "kraken", 1_500, best, 40, 2_500),
    )
    assert lines(view, with_fees=True)[2] == (
        "crossed:  after fees +0.15 (0.300 %)  buy okx 101 (40 ms)  sell kraken 101.5 (2.5 s)  "
        "amount 0.5  for 1.5 s  1 more pairs"
    )


@pytest.mark.parametrize(
    ("possible", "words"),
    [(True, "  BTC can be moved"), (False, "  BTC cannot be moved"), (None, "  for 1.5 s")],
)
def test_a_crossing_says_whether_the_coin_can_be_moved(view, possible, words):
    best = Crossing("okx", "kraken", *map(Decimal, ("0.5", "101", "101.5", "0.25", "0.149", "0.3")))
    moved = Transferable("BTC", possible, None, None)
    view.crossings = (CrossingReport("lasts", "okx", "kraken", 1_500, best, 40, 2_500, moved),)
    assert lines(view, with_fees=True)[2].endswith(words)


def test_the_oldest_data_comes_first_and_nothing_is_shown_of_a_lost_view(view):
    assert lines(view)[3] == "oldest data:  kraken 2.5 s  okx 40 ms"
    view.live = False
    assert lines(view) == []


@pytest.mark.parametrize("width", [20, 40, 60, 80, 110, 160])
def test_no_line_is_longer_than_the_screen_and_what_is_left_out_is_counted(view, width):
    one = FillPart(Decimal(1), Decimal(1))
    split = {f"exchange{number}": one for number in range(30)}
    view.fills["buy"] = [fill(split=split)]
    found = lines(view, width=width)
    assert len(found) == 4
    assert max(map(len, found)) <= width
    assert "  +" in found[0]


def test_fees_are_read_exactly_and_a_bad_file_is_one_sentence(tmp_path):
    file = tmp_path / "fees.toml"
    file.write_text("others = 0.1\nokx = 0.08\nkraken = -0.01\n")
    assert read_fees(file) == {"*": "0.1", "okx": "0.08", "kraken": "-0.01"}
    for text, words in (
        ("okx", "is not TOML"),
        ('okx = "cheap"', "okx must be a fee in percent"),
        ("okx = 11", "at most 10"),
        ("okx = true", "okx must be"),
        ("okx = nan", "okx must be"),
        ("okx = 1e99999999999999999999", "out of range|okx must be"),
        ("okx = " + "[" * 20_000, "nested too deeply"),
        ("[okx]\nmaker = 1", "okx must be"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_fees(file)
    with pytest.raises(ValueError, match="No such file"):
        read_fees(tmp_path / "none.toml")


def test_the_picture_of_the_ladder(tmp_path):
    """A seeded book, so that the picture changes only with the drawing code."""
    draw = Random(4)
    names = ("binance", "bybit", "coinbase", "kraken", "okx")

    def side(sign):
        price = Decimal("64250.1") + sign * Decimal("0.2")
        for _ in range(8):
            shares = {
                name: str(Decimal(draw.randint(1, 9_000)) / 10_000)
                for name in names
                if draw.random() < 0.45
            }
            yield level(str(price), **(shares or {"okx": "0.25"}))
            price += sign * Decimal(draw.randint(1, 9)) / 10

    bids, asks = list(side(-1)), list(side(1))
    bids.insert(0, level("64250.4", kraken="0.35"))
    view = BookView(
        "BTC/USDT",
        live=True,
        bids=bids,
        asks=asks,
        market_stats={"mid_price": Decimal("64250.35"), "spread": "-0.1", "crossed": True},
        ages={name: 12 * (at + 1) for at, name in enumerate(names)},
        timestamp="2026-11-20T10:11:12.345678Z",
        update_number=1_207,
    )
    fees = {"okx": "0.08", "kraken": "0.25", "*": "0.1"}
    for direction in ("buy", "sell"):
        view.fills[direction] = [view.route(direction, amount="2.5", fees=fees)]
    console = Console(record=True, width=104, file=StringIO(), force_terminal=True)
    shown = [*Ladder(104).lines(view, 8), *market_lines(view, with_fees=True, width=104)]
    console.print(joined(shown), soft_wrap=True, highlight=False)
    title = "onebook watch BTC/USDT --amount 2.5 --fees fees.toml"
    picture = console.export_svg(title=title, unique_id="watch")
    assert "after" in picture
    assert "crossed" in picture
    assert written(picture) == written(PICTURE.read_text()) or PICTURES, "make it anew"
    # The fonts of the reader's machine: nothing is loaded from elsewhere.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    picture = picture.replace("font-family: Fira Code, monospace", f"font-family: {MONO}")
    assert "url(http" not in picture
    Path(PICTURES or tmp_path, "watch.svg").write_text(picture)


def test_the_age_of_the_best_prices_is_beside_them_if_every_one_is_known(view):
    view.market_stats |= {"spread": Decimal("0.5"), "crossed": False}

    def middle(width=None):
        found = [line.plain for line in Ladder(width).lines(view, 5)]
        return next(line for line in found if "spread" in line)

    assert middle().endswith("spread 0.5  ≥ 40 ms old")
    view.bids = [level("100.5", okx="1", kraken="1")]
    assert middle().endswith("spread 0.5  ≥ 2.5 s old"), "the oldest of them"
    assert "old" not in middle(24)
    view.ages = {"okx": 40}
    assert middle().endswith("spread 0.5")


def test_the_age_by_the_exchange_s_clock_has_its_error(view):
    """Sent at 1,000 ms by a clock 2,000 ms behind ours, received at 3,012 ms."""
    view.market_stats |= {"spread": Decimal("0.5"), "crossed": False}
    view.bids = [level("100.5", okx="1", kraken="1")]
    view.asks = [level("101", okx="1")]
    view.ages = {"okx": 40, "kraken": 20}

    def times(name, took_us, error_us, exchange_us=1_000_000, offset_us=2_000_000):
        received_us = None if exchange_us is None else exchange_us + offset_us + took_us
        depth = LayerTimes(None, 5)
        return name, ExchangeTimes(LayerTimes(exchange_us, received_us), depth, offset_us, error_us)

    def middle(*exchanges):
        ladder = Ladder(None)
        ladder.transits = transits_of(BookTimes(0, 0, dict(exchanges)))
        return next(line.plain for line in ladder.lines(view, 5) if "spread" in line.plain)

    okx, kraken = times("okx", 12_300, 1_200), times("kraken", 5_000, 400)
    assert middle(okx, kraken).endswith("spread 0.5  52 ms old ±2 ms")
    assert middle(okx, times("kraken", 45_400, 400)).endswith("65 ms old ±1 ms"), "the oldest"
    assert middle(times("okx", 12_300, None), kraken).endswith("≥ 52 ms old")
    assert middle(okx, times("kraken", 5_000, None)).endswith("≥ 52 ms old"), "perhaps kraken's is"
    assert middle(okx).endswith("≥ 52 ms old"), "kraken's is unknown"
    assert middle(kraken).endswith("≥ 40 ms old"), "okx's is unknown"
    assert middle(okx, times("kraken", 0, 400, exchange_us=None)).endswith("≥ 52 ms old")
    assert middle(times("okx", -900_000, 1_000), kraken).endswith("40 ms old ±1 ms")
    assert transits_of(None) == {}

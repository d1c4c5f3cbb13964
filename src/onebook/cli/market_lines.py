"""The lines below the ladder of `onebook watch`: cost of sizes, crossed markets, age of data.

One line each, so that the ladder does not move; parts that do not fit are counted instead of shown.
Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple

from rich.text import Text

from onebook.cli.ladder import age_text, text_of
from onebook.client import BookLevel, BookView, Fill
from onebook.files import read_toml
from onebook.orderbook import NetLevel
from onebook.routes import Route

OTHERS: Final = "others"
GAP: Final = "  "
AVERAGE_DECIMALS: Final = 2  # of an average, more than the prices of the book have
PERCENT: Final = Decimal(100)
FEE_MAX: Final = Decimal(10)


class FeeTable(NamedTuple):
    """Taker fees in percent by exchange, and for all others (None: unknown)."""

    own: Mapping[str, Decimal]
    others: Decimal | None

    def texts(self) -> dict[str, str]:
        """Return the table as the option `fees` of a view."""
        others = {} if self.others is None else {"*": f"{self.others:f}"}
        return {name: f"{fee:f}" for name, fee in self.own.items()} | others

    def charged(self, notionals: Iterable[tuple[str, Decimal]]) -> Decimal | str:
        """The total fee of notionals by exchange, or the exchanges whose fee is unknown."""
        charged, unknown = Decimal(0), []
        for exchange, notional in notionals:
            percent = self.own.get(exchange, self.others)
            if percent is None:
                unknown.append(exchange)
            else:
                charged += notional * percent / PERCENT
        return ", ".join(unknown) or charged


class Quote(NamedTuple):
    """Best price of one exchange on a side."""

    exchange: str
    price: Decimal
    amount: Decimal


def read_fees(path: Path) -> FeeTable:
    """Read a TOML file of fees in percent, such as `okx = 0.08`; `others` is for the rest.

    Without `others`, the fee of an exchange that is not listed is unknown.

    Raises:
        ValueError: The file is unreadable or not a table of fees.
    """
    try:
        table = read_toml(path, parse_float=Decimal)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}.") from None
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    fees = {}
    for name, fee in table.items():
        number = Decimal(fee) if type(fee) in (int, Decimal) else Decimal("NaN")
        if not number.is_finite() or abs(number) > FEE_MAX:
            raise ValueError(f"{path}: {name} must be a fee in percent, at most {FEE_MAX}.")
        fees[name] = number
    return FeeTable(fees, fees.pop(OTHERS, None))


def market_lines(view: BookView, fees: FeeTable | None, width: int | None) -> list[Text]:
    """Lines for the cost of each size, crossed markets and the oldest data."""
    if not view.live:
        return []
    decimals = max(
        (_decimals(level.price) for level in (*view.bids[:1], *view.asks[:1])), default=0
    )
    pairs = zip(view.fills.get("buy", ()), view.fills.get("sell", ()), strict=True)
    fills = [
        _fill(view, side, fill, fees, decimals, width)
        for pair in pairs
        for side, fill in zip(("buy", "sell"), pair, strict=True)
    ]
    return [*fills, _crossed(view, fees, width), _ages(view, width)]


def _fill(
    view: BookView,
    side: str,
    fill: Fill | Route,
    fees: FeeTable | None,
    decimals: int,
    width: int | None,
) -> Text:
    base, _, quote = view.symbol.partition("/")
    unit = base if fill.by == "amount" else quote
    head = f"{side:4} {fill.size:f} {unit}"
    amount, notional = fill.amount, fill.notional
    if fill.average is None:
        return Text(f"{head}{GAP}nothing on the books", style="yellow")
    parts = []
    if not fill.complete:
        parts.append(f"only {text_of(amount if fill.by == 'amount' else notional)} on the books")
    sign = 1 if side == "buy" else -1
    unit_price = Decimal(1).scaleb(-decimals - AVERAGE_DECIMALS)
    parts.append(f"average {fill.average.quantize(unit_price):f}")
    if isinstance(fill, Route):
        if fill.net_average is not None:
            parts.append(f"after fees {fill.net_average.quantize(unit_price):f}")
        if fill.extra:
            parts.append(f"lots cost {fill.extra.normalize():f}")
        if fill.unplaced:
            parts.append(f"lots leave {text_of(fill.unplaced)}")
    elif fees is not None:
        charged = fees.charged((name, part.notional) for name, part in fill.split.items())
        if isinstance(charged, str):
            parts.append(f"after fees unknown: no fee for {charged}")
        else:
            net = (notional + sign * charged) / amount
            parts.append(f"after fees {net.quantize(unit_price):f}")
    mid = view.market_stats.get("mid_price")
    if mid:
        slip = sign * (fill.average - mid) / mid * PERCENT
        parts.append(f"slippage {slip:.4f} %")
    parts.append(f"worst {fill.worst:f}")
    if fill.uncovered:
        parts.append(f"maybe cheaper: {len(fill.uncovered)} books not known to this depth")
    split = [f"{name} {text_of(part.amount)}" for name, part in fill.split.items()]
    line = _fitted(head, [*parts, *split], width)
    return Text(line, style="" if fill.complete else "yellow")


def _crossed(view: BookView, fees: FeeTable | None, width: int | None) -> Text:
    """The pair of exchanges with the widest gap; if no market is crossed, the closest pair."""
    pairs = [
        (sell.price - buy.price, buy, sell)
        for buy in _quotes(view.asks)
        for sell in _quotes(view.bids)
        if buy.exchange != sell.exchange
    ]
    if not pairs:
        return Text("crossed: needs two exchanges", style="dim")
    gap, buy, sell = max(pairs, key=lambda pair: pair[0])
    if gap < 0:
        line = f"not crossed: {buy.exchange} sells {-gap:f} above the bid of {sell.exchange}"
        return Text(_fitted(line, [], width), style="dim")
    many = sum(each >= 0 for each, _, _ in pairs)
    amount = min(buy.amount, sell.amount)
    parts = [
        f"buy {buy.exchange} {buy.price:f} ({_age(view, buy.exchange)})",
        f"sell {sell.exchange} {sell.price:f} ({_age(view, sell.exchange)})",
        f"gap {gap:f}",
        f"amount {text_of(amount)}",
    ]
    if fees is not None:
        charged = fees.charged((each.exchange, each.price) for each in (buy, sell))
        if isinstance(charged, str):
            parts.append(f"after fees unknown: no fee for {charged}")
        else:
            parts.append(f"after fees {amount * (gap - charged):+.2f}")
    if many > 1:
        parts.append(f"{many - 1} more pairs")
    return Text(_fitted("crossed:", parts, width), style="yellow")


def _quotes(levels: Iterable[BookLevel]) -> list[Quote]:
    """The best quote of each exchange among the shown levels, before fees."""
    best: dict[str, Quote] = {}
    for level in levels:
        gross = level.gross if isinstance(level, NetLevel) else repeat(level.price)
        for exchange, amount, price in zip(level.exchanges, level.amounts, gross, strict=False):
            best.setdefault(exchange, Quote(exchange, price, amount))
    return list(best.values())


def _ages(view: BookView, width: int | None) -> Text:
    oldest = sorted(view.ages, key=lambda name: (-view.ages[name], name))
    parts = [f"{name} {_age(view, name)}" for name in oldest]
    return Text(_fitted("oldest data:" if parts else "no data", parts, width), style="dim")


def _age(view: BookView, exchange: str) -> str:
    age_ms = view.ages.get(exchange)
    if age_ms is None:
        return "age unknown"
    return age_text(age_ms)


def _fitted(head: str, parts: Sequence[str], width: int | None) -> str:
    """Format as many parts as fit, then the number of further ones."""
    for shown in range(len(parts), -1, -1):
        left = len(parts) - shown
        line = GAP.join((head, *parts[:shown], *([f"+{left}"] if left else [])))
        if width is None or len(line) <= width:
            return line
    return head[:width]


def _decimals(price: Decimal) -> int:
    exponent = price.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

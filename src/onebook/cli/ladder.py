"""The ladder of `onebook watch` as lines of text with aligned, uncut columns.

If the width is too small, the attribution is shortened first (names with amounts, names, the
largest exchanges and the number of others, none), then the bar is dropped; prices and amounts are
always shown. Below the ladder, `market_lines` shows the cost of sizes, crossed markets and the age
of data, one line each, so that the ladder does not move; parts that do not fit are counted instead
of shown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from rich.text import Text

from onebook.client import BookLevel, BookTimes, BookView, Fill
from onebook.fees import FEE_MAX, OTHERS, fee_text
from onebook.files import read_toml
from onebook.orderbook import NetLevel
from onebook.routes import Route

GAP: Final = 2
SPACE: Final = "  "  # between the parts of a line
BAR_CELLS: Final = 18
BAR_CELLS_MIN: Final = 6
SOME_CELLS_MIN: Final = 9  # least attribution: its header
LINES_BESIDE: Final = 5  # lines without levels: title, not live, header, middle, cursor
AVERAGE_DECIMALS: Final = 2  # extra decimals of an average, compared with the book's prices
PERCENT: Final = Decimal(100)
DIGITS_MAX: Final = 20  # of a fee in a file, before or after the point


class Transit(NamedTuple):
    """Time of a price from its exchange to the service in ms; without an error, a lower bound."""

    ms: float
    error_ms: float | None


UNKNOWN: Final = Transit(0.0, None)


def rows(height: int) -> int:
    """Levels per side that fit a number of lines."""
    return max(1, (height - LINES_BESIDE) // 2)


def text_of(number: Decimal) -> str:
    """The shortest decimal text, without exponent."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def problem_text(view: BookView) -> str:
    """The reason why a view is not live, and the time of the next attempt."""
    if view.problem is None:
        return "no book yet"
    again = f" Next attempt in {view.problem.retry_in_s:.1f} s." if view.problem.retry_in_s else ""
    return f"{view.problem}{again}"


def _amounts(level: BookLevel) -> str:
    parts = zip(level.exchanges, level.amounts, strict=True)
    return "  ".join(f"{name} {amount:f}" for name, amount in parts)


def _names(level: BookLevel) -> str:
    return " ".join(level.exchanges)


def _largest(level: BookLevel, *, cells: int) -> str:
    """Format as many names as fit, by amount, then the number of other exchanges."""
    parts = zip(level.amounts, level.exchanges, strict=True)
    names = [name for _, name in sorted(parts, key=lambda part: -part[0])]
    for shown in range(len(names), 0, -1):
        more = f" +{len(names) - shown}" if shown < len(names) else ""
        if len(text := " ".join(names[:shown]) + more) <= cells:
            return text
    return f"+{len(names)}"


FORMS: Final[tuple[Callable[[BookLevel], str], ...]] = (_amounts, _names)


class Ladder:
    """Renders views at a fixed width; None means unlimited and without bars, for pipes and files.

    A column keeps the width of its widest cell so far, so that columns do not move.
    """

    def __init__(self, width: int | None) -> None:
        self.width = width
        self.transits: Mapping[str, Transit] = {}  # by exchange, of those whose times are known
        self._price = _Aligned()
        self._amount = _Aligned()
        self._forms = [0] * len(FORMS)

    def lines(self, view: BookView, count: int) -> list[Text]:
        """Asks above bids, with the best of each in the middle; `count` levels per side."""
        asks, bids = view.asks[:count], view.bids[:count]
        shown = [*reversed(asks), *bids]
        middle = _middle(view, self.transits)
        for level in shown:
            self._price.add(f"{level.price:f}")
            self._amount.add(f"{level.amount:f}")
        if middle is not None:
            self._price.add(middle[0])
        for index, written in enumerate(FORMS):
            widths = (len(written(level)) for level in shown)
            self._forms[index] = max(self._forms[index], *widths, 0)
        bar_cells, form = self._layout()
        most = max((level.amount for level in shown), default=None)
        drawn = self._title(view)
        if not view.live:
            return drawn
        drawn.append(self._header(bar_cells, form is not None))
        for index, level in enumerate(shown):
            if index == len(asks):
                drawn.append(self._middle_line(middle))
            color = "red" if index < len(asks) else "green"
            line = Text(self._price.cell(f"{level.price:f}"), style=color)
            line.append(" " * GAP + self._amount.cell(f"{level.amount:f}"), style="default")
            if bar_cells:
                cells = max(1, int(level.amount / most * bar_cells)) if most else 0
                line.append(" " * GAP + "█" * cells + " " * (bar_cells - cells))
            if form is not None:
                line.append(" " * GAP + form(level), style="dim default")
            line.rstrip()
            drawn.append(line)
        if len(shown) == len(asks):
            drawn.append(self._middle_line(middle))
        return drawn

    def _layout(self) -> tuple[int, Callable[[BookLevel], str] | None]:
        """The width of the bar and the form of the attribution."""
        if self.width is None:
            return 0, FORMS[0]
        left = self.width - self._price.width - GAP - self._amount.width
        for cells in (BAR_CELLS, BAR_CELLS_MIN):
            for form, width in zip(FORMS, self._forms, strict=True):
                if cells + width + 2 * GAP <= left:
                    return cells, form
        room = left - BAR_CELLS_MIN - 2 * GAP
        if room >= SOME_CELLS_MIN:
            return BAR_CELLS_MIN, partial(_largest, cells=room)
        cells = min(BAR_CELLS, left - GAP)
        return (cells if cells >= BAR_CELLS_MIN else 0), None

    def _title(self, view: BookView) -> list[Text]:
        title = Text(view.symbol, style="bold")
        if not view.live:
            return [title, *self._folded(f"not live: {problem_text(view)}", "red")]
        title.append(f"  update {view.update_number}  {view.timestamp[11:23]}", style="not bold")
        missing = []
        if view.stale_exchanges:
            missing.append("not live: " + ", ".join(view.stale_exchanges))
        for reason in dict.fromkeys(view.rejected.values()):
            named = (name for name, why in view.rejected.items() if why == reason)
            missing.append(f"not served: {', '.join(named)} ({reason})")
        return [title, *self._folded("; ".join(missing), "yellow")] if missing else [title]

    def _folded(self, text: str, style: str) -> list[Text]:
        """Wrap words over several lines."""
        lines = [""]
        for word in text.split():
            if lines[-1] and self.width and len(lines[-1]) + 1 + len(word) > self.width:
                lines.append("")
            lines[-1] += f" {word}" if lines[-1] else word
        return [Text(line, style=style) for line in lines]

    def _header(self, bar_cells: int, attributed: bool) -> Text:
        words = "price".rjust(self._price.width) + " " * GAP + "amount".rjust(self._amount.width)
        if attributed:
            words += " " * (GAP + bar_cells if bar_cells else 0) + " " * GAP + "exchanges"
        return Text(words, style="dim")

    def _middle_line(self, middle: tuple[str, str, bool, str] | None) -> Text:
        if middle is None:
            return Text()
        mid, spread, crossed, age = middle
        line = Text(self._price.cell(mid), style="bold")
        line.append(f"{' ' * GAP}spread {spread}", style="not bold")
        if crossed:
            line.append("  crossed", style="yellow not bold")
        if age and (self.width is None or len(line) + GAP + len(age) <= self.width):
            line.append(f"{' ' * GAP}{age}", style="dim not bold")
        return line


def _middle(view: BookView, transits: Mapping[str, Transit]) -> tuple[str, str, bool, str] | None:
    """The mid, the spread, whether the market is crossed, and the age of the best prices."""
    stats = view.market_stats
    if not stats or stats["spread"] is None:
        return None
    mid, spread = Decimal(stats["mid_price"]), Decimal(stats["spread"])
    return f"{mid:f}", f"{spread:f}", bool(stats["crossed"]), _price_age(view, transits)


def _price_age(view: BookView, transits: Mapping[str, Transit]) -> str:
    """The age of the oldest best price by its exchange's clock, and the error of that age.

    It is the time since data arrived, which each update has, plus the transit time. If a transit
    time or its error is unknown, the age is a lower bound; empty if no arrival is known.
    """
    best = [level for level in (view.best_bid, view.best_ask) if level is not None]
    names = {name for level in best for name in level.exchanges}
    if not names or not names <= view.ages.keys():
        return ""
    found = {name: transits.get(name, UNKNOWN) for name in names}
    ages = {name: view.ages[name] + found[name].ms for name in names}
    oldest = max(ages, key=lambda name: ages[name])
    age = f"{age_text(round(ages[oldest]))} old"
    error_ms = found[oldest].error_ms
    if error_ms is None or any(each.error_ms is None for each in found.values()):
        return f"≥ {age}"
    return f"{age} ±{max(1, ceil(error_ms))} ms"


def transits_of(times: BookTimes | None) -> dict[str, Transit]:
    """Return how long the newest best price of each exchange took to the service, if known."""
    found = {}
    for name, each in ({} if times is None else times.exchanges).items():
        if each.top.exchange_us is None or each.offset_us is None:
            continue
        took_us = each.top.received_us - each.offset_us - each.top.exchange_us
        error_ms = None if each.error_us is None else each.error_us / 1_000
        found[name] = Transit(max(0.0, took_us / 1_000), error_ms)
    return found


def age_text(age_ms: int) -> str:
    """Format an age in milliseconds, or in seconds from 1 s."""
    return f"{age_ms} ms" if age_ms < 1_000 else f"{age_ms / 1_000:.1f} s"


class _Aligned:
    """A column of numbers aligned at the decimal point."""

    def __init__(self) -> None:
        self._whole = 0
        self._decimals = 0  # cells right of the integer part, including the point

    def add(self, number: str) -> None:
        whole, point, decimals = number.partition(".")
        self._whole = max(self._whole, len(whole))
        self._decimals = max(self._decimals, len(point + decimals))

    @property
    def width(self) -> int:
        return self._whole + self._decimals

    def cell(self, number: str) -> str:
        whole, point, decimals = number.partition(".")
        return whole.rjust(self._whole) + (point + decimals).ljust(self._decimals)


def joined(lines: Sequence[Text]) -> Text:
    """Join lines into one text that is neither wrapped nor cut."""
    text = Text("\n", no_wrap=True, overflow="ignore").join(lines)
    text.no_wrap, text.overflow = True, "ignore"
    return text


class Quote(NamedTuple):
    """Best price of one exchange on a side."""

    exchange: str
    price: Decimal
    amount: Decimal


def read_fees(path: Path) -> dict[str, str]:
    """Read a TOML file of fees in percent, such as `okx = 0.08`; `others` is for the rest.

    Without `others`, the fee of an exchange that is not listed is unknown.

    Returns:
        The option `fees` of a view.

    Raises:
        ValueError: The file is unreadable or not a fee table.
    """
    try:
        table = read_toml(path, parse_float=Decimal)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}.") from None
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    fees = {}
    for name, fee in table.items():
        plain = isinstance(fee, Decimal) and abs(fee.adjusted()) < DIGITS_MAX
        try:
            text = f"{fee:f}" if plain else str(fee) if type(fee) is int else ""
            fees[OTHERS if name == "others" else name] = fee_text(text)
        except ValueError:
            raise ValueError(
                f"{path}: {name} must be a fee in percent, at most {FEE_MAX}."
            ) from None
    return fees


def market_lines(view: BookView, *, with_fees: bool, width: int | None) -> list[Text]:
    """Lines for the cost of each size, crossed markets and the oldest data.

    Args:
        view: A view with `split` and `ages`, and with `crossings` if it has fees.
        with_fees: Whether it has the option `fees`.
        width: Cells of the terminal; None: any.
    """
    if not view.live:
        return []
    # Prices after fees have more decimals than are of use here.
    best = [*view.bids[:1], *view.asks[:1]]
    prices = [price for level in best for price in getattr(level, "gross", ()) or (level.price,)]
    decimals = max(map(_decimals, prices), default=0)
    pairs = zip(view.fills.get("buy", ()), view.fills.get("sell", ()), strict=True)
    fills = [
        _fill(view, side, fill, decimals, width)
        for pair in pairs
        for side, fill in zip(("buy", "sell"), pair, strict=True)
    ]
    crossed = _crossings(view, decimals, width) if with_fees else _crossed(view, width)
    return [*fills, crossed, _ages(view, width)]


def _fill(
    view: BookView,
    side: str,
    fill: Fill | Route,
    decimals: int,
    width: int | None,
) -> Text:
    base, _, quote = view.symbol.partition("/")
    unit = base if fill.by == "amount" else quote
    head = f"{side:4} {fill.size:f} {unit}"
    amount, notional = fill.amount, fill.notional
    if fill.average is None:
        return Text(f"{head}{SPACE}nothing on the books", style="yellow")
    parts = []
    if not fill.complete:
        by_lots = False
        if isinstance(fill, Route):
            by_lots = bool(fill.unplaced)
            notional = fill.net  # which the size of a route limits
        filled = text_of(amount if fill.by == "amount" else notional)
        parts.append(f"only {filled} {'filled' if by_lots else 'on the books'}")
    sign = 1 if side == "buy" else -1
    unit_price = Decimal(1).scaleb(-decimals - AVERAGE_DECIMALS)
    parts.append(f"average {fill.average.quantize(unit_price):f}")
    if isinstance(fill, Route):
        if fill.net_average is not None:
            parts.append(f"after fees {fill.net_average.quantize(unit_price):f}")
        if extra := fill.extra.quantize(unit_price):
            parts.append(f"lots cost {extra:f}")
        if fill.unplaced:
            parts.append(f"lots leave {text_of(fill.unplaced)}")
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


def _crossings(view: BookView, decimals: int, width: int | None) -> Text:
    """The most profitable crossing after fees; without one, how far the best prices are apart."""
    found = [each for each in view.crossings if each.crossing is not None]
    if not found:
        bid, ask = view.best_bid, view.best_ask
        line = "not crossed after fees"
        if bid is not None and isinstance(ask, NetLevel) and isinstance(bid, NetLevel):
            line = (
                f"after fees {ask.exchanges[0]} sells {_rounded(ask.price - bid.price, decimals)} "
                f"above the bid of {bid.exchanges[0]}"
            )
        return Text(_fitted(line, [], width), style="dim")
    first = max(found, key=lambda each: each.crossing.profit if each.crossing else 0)
    best = first.crossing
    assert best is not None  # those that ended are left out
    parts = [
        f"after fees {best.profit:+.2f} ({best.percent:.3f} %)",
        f"buy {first.buy} {best.buy_limit:f} ({age_text(first.buy_age_ms or 0)})",
        f"sell {first.sell} {best.sell_limit:f} ({age_text(first.sell_age_ms or 0)})",
        f"amount {text_of(best.amount)}",
        f"for {age_text(first.lasted_ms)}",
    ]
    moved = first.transferable
    if moved is not None and moved.possible is not None:
        parts.append(f"{moved.coin} {'can' if moved.possible else 'cannot'} be moved")
    if len(found) > 1:
        parts.append(f"{len(found) - 1} more pairs")
    return Text(_fitted("crossed:", parts, width), style="yellow")


def _crossed(view: BookView, width: int | None) -> Text:
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
    parts = [
        f"buy {buy.exchange} {buy.price:f} ({_age(view, buy.exchange)})",
        f"sell {sell.exchange} {sell.price:f} ({_age(view, sell.exchange)})",
        f"gap {gap:f}",
        f"amount {text_of(min(buy.amount, sell.amount))}",
    ]
    if many > 1:
        parts.append(f"{many - 1} more pairs")
    return Text(_fitted("crossed:", parts, width), style="yellow")


def _quotes(levels: Iterable[BookLevel]) -> list[Quote]:
    """The best quote of each exchange among the shown levels."""
    best: dict[str, Quote] = {}
    for level in levels:
        for exchange, amount in zip(level.exchanges, level.amounts, strict=True):
            best.setdefault(exchange, Quote(exchange, level.price, amount))
    return list(best.values())


def _rounded(number: Decimal, decimals: int) -> str:
    return f"{number.quantize(Decimal(1).scaleb(-decimals)):f}"


def _ages(view: BookView, width: int | None) -> Text:
    oldest = sorted(view.ages, key=lambda name: (-view.ages[name], name))
    parts = [f"{name} {_age(view, name)}" for name in oldest]
    # A view in several quotes has a fee of each pair.
    parts += dict.fromkeys(
        f"{each.exchange}: fee of {each.date}" for each in view.published_fees if each.old
    )
    return Text(_fitted("oldest data:" if parts else "no data", parts, width), style="dim")


def _age(view: BookView, exchange: str) -> str:
    age_ms = view.ages.get(exchange)
    if age_ms is None:
        return "age unknown"
    return age_text(age_ms)


def _fitted(head: str, parts: Sequence[str], width: int | None) -> str:
    """Format as many parts as fit, then the number of the others."""
    for shown in range(len(parts), -1, -1):
        left = len(parts) - shown
        line = SPACE.join((head, *parts[:shown], *([f"+{left}"] if left else [])))
        if width is None or len(line) <= width:
            return line
    return head[:width]


def _decimals(price: Decimal) -> int:
    exponent = price.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

"""The ladder of `onebook watch` as lines of text, with aligned columns that are never cut.

If the width is too small, the attribution is shortened first (names with amounts, names, the
largest exchanges and the number of others, none), then the bar is left out; prices and amounts
never are. Pure.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Final

from rich.text import Text

from onebook.client import BookLevel, BookView

GAP: Final = 2
BAR_CELLS: Final = 18
BAR_CELLS_MIN: Final = 6
SOME_CELLS_MIN: Final = 9  # of attribution: its header
LINES_BESIDE: Final = 5  # title, exchanges that are not live, header, middle, cursor


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
    """Format as many names as fit, by amount, then the number of further exchanges."""
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
        self._price = _Aligned()
        self._amount = _Aligned()
        self._forms = [0] * len(FORMS)

    def lines(self, view: BookView, count: int) -> list[Text]:
        """Asks above bids, with the best of each in the middle; `count` levels per side."""
        asks, bids = view.asks[:count], view.bids[:count]
        shown = [*reversed(asks), *bids]
        middle = _middle(view)
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
        if view.rejected:
            named = (f"{name} ({reason})" for name, reason in view.rejected.items())
            missing.append("not served: " + ", ".join(named))
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


def _middle(view: BookView) -> tuple[str, str, bool, str] | None:
    """The mid, the spread, whether the market is crossed, and the age of the best prices."""
    stats = view.market_stats
    if not stats or stats["spread"] is None:
        return None
    mid, spread = Decimal(stats["mid_price"]), Decimal(stats["spread"])
    return f"{mid:f}", f"{spread:f}", bool(stats["crossed"]), _price_age(view)


def _price_age(view: BookView) -> str:
    """How long the exchanges at the best prices have sent nothing; empty if it is not known."""
    best = [level for level in (view.best_bid, view.best_ask) if level is not None]
    ages = [view.ages.get(name) for level in best for name in level.exchanges]
    known = [age for age in ages if age is not None]
    if not known or len(known) < len(ages):
        return ""
    return f"{age_text(max(known))} old"


def age_text(age_ms: int) -> str:
    """Format an age: milliseconds, or seconds from one on."""
    return f"{age_ms} ms" if age_ms < 1_000 else f"{age_ms / 1_000:.1f} s"


class _Aligned:
    """A column of numbers aligned at the decimal point."""

    def __init__(self) -> None:
        self._whole = 0
        self._decimals = 0  # with the point

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
    """Join lines to one text that is neither wrapped nor cut."""
    text = Text("\n", no_wrap=True, overflow="ignore").join(lines)
    text.no_wrap, text.overflow = True, "ignore"
    return text

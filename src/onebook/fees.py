"""Taker fees: tables in percent by exchange, checked and in canonical form.

A fee is decimal text of percent, negative for a rebate. `"*"` is the fee of every exchange that a
table does not name. An exchange without a fee has no net price: a missing fee never counts as zero.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Final, Literal, NamedTuple

FEE_MAX: Final = 10  # percent of a fee or of a rebate
FEE_DECIMALS_MAX: Final = 6  # of a fee in percent: net prices have at most eight more than prices
FEES_MAX: Final = 256  # entries of a table
OTHERS: Final = "*"
KEY_TABLE: Final = "key"  # as the option `fees`: the table of the API key
PUBLISHED: Final = "published"  # as the option `fees`: the fees that exchanges state themselves

# The fees of a book: a table, or those that exchanges state themselves.
Fees = Mapping[str, str] | Literal["published"]

_PERCENT = re.compile(r"-?(?:0|[1-9][0-9]?)(?:\.[0-9]{1,12})?", re.ASCII).fullmatch


class TakerFees(dict[str, str]):
    """A table in canonical form, made by `fee_table`; never changed, so that it can be hashed."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(tuple(self.items()))
            return self._hash


NO_FEES: Final = TakerFees()


class ExchangeFees(NamedTuple):
    """The fees of a set of exchanges, and the names of the exchanges that have none."""

    known: TakerFees
    unknown: tuple[str, ...]


class PublishedFee(NamedTuple):
    """The base taker fee of a pair that the exchange states itself.

    `percent` is decimal text; `source` is "instruments" (the exchange's list of pairs, read on
    `date`) or "page" (`page` is its address, `date` its date); `old` is whether `date` is more than
    180 days ago.
    """

    exchange: str
    symbol: str
    percent: str
    source: str
    date: date
    page: str = ""
    old: bool = False


def fee_table(fees: Mapping[str, str]) -> TakerFees:
    """Check a table and convert it to canonical form: shortest texts, sorted by name.

    Raises:
        ValueError: A fee is invalid, or there are too many.
    """
    if isinstance(fees, TakerFees):
        return fees
    if len(fees) > FEES_MAX:
        raise ValueError(f"A table has at most {FEES_MAX} fees, not {len(fees)}.")
    return TakerFees((name, fee_text(fees[name])) for name in sorted(fees))


def named_table(fees: Mapping[str, str], known: Callable[[str], str]) -> TakerFees:
    """Check a table that may use former names of exchanges; `known` returns ours, or raises.

    Raises:
        ValueError: A fee is invalid, or there are too many.
    """
    return fee_table({name if name == OTHERS else known(name): fees[name] for name in fees})


def fee_of(table: Mapping[str, str], exchange: str, symbol: str) -> str | None:
    """Return the fee of a pair on an exchange: its own (`kraken:BTC/USD`), or the exchange's."""
    fee = table.get(f"{exchange}:{symbol}")
    return table.get(exchange, table.get(OTHERS)) if fee is None else fee


def exchange_of(member: str) -> str:
    """Return the exchange of a member of a view: of `kraken`, or of `kraken:USD`."""
    return member.partition(":")[0]


def symbol_of(member: str, symbol: str) -> str:
    """Return the symbol of a member's book in a view of `symbol`: BTC/USD of `kraken:USD`."""
    quote = member.partition(":")[2]
    return f"{symbol.partition('/')[0]}/{quote}" if quote else symbol


def stated_table(fees: Iterable[PublishedFee]) -> TakerFees:
    """Return published fees as a table by pair, such as `kraken:BTC/USD`."""
    percents = {f"{each.exchange}:{each.symbol}": each.percent for each in fees}
    return TakerFees((pair, percents[pair]) for pair in sorted(percents))


def fees_of(table: Mapping[str, str], names: Iterable[str], symbol: str) -> ExchangeFees:
    """Return the fees of these members of a view by name, so that equal fees are equal tables."""
    found = {
        name: fee_of(table, exchange_of(name), symbol_of(name, symbol)) for name in sorted(names)
    }
    known = {name: fee for name, fee in found.items() if fee is not None}
    return ExchangeFees(TakerFees(known), tuple(name for name, fee in found.items() if fee is None))


def fee_text(fee: str) -> str:
    """Return the shortest text of a fee in percent.

    Raises:
        ValueError: It is not decimal text within the limits.
    """
    mantissa, scale = fee_percent(fee)
    return f"{Decimal(mantissa).scaleb(-scale):f}"


def fee_percent(fee: str) -> tuple[int, int]:
    """Return a fee in percent as mantissa x 10^-scale, at the smallest scale.

    Raises:
        ValueError: It is not decimal text within the limits.
    """
    if not isinstance(fee, str) or _PERCENT(fee) is None:
        raise _not_a_fee(fee)
    whole, _, fraction = fee.partition(".")
    fraction = fraction.rstrip("0")
    mantissa, scale = int(whole + fraction), len(fraction)
    if scale > FEE_DECIMALS_MAX or abs(mantissa) > FEE_MAX * 10**scale:
        raise _not_a_fee(fee)
    return mantissa, scale


def _not_a_fee(fee: object) -> ValueError:
    return ValueError(
        f"A fee is a decimal number of percent from -{FEE_MAX} to {FEE_MAX} with at most "
        f'{FEE_DECIMALS_MAX} decimals, as text such as "0.075", not {str(fee)[:40]!r}.'
    )


def least_profit(percent: str) -> str:
    """Return the shortest text of a minimum profit in percent.

    Raises:
        ValueError: It is negative, or not decimal text within the limits of fees.
    """
    try:
        shortest = fee_text(percent)
    except ValueError:
        shortest = "-"
    if shortest.startswith("-"):
        raise ValueError(
            f'must be 0 to {FEE_MAX} percent as decimal text, such as "0.05", not '
            f"{str(percent)[:40]!r}."
        )
    return shortest


def fee_factors(fees: Iterable[str]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return fees in percent as factors on prices: net price = price x factor x 10^-scale.

    The scale is first. Each fee has two factors, one for bids and one for asks: it lowers the price
    that a seller receives and raises the price that a buyer pays.
    """
    found = [fee_percent(fee) for fee in fees]
    decimals = max((scale for _, scale in found), default=0)
    unit = 10 ** (decimals + 2)
    percents = [mantissa * 10 ** (decimals - scale) for mantissa, scale in found]
    return decimals + 2, tuple((unit - fee, unit + fee) for fee in percents)

"""Order books as data frames. pandas and polars are imported when they are asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onebook.library.errors import MissingPackage

if TYPE_CHECKING:
    from decimal import Decimal

POLARS_DIGITS_MAX: Final = 38  # of polars' Decimal: 128 bits


class BookColumns(NamedTuple):
    """The rows of both sides, bids first, by column."""

    side: list[str]
    price: "list[float | Decimal]"
    amount: "list[float | Decimal]"
    exchanges: list[list[str]]


def package(name: str) -> Any:
    """Import a package that is not a dependency.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(
            f"This conversion needs {name}, which cannot be imported ({error}): pip install {name}"
        ) from error


def pandas_frame(columns: BookColumns, symbol: str, time_us: int) -> Any:
    """Return a `pandas.DataFrame`; `attrs` has the symbol and the time."""
    frame = package("pandas").DataFrame(columns._asdict())
    frame.attrs.update(symbol=symbol, time_us=time_us)
    return frame


def polars_frame(columns: BookColumns, scales: tuple[int, int] | None) -> Any:
    """Return a `polars.DataFrame`; with `scales` the numbers are of polars' Decimal.

    Raises:
        ValueError: A number has too many digits for it.
    """
    polars = package("polars")
    number: list[Any] = [polars.Float64] * 2
    if scales is not None:
        for values, scale in zip((columns.price, columns.amount), scales, strict=True):
            for value in values:
                if value >= 10 ** (POLARS_DIGITS_MAX - scale):
                    raise ValueError(
                        f"{value} has more digits than polars' Decimal at {scale} decimals."
                    )
        number = [polars.Decimal(POLARS_DIGITS_MAX, scale) for scale in scales]
    return polars.DataFrame(
        columns._asdict(),
        schema={
            "side": polars.String,
            "price": number[0],
            "amount": number[1],
            "exchanges": polars.List(polars.String),
        },
    )

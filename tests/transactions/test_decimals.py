"""Arithmetic on exact decimals that refuses to round; the canonical form is core's."""

from decimal import Decimal

from onebook.core import show
from onebook.transactions import decimals


def test_arithmetic_is_exact_or_refused() -> None:
    tiny, huge = Decimal("1e-60"), Decimal("1e60")
    assert huge + tiny - huge == 0  # what plain arithmetic loses ...
    assert decimals.subtract(decimals.add(huge, tiny), huge) == tiny  # ... is kept
    assert decimals.multiply(tiny, huge) == 1
    assert show(Decimal("10.500")) == "10.5"
    assert decimals.number("") is None
    assert decimals.number("2.50") == Decimal("2.5")
    assert decimals.unsigned("-3") == "3"
    assert [decimals.negated(text) for text in ("0", "1", "-1")] == ["0", "-1", "1"]

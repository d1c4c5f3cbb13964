"""docs/explanation/freshness.md lists all exchanges with fast best prices or a time endpoint."""

import re
from pathlib import Path

from onebook.exchanges import EXCHANGES

PAGE = (Path(__file__).parents[2] / "docs/explanation/freshness.md").read_text()
UNUSED = {"Bitvavo", "BingX", "bitFlyer", "Coinbase", "WOO X"}


def fused() -> set[str]:
    """The exchanges with fast best prices on one of their channels, by their names for readers."""
    return {
        each.display
        for each in EXCHANGES.values()
        if each.tops or any(channel.tops for channel in each.channels.values())
    }


def test_the_table_of_fast_channels_is_that_of_the_code():
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\|[^|]+\|$", PAGE, re.MULTILINE)
    listed = [name for row in rows[1:] for name in row.split(", ")]
    assert len(listed) == len(set(listed))
    assert set(listed) == fused()


def test_no_exchange_that_is_said_to_have_no_fast_best_prices_has_them():
    (unused,) = re.findall(r"\*\*Channels that are not used\.\*\*(.+?)\n\n", PAGE, re.DOTALL)
    assert all(name in unused for name in UNUSED)
    displays = {each.display for each in EXCHANGES.values()}
    assert displays >= UNUSED
    assert not UNUSED & fused()


def test_the_exchanges_whose_time_is_requested_are_those_of_the_code():
    (sentence,) = re.findall(r"for these exchanges: (.+?)\. Kraken", PAGE, re.DOTALL)
    listed = " ".join(sentence.split()).replace(" and ", ", ").split(", ")
    assert listed == sorted(
        (each.display for each in EXCHANGES.values() if each.time), key=str.lower
    )

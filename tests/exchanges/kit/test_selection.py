"""Lists of exchanges as clients and callers write them."""

import pytest

from onebook.exchanges import resolve
from onebook.exchanges.kit.selection import select

SUPPORTED = ("binance", "kraken", "okx")


@pytest.mark.parametrize(
    ("asked", "selected"),
    [
        (["all"], SUPPORTED),
        ([" ALL ", "okx"], SUPPORTED),
        (["all", "-kraken"], ("binance", "okx")),
        (["all", "- OKEx "], ("binance", "kraken")),
        (["okx", "binance", "okex"], ("okx", "binance")),
        (["okx", "binance", "-binance"], ("okx",)),
        (["okx", "mtgox"], ("okx",)),
    ],
)
def test_a_list_names_exchanges_all_of_them_or_all_but_some(asked, selected):
    assert select(asked, resolve).among(SUPPORTED) == selected


def test_unknown_names_are_listed_as_they_were_asked_for():
    selection = select(["Mtgox", "okx", "-Quadriga"], resolve)
    assert selection.unknown == ["Mtgox", "-Quadriga"]
    assert selection.known == ("okx",)


@pytest.mark.parametrize("asked", [[], ["-okx"], ["-mtgox"]])
def test_a_list_that_names_none_is_refused(asked):
    with pytest.raises(ValueError, match=r'^exchanges: give at least one, or "all"\.$'):
        select(asked, resolve)


def test_a_list_that_leaves_out_all_that_it_names_is_refused():
    with pytest.raises(ValueError, match="excludes every exchange"):
        select(["okx", "-okex"], resolve).among(SUPPORTED)
    with pytest.raises(ValueError, match="excludes every exchange"):
        select(["all", "-binance", "-kraken", "-okx"], resolve).among(SUPPORTED)

"""The tables of Bybit's endpoints, paths and bookkeeping."""

from typing import Any

import pytest

from onebook.transactions.adapter import SourceFailed
from onebook.transactions.bybit.adapter import unavailable_types
from onebook.transactions.bybit.endpoints import (
    ACCOUNT,
    API_KEY,
    BOOKKEEPING,
    ENDPOINTS,
    ENTRY,
    INSTRUMENTS,
    PATH_LIMITS,
    SOURCES,
    SOURCES_BY_TYPE,
    TYPES,
)
from onebook.transactions.bybit.pages import read_row, rows_of
from onebook.transactions.bybit.rows import ms
from onebook.transactions.reconciliation import CHECKS
from onebook.transactions.record import Status
from transactions.bybit.native import SPOT, fill


class TestTables:
    """The registry of words and the rows of an answer."""

    def test_every_word_of_the_documentation_is_accepted(self) -> None:
        unified = {"deposits", "withdrawals", "trades", "spot_trades", "futures", "derivatives",
                   "transfers", "holdings", "balances"}  # fmt: skip
        assert unified | set(ENTRY.types) == set(SOURCES_BY_TYPE)
        assert len(ENTRY.types) == 9

    def test_trades_are_fills_and_orders_only_by_name(self) -> None:
        assert SOURCES_BY_TYPE["trades"] == ("spot_fills", "former_spot_fills")
        assert SOURCES_BY_TYPE["spot_orders"] == (
            "spot_fills", "spot_orders", "former_spot_fills", "former_spot_orders",
        )  # fmt: skip

    def test_the_default_is_every_source_of_every_type_but_two(self) -> None:
        """Contract 4: every type except ledger and holdings."""
        found = {name for word in ENTRY.default for name in SOURCES_BY_TYPE[word]}
        others = {"ledger", "holdings"}
        assert found == {name for name, source in SOURCES.items() if source.type not in others}

    def test_a_row_that_cannot_be_read_is_shown_as_other(self) -> None:
        endpoint = ENDPOINTS["spot_fills"]
        for row in ({}, {"symbol": "BTCUSDT"}, fill(execQty="much"), fill(execTime="x")):
            record, read = read_row(row, endpoint, SPOT)
            assert not read
            assert (record.kind, record.status) == ("other", Status.UNKNOWN)
            assert record.incomplete
        assert read_row(fill(), endpoint, SPOT)[1]

    @pytest.mark.parametrize(
        ("name", "result"),
        [
            ("spot_fills", None),
            ("spot_fills", {}),
            ("spot_fills", {"list": 5}),
            ("spot_fills", {"list": [], "nextPageCursor": 5}),
            ("unified_wallet", {"list": 5}),
            ("funding_wallet", {"balance": ["x"]}),
            ("funding_wallet", {"balance": [{"walletBalance": "x"}]}),
        ],
    )
    def test_an_answer_of_another_shape_is_refused(self, name: str, result: Any) -> None:
        with pytest.raises(SourceFailed, match="documented form"):
            rows_of(ENDPOINTS[name], result)

    def test_an_account_without_coins(self) -> None:
        assert rows_of(ENDPOINTS["unified_wallet"], {"list": []}) == ([], "")
        assert rows_of(ENDPOINTS["spot_fills"], {"list": None}) == ([], "")

    def test_missing_permissions_name_the_types(self) -> None:
        assert unavailable_types(set()) == (
            "holdings", "deposits", "withdrawals", "spot_orders", "futures_linear",
            "futures_inverse", "ledger", "transfers",
        )  # fmt: skip
        assert "spot_orders" not in unavailable_types({"SpotTrade"})
        assert unavailable_types({"SpotTrade", "AccountTransfer", "Order"}) == ()

    def test_a_time_in_any_unit(self) -> None:
        assert ms({"t": "1672214887231423699"}, "t") == 1_672_214_887_231
        assert ms({"t": "0"}, "t") is None
        assert ms({}, "t") is None


def test_its_types_are_those_of_the_endpoints() -> None:
    assert {BOOKKEEPING.trades, BOOKKEEPING.tokens, *BOOKKEEPING.contracts.values()} <= set(TYPES)


def test_reasons_are_of_checks_that_there_are() -> None:
    assert set(BOOKKEEPING.reasons) <= set(CHECKS)


def test_the_wallets_with_special_roles_are_held() -> None:
    assert {BOOKKEEPING.trading_wallet, BOOKKEEPING.funding_wallet} == BOOKKEEPING.held


def test_every_path_that_is_asked_has_a_limit() -> None:
    asked = {endpoint.path for endpoint in ENDPOINTS.values()} | {ACCOUNT, API_KEY, INSTRUMENTS}
    assert asked == set(PATH_LIMITS)


def test_a_limit_begins_no_higher_than_its_table() -> None:
    assert all(limit.start <= limit.units for limit in PATH_LIMITS.values())

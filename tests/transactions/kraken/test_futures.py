"""The account log of Kraken Futures: executions of two rows, funding, collateral, transfers."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec import UNSET

from onebook.transactions.kraken.futures import FILLS, MEANINGS, log_row, market_of
from onebook.transactions.record import Direction, Record, RecordView
from transactions.kraken.native import changed, events_of, lines_of, log_records, moved
from transactions.kraken.native import log_row as row


def execution(**money: Any) -> list[dict[str, Any]]:
    """A sale that closes a position of 100, with a loss and a fee."""
    shared = {"execution": "x-1", "contract": "pf_dogeusd", "trade_price": Decimal("0.070914")}
    position = row(
        id=6, booking_uid="b-6", asset="pf_dogeusd", old_balance=100, new_balance=0, **shared
    )
    cash = row(
        id=9, booking_uid="b-9", fee=Decimal("0.0035"), realized_pnl=Decimal("-0.0042"),
        old_balance=Decimal("0.0077"), new_balance=0, **shared,
    )  # fmt: skip
    return [position, cash | money]


def single(**fields: Any) -> tuple[Record, Record]:
    found = log_records([row(**fields)])
    (event,), (line,) = events_of(found), lines_of(found)
    assert moved(found) == changed(found)
    return event, line


def test_an_execution_is_a_fill_and_what_it_gained() -> None:
    found = log_records(execution())
    fill, gain = events_of(found)
    assert (fill.kind, fill.side, fill.quantity, fill.price) == ("trade", "sell", "100", "0.070914")
    assert (fill.sentCurrency, fill.receivedCurrency) == (UNSET, UNSET)
    assert [(fee.currency, fee.amount) for fee in fill.fees] == [("USD", "0.0035")]
    assert fill.position is not None
    assert (fill.position.size_after, fill.position.realised_pnl) == ("0", "-0.0042")
    assert (fill.ids.trade_id, fill.value) == ("x-1", "7.0914")
    assert (gain.kind, gain.direction) == ("closed_pnl", Direction.OUT)
    assert gain.related == (fill.transactionId,)
    (line,) = lines_of(found)
    assert line.related == (fill.transactionId,)
    assert moved(found) == changed(found) == {"USD": "-0.0077"}


def test_funding_that_is_realised_with_a_fill_is_a_record_of_its_own() -> None:
    found = log_records(execution(realized_funding=Decimal("0.5"), new_balance=Decimal("0.5")))
    assert [event.kind for event in events_of(found)] == ["trade", "closed_pnl", "funding"]
    assert moved(found) == changed(found)


@pytest.mark.parametrize("beside", [True, False])
def test_the_fee_of_a_liquidation_is_counted_if_the_change_has_it(beside: bool) -> None:
    extra = {"info": "futures liquidation", "liquidation_fee": Decimal("0.1"),
             "new_balance": Decimal("-0.1") if beside else 0}  # fmt: skip
    found = log_records([each | {"info": extra["info"]} for each in execution(**extra)])
    fill = events_of(found)[0]
    assert fill.kind == "liquidation"
    assert [fee.kind for fee in fill.fees] == ["trading", "liquidation"][: 1 + beside]
    assert moved(found) == changed(found)


def test_what_nothing_explains_is_a_record_too() -> None:
    found = log_records(execution(new_balance=Decimal("0.01")))
    odd = events_of(found)[-1]
    assert (odd.type, odd.kind, odd.direction) == ("other", "other", Direction.IN)
    assert moved(found) == changed(found)


def test_a_fill_without_its_position_says_so() -> None:
    found = log_records(execution()[1:])
    assert events_of(found)[0].incomplete == ("quantity",)
    assert moved(found) == changed(found)


def test_a_position_is_no_money() -> None:
    found = log_records(execution()[:1])
    assert lines_of(found) == []
    assert moved(found) == {}


@pytest.mark.parametrize("word", FILLS)
def test_every_execution_becomes_a_fill(word: str) -> None:
    found = log_records([each | {"info": word} for each in execution()])
    assert events_of(found)[0].native_type == word
    assert moved(found) == changed(found)


def test_funding_is_received_or_paid() -> None:
    event, line = single(
        info="funding rate change", contract="pf_xrpusd", funding_rate=Decimal("5.44E-6"),
        old_balance=Decimal("1068.0239"), new_balance=Decimal("1068.0355"),
        realized_funding=Decimal("0.0116"),
    )  # fmt: skip
    assert (event.kind, event.direction, event.amount) == ("funding", Direction.IN, "0.0116")
    assert event.position is not None
    assert (event.position.funding, event.position.funding_rate) == ("0.0116", "0.00000544")
    assert line.balance is not None
    assert (line.balance.before, line.balance.after) == ("1068.0239", "1068.0355")
    assert line.balance.cash_flow == "0"


def test_the_two_sides_of_a_conversion_are_one_event() -> None:
    found = log_records([
        row(id=7, booking_uid="b-7", info="conversion", asset="usdt", old_balance=25,
            new_balance=Decimal("24.99")),
        row(id=8, booking_uid="b-8", info="conversion", asset="usd", old_balance=0,
            new_balance=Decimal("0.0099")),
    ])  # fmt: skip
    (event,) = events_of(found)
    assert event.type == "conversions"
    assert event.sentCurrency is not UNSET
    assert event.receivedCurrency is not UNSET
    assert (event.sentCurrency.amount_str, event.receivedCurrency.amount_str) == ("0.01", "0.0099")
    assert moved(found) == changed(found)


def test_conversions_of_one_instant_are_paired_by_their_numbers() -> None:
    found = log_records([
        row(id=number, booking_uid=f"b-{number}", info="conversion", asset=asset, old_balance=10,
            new_balance=after)
        for number, asset, after in ((1, "usdt", 9), (2, "usd", 11), (3, "xbt", 8), (4, "usd", 99))
    ])  # fmt: skip
    assert len(events_of(found)) == 2
    assert moved(found) == changed(found)


def test_half_a_conversion_is_not_lost() -> None:
    event, _ = single(info="conversion", asset="usdt", old_balance=25, new_balance=Decimal("24.9"))
    assert (event.type, event.direction) == ("conversions", Direction.OUT)


def test_a_move_between_two_margin_accounts_moves_nothing() -> None:
    found = log_records([
        row(id=1, booking_uid="b-1", info="transfer", asset="xbt", margin_account="cash",
            old_balance=2, new_balance=1),
        row(id=2, booking_uid="b-2", info="transfer", asset="xbt", margin_account="fi_xbtusd",
            old_balance=0, new_balance=1),
    ])  # fmt: skip
    (event,) = events_of(found)
    assert event.direction is Direction.BOTH
    assert event.transfer is not None
    assert (event.transfer.from_account, event.transfer.to_account) == (
        "FUTURES.CASH", "FUTURES.FI_XBTUSD",
    )  # fmt: skip
    assert moved(found) == changed(found) == {}


def test_a_transfer_from_spot_is_one_side() -> None:
    event, _ = single(
        info="cross-exchange transfer", asset="usdt", new_balance=25, execution="ref-1"
    )
    assert (event.type, event.direction, event.amount) == ("transfers", Direction.IN, "25")
    assert event.transfer is not None
    assert (event.transfer.from_account, event.transfer.to_account) == ("SPOT", "FUTURES.FLEX")
    assert event.ids.transfer_id == "ref-1"


@pytest.mark.parametrize(
    ("word", "type_", "kind"),
    [
        ("interest payment", "futures", "interest"),
        ("subaccount transfer", "transfers", "transfer"),
        ("admin transfer", "other", "adjustment"),
        ("kfee applied", "fees", "fee"),
        ("tax withheld", "fees", "tax"),
        ("tax refund", "fees", "tax"),
        ("something new", "other", "other"),
    ],
)
def test_other_words(word: str, type_: str, kind: str) -> None:
    event, line = single(info=word, old_balance=10, new_balance=Decimal("9.5"))
    assert (event.type, event.kind, event.native_type) == (type_, kind, word)
    assert line.view is RecordView.LEDGER


@pytest.mark.parametrize("word", MEANINGS)
@pytest.mark.parametrize("fee", [None, Decimal("0.25")])
def test_every_word_moves_what_its_line_says(word: str, fee: Decimal | None) -> None:
    found = log_records([row(info=word, fee=fee, old_balance=10, new_balance=7)])
    assert moved(found) == changed(found) == {"USD": "-3"}


@pytest.mark.parametrize(
    ("name", "category", "base", "quote", "settle"),
    [
        ("PF_XBTUSD", "linear", "BTC", "USD", "USD"),
        ("pi_xbtusd", "inverse", "BTC", "USD", "BTC"),
        ("FI_ETHUSD_201225", "inverse", "ETH", "USD", "ETH"),
        ("FF_XBTUSD_231229", "linear", "BTC", "USD", "USD"),
        ("PF_1INCHUSD", "linear", "1INCH", "USD", "USD"),
    ],
)
def test_a_contract_says_its_market(
    name: str, category: str, base: str, quote: str, settle: str
) -> None:
    market = market_of(name)
    assert (market.symbol, market.category) == (name.upper(), category)
    assert (market.base, market.quote, market.settle) == (base, quote, settle)
    assert (market.expiry is None) == (name.count("_") == 1)


def test_an_unknown_contract_keeps_its_name() -> None:
    assert market_of("zz_odd").symbol == "zz_odd"


def test_a_float_never_becomes_one() -> None:
    read = log_row(row(old_balance=Decimal("0.1"), new_balance=Decimal("0.3")))
    assert read.change == "0.2"


@pytest.mark.parametrize("missing", ["id", "asset", "date", "info", "new_balance", "old_balance"])
def test_a_row_without_what_makes_it_an_event_is_unreadable(missing: str) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, ArithmeticError, AttributeError)):
        log_row(row(**{missing: None}))

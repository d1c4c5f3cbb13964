"""Groups of ledger rows as events, rule by rule."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec import UNSET

from onebook.transactions.kraken.events import GroupDetails, group_key
from onebook.transactions.kraken.rows import LedgerRow, entry_of
from onebook.transactions.kraken.words import SUBTYPES, TYPES
from onebook.transactions.record import Direction, Record, RecordView, Status
from transactions.kraken.native import (
    AT,
    changed,
    entry,
    events_of,
    ledger_records,
    lines_of,
    moved,
    row,
    trade,
)


def pair(**more: Any) -> list[LedgerRow]:
    """A purchase of one ether for 200 euro, with a fee in euro."""
    return [
        entry("L1", refid="T1", asset="ZEUR", amount="-200.0000", fee="0.3200",
              balance="799.6800", **more),
        entry("L2", refid="T1", asset="XETH", amount="1.0000000000", time=AT - Decimal("0.001"),
              **more),
    ]  # fmt: skip


def one(entries: list[LedgerRow], details: GroupDetails | None = None) -> Record:
    found = events_of(ledger_records(entries, details or GroupDetails()))
    assert len(found) == 1
    return found[0]


def sent(record: Record) -> tuple[str, str] | None:
    money = record.sentCurrency
    return None if money is UNSET else (money.currency, money.amount_str)


def received(record: Record) -> tuple[str, str] | None:
    money = record.receivedCurrency
    return None if money is UNSET else (money.currency, money.amount_str)


def test_a_trade_is_its_two_rows() -> None:
    found = ledger_records(pair())
    buy, *lines = found
    assert (buy.type, buy.unified_type, buy.kind, buy.label) == ("trades", "trades", "trade", "Buy")
    assert (sent(buy), received(buy)) == (("EUR", "200"), ("ETH", "1"))
    assert [(fee.currency, fee.amount) for fee in buy.fees] == [("EUR", "0.32")]
    assert buy.timestamp == 1_700_000_000_123
    assert buy.ids.trade_id == "T1"
    assert buy.incomplete == ("price",)
    assert set(buy.related) == {line.transactionId for line in lines}
    assert all(line.related == (buy.transactionId,) for line in lines)
    assert all(line.view is RecordView.LEDGER for line in lines)
    assert moved(found) == changed(found) == {"EUR": "-200.32", "ETH": "1"}


def test_a_line_has_the_balance_around_it() -> None:
    line = next(each for each in lines_of(ledger_records(pair())) if each.asset == "EUR")
    assert line.balance is not None
    assert (line.balance.before, line.balance.after) == ("1000", "799.68")
    assert line.balance.change == "-200.32"
    assert (line.ids.native, line.ids.transfer_id) == ("L1", "T1")


def test_the_list_of_trades_adds_price_and_order_and_moves_nothing() -> None:
    plain = one(pair())
    buy = one(pair(), GroupDetails(trade=trade(cost="200.00001", fee="9.99")))
    assert (buy.price, buy.quantity, buy.value) == ("200", "1", "200.00001")
    assert (buy.ids.order_id, buy.ids.sequence) == ("O1", "17")
    assert buy.incomplete == ()
    assert (sent(buy), received(buy), buy.fees) == (sent(plain), received(plain), plain.fees)
    assert buy.transactionId == plain.transactionId
    assert buy.instrument is not None
    assert (buy.instrument.symbol, buy.instrument.base) == ("ETH/EUR", "ETH")


def test_the_id_of_an_event_does_not_depend_on_the_order_of_its_rows() -> None:
    assert one(pair()).transactionId == one(pair()[::-1]).transactionId


def test_credits_that_pay_a_fee_are_a_fee() -> None:
    credit = entry("L3", refid="T1", asset="KFEE", amount="0.00", fee="32.00", balance="968.00")
    found = ledger_records([*pair(), credit])
    fees = events_of(found)[0].fees
    assert [(fee.currency, fee.amount) for fee in fees] == [("EUR", "0.32"), ("KFEE", "32")]
    assert moved(found) == changed(found)


def test_a_trade_with_one_leg_says_what_is_missing() -> None:
    record = one(pair()[:1])
    assert (sent(record), received(record)) == (("EUR", "200"), None)
    assert record.incomplete == ("price", "receivedCurrency")
    assert record.direction is Direction.OUT


def test_fees_on_both_legs_of_a_conversion_are_kept() -> None:
    record = one([
        entry("L1", type="receive", asset="XETH", amount="1", fee="0.000123"),
        entry("L2", type="spend", asset="ZEUR", amount="-100", fee="0.4500"),
    ])  # fmt: skip
    assert (record.type, record.kind, record.label) == ("conversions", "convert", "Convert")
    assert (sent(record), received(record)) == (("EUR", "100"), ("ETH", "1"))
    assert {(fee.currency, fee.amount) for fee in record.fees} == {
        ("ETH", "0.000123"), ("EUR", "0.45"),
    }  # fmt: skip


def test_dollars_between_a_tokenized_share_and_euro_are_no_leg() -> None:
    found = ledger_records([
        entry("L1", type="spend", aclass="tokenized_asset", asset="AAPLx", amount="-3.71"),
        entry("L2", type="receive", asset="ZEUR", amount="285.5964"),
        entry("L3", type="spend", asset="ZUSD", amount="-332.9550"),
        entry("L4", type="receive", asset="ZUSD", amount="332.9550"),
    ])  # fmt: skip
    (record,) = events_of(found)
    assert (sent(record), received(record)) == (("AAPLx", "3.71"), ("EUR", "285.5964"))
    assert len(record.related) == 4
    assert record.account is not None
    assert record.account.wallet == "SPOT.T"


def test_equal_amounts_of_two_currencies_are_a_trade() -> None:
    record = one([
        entry("L1", subtype="tradespot", asset="XETH", amount="100.00000"),
        entry("L2", subtype="tradespot", asset="ZUSD", amount="-100.0000", fee="0.2500"),
    ])  # fmt: skip
    assert (sent(record), received(record)) == (("USD", "100"), ("ETH", "100"))


def test_small_balances_that_are_swept_together_are_a_record_each() -> None:
    found = ledger_records([
        entry("L1", type="spend", subtype="dustsweeping", asset="TRX", amount="-1.23"),
        entry("L2", type="spend", subtype="dustsweeping", asset="ALGO", amount="-0.45"),
        entry("L3", type="receive", subtype="dustsweeping", asset="XXBT", amount="0.00001",
              fee="0.0000003"),
    ])  # fmt: skip
    first, second = events_of(found)
    assert (sent(first), received(first)) == (("TRX", "1.23"), ("BTC", "0.00001"))
    assert (sent(second), received(second)) == (("ALGO", "0.45"), None)
    assert first.transactionId != second.transactionId
    assert moved(found) == changed(found)


def test_a_coin_that_became_another_is_a_conversion() -> None:
    record = one([
        entry("L1", refid="1", type="adjustment", asset="XDAO", amount="-0.0008854800"),
        entry("L2", refid="2", type="adjustment", asset="XETH", amount="0.0000088548",
              time=AT + 3),
    ])  # fmt: skip
    assert (record.type, record.native_type) == ("conversions", "adjustment")
    assert (sent(record), received(record)) == (("DAO", "0.00088548"), ("ETH", "0.0000088548"))


@pytest.mark.parametrize("amounts", [("1", "2"), ("1", "2", "-3")])
def test_other_adjustments_are_a_record_each(amounts: tuple[str, ...]) -> None:
    entries = [
        entry(f"L{n}", refid=str(n), type="adjustment", asset=f"A{n}", amount=amount)
        for n, amount in enumerate(amounts)
    ]
    found = events_of(ledger_records(entries))
    assert [(each.type, each.kind) for each in found] == [("other", "adjustment")] * len(amounts)


def test_an_allocation_moves_a_coin_between_two_wallets() -> None:
    record = one([
        entry("L1", refid="EL1", type="earn", subtype="allocation", asset="DOT", amount="-5"),
        entry("L2", refid="EL1", type="earn", subtype="allocation", asset="DOT28.S", amount="5"),
    ])  # fmt: skip
    assert (record.type, record.kind, record.direction) == ("transfers", "transfer", Direction.BOTH)
    assert sent(record) == received(record) == ("DOT", "5")
    assert record.transfer is not None
    assert (record.transfer.from_account, record.transfer.to_account) == ("SPOT", "SPOT.28.S")


def test_one_allocation_of_several_coins_is_several_moves() -> None:
    found = ledger_records([
        entry(f"L{n}", refid="EL1", type="earn", subtype="autoallocation", asset=asset,
              amount=amount)
        for n, (asset, amount) in enumerate(
            [("DOT", "-5"), ("DOT.F", "5"), ("XXBT", "-0.1"), ("XBT.F", "0.1")]
        )
    ])  # fmt: skip
    moves = events_of(found)
    assert [(sent(each), received(each)) for each in moves] == [
        (("DOT", "5"), ("DOT", "5")), (("BTC", "0.1"), ("BTC", "0.1")),
    ]  # fmt: skip
    assert moved(found) == {}


def test_a_refid_that_is_used_again_is_another_event() -> None:
    early = [
        entry("L1", refid="EL1", type="earn", subtype="allocation", asset="DOT", amount="-5",
              time=AT - 10_000_000),
        entry("L2", refid="EL1", type="earn", subtype="allocation", asset="DOT.F", amount="5",
              time=AT - 10_000_000),
    ]  # fmt: skip
    late = [
        entry("L3", refid="EL1", type="earn", subtype="allocation", asset="DOT", amount="-7"),
        entry("L4", refid="EL1", type="earn", subtype="allocation", asset="DOT.F", amount="7"),
    ]
    found = events_of(ledger_records([*early, *late]))
    assert [sent(each) for each in found] == [("DOT", "7"), ("DOT", "5")]
    assert len({each.transactionId for each in found}) == 2


def test_a_product_that_moves_to_another_coin_is_a_conversion() -> None:
    record = one([
        entry("L1", refid="M1", type="earn", subtype="migration", asset="MATIC.S", amount="-9"),
        entry("L2", refid="M1", type="earn", subtype="migration", asset="POL.B", amount="9"),
    ])  # fmt: skip
    assert (record.type, sent(record), received(record)) == (
        "conversions", ("MATIC", "9"), ("POL", "9"),
    )  # fmt: skip


# type, subtype, amount, fee -> type, kind, label, what is sent, what is received
SINGLE = [
    ("staking", "", "0.5", "0.1", "earn", "earn", "Staking Reward", None, "0.5"),
    ("staking", "", "-0.5", "0", "earn", "earn", "Other", "0.5", None),
    ("earn", "reward", "0.5", "0.1", "earn", "earn", "Staking Reward", None, "0.5"),
    ("earn", "", "0.5", "0.1", "earn", "earn", "Staking Reward", None, "0.5"),
    ("earn", "airdrop", "0.5", "0", "earn", "bonus", "Airdrop", None, "0.5"),
    ("transfer", "", "0.5", "0", "earn", "bonus", "Airdrop", None, "0.5"),
    ("transfer", "", "-0.5", "0", "other", "adjustment", "Adjustment", "0.5", None),
    ("transfer", "airdrop", "0.5", "0", "earn", "bonus", "Airdrop", None, "0.5"),
    ("transfer", "delistingconversion", "-1", "0", "other", "adjustment", "Adjustment", "1", None),
    ("transfer", "spottofutures", "-1", "0", "transfers", "transfer", "Transfer", "1", None),
    ("transfer", "spottostaking", "-1", "0", "transfers", "transfer", "Transfer", "1", None),
    ("transfer", "spotfromstaking", "1", "0", "transfers", "transfer", "Transfer", None, "1"),
    ("margin", "", "-3", "0.1", "margin", "closed_pnl", "Realised PnL", "3", None),
    ("margin", "", "0", "0.1", "margin", "trade", "Trade", None, None),
    ("rollover", "", "0", "0.1", "margin", "interest", "Interest", None, None),
    ("settled", "", "-0.1", "0.1", "margin", "settlement", "Settlement", "0.1", None),
    ("reward", "", "10", "0", "earn", "bonus", "Bonus", None, "10"),
    ("invite bonus", "", "10", "0", "earn", "bonus", "Bonus", None, "10"),
    ("dividend", "", "10", "0", "earn", "bonus", "Dividend", None, "10"),
    ("credit", "", "10", "0", "other", "adjustment", "Adjustment", None, "10"),
    ("nfttrade", "", "-10", "1", "other", "trade", "Trade", "10", None),
    ("nftcreatorfee", "", "-1", "0", "fees", "fee", "Fee", "1", None),
    ("nftrebate", "", "1", "0", "fees", "fee_refund", "Fee Refund", None, "1"),
    ("custodytransfer", "", "-1", "0", "transfers", "custody", "Transfer", "1", None),
    ("none", "", "1", "0", "other", "other", "Other", None, "1"),
    ("somethingnew", "odd", "-1", "0.5", "other", "other", "Other", "1", None),
    ("transfer", "somethingnew", "-1", "0", "other", "other", "Other", "1", None),
]


@pytest.mark.parametrize(
    ("type_", "subtype", "amount", "fee", "ours", "kind", "label", "given", "got"), SINGLE
)
def test_a_row_of_its_own_is_an_event(
    type_: str, subtype: str, amount: str, fee: str, ours: str, kind: str, label: str,
    given: str | None, got: str | None,
) -> None:  # fmt: skip
    found = ledger_records([entry(type=type_, subtype=subtype, amount=amount, fee=fee)])
    (record,) = events_of(found)
    assert (record.type, record.kind, record.label) == (ours, kind, label)
    assert record.native_type == (f"{type_}:{subtype}" if subtype else type_)
    assert sent(record) == (None if given is None else ("ETH", given))
    assert received(record) == (None if got is None else ("ETH", got))
    assert moved(found) == changed(found)


@pytest.mark.parametrize("word", [*TYPES, *SUBTYPES])
@pytest.mark.parametrize("amount", ["1", "-1", "0"])
def test_every_word_moves_what_its_line_says(word: Any, amount: str) -> None:
    type_, subtype = word if isinstance(word, tuple) else (word, "")
    found = ledger_records([entry(type=type_, subtype=subtype, amount=amount, fee="0.25")])
    assert moved(found) == changed(found)


@pytest.mark.parametrize(("futures", "kind"), [(True, "transfer"), (False, "bonus")])
def test_what_comes_from_futures_is_an_airdrop_if_futures_does_not_have_it(
    futures: bool, kind: str
) -> None:
    came = [entry(type="transfer", subtype="spotfromfutures", amount="283.79600", asset="SYRUP")]
    record = one(came, GroupDetails(futures=futures))
    assert (record.kind, record.incomplete) == (kind, ())


def test_without_the_log_of_futures_it_is_unsure() -> None:
    record = one([entry(type="transfer", subtype="spotfromfutures", amount="283.79600")])
    assert (record.kind, record.incomplete) == ("bonus", ("kind",))


def test_a_margin_position_has_the_details_of_its_trade() -> None:
    listed = trade(type="sell", margin="1.44", leverage="5", misc="closing,stopped")
    record = one(
        [entry(refid="T1", type="margin", asset="ZUSD", amount="-3")], GroupDetails(trade=listed)
    )
    assert (record.price, record.side, record.ids.order_id) == ("200", "sell", "O1")
    assert record.position is not None
    assert record.position.realised_pnl == "-3"
    assert (record.position.leverage, record.position.closed_size) == ("5", "1")


def test_rows_of_margin_and_trade_with_one_refid_are_two_events() -> None:
    one_row, other = entry("L1", type="margin"), entry("L2", type="rollover")
    assert group_key(one_row) != group_key(other)


@pytest.mark.parametrize("missing", ["type", "asset", "amount", "time"])
def test_a_row_without_what_makes_it_an_event_is_unreadable(missing: str) -> None:
    for lacking in (row(**{missing: None}), {k: v for k, v in row().items() if k != missing}):
        with pytest.raises((ValueError, LookupError, TypeError, ArithmeticError)):
            entry_of("L1", lacking)


@pytest.mark.parametrize(
    ("time", "at_ms"),
    [
        (1458994442, 1_458_994_442_000),
        ("1458994442.0000", 1_458_994_442_000),
        (Decimal("1710429248.3052235"), 1_710_429_248_305),
        (Decimal("1747274044.753901"), 1_747_274_044_753),
    ],
)
def test_a_time_is_read_exactly(time: Any, at_ms: int) -> None:
    assert entry(time=time).at_ms == at_ms


def test_numbers_are_read_as_texts_are() -> None:
    assert entry(amount=Decimal("1.1"), fee=0, balance=Decimal("1.1")) == entry(
        amount="1.10", fee="0.00", balance="1.1000"
    )
    assert entry(fee=None).fee == "0"


def test_a_completed_event_is_primary() -> None:
    record = one(pair())
    assert (record.view, record.status) == (RecordView.PRIMARY, Status.COMPLETED)

"""Deposits and withdrawals: the ledger, the lists of both, and reversals."""

from typing import Any

import pytest
from msgspec import UNSET

from onebook.transactions.kraken.events import GroupDetails
from onebook.transactions.kraken.funding import RETURN_MS, listed_fund, takes_back
from onebook.transactions.kraken.rows import LedgerRow
from onebook.transactions.record import Record, Status
from transactions.kraken.native import (
    AT,
    CONTEXT,
    changed,
    entry,
    events_of,
    ledger_records,
    lines_of,
    moved,
)

LISTED = {
    "method": "Ether (Hex)", "aclass": "currency", "asset": "XETH", "refid": "Q1",
    "txid": "0xabc", "info": "0xours", "amount": "1.0000000000", "time": 1_699_999_000,
    "status": "Success", "network": "Ethereum", "originators": ["0xtheirs", "0xother"],
}  # fmt: skip


def deposit(id_: str = "L1", **fields: Any) -> LedgerRow:
    return entry(id_, **({"type": "deposit", "refid": "Q1"} | fields))


def withdrawal(id_: str = "L1", **fields: Any) -> LedgerRow:
    base = {"type": "withdrawal", "refid": "A1", "asset": "ZEUR", "amount": "-1000", "fee": "1"}
    return entry(id_, **(base | fields))


BACK = {"amount": "1000", "fee": "-1", "time": AT + 86_400 * 3}


def one(entries: list[LedgerRow], details: GroupDetails | None = None) -> Record:
    found = events_of(ledger_records(entries, details or GroupDetails()))
    assert len(found) == 1
    return found[0]


def test_the_list_adds_the_transaction_and_both_addresses() -> None:
    record = one([deposit()], GroupDetails(listed=LISTED))
    chain = record.chain
    assert chain is not None
    assert (chain.network, chain.network_native, chain.tx_hash) == ("ethereum", "Ethereum", "0xabc")
    assert (chain.from_address, chain.to_address) == ("0xtheirs", "0xours")
    assert record.sender is not None
    assert record.sender.walletId == "0xtheirs"
    assert (record.ids.native, record.ids.tx_hash) == ("Q1", "0xabc")
    assert record.native_status == "Success"


def test_bank_money_is_on_no_chain() -> None:
    row = LISTED | {"asset": "ZEUR", "txid": "1234", "info": "BANK", "status-prop": "on-hold"}
    record = one([deposit(asset="ZEUR")], GroupDetails(listed=row))
    assert (record.chain, record.ids.tx_hash, record.ids.transfer_id) == (None, None, "1234")
    assert record.native_status == "Success, on-hold"


def test_a_withdrawal_sends_its_amount_and_pays_its_fee_besides() -> None:
    found = ledger_records([withdrawal()])
    (record,) = events_of(found)
    assert record.sentCurrency is not UNSET
    assert record.sentCurrency.amount_str == "1000"
    assert [fee.amount for fee in record.fees] == ["1"]
    assert moved(found) == changed(found) == {"EUR": "-1001"}


def test_a_deposit_has_its_id_before_it_is_credited() -> None:
    pending = listed_fund(LISTED | {"status": "Settled"}, "deposit", CONTEXT)
    assert pending is not None
    assert (pending.status, pending.native_status) == (Status.PENDING, "Settled")
    assert pending.timestamp == 1_699_999_000_000
    assert pending.transactionId == one([deposit()]).transactionId


def test_a_success_is_the_ledger_s_to_tell() -> None:
    assert listed_fund(LISTED, "deposit", CONTEXT) is None


@pytest.mark.parametrize(
    ("native", "status"),
    [
        ("Initial", Status.PENDING),
        ("Pending", Status.PENDING),
        ("Settled", Status.PENDING),
        ("Failure", Status.FAILED),
        ("Odd", Status.UNKNOWN),
    ],
)
def test_what_only_the_list_has_is_never_completed(native: str, status: Status) -> None:
    record = listed_fund(LISTED | {"status": native, "fee": "0.1"}, "withdrawal", CONTEXT)
    assert record is not None
    assert record.status is status
    assert (record.sentCurrency is UNSET) == (status is Status.FAILED)
    assert moved([record]) == {}


@pytest.mark.parametrize("native", ["Pending", "Success", "Failure"])
def test_a_withdrawal_is_completed_when_the_ledger_books_it(native: str) -> None:
    found = ledger_records([withdrawal()], GroupDetails(listed=LISTED | {"status": native}))
    (record,) = events_of(found)
    assert (record.status, record.native_status) == (Status.COMPLETED, native)
    assert moved(found) == changed(found)


def test_a_withdrawal_that_came_back_moved_nothing() -> None:
    gone, back = withdrawal(), withdrawal("L2", **BACK)
    found = ledger_records([gone, back])
    (record,) = events_of(found)
    assert (record.status, record.timestamp) == (Status.FAILED, gone.at_ms)
    assert record.updated_at == back.at_ms
    assert (record.sentCurrency, record.fees) == (UNSET, ())
    assert record.amount == "1000"
    lines = lines_of(found)
    assert set(record.related) == {line.transactionId for line in lines}
    assert {line.related for line in lines} == {(record.transactionId,)}
    assert moved(found) == changed(found) == {}


def test_a_deposit_that_was_taken_back_is_reversed() -> None:
    gone, back = deposit(), deposit("L2", amount="-1.0000000000", time=AT + 60)
    assert one([gone, back]).status is Status.REVERSED


def test_what_came_back_within_seconds_is_one_group() -> None:
    gone, back = withdrawal(), withdrawal("L2", **(BACK | {"time": AT + 2}))
    found = ledger_records([gone, back])
    (record,) = events_of(found)
    assert record.status is Status.FAILED
    assert moved(found) == changed(found) == {}


def test_a_return_without_its_withdrawal_is_money_that_came() -> None:
    found = ledger_records([withdrawal("L2", **BACK)])
    (record,) = events_of(found)
    assert (record.kind, record.native_type) == ("withdrawal", "withdrawal:returned")
    assert record.status is Status.COMPLETED
    assert moved(found) == changed(found) == {"EUR": "1001"}
    assert record.ids.native == one([withdrawal()]).ids.native
    assert record.related == (found[1].transactionId,)


def test_only_all_of_it_and_within_a_month_takes_it_back() -> None:
    gone = withdrawal()
    assert takes_back(withdrawal("L2", **BACK), gone)
    late = gone.at_ms + RETURN_MS + 1
    for other in (
        BACK | {"fee": "0"},  # the fee was kept
        BACK | {"amount": "999"},
        BACK | {"refid": "A2"},
        BACK | {"asset": "ZUSD"},
        BACK | {"time": AT - 1},
        BACK | {"time": late // 1_000 + 1},
    ):
        assert not takes_back(withdrawal("L2", **other), gone)
    found = ledger_records([gone, withdrawal("L2", **(BACK | {"fee": "0"}))])
    assert moved(found) == changed(found) == {"EUR": "-1"}
    assert len({record.transactionId for record in found}) == 4


def test_parts_of_one_deposit_have_an_id_each() -> None:
    found = ledger_records([deposit("L1"), deposit("L2", time=AT + 1)])
    assert len({record.transactionId for record in found}) == 4
    assert moved(found) == changed(found) == {"ETH": "2"}


@pytest.mark.parametrize("missing", ["refid", "asset", "amount", "time"])
def test_a_listed_row_without_an_id_or_amount_is_unreadable(missing: str) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, ArithmeticError)):
        listed_fund(LISTED | {"status": "Pending", missing: None}, "deposit", CONTEXT)

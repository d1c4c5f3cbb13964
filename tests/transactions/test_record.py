"""The record: documented core first, exact numbers."""

import re
from pathlib import Path

from msgspec import json

import onebook.transactions
from onebook.core import iso
from onebook.transactions.record import (
    KINDS,
    Description,
    Ids,
    Record,
    RecordKey,
    Status,
    encode,
    key_of,
    money,
)


def record(**fields: object) -> Record:
    base: dict[str, object] = {
        "transactionId": "0x" + "a" * 40,
        "timestamp": 1_700_000_000_123,
        "label": "Deposit",
        "description": Description("Bybit Deposit", "Deposit 1 BTC"),
        "datetime": iso(1_700_000_000_123),
        "exchange": "bybit",
        "environment": "mainnet",
        "type": "deposits",
        "kind": "deposit",
        "ids": Ids(native="1"),
    }
    return Record(**(base | fields))  # type: ignore[arg-type]


def test_the_documented_core_comes_first_and_absent_is_absent() -> None:
    names = list(json.decode(encode(record())))
    assert names[:6] == ["transactionId", "timestamp", "label", "fee", "sender", "description"]
    assert "sentCurrency" not in names
    assert "raw" not in names
    assert {"datetime", "view", "fees", "related", "incomplete"} <= set(names)


def test_an_amount_is_printed_from_the_same_decimal_as_its_text() -> None:
    text = "0.0189999999999999999999"
    body = encode(record(receivedCurrency=money("BTC", text)))
    assert b'"amount":%s,"amount_str":"%s"' % (text.encode(), text.encode()) in body


def test_newest_first_then_by_id() -> None:
    newer, older = record(timestamp=2), record(timestamp=1)
    assert key_of(newer) < key_of(older)
    assert key_of(record()) == RecordKey(-1_700_000_000_123, "0x" + "a" * 40)


def test_what_failed_was_cancelled_or_reversed_moves_no_money() -> None:
    still = {Status.FAILED, Status.CANCELLED, Status.REVERSED}
    assert {status for status in Status if not status.moves} == still


def test_the_documented_kinds_are_all_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/transactions.md").read_text()
    table = page.split("## Kinds")[1].split("## Ids")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert documented == KINDS


def test_every_adapter_uses_documented_kinds() -> None:
    source = Path(onebook.transactions.__file__).parent
    literal = re.compile(r'\bkind="(\w+)"')
    found = {kind for path in source.rglob("*.py") for kind in literal.findall(path.read_text())}
    assert found
    assert found <= KINDS.keys()

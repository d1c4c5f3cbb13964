"""The record: documented core first, exact numbers, ids that stay."""

import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from onebook.transactions.decimals import CANONICAL
from onebook.transactions.record import (
    Description,
    Ids,
    Key,
    Record,
    encode,
    iso,
    key_of,
    money,
    record_id,
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


def test_ids_differ_by_every_part_and_never_move() -> None:
    ids = {
        record_id(*parts)
        for parts in (
            ("bybit", "mainnet", "deposit", "1"),
            ("bybit", "testnet", "deposit", "1"),
            ("bybit", "mainnet", "withdrawal", "1"),
            ("okx", "mainnet", "deposit", "1"),
            ("bybit", "mainnet", "deposit", "2"),
        )
    }
    assert len(ids) == 5
    assert all(re.fullmatch(r"0x[0-9a-f]{40}", one) for one in ids)
    # Pinned: a change here would make every client import everything twice.
    assert record_id("bybit", "mainnet", "deposit", "1") == (
        "0x1d0a0e84b12dd1831af2de838181816e274b3365"
    )


def test_newest_first_then_by_id() -> None:
    newer, older = record(timestamp=2), record(timestamp=1)
    assert key_of(newer) < key_of(older)
    assert key_of(record()) == Key(-1_700_000_000_123, "0x" + "a" * 40)


@given(st.integers(0, 4_102_444_800_000))
def test_iso_is_what_datetime_says(at_ms: int) -> None:
    at = datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)
    assert iso(at_ms) == at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_canonical_text_is_a_json_number() -> None:
    for text in ("0", "-1", "0.5", "12.0301"):
        assert CANONICAL.fullmatch(text)
        assert json.decode(text.encode()) == float(text)

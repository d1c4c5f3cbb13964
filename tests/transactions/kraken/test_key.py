"""The description of a Kraken key: permissions, dates, expiry, and the output of `check`."""

from typing import Any

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import SimulatedKrakenKey
from onebook.transactions.adapter import AccountInfo, Environment
from onebook.transactions.credentials import Credentials
from onebook.transactions.kraken.key import KeyInfo, key_info
from transactions.bybit_support import NOW_MS, run
from transactions.kraken.native import SAMPLES
from transactions.kraken_support import FUTURES_KEY, KEY, KrakenWorld

READING = ("query-funds", "query-ledger", "query-closed-trades")
KNOWN = {
    "permissions": list(READING), "valid_until": "0", "query_from": "0", "query_to": "0",
}  # fmt: skip


def checked(key: SimulatedKrakenKey, **more: str) -> AccountInfo:
    async def asked() -> AccountInfo:
        async with KrakenWorld(key=key) as world:
            credentials = Credentials(key.api_key, key.secret, **more)
            return await world.adapter.account(Environment.MAINNET, credentials).reader.check()

    return run(asked())


def test_a_key_that_only_reads_is_accepted_without_a_word() -> None:
    info = checked(SimulatedKrakenKey(KEY.api_key, KEY.secret, READING))
    assert (info.read_only, info.may_withdraw, info.may_trade) == (True, False, False)
    assert (info.unavailable_types, info.warnings, info.expires_at) == ((), (), None)
    assert info.account_type == "SPOT"


@pytest.mark.parametrize(
    ("permission", "withdraws", "trades"),
    [
        ("withdraw-funds", True, False),
        ("add-withdraw-address", True, False),
        ("update-withdraw-address", True, False),
        ("modify-trades", False, True),
        ("close-trades", False, True),
        ("earn-funds", False, False),
    ],
)
def test_what_a_key_may_do_besides_reading_is_said(
    permission: str, withdraws: bool, trades: bool
) -> None:
    info = key_info(KNOWN | {"permissions": [*READING, permission]})
    assert info.harmful
    assert (info.may_withdraw, info.may_trade) == (withdraws, trades)
    assert info.warnings(NOW_MS)


def test_missing_permissions_are_missing_types() -> None:
    info = key_info(KNOWN | {"permissions": ["query-funds"]})
    assert "ledger" in info.unavailable
    assert "deposits" in info.unavailable
    assert "holdings" not in info.unavailable
    assert key_info(KNOWN | {"permissions": ["query-ledger"]}).unavailable == ("holdings",)


def test_dates_and_expiry_are_read_in_both_spellings() -> None:
    seconds = NOW_MS // 1_000
    snake = KNOWN | {"query_from": str(seconds), "valid_until": str(seconds + 86_400)}
    camel = {
        "permissions": list(READING), "queryFrom": str(seconds), "queryTo": "0",
        "validUntil": str(seconds + 86_400),
    }  # fmt: skip
    for answer in (snake, camel):
        info = key_info(answer)
        assert info.from_ms == seconds * 1_000
        assert info.to_ms is None
        assert info.valid_until_ms == seconds * 1_000 + DAY_MS
        assert len(info.warnings(NOW_MS)) == 2


@pytest.mark.parametrize("answer", [None, [], {}, {"permissions": "all"}])
def test_an_unknown_description_is_no_key(answer: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        key_info(answer)


def test_an_unknown_key_claims_nothing() -> None:
    assert KeyInfo().unavailable == ()
    assert KeyInfo().warnings(NOW_MS) == ()


@SAMPLES.needed
def test_the_recorded_key_may_withdraw_and_trade() -> None:
    info = key_info(SAMPLES.body("0_private_GetApiKeyInfo.jkorf.json")["result"])
    assert info.may_withdraw
    assert info.may_trade
    assert info.valid_until_ms is None


def test_the_futures_key_is_checked_too() -> None:
    key = SimulatedKrakenKey(KEY.api_key, KEY.secret, READING)
    pair = {"futures_key": FUTURES_KEY.api_key, "futures_secret": FUTURES_KEY.secret}
    assert checked(key, **pair).account_type == "SPOT, FUTURES"
    wrong = checked(key, **(pair | {"futures_key": "another"}))
    assert wrong.account_type == "SPOT"
    assert wrong.warnings[0].startswith("Futures are not read:")

"""The description of an OKX key: permissions, modes, and the output of `check` and `fetch`."""

from typing import Any

import pytest

from onebook.simulator.accounts.okx import SimulatedOkxKey
from onebook.transactions.adapter import AccountInfo, Environment, FailureReason, SourceFailed
from onebook.transactions.credentials import Credentials
from onebook.transactions.okx.key import key_info
from transactions.bybit_support import run
from transactions.okx.native import SAMPLES
from transactions.okx.test_accounts import HISTORY
from transactions.okx_support import KEY, OkxWorld

KNOWN: dict[str, Any] = {
    "perm": "read_only", "ip": "203.0.113.7", "acctLv": "2", "uid": "1", "mainUid": "1",
}  # fmt: skip


def checked(key: SimulatedOkxKey, **fields: str) -> AccountInfo:
    async def asked() -> AccountInfo:
        async with OkxWorld(history=HISTORY, key=key) as world:
            credentials = Credentials(
                key.api_key, key.secret, **({"passphrase": key.passphrase} | fields)
            )
            return await world.adapter.account(Environment.MAINNET, credentials).reader.check()

    return run(asked())


def key_of(*permissions: str) -> SimulatedOkxKey:
    return SimulatedOkxKey(KEY.api_key, KEY.secret, KEY.passphrase, permissions=permissions)


def test_a_key_that_only_reads_is_accepted() -> None:
    info = checked(key_of("read_only"))
    assert (info.read_only, info.may_withdraw, info.may_trade) == (True, False, False)
    assert (info.unavailable_types, info.expires_at, info.found) == ((), None, {})
    assert info.account_type != "UNKNOWN"


@pytest.mark.parametrize(
    ("more", "withdraws", "trades"),
    [("withdraw", True, False), ("trade", False, True), ("withdraw,trade", True, True)],
)
def test_what_a_key_may_do_besides_reading_is_said(
    more: str, withdraws: bool, trades: bool
) -> None:
    info = checked(key_of("read_only", *more.split(",")))
    assert (info.read_only, info.may_withdraw, info.may_trade) == (False, withdraws, trades)
    assert "Create one with only the permission Read." in info.warnings[0]


def test_a_key_that_is_bound_to_no_address_dies_if_it_may_do_more() -> None:
    loose = key_info([KNOWN | {"ip": "", "perm": "read_only,trade"}])
    assert any("14 days" in each for each in loose.warnings())
    assert not key_info([KNOWN | {"ip": ""}]).warnings()
    assert not key_info([KNOWN]).warnings()


def test_a_sub_account_is_named() -> None:
    assert "sub-account" in key_info([KNOWN | {"mainUid": "2"}]).warnings()[0]


@pytest.mark.parametrize("said", [[], [{}], [{"perm": None}], ["x"], [[]]])
def test_a_configuration_of_another_form_is_refused(said: list[Any]) -> None:
    with pytest.raises((LookupError, TypeError, AttributeError)):
        key_info(said)


@pytest.mark.parametrize(
    "name", ["api_v5_account_config.docs.json", "api_v5_account_config.docs2026.json"]
)
@SAMPLES.needed
def test_recorded_configurations_are_read(name: str) -> None:
    key = key_info(SAMPLES.body(name)["data"])
    assert key.mode in ("SPOT", "FUTURES", "MULTI_CURRENCY", "PORTFOLIO")
    assert "read_only" in key.permissions
    assert key.main


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"passphrase": "another"}, "passphrase"),
        ({"host": "us"}, "the site of another region"),
        ({"host": "mars"}, "unknown host; known: global, eea, us"),
    ],
)
def test_a_key_that_is_refused_says_why(fields: dict[str, str], message: str) -> None:
    with pytest.raises(SourceFailed) as refused:
        checked(KEY, **fields)
    assert message in refused.value.message
    assert refused.value.fatal
    assert refused.value.reason in (
        FailureReason.AUTHENTICATION_FAILED, FailureReason.NO_CREDENTIALS,
    )  # fmt: skip

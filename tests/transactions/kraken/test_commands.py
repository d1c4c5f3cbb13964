"""`onebook credentials set kraken` as the operator runs it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onebook.cli import credentials
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedKraken,
    SimulatedKrakenKey,
)
from onebook.transactions.adapter import CredentialField
from transactions.bybit_support import Served
from transactions.kraken_support import KEY
from transactions.operating import Command, operator_command

WITHDRAWS = replace(
    KEY, api_key="withdrawskey0000000", permissions=(*KEY.permissions, "withdraw-funds")
)
TRADES = replace(
    KEY, api_key="tradeskey0000000000", permissions=(*KEY.permissions, "modify-trades")
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    now_ms = time.time_ns() // 1_000_000
    account = KrakenAccount(KrakenHistory(now_ms - 20 * DAY_MS, now_ms - 1_000, rows=60))
    with Served(SimulatedKraken(account, [KEY, WITHDRAWS, TRADES])) as served:
        yield served


@pytest.fixture
def command(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return operator_command(tmp_path, monkeypatch, {"KRAKEN__MAINNET_URL": url})


def typed(api_key: str, secret: str = KEY.secret) -> str:
    """The answers to the prompts: no key of Kraken Futures."""
    return f"{api_key}\n{secret}\n\n"


def test_a_key_that_only_reads_is_stored_and_checked(command: Command) -> None:
    done = command("credentials", "set", "kraken", typed=typed(KEY.api_key))
    assert done.exit_code == 0, done.output
    assert KEY.secret not in done.output
    assert command("credentials", "check", "kraken").exit_code == 0
    assert command("transactions", "forget", "kraken", "--yes").exit_code == 0


def test_a_second_key_is_asked_for_whole_or_not_at_all(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = command("credentials", "set", "kraken", typed=typed(KEY.api_key)[:-1] + "futures\n\n")
    assert half.exit_code == 2
    assert half.stderr == "error: Invalid Futures private key.\n"
    labels = []
    ask = credentials._asked

    def asked(field: CredentialField) -> str:
        labels.append(field.label)
        return ask(field)

    monkeypatch.setattr(credentials, "_asked", asked)
    assert command("credentials", "set", "kraken", typed=typed(KEY.api_key)).exit_code == 0
    assert labels == ["API key", "Private key", "Futures API key (empty: no futures)"]


@pytest.mark.parametrize(
    ("key", "option"), [(WITHDRAWS, "--may-withdraw"), (TRADES, "--may-trade")]
)
def test_a_key_that_can_do_more_is_stored_only_if_told(
    command: Command, key: SimulatedKrakenKey, option: str
) -> None:
    refused = command("credentials", "set", "kraken", typed=typed(key.api_key))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: ")
    assert option in refused.stderr
    assert command("credentials", "check", "kraken").exit_code != 0
    told = command("credentials", "set", "kraken", option, typed=typed(key.api_key))
    assert told.exit_code == 0, told.output


def test_a_wrong_key_is_one_clear_line(command: Command) -> None:
    for lines in (typed("nokey00000000000000"), typed(KEY.api_key, "bm90IHRoZSBzZWNyZXQ=")):
        done = command("credentials", "set", "kraken", typed=lines)
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.strip().count("\n") == 0, done.stderr

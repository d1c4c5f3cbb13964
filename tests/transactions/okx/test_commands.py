"""`onebook credentials set okx`: fields, region, and keys with too many permissions."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx, SimulatedOkxKey
from transactions.bybit_support import Served
from transactions.okx_support import KEY
from transactions.operating import Command, operator_command, stored_credentials

KEYS = {
    "reads": KEY,
    "withdraws": SimulatedOkxKey(
        KEY.api_key.replace("0a", "1a"), KEY.secret, KEY.passphrase,
        permissions=("read_only", "withdraw"),
    ),
    "trades": SimulatedOkxKey(
        KEY.api_key.replace("0a", "2a"), KEY.secret, KEY.passphrase,
        permissions=("read_only", "trade"),
    ),
    "european": SimulatedOkxKey(
        KEY.api_key.replace("0a", "3a"), KEY.secret, KEY.passphrase, region="eea"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    now_ms = time.time_ns() // 1_000_000
    account = OkxAccount(OkxHistory(now_ms - 20 * DAY_MS, now_ms - 1_000, rows=60))
    sites = [SimulatedOkx(account, KEYS.values(), region=region) for region in ("global", "eea")]
    with Served(sites[0]) as world, Served(sites[1]) as europe:
        yield {"global": world, "eea": europe, "us": world}


@pytest.fixture
def command(urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    hosts = {f"OKX__HOSTS__{region.upper()}": url for region, url in urls.items()}
    return operator_command(tmp_path, monkeypatch, hosts)


def typed(name: str, host: str = "") -> str:
    key = KEYS[name]
    return f"{key.api_key}\n{key.secret}\n{key.passphrase}\n{host}\n"


def test_a_key_has_three_parts_and_shows_the_account(command: Command, tmp_path: Path) -> None:
    done = command("credentials", "set", "okx", typed=typed("reads"))
    assert done.exit_code == 0, done.output
    assert KEY.secret not in done.output
    assert KEY.passphrase not in done.output
    assert stored_credentials(tmp_path, "okx").fields == {
        "api_key": KEY.api_key, "secret": KEY.secret, "passphrase": KEY.passphrase,
    }  # fmt: skip
    assert command("credentials", "check", "okx").exit_code == 0


def test_the_region_is_found_and_kept(command: Command, tmp_path: Path) -> None:
    done = command("credentials", "set", "okx", typed=typed("european"))
    assert done.exit_code == 0, done.output
    assert stored_credentials(tmp_path, "okx").fields["host"] == "eea"


@pytest.mark.parametrize(
    ("name", "what", "option"),
    [
        ("withdraws", "withdraw funds", "--may-withdraw"),
        ("trades", "place or cancel orders", "--may-trade"),
    ],
)
def test_a_key_that_can_do_more_is_stored_only_if_told(
    command: Command, tmp_path: Path, name: str, what: str, option: str
) -> None:
    refused = command("credentials", "set", "okx", typed=typed(name))
    assert refused.exit_code == 2
    assert f"The key can {what}" in refused.stderr
    assert refused.stdout == ""  # one sentence, not a warning as well
    assert command("credentials", "set", "okx", option, typed=typed(name)).exit_code == 0
    assert stored_credentials(tmp_path, "okx").api_key == KEYS[name].api_key


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (typed("reads").replace(KEY.passphrase, "another"), "passphrase"),
        (typed("european", "global"), "site of another region"),
        (typed("reads", "mars"), "Region must be one of global, eea, us, or empty."),
    ],
)
def test_what_is_wrong_is_said(command: Command, lines: str, message: str) -> None:
    refused = command("credentials", "set", "okx", typed=lines)
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_an_interrupted_collection_says_that_the_next_one_continues(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onebook.cli.transactions.collect_here", interrupted)
    ended = command("transactions", "collect")
    assert (ended.exit_code, ended.stdout) == (130, "")
    assert ended.stderr == "Interrupted; the next collection continues from here.\n"

"""The exchange-independent code serves another exchange: complete, proven, over real HTTP."""

import csv
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from onebook.clock import SYSTEM_CLOCK
from onebook.config import AccountUrls, TransactionSettings
from onebook.errors import InvalidRequest, ServiceUnavailable
from onebook.model import DAY_MS
from onebook.simulator.accounts.serving import serving
from onebook.transactions import registry
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import MASTER_KEY, MemoryStore, Served
from transactions.fennec.account import (
    API_KEY,
    PASSPHRASE,
    SECRET,
    FennecAccount,
    SimulatedFennec,
)
from transactions.fennec.adapter import ENTRY, FENNEC
from transactions.operating import operator_command

GOOD = Credentials(API_KEY, SECRET, passphrase=PASSPHRASE)
NOW_MS = SYSTEM_CLOCK.wall_ms()
DAYS = 20
ACCOUNT = FennecAccount(NOW_MS, days=DAYS)
ROWS = {name: len(table) for name, table in ACCOUNT.tables.items()}
EVERYTHING = ("deposits", "withdrawals", "trades", "ledger", "holdings")


def at(url: str) -> TransactionSettings:
    return TransactionSettings(overrides={"fennec": AccountUrls(mainnet_url=url)})


class FennecWorld:
    """A service over a Fennec on a loopback port."""

    def __init__(self, url: str) -> None:
        self.vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        adapter = ExchangeAdapter(FENNEC, at(url))
        self.service = Transactions([adapter], self.vault, cursor_secret=b"c" * 32)

    async def fetch(self, *types: str, **fields: Any) -> dict[str, Any]:
        request = TransactionsRequest(
            exchange="fennec",
            transaction_types=list(types),
            start_time=NOW_MS - (DAYS + 1) * DAY_MS,
            **({"limit": 10_000} | fields),
        )
        query = self.service.plan(request, key_id="key")
        return json.decode(await self.service.fetch(query, key_id="key"))


@asynccontextmanager
async def world(
    exchange: SimulatedFennec, credentials: Credentials | None = GOOD
) -> AsyncIterator[FennecWorld]:
    async with serving(exchange) as url:
        here = FennecWorld(url)
        if credentials is not None:
            await here.vault.put("fennec", "mainnet", credentials, now_ms=0)
        try:
            yield here
        finally:
            await here.service.close()


def ids_of(answer: dict[str, Any]) -> list[str]:
    return [record["ids"]["native"] for record in answer["transactions"]]


async def test_a_complete_answer_proves_itself() -> None:
    exchange = SimulatedFennec(ACCOUNT)
    async with world(exchange) as here:
        answer = await here.fetch(*EVERYTHING, verify=True)
    assert answer["partial"] is False
    assert answer["next_cursor"] is None
    assert all(entry["complete"] for entry in answer["coverage"])
    assert answer["total_transactions"] == sum(ROWS.values()) + len(ACCOUNT.wallet.held)
    times = [record["timestamp"] for record in answer["transactions"]]
    assert times == sorted(times, reverse=True)
    proof = answer["verification"]
    assert proof["holds"] is True
    assert {check["name"]: check["state"] for check in proof["checks"]} == dict.fromkeys(
        ("ledger_arithmetic", "ledger_chain", "holdings", "orders", "spot_fills", "deposits",
         "withdrawals"),
        "holds",
    )  # fmt: skip
    assert all("Bybit" not in str(each) for each in proof["unproven"])


async def test_requests_of_a_key_go_one_after_the_other_with_rising_nonces() -> None:
    exchange = SimulatedFennec(ACCOUNT)
    async with world(exchange) as here:
        await here.fetch(*EVERYTHING)
    private = [path for path in exchange.requests if path.startswith("/private/")]
    assert len(private) > 60
    assert exchange.at_once_max == 1  # at the exchange, whatever is walked side by side


@pytest.mark.parametrize(
    ("name", "check"), [("fills", "spot_fills"), ("withdrawals", "withdrawals"),
                        ("deposits", "deposits"), ("ledger", "ledger_chain")],
)  # fmt: skip
async def test_a_row_that_the_exchange_does_not_show_breaks_the_proof(
    name: str, check: str
) -> None:
    exchange = SimulatedFennec(ACCOUNT)
    table = ACCOUNT.tables[name].entries
    exchange.lost.add(table[len(table) // 2].facts["id"])
    async with world(exchange) as here:
        proof = (await here.fetch(*EVERYTHING, verify=True))["verification"]
    assert proof["holds"] is False
    assert check in {one["name"] for one in proof["checks"] if one["state"] == "broken"}


async def test_a_busy_time_is_read_in_halves_and_stays_whole() -> None:
    account = FennecAccount(NOW_MS, days=4, orders_a_day=40)
    exchange = SimulatedFennec(account)
    assert len(account.tables["fills"]) > 24 * 20  # more pages than are held at once
    async with world(exchange) as here:
        answer = await here.fetch("trades")
    expected = [e.facts["id"] for n in ("fills", "orders") for e in account.tables[n].entries]
    assert sorted(ids_of(answer)) == sorted(expected)


async def test_pages_of_ours_hold_every_record_once() -> None:
    async with world(SimulatedFennec(ACCOUNT)) as here:
        found, cursor = [], None
        while not found or cursor:
            answer = await here.fetch("trades", "withdrawals", limit=400, cursor=cursor)
            found += ids_of(answer)
            cursor = answer["next_cursor"]
    assert len(found) == len(set(found)) == ROWS["fills"] + ROWS["orders"] + ROWS["withdrawals"]


class TestLastingCursors:
    """A list without times is continued where it was left, not restarted at its newest row."""

    async def test_no_page_before_it_is_asked_for_again(self) -> None:
        exchange = SimulatedFennec(ACCOUNT)
        found: list[str] = []
        cursor, ours = None, 0
        async with world(exchange) as here:
            while not ours or cursor:
                answer = await here.fetch("deposits", limit=7, cursor=cursor)
                found += ids_of(answer)
                cursor, ours = answer["next_cursor"], ours + 1
        newest_first = [e.facts["id"] for e in reversed(ACCOUNT.tables["deposits"].entries)]
        assert sorted(found) == sorted(newest_first)
        # Two of theirs hold seven more, and one is read ahead; without, page n would take n.
        assert exchange.requests.count("/private/deposits") <= 3 * ours

    async def test_one_that_the_exchange_has_dropped_costs_requests_not_records(self) -> None:
        exchange = SimulatedFennec(ACCOUNT)
        async with world(exchange) as here:
            first = await here.fetch("deposits", limit=15)
            exchange.cursors.clear()
            second = await here.fetch("deposits", limit=100, cursor=first["next_cursor"])
        assert second["partial"] is False
        assert len({*ids_of(first), *ids_of(second)}) == ROWS["deposits"]


class TestCredentials:
    """A passphrase is a field like the others."""

    async def test_good_ones(self) -> None:
        async with world(SimulatedFennec(ACCOUNT)) as here:
            found = await here.service.validate("fennec", testnet=False)
        assert found.info is not None

    async def test_a_wrong_passphrase_is_the_exchanges_to_refuse(self) -> None:
        wrong = Credentials(API_KEY, SECRET, passphrase="wolf")
        async with world(SimulatedFennec(ACCOUNT), wrong) as here:
            found = await here.service.validate("fennec", testnet=False)
        assert (found.info, found.message) == (None, "Fennec refused the passphrase.")

    async def test_one_that_is_missing_is_named_before_anything_is_asked(self) -> None:
        exchange = SimulatedFennec(ACCOUNT)
        async with world(exchange, Credentials(API_KEY, SECRET)) as here:
            found = await here.service.validate("fennec", testnet=False)
            with pytest.raises(ServiceUnavailable, match="lack API passphrase"):
                await here.fetch("deposits")
        assert "lack API passphrase" in found.message
        assert not exchange.requests

    def test_its_entry_says_so(self) -> None:
        assert ENTRY.requires_passphrase
        assert ENTRY.body()["testnet_available"] is False

    async def test_a_testnet_that_it_has_not_is_named(self) -> None:
        async with world(SimulatedFennec(ACCOUNT)) as here:
            await here.vault.put("fennec", "testnet", GOOD, now_ms=0)
            found = await here.service.validate("fennec", testnet=True)
            with pytest.raises(InvalidRequest, match="Fennec has no testnet"):
                await here.fetch("deposits", testnet=True)
        assert found.message == "Fennec has no testnet."


class TestCommands:
    """The operator's commands know it only from the registry."""

    @pytest.fixture
    def url(self) -> Iterator[str]:
        with Served(SimulatedFennec(ACCOUNT)) as url:
            yield url

    @pytest.fixture
    def run(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setitem(registry.EXCHANGES, "fennec", FENNEC)
        return operator_command(tmp_path, monkeypatch, {"FENNEC__MAINNET_URL": url})

    def test_a_collection_is_fetched_without_the_exchange(
        self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begins_ms = NOW_MS - (DAYS + 10) * DAY_MS  # no empty windows before
        sources = {name: replace(one, begins_ms=begins_ms) for name, one in FENNEC.sources.items()}
        monkeypatch.setitem(registry.EXCHANGES, "fennec", replace(FENNEC, sources=sources))
        refused = run("transactions", "collect", "--exchange", "fennec")
        assert refused.exit_code == 2
        run("credentials", "set", "fennec", typed=f"{API_KEY}\n{SECRET}\n{PASSPHRASE}\n")
        for other, message in (
            (
                "fennec:new",
                "for the account new (onebook credentials set fennec:new)",
            ),
            ("fenec", "Exchange 'fenec' is not supported; supported: "),
        ):
            refused = run("transactions", "collect", "--exchange", f"fennec,{other}")
            assert (refused.exit_code, refused.stdout) == (2, "")  # nothing was collected
            assert message in refused.stderr
        first = run("transactions", "collect", "--exchange", "fennec")
        assert first.exit_code == 0, first.output
        assert re.search(r"fennec +mainnet +[\d,]+ +[\d,]+ +yes", first.stdout)
        run("credentials", "remove", "fennec", "--yes")
        path = tmp_path / "kept.jsonl"
        words = ("--exchange", "fennec", "--source", "collected", "--from", "all", "-o", str(path))
        kept = run("transactions", "fetch", *words)
        assert kept.exit_code == 0, kept.output
        count = sum(ROWS[name] for name in ("fills", "orders", "deposits", "withdrawals", "ledger"))
        # The newest events are a minute old.
        assert count - 10 <= len(path.read_text().splitlines()) <= count
        kept_count = len(path.read_text().splitlines())
        assert run("transactions", "forget", "fennec", typed="n\n").exit_code == 1
        part = run("transactions", "forget", "fennec", "--before", f"{DAYS // 2}d", "--yes")
        assert part.exit_code == 0, part.output
        all_of_it = run("transactions", "forget", "fennec", typed="y\n")
        counts = [
            int(re.search(r"Deleted ([\d,]+) records?", each.stdout)[1].replace(",", ""))
            for each in (part, all_of_it)
        ]
        assert all(counts)
        assert sum(counts) == kept_count
        nothing = run("transactions", "forget", "fenec", "--yes")  # a typo deletes nothing
        assert nothing.exit_code == 2
        assert "Exchange 'fenec' is not supported; supported: " in nothing.stderr
        assert run("transactions", "fetch", *words).exit_code != 0

    def test_from_the_passphrase_to_a_proven_file(self, run: Any, tmp_path: Path) -> None:
        typed = f"{API_KEY}\n{SECRET}\n{PASSPHRASE}\n"
        refused = run("credentials", "set", "fennec", typed=f"{API_KEY}\n{SECRET}\n")
        assert refused.stderr == "error: Invalid API passphrase.\n"
        stored = run("credentials", "set", "fennec", typed=typed)
        assert stored.exit_code == 0, stored.output
        assert PASSPHRASE not in stored.output
        assert PASSPHRASE.encode() not in (tmp_path / "onebook.db").read_bytes()
        assert run("credentials", "check", "fennec").exit_code == 0
        file = tmp_path / "out.csv"
        fetched = run(
            "transactions", "fetch", "--exchange", "fennec", "--types", ",".join(EVERYTHING),
            "--from", f"{DAYS + 1}d", "--verify", "--format", "cointracking", "-o", str(file),
        )  # fmt: skip
        assert fetched.exit_code == 0, fetched.output
        assert "spot fills: holds" in fetched.output
        with file.open() as rows:
            assert {row["Exchange"] for row in csv.DictReader(rows)} == {"Fennec"}

    def test_it_takes_no_key_file(self, run: Any, tmp_path: Path) -> None:
        (tmp_path / "key.pem").write_text("x")
        refused = run("credentials", "set", "fennec", "--rsa-key-file", str(tmp_path / "key.pem"))
        assert refused.exit_code == 2
        assert "Fennec does not use key files" in refused.stderr

"""Several accounts: named ones, and answers that merge them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from onebook.config import TransactionSettings
from onebook.errors import (
    ExchangeFailed,
    InvalidExchange,
    InvalidRequest,
    InvalidTransactionTypes,
    ServiceUnavailable,
)
from onebook.model import DAY_MS
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.transactions.accounts import AccountName, account_name
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import CLOCK, MASTER_KEY, NOW_MS, MemoryStore, loop_now_ms, run
from transactions.corsac.account import KEYS, CorsacAccount, SimulatedCorsac
from transactions.corsac.adapter import CORSAC
from transactions.fennec.account import (
    API_KEY,
    PASSPHRASE,
    SECRET,
    FennecAccount,
    SimulatedFennec,
)
from transactions.fennec.adapter import FENNEC

DAYS = 20
FOX = FennecAccount(NOW_MS, days=DAYS)
STEPPE = CorsacAccount(NOW_MS, days=DAYS)
KEY, SECRET_OF = next(iter(KEYS.items()))
OF_CORSAC = Credentials(KEY, SECRET_OF, host="south")
OF_FENNEC = Credentials(API_KEY, SECRET, passphrase=PASSPHRASE)


class Accounts:
    """A service with a Fennec, a Corsac, and a second account of Corsac."""

    def __init__(self, *, lost: frozenset[str] = frozenset()) -> None:
        self.corsac = SimulatedCorsac(STEPPE, region="south.example", now_ms=loop_now_ms)
        self.fennec = SimulatedFennec(FOX, now_ms=loop_now_ms)
        self.fennec.lost |= lost
        self.vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        self.service = Transactions(
            [
                ExchangeAdapter(
                    definition,
                    TransactionSettings(),
                    clock=CLOCK,
                    transport=SimulatedTransport(app, latency_s=0.02),
                )
                for definition, app in ((FENNEC, self.fennec), (CORSAC, self.corsac))
            ],
            self.vault,
            cursor_secret=b"c" * 32,
            clock=CLOCK,
        )

    async def __aenter__(self) -> "Accounts":
        for name, each in (
            ("fennec", OF_FENNEC), ("corsac", OF_CORSAC), ("corsac:treasury", OF_CORSAC),
        ):  # fmt: skip
            await self.vault.put(name, "mainnet", each, now_ms=0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()

    async def fetch(self, exchange: str | list[str], *types: str, **fields: Any) -> dict[str, Any]:
        start_ms = NOW_MS - (DAYS + 1) * DAY_MS
        request = TransactionsRequest(
            exchange=exchange,
            transaction_types=list(types),
            **({"start_time": start_ms, "limit": 10_000} | fields),
        )
        query = await self.service.prepare(request, key_id="key")
        return json.decode(await self.service.fetch(query, key_id="key"))


def answered(exchange: str | list[str], *types: str, **fields: Any) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        async with Accounts() as here:
            return await here.fetch(exchange, *types, **fields)

    return run(story())


def ids(answer: dict[str, Any]) -> list[str]:
    return [record["transactionId"] for record in answer["transactions"]]


BOTH = ["fennec", "corsac", "corsac:treasury"]


class TestNames:
    """An exchange, and a label after a colon."""

    def test_they_are_read_and_written(self) -> None:
        assert account_name("kraken") == AccountName("kraken", "")
        assert account_name("kraken:cold-2") == AccountName("kraken", "cold-2")
        assert [str(account_name(text)) for text in ("a", "a:b")] == ["a", "a:b"]

    @pytest.mark.parametrize("text", ["kraken:", "kraken:A", "kraken:a b", f"kraken:{'a' * 33}"])
    def test_a_label_is_a_plain_word(self, text: str) -> None:
        with pytest.raises(InvalidRequest, match="the label must be"):
            account_name(text)

    def test_a_named_account_has_records_and_ids_of_its_own(self) -> None:
        first, treasury = answered("corsac", "deposits"), answered("corsac:treasury", "deposits")
        assert treasury["exchange"] == "corsac:treasury"
        assert len(ids(first)) == len(ids(treasury)) > 0
        assert not set(ids(first)) & set(ids(treasury))
        assert {record["account"]["name"] for record in treasury["transactions"]} == {
            "corsac:treasury"
        }
        assert all("name" not in record["account"] for record in first["transactions"])

    def test_one_without_credentials_is_named(self) -> None:
        with pytest.raises(InvalidRequest, match="for the account cold"):
            answered("corsac:cold", "deposits")
        with pytest.raises(InvalidExchange):
            answered("mtgox:cold", "deposits")


class TestJoint:
    """One sequence of records; everything else is per account."""

    def test_it_has_every_record_of_each_account_once_and_in_order(self) -> None:
        answer = answered("all", "deposits", "withdrawals", "conversions")
        assert answer["exchange"] == "all"
        assert sorted(answer["accounts"]) == sorted(BOTH)
        records = answer["transactions"]
        assert [r["timestamp"] for r in records] == sorted(
            (r["timestamp"] for r in records), reverse=True
        )
        of = Counter(record["account"]["name"] for record in records)
        for name in BOTH:
            alone = answered(name, *(
                ["deposits", "withdrawals"] if name == "fennec" else
                ["deposits", "withdrawals", "conversions"]
            ))  # fmt: skip
            assert of[name] == alone["total_transactions"]
            joint = [r["transactionId"] for r in records if r["account"]["name"] == name]
            assert joint == ids(alone)
        assert answer["total_transactions"] == len(records)
        assert sum(answer["summary"]["by_type"].values()) == len(records)
        assert answer["partial"] is False

    def test_coverage_is_told_apart_by_account(self) -> None:
        answer = answered(BOTH, "deposits", "conversions")
        found = {(e["account"], e["transaction_type"]): e["complete"] for e in answer["coverage"]}
        assert found == {
            ("fennec", "deposits"): True, ("corsac", "deposits"): True,
            ("corsac", "conversions"): True, ("corsac:treasury", "deposits"): True,
            ("corsac:treasury", "conversions"): True,
        }  # fmt: skip
        assert answer["exchange"] == BOTH

    @pytest.mark.parametrize("limit", [7, 100])
    def test_answers_that_go_on_have_every_record_once(self, limit: int) -> None:
        start_ms = NOW_MS - (2 if limit == 7 else DAYS + 1) * DAY_MS

        async def story() -> tuple[list[str], list[str]]:
            async with Accounts() as here:
                whole = await here.fetch("all", start_time=start_ms)
                found: list[str] = []
                cursor = ""
                while cursor is not None:
                    answer = await here.fetch(
                        "all", start_time=start_ms, limit=limit, cursor=cursor
                    )
                    assert len(answer["transactions"]) <= limit
                    assert len(answer["accounts"]) == 3
                    found += ids(answer)
                    cursor = answer["next_cursor"]
                return ids(whole), found

        whole, found = run(story())
        assert found == whole
        assert len(set(found)) == len(found)

    def test_an_account_that_cannot_be_read_is_an_error_and_not_the_answer(self) -> None:
        async def story() -> dict[str, Any]:
            async with Accounts() as here:
                wrong = Credentials(API_KEY, SECRET, passphrase="wolf")
                await here.vault.put("fennec", "mainnet", wrong, now_ms=0)
                with pytest.raises(ExchangeFailed, match="passphrase"):
                    await here.fetch("fennec", "deposits")
                return await here.fetch(["fennec", "corsac"], "deposits")

        answer = run(story())
        assert answer["partial"] is True
        (error,) = answer["errors"]
        assert (error["account"], error["error"]) == ("fennec", "authentication_failed")
        assert {r["account"]["name"] for r in answer["transactions"]} == {"corsac"}

    def test_each_account_is_proven_by_itself(self) -> None:
        async def story(lost: frozenset[str]) -> Any:
            async with Accounts(lost=lost) as here:
                types = ("deposits", "withdrawals", "trades", "ledger", "holdings")
                answer = await here.fetch("all", *types, verify=True)
                return answer["verification"]

        proof = run(story(frozenset()))
        assert set(proof["accounts"]) == set(BOTH)
        assert proof["accounts"]["fennec"]["holds"] is True
        assert proof["holds"] is None  # of Corsac not every type was requested
        ledger = FOX.tables["ledger"].entries
        broken = run(story(frozenset({ledger[len(ledger) // 2].facts["id"]})))
        assert broken["accounts"]["fennec"]["holds"] is False
        assert broken["holds"] is False

    def test_types_that_no_account_has_are_refused(self) -> None:
        with pytest.raises(InvalidTransactionTypes, match="'lottery' is unknown to all"):
            answered("all", "deposits", "lottery")
        with pytest.raises(InvalidTransactionTypes, match="'lottery' is unknown to all") as refused:
            answered("all", "lottery")
        assert {"deposits", "conversions"} <= set(refused.value.details["supported_types"])

    def test_an_account_without_any_of_the_types_is_left_out(self) -> None:
        assert answered("all", "conversions")["accounts"] == ["corsac", "corsac:treasury"]

    def test_without_credentials_there_is_nothing_to_ask(self) -> None:
        with pytest.raises(ServiceUnavailable, match="no testnet credentials"):
            answered("all", testnet=True)
        with pytest.raises(InvalidRequest, match="1 to 32 accounts"):
            answered([])

    def test_cursors_of_one_and_of_several_are_not_mixed_up(self) -> None:
        async def story() -> None:
            async with Accounts() as here:
                one = (await here.fetch("corsac", "deposits", limit=1))["next_cursor"]
                several = (await here.fetch("all", "deposits", limit=1))["next_cursor"]
                for exchange, cursor in (("all", one), ("corsac", several)):
                    with pytest.raises(InvalidRequest, match="cursor"):
                        await here.fetch(exchange, "deposits", limit=1, cursor=cursor)
                with pytest.raises(InvalidRequest, match="another query"):
                    await here.fetch(["corsac"], "deposits", limit=1, cursor=several)

        run(story())

    def test_a_file_of_a_tax_tool_names_each_account(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Accounts() as here:
                request = TransactionsRequest(
                    exchange="all", transaction_types=["deposits"],
                    start_time=NOW_MS - (DAYS + 1) * DAY_MS,
                )  # fmt: skip
                query = await here.service.prepare(request, key_id="key", streamed=True)
                path = tmp_path / "all.csv"
                await here.service.export(query, "cointracking", path, key_id="key")

        run(story())
        text = (tmp_path / "all.csv").read_text()
        assert all(f'"{name}"' in text or f",{name}," in text for name in BOTH)

"""Features that Fennec lacks: branches, joins, cut windows, hosts, a second key, demo, weights."""

import os
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import json

from onebook.config import TransactionSettings
from onebook.errors import ExchangeFailed, InvalidRequest
from onebook.model import DAY_MS
from onebook.simulator.accounts.serving import LOOPBACK, SimulatedTransport
from onebook.transactions import registry
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import (
    CLOCK,
    MASTER_KEY,
    NOW_MS,
    MemoryStore,
    Served,
    loop_now_ms,
    loop_s,
    run,
)
from transactions.corsac.account import COINS, KEYS, CorsacAccount, CorsacRefused, SimulatedCorsac
from transactions.corsac.adapter import CORSAC, TYPES
from transactions.operating import operator_command, stored_credentials

DAYS = 40
ACCOUNT = CorsacAccount(NOW_MS, days=DAYS)
(KEY, SECRET), (VAULT_KEY, VAULT_SECRET) = KEYS.items()
GOOD = Credentials(KEY, SECRET, host="south")
WITH_VAULT = Credentials(KEY, SECRET, host="south", vault_key=VAULT_KEY, vault_secret=VAULT_SECRET)
ROWS = Counter(row["type"] for rows in ACCOUNT.rows.values() for row in rows)
WALLET_TYPES = ("deposits", "withdrawals", "conversions", "earn")


class CorsacWorld:
    """A service over a simulated Corsac, on virtual time."""

    def __init__(self, exchange: SimulatedCorsac, credentials: Credentials, env: str) -> None:
        self.exchange = exchange
        self.vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        self.adapter = ExchangeAdapter(
            CORSAC,
            TransactionSettings(),
            clock=CLOCK,
            transport=SimulatedTransport(exchange, latency_s=0.02),
            random=Random(1),
        )
        self.service = Transactions(
            [self.adapter], self.vault, cursor_secret=b"c" * 32, clock=CLOCK
        )
        self._stored = credentials, env

    async def fetch(self, *types: str, **fields: Any) -> dict[str, Any]:
        request = TransactionsRequest(
            exchange="corsac",
            transaction_types=list(types),
            **({"start_time": NOW_MS - (DAYS + 1) * DAY_MS, "limit": 10_000} | fields),
        )
        query = self.service.plan(request, key_id="key")
        return json.decode(await self.service.fetch(query, key_id="key"))

    async def __aenter__(self) -> "CorsacWorld":
        credentials, environment = self._stored
        await self.vault.put("corsac", environment, credentials, now_ms=0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()


def simulated(**options: Any) -> SimulatedCorsac:
    options = {"region": "south.example", "now_ms": loop_now_ms} | options
    return SimulatedCorsac(ACCOUNT, **options)


def fetched(
    *types: str,
    exchange: SimulatedCorsac | None = None,
    credentials: Credentials = GOOD,
    **fields: Any,
) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        async with CorsacWorld(exchange or simulated(), credentials, "mainnet") as here:
            return await here.fetch(*types, **fields)

    return run(story())


def by_type(answer: dict[str, Any]) -> Counter[str]:
    return Counter(record["type"] for record in answer["transactions"])


def test_every_wallet_is_read_once_for_all_types_and_conversions_are_whole() -> None:
    exchange = simulated()
    answer = fetched(*WALLET_TYPES, exchange=exchange)
    assert answer["partial"] is False
    assert by_type(answer) == {
        "deposits": ROWS["deposit"],
        "withdrawals": ROWS["withdrawal"],
        "conversions": ACCOUNT.conversions,
        "earn": ROWS["reward"] + len(ACCOUNT.grants),
    }
    for record in answer["transactions"]:
        if record["type"] == "conversions":
            assert {"sentCurrency", "receivedCurrency"} <= record.keys()
    times = [record["timestamp"] for record in answer["transactions"]]
    assert times == sorted(times, reverse=True)
    pages = Counter(path for path in exchange.requests if path.endswith("/rows"))
    assert len(pages) == len(ACCOUNT.rows)  # the empty wallet too
    assert all(entry["complete"] for entry in answer["coverage"])
    assert {entry["transaction_type"] for entry in answer["coverage"]} == set(WALLET_TYPES)


def test_the_records_add_up_to_what_is_held() -> None:
    answer = fetched("holdings", *WALLET_TYPES)
    totals: Counter[str] = Counter()
    held: dict[str, int] = {}
    for record in answer["transactions"]:
        if record["kind"] == "balance":
            amount = int(Decimal(record["balance"]["total"]) * 10_000)
            held.setdefault(record["asset"], amount)  # the newest
        else:
            for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
                if money := record.get(name):
                    totals[money["currency"]] += sign * units_of(money)
    assert totals == {c: held[c] for c in COINS}


class TestProofs:
    """No row of Corsac has a balance: changes add up to what is held, at two times or in all."""

    EVERYTHING = ("holdings", *WALLET_TYPES)

    def proof(self, *types: str, exchange: SimulatedCorsac | None = None, **fields: Any) -> Any:
        fields = {"verify": True, "start_time": 0} | fields
        answer = fetched(*(types or self.EVERYTHING), exchange=exchange, **fields)
        return answer["verification"]

    def states(self, proof: Any) -> dict[str, str]:
        return {check["name"]: check["state"] for check in proof["checks"]}

    def test_a_whole_history_is_proven_by_its_sums(self) -> None:
        proof = self.proof()
        assert proof["holds"] is True
        assert self.states(proof) == {"sums": "holds", "readings": "holds"}
        checked = {check["name"]: check["checked"] for check in proof["checks"]}
        assert checked["sums"] == len(COINS) + 1
        assert checked["readings"] >= DAYS * len(COINS)
        assert {each["grade"] for each in proof["grades"]} == {"proven"}

    @pytest.mark.parametrize("kind", ["deposit", "withdrawal", "convert", "reward"])
    def test_any_row_that_is_not_shown_breaks_it(self, kind: str) -> None:
        exchange = simulated()
        rows = [row for rows in ACCOUNT.rows.values() for row in rows if row["type"] == kind]
        exchange.lost.add(Random(7).choice(rows)["id"])
        proof = self.proof(exchange=exchange)
        assert proof["holds"] is False
        assert self.states(proof)["sums"] == "broken"
        assert proof["checks"][0]["breaks"][0]["transactionId"] in COINS

    def test_a_part_of_the_history_is_proven_between_two_readings(self) -> None:
        exchange = simulated()
        late = [r for r in ACCOUNT.rows["BTC"] if NOW_MS - r["at"] < 9 * DAY_MS]
        proof = self.proof(start_time=NOW_MS - 10 * DAY_MS)
        assert self.states(proof) == {"sums": "not_checked", "readings": "holds"}
        exchange.lost.add(late[len(late) // 2]["id"])
        broken = self.proof(exchange=exchange, start_time=NOW_MS - 10 * DAY_MS)
        assert self.states(broken)["readings"] == "broken"

    def test_without_a_type_nothing_is_called_proven(self) -> None:
        proof = self.proof("holdings", "deposits", "earn")
        assert proof["holds"] is None
        reasons = {check["reason"] for check in proof["checks"]}
        assert reasons == {"It also needs conversions, withdrawals in the same request."}
        assert {each["grade"] for each in proof["grades"]} == {"as_answered"}

    def test_what_the_exchange_does_not_give_is_said(self) -> None:
        proof = self.proof(*self.EVERYTHING, "vault", credentials=WITH_VAULT)
        grades = {each["transaction_type"]: each for each in proof["grades"]}
        assert grades["vault"] == {
            "transaction_type": "vault", "grade": "as_answered",
            "why": "Corsac does not show what the vault holds.",
        }  # fmt: skip
        assert grades["conversions"]["grade"] == "proven"


def units_of(money: dict[str, str]) -> int:
    return int(Decimal(money["amount_str"]) * 10_000)


def test_a_type_that_was_not_requested_is_read_and_dropped() -> None:
    answer = fetched("withdrawals")
    assert by_type(answer) == {"withdrawals": ROWS["withdrawal"]}


@pytest.mark.parametrize("limit", [1, 7, 60])
def test_answers_that_go_on_have_every_record_once(limit: int) -> None:
    exchange = simulated()
    recent = NOW_MS - {1: 5, 7: 15, 60: DAYS + 1}[limit] * DAY_MS

    async def story() -> tuple[list[str], list[str], int]:
        async with CorsacWorld(exchange, GOOD, "mainnet") as here:
            whole = await here.fetch(*WALLET_TYPES, start_time=recent)
            exchange.requests.clear()
            found: list[str] = []
            cursor, answers = None, 0
            while cursor or not answers:
                answer = await here.fetch(
                    *WALLET_TYPES, start_time=recent, limit=limit, cursor=cursor,
                    end_time=None,
                )  # fmt: skip
                assert answer["errors"] == []
                found += [record["transactionId"] for record in answer["transactions"]]
                cursor, answers = answer["next_cursor"], answers + 1
            return [r["transactionId"] for r in whole["transactions"]], found, answers

    whole, found, answers = run(story())
    assert found == whole
    assert len(set(found)) == len(found)
    # Wallets go on by their own cursors: no answer reads a wallet from its beginning.
    assert len([p for p in exchange.requests if p.endswith("/rows")]) <= 4 * answers * len(COINS)


def test_a_window_that_shows_five_of_twelve_rows_is_read_in_parts() -> None:
    exchange = simulated()
    answer = fetched("earn", exchange=exchange)
    grants = [r for r in answer["transactions"] if r["ids"]["native"].startswith("G")]
    assert len(grants) == len(ACCOUNT.grants)
    assert answer["partial"] is False


def test_a_wallet_that_fails_ends_all_wallets_and_nothing_else() -> None:
    class Broken(SimulatedCorsac):
        def _data(self, request: Any) -> Any:
            if request.url.path == "/wallets/w-ETH/rows":
                raise CorsacRefused("internal")
            return super()._data(request)

    exchange = Broken(ACCOUNT, region="south.example", now_ms=loop_now_ms)
    answer = fetched("conversions", "earn", "vault", exchange=exchange, credentials=WITH_VAULT)
    coverage = {entry["transaction_type"]: entry for entry in answer["coverage"]}
    assert coverage["vault"]["complete"] is True
    assert coverage["conversions"]["complete"] is False
    assert answer["partial"] is True
    (code,) = {entry["exchange_code"] for entry in answer["errors"]}
    assert code == "internal"  # a text, as the exchange has it


def test_wallets_that_cannot_be_listed_are_a_failure_of_their_types() -> None:
    class NoList(SimulatedCorsac):
        def _data(self, request: Any) -> Any:
            if request.url.path == "/wallets":
                raise CorsacRefused("internal")
            return super()._data(request)

    answer = fetched("deposits", "vault", exchange=NoList(ACCOUNT, region="south.example"),
                     credentials=WITH_VAULT)  # fmt: skip
    assert by_type(answer) == {"vault": DAYS}
    assert {e["transaction_type"] for e in answer["errors"]} == {"deposits"}
    assert {e["transaction_type"]: e["complete"] for e in answer["coverage"]} == {
        "deposits": False, "vault": True,
    }  # fmt: skip


class TestKeys:
    """The second key, hosts, demo, and permissions of a key."""

    def test_without_the_second_key_its_type_is_left_out_unless_it_is_named(self) -> None:
        answer = fetched()
        assert "vault" not in by_type(answer)
        assert answer["partial"] is False
        named = fetched("vault", "deposits")
        (error,) = named["errors"]
        assert (error["transaction_type"], error["error"]) == ("vault", "no_credentials")
        assert by_type(named) == {"deposits": ROWS["deposit"]}
        with pytest.raises(ExchangeFailed, match="has not set the key that Corsac requires"):
            fetched("vault")

    def test_with_it_another_host_is_asked_with_it(self) -> None:
        answer = fetched(credentials=WITH_VAULT)
        assert by_type(answer)["vault"] == DAYS

    def test_the_check_finds_the_region(self) -> None:
        async def story() -> Any:
            async with CorsacWorld(simulated(), Credentials(KEY, SECRET), "mainnet") as here:
                return await here.service.validate("corsac")

        found = run(story())
        assert found.info is not None
        assert found.info.found == {"host": "south"}

    def test_a_key_of_no_region_is_refused(self) -> None:
        async def story() -> Any:
            exchange = simulated(region="east.example")
            async with CorsacWorld(exchange, Credentials(KEY, SECRET), "mainnet") as here:
                return await here.service.validate("corsac")

        found = run(story())
        assert (found.info, found.message) == (None, "Corsac does not know the key in this region.")

    def test_demo_is_a_header_with_credentials_of_its_own(self) -> None:
        async def story() -> tuple[dict[str, Any], str]:
            async with CorsacWorld(simulated(demo=True), GOOD, "demo") as here:
                answer = await here.fetch("deposits", demo=True)
                with pytest.raises(InvalidRequest, match="either testnet or demo"):
                    await here.fetch("deposits", demo=True, testnet=True)
                with pytest.raises(InvalidRequest, match="has no testnet"):
                    await here.fetch("deposits", testnet=True)
                found = await here.service.validate("corsac", demo=True)
                return answer, found.message

        answer, message = run(story())
        assert by_type(answer) == {"deposits": ROWS["deposit"]}
        assert {record["environment"] for record in answer["transactions"]} == {"demo"}
        assert message == "The internal credentials are valid."

    def test_a_live_key_is_not_sent_to_the_demo(self) -> None:
        with pytest.raises(ExchangeFailed, match="another environment"):
            fetched("deposits", exchange=simulated(demo=True))

    def test_what_the_key_may_not_see_is_not_called_complete(self) -> None:
        from_ms = NOW_MS - 20 * DAY_MS
        answer = fetched("conversions", exchange=simulated(visible_from_ms=from_ms))
        (entry,) = answer["coverage"]
        assert (entry["complete"], entry["reason"]) == (False, "hidden_from_key")
        assert entry["from"] == from_ms
        inside = fetched("conversions", exchange=simulated(visible_from_ms=from_ms),
                         start_time=from_ms + DAY_MS)  # fmt: skip
        assert inside["coverage"][0]["complete"] is True

    def test_nor_by_an_answer_that_goes_on(self) -> None:
        from_ms = NOW_MS - 20 * DAY_MS

        async def story() -> dict[str, Any]:
            exchange = simulated(visible_from_ms=from_ms)
            async with CorsacWorld(exchange, GOOD, "mainnet") as here:
                first = await here.fetch("deposits", "conversions", limit=110)
                return await here.fetch("deposits", "conversions", cursor=first["next_cursor"])

        entries = run(story())["coverage"]
        assert {entry["reason"] for entry in entries} == {"hidden_from_key"}


def test_a_product_that_was_never_opened_is_empty_and_complete() -> None:
    answer = fetched("staking", "deposits")
    entry = {e["transaction_type"]: e for e in answer["coverage"]}["staking"]
    assert (entry["complete"], entry["reason"]) == (True, "product_not_opened")
    assert (answer["partial"], answer["errors"]) == (False, [])


class TestWeights:
    """The weight stated in an answer counts."""

    def test_nothing_is_refused_and_little_is_left_unused(self) -> None:
        exchange = simulated()

        async def story() -> float:
            async with CorsacWorld(exchange, GOOD, "mainnet") as here:
                await here.fetch(*WALLET_TYPES)
                await here.fetch(*WALLET_TYPES)
                return loop_s()

        spent_s = run(story())
        assert exchange.refusals == []
        weight = sum(11 if path.endswith("/rows") else 1 for path in exchange.requests)
        assert spent_s < 2.6 * (weight / 200 + 1)

    def test_what_another_program_uses_is_learnt_from_the_answers(self) -> None:
        exchange = simulated(others=2)
        answer = fetched(*WALLET_TYPES, exchange=exchange)
        assert answer["errors"] == []
        assert exchange.refusals.count("weight") <= 3


MYSTERY = {"id": "R99999", "at": NOW_MS - DAY_MS, "type": "mystery", "amount": "3"}


def test_a_word_without_a_meaning_is_counted() -> None:
    account = CorsacAccount(NOW_MS, days=3)
    account.rows["BTC"].append(MYSTERY)

    async def story() -> dict[str, Any]:
        exchange = SimulatedCorsac(account, region="south.example", now_ms=loop_now_ms)
        async with CorsacWorld(exchange, GOOD, "mainnet") as here:
            return await here.fetch("deposits", "earn")

    answer = run(story())
    assert answer["partial"] is False
    (record,) = [r for r in answer["transactions"] if r["ids"]["native"] == "R99999"]
    assert (record["kind"], record["native_type"]) == ("other", "mystery")
    assert answer["summary"]["unknown_kinds"] == 1
    assert "unknown_kinds" not in fetched("deposits")["summary"]


def test_its_types_are_offered_by_name_and_by_default() -> None:
    entry = CORSAC.entry
    assert entry.body()["supported_transaction_types"] == list(TYPES)
    assert entry.body()["demo_available"] is True
    assert {"conversions", "earn"} <= set(entry.default)
    summary = fetched("conversions", "earn")["summary"]["by_type"]
    assert summary.keys() == {"conversion", "earn"}


class TestCommands:
    """Optional fields, choices, results of the check, and keys with too many permissions."""

    @pytest.fixture
    def exchange(self) -> SimulatedCorsac:
        return SimulatedCorsac(ACCOUNT, region=LOOPBACK)

    @pytest.fixture
    def command(
        self, exchange: SimulatedCorsac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Any]:
        monkeypatch.setitem(registry.EXCHANGES, "corsac", CORSAC)
        with Served(exchange) as url:
            yield operator_command(tmp_path, monkeypatch, {"CORSAC__MAINNET_URL": url})

    def test_optional_fields_may_be_empty_and_the_found_region_is_kept(
        self, command: Any, tmp_path: Path
    ) -> None:
        done = command("credentials", "set", "corsac", typed=f"{KEY}\n{SECRET}\n\n\n\n")
        assert done.exit_code == 0, done.output
        assert stored_credentials(tmp_path, "corsac").fields == {
            "api_key": KEY,
            "secret": SECRET,
            "host": "north",
        }

    def test_what_the_operator_names_wins(self, command: Any, tmp_path: Path) -> None:
        typed = f"{KEY}\n{SECRET}\nsouth\n{VAULT_KEY}\n{VAULT_SECRET}\n"
        assert command("credentials", "set", "corsac", typed=typed).exit_code == 0
        assert stored_credentials(tmp_path, "corsac").fields == WITH_VAULT.fields

    def test_a_region_that_does_not_exist_is_refused(self, command: Any) -> None:
        refused = command("credentials", "set", "corsac", typed=f"{KEY}\n{SECRET}\nwest\n\n\n")
        assert (refused.exit_code, refused.stderr) == (
            2,
            "error: Region must be one of north, south, or empty.\n",
        )

    def test_a_key_that_can_withdraw_is_stored_only_if_told(
        self, command: Any, exchange: SimulatedCorsac, tmp_path: Path
    ) -> None:
        exchange._withdraw = True
        words, typed = ("credentials", "set", "corsac"), f"{KEY}\n{SECRET}\n\n\n\n"
        refused = command(*words, typed=typed)
        assert refused.exit_code == 2
        assert "The key can withdraw funds" in refused.stderr
        assert command(*words, "--may-withdraw", typed=typed).exit_code == 0
        assert stored_credentials(tmp_path, "corsac").api_key == KEY

    def test_a_demo_account_has_credentials_of_its_own(
        self, command: Any, exchange: SimulatedCorsac, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        exchange._demo = True
        url = os.environ["ONEBOOK_TRANSACTIONS__OVERRIDES__CORSAC__MAINNET_URL"]
        monkeypatch.setenv("ONEBOOK_TRANSACTIONS__OVERRIDES__CORSAC__DEMO_URL", url)
        typed = f"{KEY}\n{SECRET}\n\n\n\n"
        done = command("credentials", "set", "corsac", "--demo", typed=typed)
        assert done.stdout == "The corsac demo credentials are set.\n"
        assert command("credentials", "check", "corsac", "--demo").exit_code == 0
        assert command("credentials", "check", "corsac").exit_code == 1
        assert command("credentials", "remove", "corsac", "--demo").exit_code == 0

    def test_a_named_account_has_credentials_of_its_own(self, command: Any) -> None:
        typed = f"{KEY}\n{SECRET}\n\n\n\n"
        done = command("credentials", "set", "corsac:treasury", typed=typed)
        assert done.stdout == "The corsac:treasury mainnet credentials are set.\n"
        assert command("credentials", "check", "corsac:treasury").exit_code == 0
        missing = command("credentials", "check", "corsac")
        assert (missing.exit_code, missing.stdout) == (
            1,
            "The operator has set no Corsac mainnet credentials "
            "(onebook credentials set corsac).\n",
        )
        assert "corsac:treasury" in command("credentials", "list").stdout
        refused = command("credentials", "set", "corsac:Treasury", typed=typed)
        assert refused.exit_code == 2
        assert "the label must be" in refused.stderr

"""The service over the simulated Bybit: honest about what it has and what it has not."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace
from prometheus_client import REGISTRY

from onebook.config import TransactionSettings
from onebook.errors import ExchangeFailed, InvalidRequest, ServiceUnavailable
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.bybit import Account, History, SimulatedKey, rows
from onebook.simulator.accounts.bybit.keys import AccountRefused
from onebook.transactions.availability import Availability
from onebook.transactions.bybit.endpoints import ENDPOINTS, PATH_LIMITS
from onebook.transactions.credentials import Credentials
from onebook.transactions.request import TransactionsRequest
from transactions.bybit_support import CALLER, KEY, NOW_MS, World, loop_s, run, simulated

MONTH = History(NOW_MS - 30 * DAY_MS, NOW_MS, executions=400)
ACCOUNT = Account(MONTH)
EVERYTHING = (
    "deposits", "withdrawals", "spot_orders", "futures", "ledger", "transfers", "holdings",
    "leverage_token_trades",
)  # fmt: skip
DEPOSITS = "/v5/asset/deposit/query-record"
WITHDRAWALS = "/v5/asset/withdraw/query-record"
LEDGER = "/v5/account/transaction-log"


def story(
    work: Any, *, settings: TransactionSettings | None = None, key: Any = KEY, **options: Any
) -> Any:
    """Run a piece of work over a fresh simulated exchange with the same account."""
    account = options.pop("account", ACCOUNT)

    async def collected() -> Any:
        exchange = simulated(account, key=key, **options)
        async with World(exchange, settings=settings, key=key) as world:
            return await work(world)

    return run(collected())


def coverage_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["transaction_type"]: entry for entry in answer["coverage"]}


def test_all_types_in_one_answer_each_once() -> None:
    answer = story(lambda w: w.fetch(*EVERYTHING, limit=10_000, verify=True))
    ids = [record["transactionId"] for record in answer["transactions"]]
    assert len(ids) == len(set(ids))
    assert {record["type"] for record in answer["transactions"]} == {
        "deposits", "withdrawals", "spot_orders", "futures_linear", "futures_inverse", "ledger",
        "transfers", "holdings", "leverage_token_trades",
    }  # fmt: skip
    assert {record["kind"] for record in answer["transactions"]} >= {
        "deposit", "withdrawal", "trade", "order", "funding", "closed_pnl", "settlement",
        "transfer", "balance", "interest", "bonus",
    }  # fmt: skip
    assert answer["verification"]["holds"] is True
    assert all(entry["complete"] for entry in answer["coverage"])
    assert answer["next_cursor"] is None
    assert answer["partial"] is False


def test_holdings_and_the_ledger_state_the_same_balances() -> None:
    answer = story(lambda w: w.fetch("holdings", "ledger", limit=10_000, verify=True))
    held = {
        (record["account"]["wallet"], record["asset"]): record["balance"]["total"]
        for record in answer["transactions"]
        if record["view"] == "snapshot"
    }
    chains = answer["verification"]["ledger"]
    assert len(held) > 4
    assert {(c["wallet"], c["asset"]): c["closing"] for c in chains if c["closing"] != "0"} == held
    assert all(chain["held"] == held.get((chain["wallet"], chain["asset"])) for chain in chains)


def test_words_are_mixed_freely_and_fetched_once() -> None:
    async def work(world: World) -> Any:
        both = await world.fetch("trades", "spot_trades", "spot_orders", "derivatives", limit=9_999)
        return both, world.exchange.requests["/v5/execution/list"]

    both, requests = story(work)
    one, once = story(lambda w: _with_requests(w, w.fetch("spot_orders", "futures", limit=9_999)))
    assert both["transactions"] == one["transactions"]
    assert both["filters_applied"]["transaction_types"] == [
        "trades", "spot_trades", "spot_orders", "derivatives",
    ]  # fmt: skip
    assert requests == once


async def _with_requests(world: World, work: Any) -> Any:
    return await work, world.exchange.requests["/v5/execution/list"]


def test_the_same_event_has_the_same_id_and_form_in_every_answer() -> None:
    month = story(lambda w: w.fetch("trades", "deposits", limit=9_999))["transactions"]
    days = [
        story(
            lambda w, day=day: w.fetch(
                "deposits",
                "spot_trades",
                start_time=NOW_MS - day * DAY_MS,
                end_time=NOW_MS - (day - 1) * DAY_MS - 1,
                limit=9_999,
            )
        )["transactions"]
        for day in range(1, 31)
    ]
    joined = [record for day in days for record in day]
    last_ms = NOW_MS - 1
    assert [r for r in month if r["timestamp"] <= last_ms and not r["incomplete"]] == [
        r for r in joined if not r["incomplete"]
    ]


@pytest.mark.parametrize("limit", [1, 7, 50, 333])
def test_pages_along_the_cursor_are_the_whole(limit: int) -> None:
    types = ("trades", "transfers", "holdings", "deposits")
    whole = story(lambda w: w.fetch(*types, limit=10_000))["transactions"]
    start = NOW_MS - {1: 3, 7: 10}.get(limit, 30) * DAY_MS
    pages = story(lambda w: w.pages(*types, limit=limit, start_time=start))
    found = [record for page in pages for record in page["transactions"]]
    expected = [r for r in whole if r["timestamp"] >= start]
    for snapshot in (False, True):
        ids, those = (
            [r["transactionId"] for r in records if (r["view"] == "snapshot") is snapshot]
            for records in (found, expected)
        )
        # Every page takes a snapshot of its own time, in which the wallets may change places.
        assert sorted(ids) == sorted(those) if snapshot else ids == those
    assert all(len(page["transactions"]) == limit for page in pages[:-1])
    reasons = {entry["reason"] for page in pages[:-1] for entry in page["coverage"]}
    assert reasons <= {None, "limit_reached"}


def test_a_small_limit_asks_little() -> None:
    async def work(world: World) -> int:
        await world.fetch("ledger", limit=5)
        return world.exchange.requests[LEDGER]

    assert story(work, account=Account(replace(MONTH, executions=4_000))) <= 3


def test_coverage_after_a_limit_says_how_far_it_reaches() -> None:
    answer = story(lambda w: w.fetch("trades", limit=10))
    (entry,) = answer["coverage"]
    assert entry["complete"] is False
    assert entry["reason"] == "limit_reached"
    assert entry["from"] == answer["transactions"][-1]["timestamp"]
    assert entry["to"] == NOW_MS


def test_one_failing_type_does_not_sink_the_rest() -> None:
    """Contract 4: `partial: true` and an entry in `errors`."""
    key = SimulatedKey(
        KEY.api_key, KEY.secret, permissions={"Spot": ("SpotTrade",), "ContractTrade": ("Order",)}
    )
    answer = story(lambda w: w.fetch("deposits", "trades", "futures", limit=9_999), key=key)
    assert answer["success"] is True
    assert answer["partial"] is True
    assert answer["errors"] == [
        {
            "transaction_type": "deposits",
            "error": "permission_denied",
            "message": "The API key has no permission for this.",
            "exchange_code": 10005,
            "retryable": False,
        }
    ]
    covered = coverage_of(answer)
    assert covered["deposits"]["complete"] is False
    assert covered["deposits"]["reason"] == "permission_denied"
    assert covered["deposits"]["from"] is None
    assert covered["spot_orders"]["complete"] is True
    assert answer["summary"]["by_type"]["trade"] > 0
    assert answer["next_cursor"] is None  # asking again would not cure it


def test_a_type_that_failed_for_good_is_still_reported_on_the_next_page() -> None:
    key = SimulatedKey(KEY.api_key, KEY.secret, permissions={"Spot": ("SpotTrade",)})
    pages = story(lambda w: w.pages("deposits", "trades", limit=50), key=key)
    assert len(pages) > 1
    for page in pages:
        assert page["partial"] is True
        assert coverage_of(page)["deposits"]["complete"] is False
    assert coverage_of(pages[1])["deposits"]["reason"] == "failed_before"
    assert pages[1]["errors"] == []


def test_a_type_that_failed_for_now_is_brought_by_the_cursor() -> None:
    """Every record exactly once, although one type broke in the middle."""

    async def work(world: World) -> Any:
        world.exchange.faults.queue(WITHDRAWALS, *["502"] * 6)
        first = await world.fetch("withdrawals", "trades", limit=9_999)
        second = await world.fetch(
            "withdrawals", "trades", limit=9_999, cursor=first["next_cursor"]
        )
        return first, second

    first, second = story(work)
    assert first["partial"] is True
    assert first["errors"][0]["retryable"] is True
    assert first["errors"][0]["error"] == "exchange_error"
    assert {r["type"] for r in first["transactions"]} == {"spot_orders"}
    assert {r["type"] for r in second["transactions"]} == {"withdrawals"}
    assert len(second["transactions"]) == len(ACCOUNT.withdrawals)
    assert second["next_cursor"] is None
    assert coverage_of(second)["withdrawals"]["complete"] is True


def test_all_failing_is_an_error_without_the_exchanges_words() -> None:
    """Contract 4: 500 exchange_error."""
    with pytest.raises(ExchangeFailed) as caught:
        story(
            lambda w: w.fetch("deposits", "trades"),
            faults=AccountFaults(rate=1.0, kinds=("10016",)),
        )
    assert "Server Timeout" not in caught.value.message
    assert caught.value.details["exchange_code"] == 10016


def test_a_wrong_key_stops_the_whole_request() -> None:
    async def work(world: World) -> Any:
        await world.vault.put(
            "bybit", "mainnet", Credentials("wrong0000000000000000", "x"), now_ms=0
        )
        with pytest.raises(ExchangeFailed) as caught:
            await world.fetch(*EVERYTHING)
        return caught.value

    error = story(work)
    assert error.details["reason"] == "authentication_failed"


def test_a_403_in_the_middle_says_when_to_come_back() -> None:
    async def work(world: World) -> Any:
        with pytest.raises(ExchangeFailed) as caught:
            await world.fetch("trades")
        return caught.value

    exchange = simulated(ACCOUNT, ip_ban_s=60.0)

    async def collected() -> Any:
        async with World(exchange) as world:
            for address in ("", "127.0.0.1"):
                exchange.bans.ban(address, NOW_MS)
            return await work(world)

    error = run(collected())
    assert error.details["reason"] == "circuit_open"
    assert error.retry_after_s == pytest.approx(600.0, abs=1.0)


def test_the_deadline_gives_what_there_is_and_a_cursor() -> None:
    settings = TransactionSettings(deadline_s=1.0)

    async def work(world: World) -> Any:
        world.exchange.faults.slow_s = 0.9
        pages: list[Any] = []
        failed = 0
        while (not pages or pages[-1]["next_cursor"]) and failed < 40:
            cursor = pages[-1]["next_cursor"] if pages else None
            try:
                page = await world.fetch("ledger", "trades", limit=9_999, cursor=cursor)
            except ExchangeFailed:  # nothing at all in this second
                failed += 1
            else:
                pages.append(page)
                assert page["transactions"] or page["next_cursor"] != cursor
        return pages

    faults = AccountFaults(rate=0.2, kinds=("slow",), slow_s=0.9)
    pages = story(work, settings=settings, faults=faults)
    assert len(pages) > 1
    for page in pages[:-1]:
        unread = {e["transaction_type"] for e in page["coverage"] if e["reason"] == "deadline"}
        assert page["partial"] is True
        assert {error["transaction_type"] for error in page["errors"]} == unread
        assert all(error["error"] == "deadline" for error in page["errors"])
        assert "deadline" in page["message"]
    assert (pages[-1]["partial"], pages[-1]["errors"]) == (False, [])
    ids = [record["transactionId"] for page in pages for record in page["transactions"]]
    assert len(ids) == len(set(ids))
    whole = story(lambda w: w.fetch("ledger", "trades", limit=9_999))["transactions"]
    assert ids == [record["transactionId"] for record in whole]


def test_a_deadline_without_any_answer_is_an_error() -> None:
    """Bybit out of reach: neither a success of nothing nor an empty page without end."""

    async def work(world: World, **fields: Any) -> Any:
        world.exchange.faults.slow_s = 1e6
        with pytest.raises(ExchangeFailed) as caught:
            await world.fetch("deposits", "trades", **fields)
        return caught.value, await world.service.availability.all(), loop_s()

    faults = AccountFaults(rate=1.0, kinds=("slow",))
    settings = TransactionSettings(deadline_s=100.0)
    error, availability, spent_s = story(work, settings=settings, faults=faults)
    assert error.code == "exchange_error"
    assert error.message == "Bybit is unreachable."
    assert error.details["reason"] == "exchange_unreachable"
    assert spent_s == pytest.approx(100.0, abs=0.1)
    assert availability == {"bybit": Availability.UNREACHABLE}


def test_an_empty_page_before_the_deadline_goes_on_further_back() -> None:
    """Three years of an account that did nothing: as many windows as a page has time for."""
    account = Account(History(NOW_MS - DAY_MS, NOW_MS, executions=1))

    async def work(world: World) -> Any:
        return await world.pages("transfers", start_time=NOW_MS - 1_000 * DAY_MS, limit=5)

    settings = TransactionSettings(deadline_s=30.0)
    pages = story(work, settings=settings, account=account)
    empty = [page for page in pages if not page["transactions"]]
    assert len(empty) > 1
    cursors = [page["next_cursor"] for page in pages]
    assert len(set(cursors)) == len(cursors)
    reached = [page["coverage"][0]["from"] for page in pages]
    assert reached == sorted(reached, reverse=True)
    for page in empty[:-1]:
        assert page["partial"] is True
        assert page["errors"][0]["error"] == "deadline"
        assert page["errors"][0]["retryable"] is True
    assert pages[-1]["partial"] is False


def test_types_with_a_shorter_memory_say_so() -> None:
    answer = story(lambda w: w.fetch("transfers", "trades", start_time=NOW_MS - 900 * DAY_MS))
    covered = coverage_of(answer)
    assert covered["transfers"]["complete"] is True
    assert covered["transfers"]["floor"] is None
    assert covered["spot_orders"]["complete"] is False
    assert covered["spot_orders"]["reason"] == "older_not_kept"
    assert covered["spot_orders"]["from"] == covered["spot_orders"]["floor"]
    assert covered["spot_orders"]["floor"] == NOW_MS - 730 * DAY_MS + 5 * 60_000


@pytest.mark.parametrize("start_time", [0, NOW_MS - 900 * DAY_MS, NOW_MS - 730 * DAY_MS])
def test_a_range_of_which_something_is_kept_is_answered(start_time: int) -> None:
    answer = story(lambda w: w.fetch("trades", start_time=start_time, limit=9_999))
    assert answer["total_transactions"] == len(ACCOUNT.executions["spot"])
    (covered,) = answer["coverage"]
    assert (covered["complete"], covered["reason"]) == (False, "older_not_kept")
    assert covered["from"] == covered["floor"] == NOW_MS - 730 * DAY_MS + 5 * 60_000


def test_nothing_is_missing_from_before_the_exchange_began() -> None:
    answer = story(lambda w: w.fetch("withdrawals", start_time=0, limit=9_999))
    assert answer["total_transactions"] == len(ACCOUNT.withdrawals)
    (covered,) = answer["coverage"]
    assert (covered["from"], covered["complete"], covered["reason"]) == (0, True, None)


def test_a_deposit_that_was_held_for_weeks_counts_when_it_was_credited() -> None:
    """Bybit finds it by its creation, three weeks before the range."""
    account = Account(MONTH)
    deposit = account.pend_deposit(NOW_MS - 26 * DAY_MS)
    deposit.credited_ms, deposit.status = NOW_MS - 5 * DAY_MS, 3
    answer = story(
        lambda w: w.fetch("deposits", start_time=NOW_MS - 5 * DAY_MS - 1), account=account
    )
    assert deposit.tx_id in {r["ids"]["tx_hash"] for r in answer["transactions"]}


def test_a_short_page_of_orders_is_not_the_last() -> None:
    """Bybit leaves orders without fills out: its pages may be short, with more behind them."""
    orders = ACCOUNT.orders["spot"]

    def short(query: dict[str, str], _key: Any) -> Any:
        begin = int(query.get("cursor") or 0)
        bounds = orders.between(int(query["startTime"]), int(query["endTime"]), 1)
        found = [rows.order(e) for e in reversed(orders.entries[slice(*bounds)])]
        page = found[begin : begin + 3]
        return {"list": page, "nextPageCursor": str(begin + 3) if page else ""}

    async def work(world: World) -> Any:
        world.exchange._answers["/v5/order/history"] = short
        return await world.fetch("spot_orders", limit=10_000)

    answer = story(work)
    read = [r["ids"]["native"] for r in answer["transactions"] if r["kind"] == "order"]
    since_ms = NOW_MS - 30 * DAY_MS
    assert len(read) == len([e for e in orders.entries if e.at_ms >= since_ms]) > 3


def test_leverage_tokens_come_from_the_ledger_whatever_the_old_path_says() -> None:
    long_ago = NOW_MS - 120 * DAY_MS
    account = Account(History(long_ago, NOW_MS, executions=200))
    lines = [e for e in account.ledger.entries if e.facts.kind.startswith("TOKENS")]
    # What was left over when they ended is redeemed later: the ledger is asked to its end.
    assert any(entry.at_ms > 1_759_276_800_000 for entry in lines)
    for retired in ("missing", "empty", "rows"):
        answer = story(
            lambda w: w.fetch("leverage_token_trades", start_time=long_ago),
            account=account,
            retired=retired,
        )
        assert answer["partial"] is False
        assert len(answer["transactions"]) == len(lines)
        assert {r["kind"] for r in answer["transactions"]} == {"leverage_token"}


def test_raw_rows_only_when_asked_for() -> None:
    plain = story(lambda w: w.fetch("trades", limit=3))["transactions"]
    raw = story(lambda w: w.fetch("trades", limit=3, include_raw=True))["transactions"]
    assert all("raw" not in record for record in plain)
    assert [record["raw"]["execId"] for record in raw] == [r["ids"]["native"] for r in raw]


def test_a_row_that_cannot_be_read_is_not_lost_in_silence() -> None:
    """Its fields may be nonsense; that it exists is reported, and counted for the alert."""
    counted = ("onebook_transactions_unreadable_rows_total", {"exchange": "bybit"})
    before = REGISTRY.get_sample_value(*counted) or 0.0
    answer = story(lambda w: w.fetch("withdrawals", limit=9_999), account=_with_nonsense())
    assert answer["partial"] is True
    assert answer["errors"][0]["error"] == "unreadable_record"
    assert answer["errors"][0]["message"].startswith(
        "Unreadable rows, returned as kind `other`: 1. "
    )
    others = [record for record in answer["transactions"] if record["kind"] == "other"]
    assert len(others) == 1
    assert len(answer["transactions"]) == len(ACCOUNT.withdrawals)
    assert REGISTRY.get_sample_value(*counted) == before + 1.0


def test_a_row_that_cannot_be_read_keeps_its_place() -> None:
    """At any other place the next page, which begins at the last record, would pass over it."""
    account = _with_nonsense(len(ACCOUNT.withdrawals) // 2)
    whole = story(lambda w: w.fetch("withdrawals", limit=9_999), account=account)
    records = whole["transactions"]
    assert [r["kind"] for r in records].count("other") == 1
    assert records[0]["kind"] != "other"
    assert records == sorted(records, key=lambda r: (-r["timestamp"], r["transactionId"]))
    pages = story(lambda w: w.pages("withdrawals", limit=4), account=account)
    assert [r for page in pages for r in page["transactions"]] == records


def test_a_fill_of_two_queries_that_cannot_be_read_stands_once() -> None:
    """Contracts in USDC are asked for twice, and what cannot be read has no id of its own."""
    account = Account(MONTH)
    fills = account.executions["linear"].entries
    index, entry = next(each for each in enumerate(fills) if each[1].facts.market.settle == "USDC")
    fills[index] = entry._replace(facts=entry.facts._replace(execution_id=""))
    answer = story(lambda w: w.fetch("futures_linear", limit=9_999), account=account)
    assert [record["kind"] for record in answer["transactions"]].count("other") == 1


class Unwritten(int):
    """A time that the exchange knows but omits."""

    def __str__(self) -> str:
        return ""


def test_one_without_a_time_stands_once_though_its_neighbours_differ() -> None:
    """Its place is that of the row before it, which is another in either list."""
    account = Account(MONTH)
    fills = account.executions["linear"].entries
    usdc = [n for n, each in enumerate(fills) if each.facts.market.settle == "USDC"]
    index = next(n for n in usdc if not {n + 1, n + 2, n + 3}.intersection(usdc))
    entry = fills[index]
    fills[index] = entry._replace(at_ms=Unwritten(entry.at_ms))
    answer = story(lambda w: w.fetch("futures_linear", limit=9_999), account=account)
    assert [record["kind"] for record in answer["transactions"]].count("other") == 1


def _with_nonsense(index: int = -1) -> Account:
    account = Account(MONTH)
    account.withdrawals.entries[index].facts.created_ms = "not a time"
    return account


def test_values_from_the_future_pass() -> None:
    faults = AccountFaults(rate=1.0, kinds=("unknown_enum",))
    answer = story(lambda w: w.fetch("ledger", "trades", limit=9_999), faults=faults)
    assert answer["partial"] is False
    assert {record["kind"] for record in answer["transactions"]} >= {"other"}


def test_lists_of_markets_that_cannot_be_had_cost_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = story(lambda w: w.fetch("trades", "futures", limit=9_999))["transactions"]

    async def work(world: World) -> Any:
        world.exchange.faults.queue("/v5/market/instruments-info", *["502"] * 40)
        return await world.fetch("trades", "futures", limit=9_999)

    caplog.set_level(logging.WARNING)
    assert story(work)["transactions"] == whole
    assert "could not be loaded: " in caplog.text
    assert "exchange_error: Bybit did not answer in time." in caplog.text


def test_credentials_that_are_not_there() -> None:
    async def work(world: World) -> None:
        await world.vault.remove("bybit", "mainnet")
        with pytest.raises(ServiceUnavailable, match="no Bybit mainnet credentials"):
            await world.fetch("trades")
        with pytest.raises(InvalidRequest, match="no Bybit testnet credentials"):
            await world.fetch("trades", testnet=True)
        assert world.transport.requests == 0

    story(work)


def test_testnet_ids_are_others_and_testnet_is_asked() -> None:
    async def work(world: World) -> Any:
        credentials = Credentials(KEY.api_key, KEY.secret)
        await world.vault.put("bybit", "testnet", credentials, now_ms=0)
        main = await world.fetch("trades", limit=10_000)
        test = await world.fetch("trades", limit=10_000, testnet=True)
        return main["transactions"], test["transactions"]

    main, test = story(work)
    # Ties of one instant go by id, and ids contain the environment.
    assert {r["ids"]["native"] for r in main} == {r["ids"]["native"] for r in test}
    assert len(main) == len(test) > 5
    assert not {r["transactionId"] for r in main} & {r["transactionId"] for r in test}
    assert {r["environment"] for r in test} == {"testnet"}


def test_only_so_many_answers_at_once() -> None:
    async def work(world: World) -> Any:
        tasks = [asyncio.create_task(world.fetch("trades")) for _ in range(3)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = story(work, settings=TransactionSettings(runs_max=2))
    busy = [one for one in found if isinstance(one, ServiceUnavailable)]
    assert len(busy) == 1
    assert busy[0].retry_after_s is not None


def test_leaving_a_stream_stops_all_asking() -> None:
    async def work(world: World) -> tuple[int, int]:
        ask = TransactionsRequest(exchange="bybit", transaction_types=("ledger",))
        query = world.service.plan(ask, key_id=CALLER, streamed=True)
        lines = world.service.stream(query, key_id=CALLER)
        await anext(lines)
        await lines.aclose()
        asked = world.transport.requests
        await asyncio.sleep(60)
        return world.transport.in_flight, world.transport.requests - asked

    assert story(work, account=Account(replace(MONTH, executions=2_000))) == (0, 0)


def test_a_stream_that_breaks_in_the_middle_says_so_in_its_last_line() -> None:
    """A key revoked during the answer: lines were sent, so the summary reports it."""

    async def work(world: World) -> list[Any]:
        ask = TransactionsRequest(exchange="bybit", transaction_types=("ledger",))
        query = world.service.plan(ask, key_id=CALLER, streamed=True)
        lines = world.service.stream(query, key_id=CALLER)
        chunks = [await anext(lines)]
        world.exchange._keys.clear()
        chunks += [chunk async for chunk in lines]
        return [json.decode(line) for line in b"".join(chunks).splitlines()]

    *records, summary = story(work, account=Account(replace(MONTH, executions=3_000)))
    assert records
    assert summary["success"] is False
    assert summary["error"] == "exchange_error"
    assert summary["coverage"][0]["complete"] is False


def test_validation_states_what_the_key_cannot_read() -> None:
    key = SimulatedKey(
        KEY.api_key, KEY.secret, permissions={"Spot": ("SpotTrade",)}, read_only=False
    )
    found = story(lambda w: w.service.validate("bybit", testnet=False), key=key)
    assert found.info is not None
    assert found.info.read_only is False
    assert found.info.warnings == (
        "The key can trade (SpotTrade); reading does not need this: use a read-only key.",
    )
    assert (found.info.expires_at - NOW_MS) // DAY_MS == 80
    assert "deposits" in found.info.unavailable_types
    assert "spot_orders" not in found.info.unavailable_types


@pytest.mark.parametrize(
    ("days", "read_only", "says"),
    [
        (3, True, ("expires in 3 days",)), (1, True, ("expires in 1 day;",)), (80, True, ()),
        (-2, True, ()), (80, False, ("can trade", "can withdraw (Withdraw)", "can move funds")),
    ],
)  # fmt: skip
def test_validation_warns_of_what_a_key_should_not_do(
    days: int, read_only: bool, says: tuple[str, ...]
) -> None:
    permissions = {"Spot": ("SpotTrade",), "Wallet": ("AccountTransfer", "Withdraw")}
    key = SimulatedKey(
        KEY.api_key, KEY.secret, permissions=permissions, read_only=read_only, days_left=days
    )
    info = story(lambda w: w.service.validate("bybit", testnet=False), key=key).info
    assert len(info.warnings) == len(says)
    assert all(words in warning for words, warning in zip(says, info.warnings, strict=True))
    assert (info.expires_at is None) == (days < 0)


def test_a_record_names_whose_it_is_and_what_it_belongs_to() -> None:
    answer = story(lambda w: w.fetch(*EVERYTHING, limit=10_000))
    ids = {record["transactionId"] for record in answer["transactions"]}
    types = {record["type"] for record in answer["transactions"]}
    assert {record["account"]["uid"] for record in answer["transactions"]} == {ACCOUNT.uid}
    named = [record for record in answer["transactions"] if record["related"]]
    assert len(named) > 100
    for record in named:
        assert set(record["related"]) <= ids
        assert record["related_type"] in types
    places = [(-r["timestamp"], r["transactionId"]) for r in answer["transactions"]]
    assert places == sorted(places)  # holdings too


def test_related_records_of_a_type_that_was_not_asked_are_marked_with_it() -> None:
    answer = story(lambda w: w.fetch("ledger", limit=10_000))
    found = {record["related_type"] for record in answer["transactions"] if record["related"]}
    assert found == {"spot_orders", "futures_linear", "futures_inverse"}


def test_without_a_user_id_a_transfer_between_users_says_that_its_side_is_unknown() -> None:
    async def work(world: World) -> Any:
        def refused(query: Any, key: Any) -> Any:
            raise AccountRefused(10005, "Permission denied")

        world.exchange._answers["/v5/user/query-api"] = refused
        return await world.fetch("transfers", limit=10_000)

    answer = story(work)
    assert answer["errors"] == []
    between = [r for r in answer["transactions"] if r["native_type"] == "universal"]
    assert between
    assert all(r["incomplete"] == ["direction"] and "sentCurrency" not in r for r in between)


def test_the_funding_wallets_book_has_no_floor() -> None:
    """Rows of 2023-11 were served in 2026-09: nothing ends after two years there."""
    began_ms = NOW_MS - 900 * DAY_MS
    account = Account(History(began_ms, NOW_MS, executions=50, deposits=40))
    ended_ms = NOW_MS - 760 * DAY_MS
    range_ms = {"start_time": began_ms, "end_time": ended_ms}
    answer = story(lambda w: w.fetch("ledger", **range_ms, limit=10_000), account=account)
    lines = [r for r in answer["transactions"] if r["account"]["wallet"] == "FUND"]
    assert len(lines) == sum(each.at_ms <= ended_ms for each in account.fund_ledger.entries)
    assert min(line["timestamp"] for line in lines) < NOW_MS - 800 * DAY_MS


@pytest.mark.parametrize(("mode", "expected"), [(1, "CLASSIC"), (3, "UNIFIED"), (6, "UNIFIED")])
def test_validation_states_the_accounts_mode(mode: int, expected: str) -> None:
    async def work(world: World) -> Any:
        world.exchange._answers["/v5/account/info"] = lambda q, k: {"unifiedMarginStatus": mode}
        return await world.service.validate("bybit", testnet=False)

    assert story(work).info.account_type == expected


def test_validation_of_a_strange_answer_is_an_exchange_error() -> None:
    async def work(world: World) -> Any:
        world.exchange._answers["/v5/account/info"] = lambda q, k: []
        return await world.service.validate("bybit", testnet=False)

    with pytest.raises(ExchangeFailed):
        story(work)


def test_markets_of_many_pages_and_their_age() -> None:
    async def work(world: World) -> tuple[int, int]:
        await world.fetch("trades")
        await world.fetch("trades")
        early = world.exchange.requests["/v5/market/instruments-info"]
        await asyncio.sleep(3_601)
        await world.fetch("trades")
        return early, world.exchange.requests["/v5/market/instruments-info"]

    assert story(work) == (1, 2)


def test_every_source_has_its_limit_and_its_place() -> None:
    for endpoint in ENDPOINTS.values():
        assert endpoint.path in PATH_LIMITS
        assert endpoint.source.page_rows > endpoint.source.page_rows_least or (
            endpoint.source.page_rows == endpoint.source.page_rows_least
        )


@pytest.mark.parametrize(("reserve", "at_least_s", "at_most_s"), [(0.0, 40, 75), (0.2, 110, 125)])
def test_time_passes_only_by_waiting(reserve: float, at_least_s: int, at_most_s: int) -> None:
    async def work(world: World) -> float:
        await world.fetch("transfers", start_time=NOW_MS - 700 * DAY_MS)
        return loop_s()

    # 101 windows at 60 a minute, of which a share is kept for other keys.
    settings = TransactionSettings(deadline_s=3_600.0, reserve_share=reserve)
    assert at_least_s < story(work, settings=settings) < at_most_s


def test_holdings_stand_in_order_of_time_and_on_one_page_each() -> None:
    answer = story(lambda w: w.fetch("holdings", "trades", limit=9_999))
    places = [(-r["timestamp"], r["transactionId"]) for r in answer["transactions"]]
    assert places == sorted(places)
    held = [r["transactionId"] for r in answer["transactions"] if r["view"] == "snapshot"]
    assert len(held) > 3
    pages = story(lambda w: w.pages("holdings", "trades", limit=2, start_time=NOW_MS - DAY_MS))
    for page in pages:
        places = [(-r["timestamp"], r["transactionId"]) for r in page["transactions"]]
        assert places == sorted(places)
    found = [
        r["transactionId"] for p in pages for r in p["transactions"] if r["view"] == "snapshot"
    ]
    assert sorted(found) == sorted(held)


def test_a_key_has_so_many_runs_and_leaves_the_rest_to_others() -> None:
    settings = TransactionSettings(runs_max=3, runs_per_key_max=2)

    async def work(world: World) -> Any:
        def asked(key_id: str) -> asyncio.Task[bytes]:
            query = world.service.plan(TransactionsRequest(exchange="bybit"), key_id=key_id)
            return asyncio.create_task(world.service.fetch(query, key_id=key_id))

        tasks = [asked(key) for key in ("greedy", "greedy", "greedy", "other", "third")]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, refused, other, full = story(work, settings=settings)
    assert all(isinstance(found, bytes) for found in (first, second, other))
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
    assert refused.retry_after_s
    assert (full.status, full.code) == (503, "service_unavailable")


def test_a_small_limit_asks_for_small_pages_and_one_window() -> None:
    """`limit: 5`: one small request per source, whatever the range."""

    async def work(world: World) -> Any:
        await world.fetch(limit=5, start_time=NOW_MS - 700 * DAY_MS)
        return dict(world.exchange.requests), loop_s(), world.exchange.page_rows_max

    account = Account(replace(MONTH, executions=2_000))
    requests, spent_s, _ = story(work, account=account)
    assert requests["/v5/asset/transfer/query-inter-transfer-list"] == 1
    assert requests["/v5/execution/list"] == 4
    assert sum(requests.values()) < 45
    assert spent_s < 2.0


def test_what_can_be_asked_is_reported_as_it_is() -> None:
    """Credentials and the last verdict of the exchange, for health and the public lists."""

    async def work(world: World) -> list[Any]:
        found = []

        async def look() -> None:
            await asyncio.sleep(6)  # stored credentials are looked up every few seconds
            found.append((await world.service.availability.all())["bybit"])

        await look()
        await world.fetch("trades", limit=5)
        await look()
        credentials = Credentials("wrong0000000000000000", "x")
        await world.vault.put("bybit", "mainnet", credentials, now_ms=0)
        await world.service.validate("bybit", testnet=False)
        await look()
        await world.vault.remove("bybit", "mainnet")
        await look()
        return found

    assert story(work) == [
        Availability.OPERATIONAL,
        Availability.OPERATIONAL,
        Availability.REFUSED,
        Availability.MISSING,
    ]

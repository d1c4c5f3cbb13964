"""The simulated OKX API is true to OKX's: signatures, limits, lists that forget, faults."""

import asyncio
from collections import Counter
from decimal import Decimal
from typing import Any

import httpx
import pytest
from msgspec import json

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkxKey, demo
from onebook.simulator.accounts.okx.facts import FUNDING, TRADING
from onebook.simulator.accounts.okx.keys import okx_signature, stamp_of
from onebook.simulator.accounts.okx.names import (
    CHAINS,
    DECIMALS,
    PAIRS,
    UNIT,
    funding_bill_id,
    trading_id,
)
from onebook.simulator.accounts.okx.rows import deposit, withdrawal
from onebook.simulator.accounts.okx.server import LIMITS, MARGIN_PATHS, OKX_FAULTS
from simulator.accounts.okx_client import ACCOUNT, KEY, NOW_MS, SECRET, Clock, OkxClient, okx

BILLS, FUNDS = list(ACCOUNT.bills()), list(ACCOUNT.funding())
BILL_IDS = [str(trading_id(row.time, row.seq)) for row in BILLS]
FUND_IDS = [str(funding_bill_id(row.seq)) for row in FUNDS]
LATER = OkxAccount(OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=900, seed=3))


def amount(text: str) -> int:
    """An amount in the account's form."""
    return int(Decimal(text).scaleb(DECIMALS))


@pytest.fixture
async def client() -> Any:
    client = OkxClient(okx(limited=False, archive_days=9_999, refresh_s=0.0))
    yield client
    await client.http.aclose()


async def closing(client: OkxClient) -> None:
    await client.http.aclose()


class TestSignatures:
    def test_vectors(self) -> None:
        stamp = "2023-11-14T22:13:20.000Z"
        target = "/api/v5/asset/bills-history?limit=100&pagingType=2"
        assert okx_signature(SECRET, stamp, "GET", target) == (
            "qFe9cQeX1GEJlzL86zjTC8/73ecOKVQGn8QbgnYQ02U="
        )
        body = b'{"year":"2023","quarter":"Q1"}'
        target = "/api/v5/account/bills-history-archive"
        assert okx_signature(SECRET, stamp, "POST", target, body) == (
            "uU8ZkFvEFVTga2nQk909VKnVcgEqvZhuTPBEpN95Q9M="
        )
        assert stamp_of(1_700_000_000_000) == stamp

    @pytest.mark.parametrize(
        ("header", "text", "code"),
        [
            ("OK-ACCESS-KEY", "", "50103"),
            ("OK-ACCESS-PASSPHRASE", "", "50104"),
            ("OK-ACCESS-SIGN", "", "50106"),
            ("OK-ACCESS-TIMESTAMP", "", "50107"),
            ("OK-ACCESS-KEY", "mykey", "50111"),
            ("OK-ACCESS-KEY", "99999999-1111-4222-8333-444444444444", "50119"),
            ("OK-ACCESS-PASSPHRASE", "wrong", "50105"),
            ("OK-ACCESS-SIGN", "bm8=", "50113"),
            ("OK-ACCESS-TIMESTAMP", "1792000000000", "50112"),
            ("OK-ACCESS-TIMESTAMP", "2026-10-14T17:46:40Z", "50112"),
            ("OK-ACCESS-TIMESTAMP", "2026-99-14T17:46:40.000Z", "50112"),
            ("x-simulated-trading", "1", "50101"),
        ],
    )
    async def test_headers(self, client: OkxClient, header: str, text: str, code: str) -> None:
        response = await client.send("account/config", headers={header: text})
        body = json.decode(response.content)
        assert (response.status_code, body["code"]) == (401, code)
        assert list(body) == ["msg", "code"]  # without data

    @pytest.mark.parametrize(("off_ms", "good"), [(29_999, True), (30_001, False)])
    async def test_a_clock_may_be_thirty_seconds_off(self, off_ms: int, good: bool) -> None:
        for ms in (NOW_MS - off_ms, NOW_MS + off_ms):
            client = OkxClient(okx(), clock=lambda ms=ms: ms)
            if good:
                assert await client.ask("account/config")
            else:
                assert await client.error("account/config") == (401, "50102")
            assert abs(int((await client.ask("public/time"))[0]["ts"]) - NOW_MS) == 0
            await closing(client)

    async def test_the_query_is_signed_as_sent(self, client: OkxClient) -> None:
        assert await client.ask("asset/bills-history", limit=3, pagingType=2)
        assert await client.ask("asset/bills-history", pagingType=2, limit=3)


class TestKeys:
    async def test_a_key_is_known_on_its_own_site(self) -> None:
        key = SimulatedOkxKey(KEY.api_key, SECRET, KEY.passphrase, region="eea")
        for region, good in (("global", False), ("eea", True), ("us", False)):
            client = OkxClient(okx(key=key, region=region), key)
            if good:
                assert await client.ask("account/config")
            else:
                assert await client.error("account/config") == (401, "50119")
            await closing(client)

    async def test_a_key_describes_itself(self) -> None:
        key = SimulatedOkxKey(
            KEY.api_key, SECRET, KEY.passphrase, ("read_only", "trade"), ips=("127.0.0.1",)
        )
        client = OkxClient(okx(key=key), key)
        (row,) = await client.ask("account/config")
        assert (row["perm"], row["ip"], row["acctLv"]) == ("read_only,trade", "127.0.0.1", "2")
        assert row["uid"] == row["mainUid"]
        await closing(client)

    async def test_addresses_permissions_and_frozen_keys(self) -> None:
        bound = SimulatedOkxKey(KEY.api_key, SECRET, KEY.passphrase, ips=("203.0.113.9",))
        blind = SimulatedOkxKey(KEY.api_key, SECRET, KEY.passphrase, permissions=("trade",))
        frozen = SimulatedOkxKey(KEY.api_key, SECRET, KEY.passphrase, frozen=True)
        for key, code in ((bound, "50110"), (blind, "50120"), (frozen, "50100")):
            client = OkxClient(okx(key=key), key)
            assert await client.error("account/balance") == (401, code)
            await closing(client)

    def test_a_key_hides_its_secrets(self) -> None:
        assert SECRET not in repr(KEY)
        assert KEY.passphrase not in repr(KEY)


class TestDemo:
    KEY = SimulatedOkxKey("99999999-1111-4222-8333-444444444444", SECRET, "demo", demo=True)

    async def test_demo_trading_has_an_account_and_keys_of_its_own(self) -> None:
        exchange = okx(key=self.KEY, demo_account=LATER)
        client = OkxClient(exchange, self.KEY)
        rows = await client.ask("account/bills-archive")
        newest = list(LATER.bills())[-1]
        assert rows[0]["billId"] == str(trading_id(newest.time, newest.seq))
        for name in ("asset/deposit-history", "asset/bills", "finance/savings/balance"):
            assert await client.error(name) == (200, "50038")
        assert await client.error("account/config", headers={"x-simulated-trading": ""}) == (
            401, "50101",
        )  # fmt: skip
        await closing(client)

    async def test_without_a_demo_account_there_is_none(self) -> None:
        client = OkxClient(okx(key=self.KEY), self.KEY)
        assert await client.error("account/bills") == (200, "50038")
        await closing(client)


class TestSites:
    async def test_sites_lack_paths(self) -> None:
        for region, name in (("us", "fiat/deposit-order-history"),
                             ("eea", "finance/flexible-loan/loan-history")):  # fmt: skip
            key = SimulatedOkxKey(KEY.api_key, SECRET, KEY.passphrase, region=region)
            client = OkxClient(okx(key=key, region=region), key)
            assert await client.error(name) == (404, "404")
            await closing(client)

    async def test_unknown_paths_and_methods(self, client: OkxClient) -> None:
        assert await client.error("account/nothing") == (404, "404")
        assert await client.error("account/bills", "POST", {}) == (404, "404")
        assert await client.error("public/nothing") == (404, "404")

    @pytest.mark.parametrize("name", sorted(MARGIN_PATHS))
    async def test_an_account_in_spot_mode_has_no_margin_paths(self, name: str) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 90 * DAY_MS, NOW_MS, rows=60, derivatives=False))
        client = OkxClient(okx(account))
        assert await client.error(name) == (200, "51010")
        assert (await client.ask("account/config"))[0]["acctLv"] == "1"
        await closing(client)


class TestLimits:
    @pytest.mark.parametrize(("name", "limit"), list(LIMITS.items()))
    async def test_of_each_endpoint(self, name: str, limit: tuple[int, float]) -> None:
        clock = Clock()
        client = OkxClient(okx(now_ms=clock), clock=clock)
        count, seconds = limit
        fields = {"instType": "SPOT", "transId": "1", "year": "2024", "quarter": "Q1"}
        statuses = [(await client.send(name, **fields)).status_code for _ in range(count + 1)]
        assert 429 not in statuses[:-1]
        assert statuses[-1] == 429
        assert await client.error(name, **fields) == (429, "50011")
        clock.ms += round(seconds * 1_000)
        assert (await client.send(name, **fields)).status_code != 429
        await closing(client)

    async def test_endpoints_count_apart_and_keys_together(self) -> None:
        other = SimulatedOkxKey("99999999-1111-4222-8333-444444444444", SECRET, "other")
        exchange = okx()
        exchange._gate._keys[other.api_key] = other
        client, second = OkxClient(exchange), OkxClient(exchange, other)
        await client.ask("asset/bills-history")
        assert await second.error("asset/bills-history") == (429, "50011")
        await second.ask("asset/bills")
        await closing(client)
        await closing(second)


class TestTradingBills:
    async def test_a_walk_by_ids_has_every_bill(self, client: OkxClient) -> None:
        found = await client.walk("account/bills-archive", "billId")
        assert [row["billId"] for row in found] == BILL_IDS[::-1]
        for row, bill in zip(found, reversed(BILLS), strict=True):
            assert (amount(row["balChg"]), amount(row["bal"])) == (bill.change, bill.balance)
            assert (row["ccy"], row["type"], row["ts"]) == (bill.ccy, bill.type, str(bill.ts))
        old = [row for row in found if int(row["ts"]) < 1_700_000_000_000]
        assert all(len(row["bal"].partition(".")[2]) == DECIMALS for row in old)

    async def test_after_is_older_and_before_newer_both_exclusive(self, client: OkxClient) -> None:
        at = 700
        older = await client.ask("account/bills-archive", after=BILL_IDS[at], limit=5)
        assert [row["billId"] for row in older] == BILL_IDS[at - 5 : at][::-1]
        newer = await client.ask("account/bills-archive", before=BILL_IDS[-4])
        assert [row["billId"] for row in newer] == BILL_IDS[-3:][::-1]
        # The newest of those that are newer, not the next ones.
        page = await client.ask("account/bills-archive", before=BILL_IDS[at], limit=3)
        assert [row["billId"] for row in page] == BILL_IDS[-3:][::-1]
        both = await client.ask(
            "account/bills-archive", after=BILL_IDS[at + 4], before=BILL_IDS[at]
        )
        assert [row["billId"] for row in both] == BILL_IDS[at + 1 : at + 4][::-1]
        # Ids of no bill, between those of two.
        at = next(n for n in range(at, len(BILLS)) if BILLS[n + 1].time > BILLS[n].time)
        between = str((int(BILL_IDS[at]) + int(BILL_IDS[at + 1])) // 2)
        page = await client.ask("account/bills-archive", after=between, limit=1)
        assert page[0]["billId"] == BILL_IDS[at]

    async def test_times_are_inclusive_and_of_what_is_shown(self, client: OkxClient) -> None:
        begin, end = sorted((BILLS[300].ts, BILLS[380].ts))
        found = await client.walk("account/bills-archive", "billId", begin=begin, end=end)
        expected = [id_ for id_, row in zip(BILL_IDS, BILLS, strict=True) if begin <= row.ts <= end]
        assert [row["billId"] for row in found] == expected[::-1]
        one = await client.ask("account/bills-archive", begin=begin, end=begin)
        assert one
        assert {row["ts"] for row in one} == {str(begin)}

    @pytest.mark.parametrize(
        "fields",
        [
            {"ccy": "BTC"}, {"type": "2"}, {"type": "1,8"}, {"type": "2", "subType": "1"},
            {"instType": "SPOT"}, {"instType": "SWAP", "ctType": "inverse"},
            {"instType": "SWAP", "ctType": "linear"}, {"instId": "BTC-USDT"},
            {"mgnMode": "isolated"}, {"ccy": "USDT", "type": "1", "subType": "12"},
        ],
    )  # fmt: skip
    async def test_filters(self, client: OkxClient, fields: dict[str, str]) -> None:
        found = await client.walk("account/bills-archive", "billId", **fields)
        everything = await client.walk("account/bills-archive", "billId")

        def wanted(row: dict[str, str]) -> bool:
            parts = row["instId"].split("-")
            return all(
                (parts[1:2] == ["USD"]) is (text == "inverse") and len(parts) > 2
                if name == "ctType"
                else row[name] in text.split(",")
                for name, text in fields.items()
            )

        assert found == [row for row in everything if wanted(row)]
        assert 0 < len(found) < len(everything)

    @pytest.mark.parametrize(("name", "days"), [("bills", 7), ("bills-archive", 90)])
    async def test_lists_forget(self, name: str, days: int) -> None:
        client = OkxClient(okx(LATER if days == 7 else ACCOUNT, limited=False))
        bills = LATER.bills() if days == 7 else iter(BILLS)
        found = await client.walk(f"account/{name}", "billId", begin=0)
        floor = NOW_MS - days * DAY_MS
        assert len(found) == sum(floor <= row.ts <= NOW_MS for row in bills)
        assert found
        await closing(client)

    async def test_transfers_have_their_ways_and_no_fee(self, client: OkxClient) -> None:
        found = await client.ask("account/bills-archive", type="1", subType="12")
        assert {(row["from"], row["to"], row["notes"]) for row in found} == {
            ("18", "6", "To Funding Account")
        }
        assert all(row["sz"] == row["balChg"] for row in found if "." not in row["sz"])
        assert {row["fee"] for row in found} == {""}

    async def test_wrong_parameters(self, client: OkxClient) -> None:
        assert await client.error("account/bills", after="x") == (400, "51000")
        assert await client.error("account/bills", limit="-1") == (400, "51000")
        assert await client.error("trade/fills-history") == (400, "50014")
        assert await client.error("asset/bills-history", pagingType="3") == (400, "51000")
        assert len(await client.ask("account/bills-archive", limit="500")) == 100

    async def test_a_bill_arrives_when_its_time_comes(self) -> None:
        at = BILLS[-50].time
        clock = Clock(at - 10)
        client = OkxClient(okx(now_ms=clock, limited=False), clock=clock)
        before = await client.ask("account/bills-archive")
        clock.ms = at + 10
        after = await client.ask("account/bills-archive")
        assert BILL_IDS[-50] not in {row["billId"] for row in before}
        assert BILL_IDS[-50] in {row["billId"] for row in after}
        (row,) = await client.ask("account/balance")
        held = {each["ccy"]: amount(each["cashBal"]) for each in row["details"]}
        expected = ACCOUNT.balances(clock.ms)
        assert held == {ccy: n for (wallet, ccy), n in expected.items() if wallet == TRADING and n}
        await closing(client)

    async def test_rows_arrive_while_it_is_walked(self) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 40 * DAY_MS, NOW_MS, rows=500))
        clock = Clock()
        exchange = okx(account, limited=False, now_ms=clock)
        client = OkxClient(exchange, clock=clock)
        old = {str(trading_id(row.time, row.seq)) for row in account.bills()}

        def arrive(name: str) -> None:
            clock.ms += 1_000
            account.happen("order", clock.ms - 500)

        exchange.before_page = arrive
        found = await client.walk("account/bills-archive", "billId")
        seen = Counter(row["billId"] for row in found)
        assert old <= seen.keys()  # by ids, nothing is lost,
        assert max(seen.values()) == 1  # and no row comes again
        fresh = await client.walk("account/bills-archive", "billId", before=found[0]["billId"])
        assert fresh
        await closing(client)

    async def test_words_of_types(self, client: OkxClient) -> None:
        words = await client.ask("account/subtypes")
        assert {row.type for row in BILLS} <= {row["type"] for row in words}
        (one,) = await client.ask("account/subtypes", type="1")
        assert {"subType": "11", "subTypeDesc": "Transfer in"} in one["subTypeDetails"]


class TestTrades:
    async def test_fills_name_their_bills(self, client: OkxClient) -> None:
        found = []
        for kind in ("SPOT", "MARGIN", "SWAP", "FUTURES", "OPTION"):
            found += await client.walk("trade/fills-history", "billId", instType=kind)
        assert len(found) == sum(1 for _ in ACCOUNT.rows("fills"))
        assert {row["billId"] for row in found} <= set(BILL_IDS)
        by_id = dict(zip(BILL_IDS, BILLS, strict=True))
        for row in found:
            bill = by_id[row["billId"]]
            assert row["tradeId"] == str(bill.trade)
            assert row["instId"] == bill.instrument.id
        assert {row["posSide"] for row in found} == {"net", "long", "short"}

    async def test_recent_fills_are_three_days(self) -> None:
        client = OkxClient(okx(LATER))
        found = await client.ask("trade/fills")
        assert found
        assert all(int(row["ts"]) >= NOW_MS - 3 * DAY_MS for row in found)
        await closing(client)

    async def test_orders_are_filled_cancelled_or_both(self, client: OkxClient) -> None:
        found = await client.walk("trade/orders-history-archive", "ordId", instType="SPOT")
        states = {(row["state"], row["accFillSz"] != "0") for row in found}
        assert states == {("filled", True), ("canceled", True)}
        only = await client.walk(
            "trade/orders-history-archive", "ordId", instType="SPOT", state="filled"
        )
        assert 0 < len(only) < len(found)
        assert any(row["tgtCcy"] == "quote_ccy" for row in found)

    async def test_an_order_without_a_fill_is_listed_for_two_hours(self) -> None:
        order = next(row for row in reversed(list(ACCOUNT.rows("orders"))) if not row.filled)
        id_ = str(trading_id(order.time, order.seq))
        for after, listed in ((60_000, True), (3 * 3_600_000, False)):
            clock = Clock(order.updated + after)
            client = OkxClient(okx(now_ms=clock), clock=clock)
            found = await client.ask("trade/orders-history", instType="SPOT")
            assert (id_ in {row["ordId"] for row in found}) is listed
            archived = await client.ask("trade/orders-history-archive", instType="SPOT")
            assert id_ not in {row["ordId"] for row in archived}
            await closing(client)

    async def test_closed_positions_add_up(self) -> None:
        client = OkxClient(okx(LATER, limited=False))
        found = await client.walk("account/positions-history", "uTime")
        assert found
        for row in found:
            parts = ("pnl", "fee", "fundingFee", "liqPenalty")
            assert amount(row["realizedPnl"]) == sum(amount(row[name]) for name in parts)
        await closing(client)

    async def test_interest_of_vip_loans_has_to_be_asked_for(self) -> None:
        client = OkxClient(okx(LATER, limited=False))
        market = await client.ask("account/interest-accrued")
        loans = await client.ask("account/interest-accrued", type="1")
        rows = list(LATER.rows("interest"))
        assert len(market) == sum(row.kind == "2" for row in rows) > 0
        assert len(loans) == sum(row.kind == "1" for row in rows)
        await closing(client)


class TestFunding:
    async def test_a_walk_by_ids_has_every_bill(self, client: OkxClient) -> None:
        found = await client.walk("asset/bills-history", "billId", pagingType=2, limit=20)
        assert [row["billId"] for row in found] == FUND_IDS[::-1]
        for row, bill in zip(found, reversed(FUNDS), strict=True):
            assert (amount(row["balChg"]), amount(row["bal"])) == (bill.change, bill.balance)
        newer = await client.ask("asset/bills-history", pagingType=2, before=FUND_IDS[-3])
        assert [row["billId"] for row in newer] == FUND_IDS[-2:][::-1]
        between = str(int(FUND_IDS[50]) + 1)
        page = await client.ask("asset/bills-history", pagingType=2, after=between, limit=1)
        assert page[0]["billId"] == FUND_IDS[50]

    async def test_a_walk_by_times_loses_rows_of_one_millisecond(self, client: OkxClient) -> None:
        found = await client.walk("asset/bills-history", "ts", limit=1)
        ids = [row["billId"] for row in found]
        assert len(set(ids)) == len(ids) < len(FUND_IDS)
        assert {row["ts"] for row in found} == {str(row.time) for row in FUNDS}

    async def test_the_recent_list_is_a_month_and_the_history_lags(self) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 90 * DAY_MS, NOW_MS, rows=600))
        clock = Clock(NOW_MS + 40_000)
        account.happen("gain", NOW_MS + 31_000)
        account.happen("gain", NOW_MS + 32_000)
        client = OkxClient(okx(account, now_ms=clock, limited=False), clock=clock)
        recent = await client.walk("asset/bills", "ts")
        assert all(int(row["ts"]) >= clock.ms - 30 * DAY_MS for row in recent)
        history = await client.ask("asset/bills-history", pagingType=2)
        refreshed = clock.ms // 30_000 * 30_000
        assert all(int(row["ts"]) <= refreshed for row in history)
        clock.ms += 30_000
        history = await client.ask("asset/bills-history", pagingType=2)
        assert max(int(row["ts"]) for row in history) > NOW_MS + 30_000
        await closing(client)

    async def test_custodians_have_to_be_named(self) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 90 * DAY_MS, NOW_MS, rows=600, custody=True))
        for second in range(12):
            account.happen("custody", NOW_MS + second)
        clock = Clock(NOW_MS + 60_000)
        client = OkxClient(okx(account, now_ms=clock, limited=False), clock=clock)
        ids = set()
        for custodian in (1, 2, 5):
            rows = await client.walk(
                "asset/bills-history", "billId", pagingType=2, thirdPartyType=custodian
            )
            ids |= {row["billId"] for row in rows}
        plain = await client.walk("asset/bills-history", "billId", pagingType=2)
        assert {row["billId"] for row in plain} < ids
        assert ids == {str(funding_bill_id(row.seq)) for row in account.funding()}
        await closing(client)

    async def test_deposits_and_withdrawals(self, client: OkxClient) -> None:
        deposits = await client.walk("asset/deposit-history", "ts")
        listed = ACCOUNT.lists["deposits"]
        assert {row["depId"] for row in deposits} == {str(4_700_000 + x.seq) for x in listed}
        assert {row["state"] for row in deposits} >= {"2"}
        assert {"8", "11", "12", "13", "14", "17"} & {row["state"] for row in deposits}
        assert any(row["txId"].endswith("_asset") for row in deposits)
        withdrawals = await client.walk("asset/withdrawal-history", "ts")
        assert {row["state"] for row in withdrawals} >= {"2", "-1", "-2"}
        old = [row for row in withdrawals if int(row["ts"]) < 1_640_995_200_000]
        assert all(row["fee"].endswith(row["ccy"].lower()) for row in old)
        assert all(row["feeCcy"] == row["ccy"] for row in withdrawals if row not in old)
        page = await client.ask("asset/deposit-history", ccy="BTC")
        assert {row["ccy"] for row in page} == {"BTC"}

    async def test_a_page_border_cuts_deposits_of_one_millisecond(self, client: OkxClient) -> None:
        groups = Counter(row.time for row in ACCOUNT.lists["deposits"])
        ts, count = groups.most_common(1)[0]
        assert count >= 3
        first = await client.ask("asset/deposit-history", after=ts + 1, limit=2)
        rest = await client.ask("asset/deposit-history", after=first[-1]["ts"])
        assert {row["ts"] for row in first} == {str(ts)}
        assert str(ts) not in {row["ts"] for row in rest}

    def test_states_follow_each_other(self) -> None:
        made = next(row for row in ACCOUNT.lists["deposits"] if row.final == 2)
        assert [deposit(made, at)["state"] for at in (
            made.time, made.credited, made.credited + 600_000)] == ["0", "1", "2"]  # fmt: skip
        held = next(row for row in ACCOUNT.lists["deposits"] if row.final > 2)
        assert deposit(held, held.time + DAY_MS)["state"] == str(held.final)
        for final, states in (
            (2, ["0", "1", "2"]),
            (-2, ["0", "-3", "-2"]),
            (-1, ["0", "4", "-1"]),
        ):
            row = next(row for row in ACCOUNT.lists["withdrawals"] if row.final == final)
            times = (row.time, row.time + 60_000, row.ended)
            assert [withdrawal(row, at)["state"] for at in times] == states

    async def test_sub_account_conversions_and_earn(self, client: OkxClient) -> None:
        moved = await client.ask("asset/subaccount/bills")
        assert len(moved) == len(ACCOUNT.lists["sub_transfers"])
        assert {row["subAcct"] for row in moved} == {
            row["subAcct"] for row in await client.ask("users/subaccount/list")
        }
        assert await client.ask("asset/subaccount/bills", subAcct="other") == []
        conversions = await client.walk("asset/convert/history", "ts")
        assert len(conversions) == len(ACCOUNT.lists["conversions"])
        active = await client.ask("finance/staking-defi/orders-active")
        ended = await client.walk("finance/staking-defi/orders-history", "ordId", limit=2)
        assert len(active) + len(ended) == len(ACCOUNT.lists["stakes"])
        eth = await client.ask("finance/staking-defi/eth/purchase-redeem-history")
        sol = await client.ask("finance/staking-defi/sol/purchase-redeem-history")
        assert len(eth) + len(sol) == len(ACCOUNT.lists["liquid"])
        loans = await client.ask("finance/flexible-loan/loan-history")
        assert {row["type"] for row in loans} >= {"collateral_locked", "borrowed", "repaid"}

    async def test_bank_orders_have_bounds_in_the_other_order(self, client: OkxClient) -> None:
        found = await client.ask("fiat/deposit-order-history")
        assert found
        first, last = int(found[-1]["cTime"]), int(found[0]["cTime"])
        same = await client.ask("fiat/deposit-order-history", after=first, before=last)
        assert same == found
        assert await client.ask("fiat/deposit-order-history", after=last + 1) == []
        assert await client.ask("fiat/withdrawal-order-history")

    async def test_a_transfer_by_its_id(self, client: OkxClient) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 20 * DAY_MS, NOW_MS, rows=300))
        other = OkxClient(okx(account, limited=False))
        recent = max(account.lists["transfers"])
        (row,) = await other.ask("asset/transfer-state", transId=754_000 + recent.seq)
        assert amount(row["amt"]) == recent.amount
        oldest = min(account.lists["transfers"])
        assert await other.ask("asset/transfer-state", transId=754_000 + oldest.seq) == []
        assert await client.error("asset/transfer-state") == (400, "50014")
        await closing(other)


class TestBalances:
    async def test_they_are_the_last_of_the_bills(self, client: OkxClient) -> None:
        (account,) = await client.ask("account/balance")
        last: dict[str, str] = {}
        for row in await client.walk("account/bills-archive", "billId"):
            last.setdefault(row["ccy"], row["bal"])
        held = {row["ccy"]: amount(row["cashBal"]) for row in account["details"]}
        assert held == {ccy: amount(text) for ccy, text in last.items() if amount(text)}
        funding = {row["ccy"]: amount(row["bal"]) for row in await client.ask("asset/balances")}
        truth = ACCOUNT.balances()
        assert funding == {ccy: n for (wallet, ccy), n in truth.items() if wallet == FUNDING and n}
        (valued,) = await client.ask("asset/asset-valuation")
        assert sum(amount(text) for text in valued["details"].values()) == amount(
            valued["totalBal"]
        )
        some = await client.ask("account/balance", ccy="BTC,ETH")
        assert [row["ccy"] for row in some[0]["details"]] == ["BTC", "ETH"]
        savings = await client.ask("finance/savings/balance")
        assert {row["ccy"]: amount(row["amt"]) for row in savings} == {
            ccy: n for (wallet, ccy), n in truth.items() if wallet == "savings" and n
        }

    async def test_instruments_are_those_of_today(self, client: OkxClient) -> None:
        pairs = await client.ask("public/instruments", instType="SPOT")
        names = {row["instId"] for row in pairs}
        assert names == {id_ for id_, each in PAIRS.items() if each.open(NOW_MS)}
        assert "MATIC-USDT" not in names  # which bills have
        assert any(row.instrument and row.instrument.id == "MATIC-USDT" for row in BILLS)
        swaps = {row["instId"]: row for row in
                 await client.ask("public/instruments", instType="SWAP")}  # fmt: skip
        assert (swaps["BTC-USD-SWAP"]["ctVal"], swaps["BTC-USD-SWAP"]["ctType"]) == (
            "100", "inverse",
        )  # fmt: skip
        assert await client.error("public/instruments", instType="OPTION") == (400, "50014")
        chains = await client.ask("asset/currencies", ccy="BTC")
        assert {row["chain"] for row in chains} == {each.id for each in CHAINS if each.ccy == "BTC"}
        assert amount(chains[0]["fee"]) < UNIT


class TestFaults:
    @pytest.mark.parametrize("kind", [each for each in OKX_FAULTS if each.isdecimal()])
    async def test_errors_and_pages_of_the_edge(self, kind: str) -> None:
        faults = AccountFaults()
        client = OkxClient(okx(faults=faults))
        faults.queue("/api/v5/account/bills", kind)
        response = await client.send("account/bills")
        if len(kind) == 3:
            assert response.status_code == int(kind)
            assert response.headers["content-type"].startswith("text/html")
        else:
            assert response.status_code >= 400
            assert json.decode(response.content)["code"] == kind
        assert await client.ask("account/bills") is not None
        await closing(client)

    async def test_bodies_that_are_wrong(self) -> None:
        faults = AccountFaults()
        client = OkxClient(okx(faults=faults, limited=False, archive_days=9_999))
        path = "/api/v5/account/bills-archive"
        faults.queue(path, "truncated", "no_data", "numbers", "unknown_type")
        with pytest.raises(ValueError, match=r"truncated|malformed"):
            json.decode((await client.send("account/bills-archive")).content)
        body = json.decode((await client.send("account/bills-archive")).content)
        assert body == {"code": "0", "msg": ""}
        rows = await client.ask("account/bills-archive")
        assert isinstance(rows[0]["bal"], float)
        rows = await client.ask("account/bills-archive")
        assert {row["type"] for row in rows} == {"999"}
        await closing(client)

    async def test_connections_that_end_or_take_their_time(self) -> None:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await asyncio.sleep(0)

        faults = AccountFaults(slow_s=9.0)
        client = OkxClient(okx(faults=faults, sleep=sleep))
        faults.queue("/api/v5/account/bills", "reset", "slow")
        with pytest.raises(httpx.ReadError):
            await client.send("account/bills")
        await client.ask("account/bills")
        assert slept == [9.0]
        assert faults.served["/api/v5/account/bills", "reset"] == 1
        await closing(client)


async def test_the_demo_is_served_with_its_files() -> None:
    async with demo() as served:
        key, client = served.key, OkxClient(served.url, served.key, SYSTEM_CLOCK.wall_ms)
        assert served.fields == {
            "api_key": key.api_key, "secret": key.secret, "passphrase": key.passphrase,
        }  # fmt: skip
        assert served.hosts.keys() == {"files"}
        for name in ("account/bills-archive", "asset/bills-history", "account/balance"):
            assert await client.ask(name)
        assert (await client.apply("2025", "Q1"))["result"] == "false"
        await closing(client)

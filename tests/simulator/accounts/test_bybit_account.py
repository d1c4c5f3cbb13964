"""The simulated Bybit is true to Bybit: its protocol, and the identities of its account."""

import asyncio
import hashlib
import hmac
from base64 import b64decode
from collections import defaultdict
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey, demo
from onebook.simulator.accounts.bybit.endpoints import TOO_OLD
from onebook.simulator.accounts.history import UNIT, product, quotient, shown
from onebook.simulator.accounts.serving import SimulatedTransport, serving

NOW_MS = 1_763_000_000_000
KEY = SimulatedKey("mykey00000000000000", "mysecret0000000000000000000000000000")
HISTORY = History(NOW_MS - 40 * DAY_MS, NOW_MS, executions=900)
ACCOUNT = Account(HISTORY)
EXECUTIONS = "/v5/execution/list"


class Asker:
    """A client that signs as documented, independent of ours."""

    def __init__(self, exchange: SimulatedBybit, key: SimulatedKey = KEY) -> None:
        self.key = key
        self.now_ms = NOW_MS
        self.http = httpx.AsyncClient(
            transport=SimulatedTransport(exchange), base_url="http://simulated"
        )

    async def send(
        self, path: str, query: str = "", *, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        stamp = str(self.now_ms)
        origin = f"{stamp}{self.key.api_key}5000{query}".encode()
        sign = hmac.new(self.key.secret.encode(), origin, hashlib.sha256).hexdigest()
        given = {
            "X-BAPI-API-KEY": self.key.api_key,
            "X-BAPI-TIMESTAMP": stamp,
            "X-BAPI-RECV-WINDOW": "5000",
            "X-BAPI-SIGN": sign,
        } | (headers or {})
        return await self.http.get(f"{path}?{query}", headers=given)

    async def ask(self, path: str, query: str = "", **more: Any) -> dict[str, Any]:
        response = await self.send(path, query, **more)
        assert response.status_code == 200, response.text
        return json.decode(response.content)

    async def all_rows(self, path: str, query: str, key: str = "list") -> list[dict[str, Any]]:
        rows, cursor = [], ""
        while True:
            suffix = f"&cursor={cursor}" if cursor else ""
            result = (await self.ask(path, query + suffix))["result"]
            rows += result[key]
            cursor = result["nextPageCursor"]
            if not cursor:
                return rows


def exchange(account: Account = ACCOUNT, key: SimulatedKey = KEY, **options: Any) -> SimulatedBybit:
    options.setdefault("now_ms", lambda: NOW_MS)
    return SimulatedBybit(account, [key], **options)


@pytest.fixture
async def asker() -> Any:
    asker = Asker(exchange(limited=False))
    yield asker
    await asker.http.aclose()


def window(days_ago: int = 7, length_days: int = 7) -> str:
    start = NOW_MS - days_ago * DAY_MS
    return f"startTime={start}&endTime={start + length_days * DAY_MS - 1}"


class TestAccount:
    """The invariants used by the proofs."""

    def test_every_ledger_line_follows_from_the_one_before(self) -> None:
        balances: dict[str, int] = defaultdict(int)
        for entry in ACCOUNT.ledger.entries:
            line = entry.facts
            assert line.change == line.cash + (line.funding or 0) - line.fee - line.tax
            balances[line.coin] += line.change
            assert line.balance == balances[line.coin]
        assert balances == ACCOUNT.unified

    def test_so_does_every_line_of_the_funding_wallet(self) -> None:
        balances: dict[str, int] = defaultdict(int)
        for entry in ACCOUNT.fund_ledger.entries:
            balances[entry.facts.coin] += entry.facts.change
            assert entry.facts.balance == balances[entry.facts.coin]
        assert balances == ACCOUNT.fund

    def test_fills_add_up_to_their_orders(self) -> None:
        for category, table in ACCOUNT.executions.items():
            done: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
            for entry in table.entries:
                if entry.facts.kind != "Funding":
                    sums = done[entry.facts.order_id]
                    sums[0] += entry.facts.quantity
                    sums[1] += entry.facts.value
                    sums[2] += entry.facts.fee
            for entry in ACCOUNT.orders[category].entries:
                order = entry.facts
                assert [order.done, order.done_value, order.fee] == done[order.order_id]

    def test_closed_pnl_is_what_the_ledger_booked(self) -> None:
        for category, table in ACCOUNT.closed.items():
            gross: dict[str, int] = defaultdict(int)
            for entry in ACCOUNT.ledger.entries:
                if entry.facts.category == category and entry.facts.kind == "TRADE":
                    gross[entry.facts.order_id] += entry.facts.cash
            assert len(table) > 3
            for entry in table.entries:
                one = entry.facts
                assert one.pnl == gross[one.order_id] - one.open_fee - one.close_fee

    def test_tables_are_in_order_and_ids_grow(self) -> None:
        for table in (*ACCOUNT.executions.values(), ACCOUNT.ledger, ACCOUNT.deposits):
            places = [(entry.at_ms, entry.seq) for entry in table.entries]
            assert places == sorted(places)
            assert [seq for _, seq in places] == sorted(seq for _, seq in places)

    def test_some_events_share_a_millisecond(self) -> None:
        times = [entry.at_ms for entry in ACCOUNT.executions["spot"].entries]
        assert len(set(times)) < len(times)

    def test_the_same_seed_makes_the_same_account(self) -> None:
        again = Account(HISTORY)
        assert again.ledger.entries == ACCOUNT.ledger.entries

    def test_amounts(self) -> None:
        assert [shown(units) for units in (0, UNIT, -UNIT // 2, 1, -1)] == [
            "0", "1", "-0.5", "0.000000000001", "-0.000000000001",
        ]  # fmt: skip
        assert product(3 * UNIT, UNIT // 2) == 3 * UNIT // 2
        assert shown(quotient(UNIT, 3 * UNIT)) == "0.33333333"


class TestAuthentication:
    """Signatures, clock differences and keys."""

    async def test_the_vector_of_the_documentation_page(self) -> None:
        origin = (
            "1700000000000mykey000000000000005000"
            "category=linear&cursor=132766%3A2%2C132766%3A2&limit=50"
        )
        sign = hmac.new(KEY.secret.encode(), origin.encode(), hashlib.sha256).hexdigest()
        assert sign == "cedafa3ae48713d45759256293323adb08e9ff74f0ded02092c76c460b43904d"

    async def test_missing_headers(self, asker: Asker) -> None:
        response = await asker.http.get("/v5/account/info")
        found = response.json()
        assert found["retCode"] == 10001
        assert found["retMsg"] == (
            "empty value: apiTimestamp[] apiKey[] apiSignature[]: openapi sign params error!"
        )

    async def test_an_unknown_key(self, asker: Asker) -> None:
        asker.key = SimulatedKey("another", "x")
        assert (await asker.ask("/v5/account/info"))["retCode"] == 10003

    async def test_a_wrong_signature_repeats_what_should_have_been_signed(
        self, asker: Asker
    ) -> None:
        found = await asker.ask("/v5/account/info", "a=b", headers={"X-BAPI-SIGN": "00"})
        assert found["retCode"] == 10004
        assert found["retMsg"] == f"error sign! origin_string[{NOW_MS}{KEY.api_key}5000a=b]"

    @pytest.mark.parametrize(
        ("offset_ms", "code"), [(-5_000, 0), (-5_001, 10002), (999, 0), (1_000, 10002)]
    )
    async def test_the_edges_of_the_receive_window(
        self, asker: Asker, offset_ms: int, code: int
    ) -> None:
        asker.now_ms = NOW_MS + offset_ms
        found = await asker.ask("/v5/account/info")
        assert found["retCode"] == code
        if code:
            assert f"server_timestamp[{NOW_MS}],recv_window[5000]" in found["retMsg"]

    async def test_a_missing_receive_window_is_five_seconds(self, asker: Asker) -> None:
        headers = {"X-BAPI-RECV-WINDOW": ""}
        assert (await asker.ask("/v5/account/info", headers=headers))["retCode"] == 0

    @pytest.mark.parametrize(
        ("key", "code"),
        [
            (SimulatedKey(KEY.api_key, KEY.secret, ips=("10.0.0.1",)), 10010),
            (SimulatedKey(KEY.api_key, KEY.secret, expires_ms=NOW_MS), 33004),
        ],
    )
    async def test_bound_addresses_and_expiry(self, key: SimulatedKey, code: int) -> None:
        asker = Asker(exchange(key=key))
        assert (await asker.ask("/v5/account/info"))["retCode"] == code

    async def test_permissions(self) -> None:
        key = SimulatedKey(KEY.api_key, KEY.secret, permissions={"Spot": ("SpotTrade",)})
        asker = Asker(exchange(key=key))
        codes = {
            path: (await asker.ask(path, query))["retCode"]
            for path, query in (
                (EXECUTIONS, "category=spot"),
                (EXECUTIONS, "category=linear"),
                ("/v5/asset/deposit/query-record", ""),
                ("/v5/asset/transfer/query-account-coins-balance", "accountType=FUND"),
                ("/v5/account/transaction-log", ""),
            )
        }
        assert codes == {
            EXECUTIONS: 10005,
            "/v5/asset/deposit/query-record": 10005,
            "/v5/asset/transfer/query-account-coins-balance": 10005,
            "/v5/account/transaction-log": 0,
        }

    async def test_public_paths_need_no_key(self, asker: Asker) -> None:
        found = (await asker.http.get("/v5/market/time")).json()
        assert found["result"]["timeSecond"] == str(NOW_MS // 1_000)
        spot = (await asker.http.get("/v5/market/instruments-info?category=spot")).json()
        assert [row["symbol"] for row in spot["result"]["list"]][:2] == ["BTCUSDT", "ETHUSDT"]
        option = (await asker.http.get("/v5/market/instruments-info?category=option")).json()
        assert option["result"]["list"] == []


class TestWindows:
    """Permitted time ranges, and the default."""

    @pytest.mark.parametrize(
        ("path", "query", "code"),
        [
            (EXECUTIONS, f"category=spot&{window(7, 7)}", 0),
            (
                EXECUTIONS,
                f"category=spot&startTime={NOW_MS - 7 * DAY_MS - 1}&endTime={NOW_MS}",
                10001,
            ),
            (EXECUTIONS, f"category=spot&startTime={NOW_MS}&endTime={NOW_MS - 1}", 10001),
            (EXECUTIONS, "category=spot&startTime=x", 181006),
            (EXECUTIONS, "category=margin", 181001),
            (EXECUTIONS, "category=spot&limit=x", 181011),
            (EXECUTIONS, "category=spot&limit=0", 181011),
            (
                "/v5/asset/deposit/query-record",
                f"startTime={NOW_MS - 30 * DAY_MS}&endTime={NOW_MS}",
                10001,
            ),
            (
                "/v5/asset/deposit/query-record",
                f"startTime={NOW_MS - 30 * DAY_MS + 1000}&endTime={NOW_MS}",
                0,
            ),
            ("/v5/account/wallet-balance", "accountType=SPOT", 10001),
            ("/v5/asset/transfer/query-account-coins-balance", "accountType=UNIFIED", 131002),
        ],
    )
    async def test_ranges(self, asker: Asker, path: str, query: str, code: int) -> None:
        assert (await asker.ask(path, query))["retCode"] == code

    async def test_older_than_two_years_is_an_error_and_not_an_empty_list(
        self, asker: Asker
    ) -> None:
        old = NOW_MS - 731 * DAY_MS
        found = await asker.ask(EXECUTIONS, f"category=spot&startTime={old}&endTime={old + 5}")
        assert (found["retCode"], found["retMsg"]) == (10001, TOO_OLD)

    async def test_the_ledger_without_times_is_one_day(self, asker: Asker) -> None:
        rows = await asker.all_rows("/v5/account/transaction-log", "limit=50")
        oldest = min(int(row["transactionTime"]) for row in rows)
        assert oldest >= NOW_MS - DAY_MS
        week = await asker.all_rows("/v5/account/transaction-log", f"limit=50&{window()}")
        assert len(week) > len(rows)

    async def test_one_bound_gives_the_other(self, asker: Asker) -> None:
        start = NOW_MS - 20 * DAY_MS
        one = await asker.all_rows(EXECUTIONS, f"category=spot&limit=100&startTime={start}")
        both = await asker.all_rows(
            EXECUTIONS,
            f"category=spot&limit=100&startTime={start}&endTime={start + 7 * DAY_MS}",
        )
        end = await asker.all_rows(
            EXECUTIONS, f"category=spot&limit=100&endTime={start + 7 * DAY_MS}"
        )
        assert one == both == end

    async def test_deposits_compare_whole_seconds(self, asker: Asker) -> None:
        entry = ACCOUNT.deposits.entries[-1]
        second = entry.at_ms // 1_000 * 1_000
        for start in (second, second + 999):
            rows = await asker.all_rows(
                "/v5/asset/deposit/query-record", f"startTime={start}&endTime={start}", "rows"
            )
            assert str(entry.seq) in {row["id"] for row in rows}

    async def test_orders_without_fills_are_kept_a_day(self, asker: Asker) -> None:
        rows = await asker.all_rows("/v5/order/history", f"category=spot&limit=50&{window()}")
        old = [r for r in rows if int(r["createdTime"]) < NOW_MS - DAY_MS]
        assert old
        assert all(row["cumExecQty"] != "0" for row in old)

    async def test_withdrawals_to_users_are_hidden_by_default(self, asker: Asker) -> None:
        path, query = "/v5/asset/withdraw/query-record", f"{window(29, 29)}&limit=50"
        shown_types = {
            kind: {row["withdrawType"] for row in await asker.all_rows(path, query + more, "rows")}
            for kind, more in (("", ""), ("1", "&withdrawType=1"), ("2", "&withdrawType=2"))
        }
        assert shown_types == {"": {0}, "1": {1}, "2": {0, 1}}

    async def test_filters(self, asker: Asker) -> None:
        base = f"{window()}&limit=50"
        funding = await asker.all_rows(EXECUTIONS, f"category=linear&execType=Funding&{base}")
        assert {row["execType"] for row in funding} == {"Funding"}
        usdc = await asker.all_rows(EXECUTIONS, f"category=linear&settleCoin=USDC&{base}")
        assert {row["symbol"] for row in usdc} == {"BTCPERP"}
        coin = await asker.all_rows("/v5/account/transaction-log", f"currency=BTC&{base}")
        assert {row["currency"] for row in coin} == {"BTC"}
        filled = await asker.all_rows(
            "/v5/order/history", f"category=spot&orderStatus=Filled&symbol=BTCUSDT&{base}"
        )
        assert {(row["orderStatus"], row["symbol"]) for row in filled} <= {("Filled", "BTCUSDT")}


class TestPaging:
    """Newest first; cursors of Bybit's forms; an empty page at the end."""

    async def test_pages_are_the_whole_and_the_last_carries_a_cursor(self, asker: Asker) -> None:
        query = f"category=spot&{window()}"
        small = await asker.all_rows(EXECUTIONS, query + "&limit=7")
        large = await asker.all_rows(EXECUTIONS, query + "&limit=100")
        assert small == large
        times = [int(row["execTime"]) for row in large]
        assert times == sorted(times, reverse=True)
        last = (await asker.ask(EXECUTIONS, query + "&limit=100"))["result"]
        assert last["nextPageCursor"] != ""
        empty = (await asker.ask(EXECUTIONS, f"{query}&limit=100&cursor={last['nextPageCursor']}"))[
            "result"
        ]
        assert (empty["list"], empty["nextPageCursor"]) == ([], "")

    async def test_the_default_and_the_largest_page(self, asker: Asker) -> None:
        path, query = "/v5/account/transaction-log", window()
        assert len((await asker.ask(path, query))["result"]["list"]) == 20
        assert len((await asker.ask(path, query + "&limit=500"))["result"]["list"]) == 50
        strict = Asker(exchange(clamps_limits=False))
        assert (await strict.ask(path, query + "&limit=500"))["retCode"] == 10001

    async def test_cursors_look_like_bybits(self, asker: Asker) -> None:
        pairs = (await asker.ask(EXECUTIONS, f"category=spot&limit=2&{window()}"))["result"]
        first, last = pairs["list"][0], pairs["list"][-1]
        assert unquote(pairs["nextPageCursor"]) == (
            f"{first['execTime']}:{first['seq']},{last['execTime']}:{last['seq']}"
        )
        ids = (await asker.ask("/v5/asset/deposit/query-record", f"limit=2&{window(29, 29)}"))[
            "result"
        ]
        assert json.decode(b64decode(ids["nextPageCursor"])) == {
            "minID": int(ids["rows"][-1]["id"]),
            "maxID": int(ids["rows"][0]["id"]),
        }
        start = NOW_MS // 1_000 - 6 * 86_400
        number = (
            await asker.ask(
                "/v5/asset/fundinghistory",
                f"limit=2&createTimeFrom={start}&createTimeTo={NOW_MS // 1_000}",
            )
        )["result"]
        assert b64decode(number["nextPageCursor"]).isdigit()

    async def test_a_cursor_may_come_back_as_it_is_or_encoded_once_more(self, asker: Asker) -> None:
        query = f"category=spot&limit=2&{window()}"
        cursor = (await asker.ask(EXECUTIONS, query))["result"]["nextPageCursor"]
        as_it_is = (await asker.ask(EXECUTIONS, f"{query}&cursor={cursor}"))["result"]
        decoded = (await asker.ask(EXECUTIONS, f"{query}&cursor={unquote(cursor)}"))["result"]
        encoded = (await asker.ask(EXECUTIONS, f"{query}&cursor={quote(unquote(cursor))}"))[
            "result"
        ]
        assert as_it_is == decoded == encoded

    @pytest.mark.parametrize("cursor", ["x", "1:2", "e30%3D", "%ff"])
    async def test_a_cursor_of_nobody(self, asker: Asker, cursor: str) -> None:
        query = f"category=spot&limit=2&{window()}&cursor={cursor}"
        assert (await asker.ask(EXECUTIONS, query))["retCode"] == 10001

    async def test_a_cursor_of_another_query(self, asker: Asker) -> None:
        query = f"category=spot&limit=2&{window()}"
        cursor = (await asker.ask(EXECUTIONS, query))["result"]["nextPageCursor"]
        other = f"category=spot&limit=3&{window()}&cursor={cursor}"
        assert (await asker.ask(EXECUTIONS, other))["retCode"] == 10001

    async def test_rows_that_come_in_between_shift_pages_by_offset_and_no_others(self) -> None:
        for by_offset in (False, True):
            account = Account(HISTORY)
            asker = Asker(exchange(account, by_offset=by_offset))
            query = f"category=spot&limit=5&{window()}"
            first = (await asker.ask(EXECUTIONS, query))["result"]
            account.insert_execution("spot", int(first["list"][0]["execTime"]) + 1)
            second = (await asker.ask(EXECUTIONS, f"{query}&cursor={first['nextPageCursor']}"))[
                "result"
            ]
            repeated = first["list"][-1] == second["list"][0]
            assert repeated is by_offset


class TestLimits:
    """Rolling windows with their headers, and bans of addresses."""

    async def test_a_path_has_its_limit_and_says_what_is_left(self) -> None:
        now = [NOW_MS]
        asker = Asker(exchange(now_ms=lambda: now[0]))
        path = "/v5/asset/transfer/query-universal-transfer-list"
        for left in (4, 3, 2, 1, 0):
            response = await asker.send(path)
            assert response.headers["x-bapi-limit"] == "5"
            assert response.headers["x-bapi-limit-status"] == str(left)
        response = await asker.send(path)
        assert response.status_code == 200
        assert response.json()["retCode"] == 10006
        assert response.headers["x-bapi-limit-reset-timestamp"] == str(NOW_MS + 1_000)
        now[0] += 1_000
        asker.now_ms = now[0]
        assert (await asker.ask(path))["retCode"] == 0

    async def test_an_address_that_asks_too_much_is_banned(self) -> None:
        now = [NOW_MS]
        asker = Asker(exchange(now_ms=lambda: now[0], ip_ban_s=30.0))
        statuses = [(await asker.http.get("/v5/market/time")).status_code for _ in range(601)]
        assert statuses == [200] * 600 + [403]
        now[0] += 29_000
        banned = await asker.http.get("/v5/market/time")
        assert (banned.status_code, banned.text) == (403, "access too frequent")
        now[0] += 1_000
        assert (await asker.http.get("/v5/market/time")).status_code == 200


class TestFaults:
    """Injected faults."""

    @pytest.mark.parametrize(
        ("kind", "status", "code"),
        [
            ("10000", 200, 10000),
            ("10016", 200, 10016),
            ("10006", 200, 10006),
            ("429", 429, None),
            ("502", 502, None),
            ("string_ext", 200, 0),
            ("unknown_enum", 200, 0),
        ],
    )
    async def test_each(self, kind: str, status: int, code: int | None) -> None:
        simulated = exchange()
        simulated.faults.queue(EXECUTIONS, kind)
        asker = Asker(simulated)
        query = f"category=spot&{window()}"
        response = await asker.send(EXECUTIONS, query)
        assert response.status_code == status
        if code is not None:
            assert response.json()["retCode"] == code
        if kind == "string_ext":
            assert response.json()["retExtInfo"] == ""
        if kind == "unknown_enum":
            assert response.json()["result"]["list"][0]["execType"] == "SomethingFromTheFuture"
        assert simulated.faults.served == {(EXECUTIONS, kind): 1}
        assert (await asker.ask(EXECUTIONS, query))["retCode"] == 0

    async def test_half_a_body_a_reset_and_a_slow_one(self) -> None:
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)

        simulated = exchange(sleep=sleep, faults=AccountFaults(slow_s=3.0))
        asker = Asker(simulated)
        simulated.faults.queue("/v5/market/time", "truncated", "reset", "slow")
        with pytest.raises(ValueError, match=r"JSON|Expect|Unterminated|delimiter"):
            (await asker.http.get("/v5/market/time")).json()
        with pytest.raises(httpx.ReadError):
            await asker.http.get("/v5/market/time")
        assert (await asker.http.get("/v5/market/time")).status_code == 200
        assert waited == [3.0]

    async def test_a_share_of_all_at_random_and_the_same_for_a_seed(self) -> None:
        def drawn() -> list[str]:
            faults = AccountFaults(rate=0.3, kinds=("429", "502"), seed=9)
            return [faults.next("/x") for _ in range(200)]

        found = drawn()
        assert found == drawn()
        assert 30 < sum(map(bool, found)) < 90

    async def test_a_deposit_changes_late(self) -> None:
        account = Account(HISTORY)
        pending = account.pend_deposit(NOW_MS - DAY_MS)
        asker = Asker(exchange(account))
        path, query = "/v5/asset/deposit/query-record", window(2, 2)
        before = (await asker.ask(path, query))["result"]["rows"]
        assert {row["status"] for row in before} >= {1}
        pending.status, pending.credited_ms = 3, NOW_MS
        after = (await asker.ask(path, query))["result"]["rows"]
        assert str(NOW_MS) in {row["successAt"] for row in after}


async def test_the_retired_path_answers_by_its_mode() -> None:
    path = "/v5/spot-lever-token/order-record"
    for mode, status, rows in (("missing", 404, None), ("empty", 200, 0), ("rows", 200, 0)):
        response = await Asker(exchange(retired=mode)).send(path)
        assert response.status_code == status
        if rows is not None:
            assert len(response.json()["result"]["list"]) == rows


async def test_the_retired_path_has_rows_where_it_still_lives() -> None:
    from onebook.simulator.accounts.bybit.facts import Moved

    account = Account(HISTORY)
    moved = Moved("serial", "BTC3L", UNIT, "", "", "", "")
    account.token_orders.append(NOW_MS - DAY_MS, 5, moved)
    found = await Asker(exchange(account, retired="rows")).ask("/v5/spot-lever-token/order-record")
    assert found["result"]["list"][0]["ltCoin"] == "BTC3L"


async def test_unknown_paths_and_other_scopes() -> None:
    asker = Asker(exchange())
    assert (await asker.send("/v5/nothing/here")).status_code == 404
    await exchange()({"type": "lifespan"}, None, None)  # type: ignore[arg-type]


async def test_who_the_key_belongs_to(asker: Asker) -> None:
    found = (await asker.ask("/v5/user/query-api"))["result"]
    assert found["readOnly"] == 1
    assert found["permissions"]["Wallet"] == ["AccountTransfer", "SubMemberTransfer"]
    assert (await asker.ask("/v5/asset/coin/query-info"))["result"]["rows"]
    convert = "/v5/asset/exchange/query-convert-history"
    assert (await asker.ask(convert))["result"] == {"list": []}


async def test_it_answers_on_a_port_and_is_gone_after() -> None:
    async with serving(exchange()) as url, httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/v5/market/time")).status_code == 200
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{url}/v5/market/time")


async def test_the_demos_account_opens_with_its_key() -> None:
    async with demo() as place:
        assert place.key.secret not in repr(place.key)
        assert len(place.exchange.account.ledger) > 1_000
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{place.url}/v5/market/time")).json()["retCode"] == 0


async def test_the_way_there_takes_its_time() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    transport = SimulatedTransport(exchange(), latency_s=0.2, sleep=sleep)
    async with httpx.AsyncClient(transport=transport, base_url="http://simulated") as client:
        await client.get("/v5/market/time")
    assert waited == [0.1, 0.1]
    assert (transport.requests, transport.in_flight) == (1, 0)

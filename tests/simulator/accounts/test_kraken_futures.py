"""The simulated Kraken Futures API is true to Kraken's: signatures, pools, its log, its errors."""

from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from msgspec import json

from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.history import shown
from onebook.simulator.accounts.kraken import SimulatedFuturesKey
from onebook.simulator.accounts.kraken.futures_server import FUTURES_FAULTS
from onebook.simulator.accounts.kraken.keys import futures_signature
from onebook.simulator.accounts.kraken.names import MS_TICKS, uuid_of
from simulator.accounts.kraken_client import (
    ACCOUNT,
    FUTURES_KEY,
    KEY,
    NOW_MS,
    SECRET,
    FuturesClient,
    futures,
)

LOG = list(ACCOUNT.rows("log"))
FILLS = list(ACCOUNT.rows("fills"))
LOG_PATH = "/api/history/v3/account-log"
decoder = json.Decoder(float_hook=Decimal)


@pytest.fixture
async def client() -> Any:
    client = FuturesClient(futures(limited=False))
    yield client
    await client.http.aclose()


class TestSignatures:
    def test_the_vectors(self) -> None:
        query = "since=1700000000000&before=1700086400000&sort=asc&count=500"
        assert futures_signature(SECRET, LOG_PATH, query) == (
            "sIntuE7ZlMwYZX7hDXOIsgivlC/Rn/GApCMAe7RMHt8lcxWxH904fuEnBqsG+Wxtg1l5lVp3+iFrCTM6te2Esg=="
        )
        path = "/derivatives/api/v3/accounts"
        assert futures_signature(SECRET, path, "") == (
            "nJH9pTKkNbq08nxmP9E1eRLJOXsXZEQWSB4zXBICD91l16ZzyGddRkBKrB55ZwPEwFQy+iSRX9DQMNlD5OmKEA=="
        )
        assert futures_signature(SECRET, path, "", "1700000000000") == (
            "SS90WJJ27jflPDQSNcJ2JndHqDa+IUuvU1jQ0AtWQgjJ2iR/552DGasinEkUNxPym4QmoujcQfDOH8Ytath4KA=="
        )

    async def test_keys_of_the_spot_side_do_not_open_it(self) -> None:
        stranger = FuturesClient(futures(), SimulatedFuturesKey(KEY.api_key, SECRET))
        body = json.decode((await stranger.send("/derivatives/api/v3/accounts")).content)
        assert (body["result"], body["error"]) == ("error", "authenticationError")
        assert (await stranger.send(LOG_PATH)).status_code == 401
        await stranger.http.aclose()

    async def test_a_nonce_is_optional_and_must_rise(self, client: FuturesClient) -> None:
        async def error(nonce: str) -> str:
            response = await client.send("/derivatives/api/v3/accounts", nonce=nonce)
            return json.decode(response.content).get("error", "")

        assert [await error(each) for each in ("5", "5", "4", "6", "")] == [
            "", "nonceDuplicate", "nonceBelowThreshold", "", "",
        ]  # fmt: skip

    async def test_a_key_without_access_is_known_but_may_not_read(self) -> None:
        key = SimulatedFuturesKey("bare", SECRET, access="none")
        client = FuturesClient(futures(key=key), key)
        body = json.decode((await client.send("/derivatives/api/v3/fills")).content)
        assert body["error"] == "insufficientPrivileges"
        assert (await client.send(LOG_PATH)).status_code == 403
        await client.http.aclose()

    async def test_a_key_is_checked(self, client: FuturesClient) -> None:
        body = await client.ask("/api/auth/v1/api-keys/v3/check")
        assert body["apiKey"] == FUTURES_KEY.api_key
        assert body["permissions"] == {"general": "read-only", "withdrawal": "none"}


class TestLog:
    async def test_a_walk_by_ids_has_every_row(self, client: FuturesClient) -> None:
        rows = list(await client.walk_log(count=200))
        assert [row["id"] for row in rows] == [row.seq for row in LOG]

    async def test_balances_are_exact_in_the_text_of_the_floats(
        self, client: FuturesClient
    ) -> None:
        response = await client.send(LOG_PATH, "count=100000&sort=asc")
        for shown_row, row in zip(decoder.decode(response.content)["logs"], LOG, strict=True):
            assert Decimal(shown_row["new_balance"]) == Decimal(shown(row.new))
            for name, units in (("fee", row.fee), ("realized_pnl", row.pnl),
                                ("funding_rate", row.rate)):  # fmt: skip
                found = shown_row[name]
                assert found == (None if units is None else Decimal(shown(units)))
        assert b"e-0" in response.content

    @pytest.mark.parametrize("ascending", [True, False])
    async def test_bounds_are_inclusive_by_id_and_by_time(
        self, client: FuturesClient, ascending: bool
    ) -> None:
        order = "asc" if ascending else "desc"
        low, high = LOG[40], LOG[90]
        by_id = await client.ask(LOG_PATH, f"from={low.seq}&to={high.seq}&sort={order}")
        expected = [row.seq for row in LOG[40:91]]
        assert [row["id"] for row in by_id["logs"]] == (expected if ascending else expected[::-1])
        since, before = low.time // MS_TICKS, high.time // MS_TICKS
        by_time = await client.ask(LOG_PATH, f"since={since}&before={before}&sort={order}")
        expected = [row.seq for row in LOG if low.time <= row.time <= high.time]
        assert sorted(row["id"] for row in by_time["logs"]) == expected
        both = await client.ask(LOG_PATH, f"since={since}&to={high.seq - 1}&count=3&sort={order}")
        within = [row.seq for row in LOG if row.time >= low.time and row.seq < high.seq]
        picked = within[:3] if ascending else within[:-4:-1]
        assert [row["id"] for row in both["logs"]] == picked

    async def test_infos_are_repeated_and_signed_as_sent(self, client: FuturesClient) -> None:
        query = f"info={quote('funding rate change')}&info=conversion&count=100000"
        body = await client.ask(LOG_PATH, query)
        assert {row["info"] for row in body["logs"]} == {"funding rate change", "conversion"}
        assert len(body["logs"]) == sum(
            row.info in ("funding rate change", "conversion") for row in LOG
        )
        detailed = await client.ask(LOG_PATH, "info=conversion&conversion_details=true")
        assert {"exchange_rate", "exchange_rate_from", "conversion_fee"} <= detailed["logs"][
            0
        ].keys()

    async def test_the_default_page_and_the_largest(self, client: FuturesClient) -> None:
        assert len((await client.ask(LOG_PATH))["logs"]) == min(500, len(LOG))
        assert (await client.send(LOG_PATH, "count=100001")).status_code == 400

    async def test_a_file_has_them_newest_first(self, client: FuturesClient) -> None:
        text = (await client.send("/api/history/v3/accountlogcsv")).text
        lines = text.splitlines()
        assert len(lines) == len(LOG) + 1
        assert "booking_uid" in lines[0]


class TestLists:
    async def test_fills_page_by_time_and_have_no_fee(self, client: FuturesClient) -> None:
        path = "/derivatives/api/v3/fills"
        first = (await client.ask(path))["fills"]
        assert [row["fill_id"] for row in first] == [
            uuid_of("fill", row.seq) for row in FILLS[: -101:-1]
        ]  # fmt: skip
        assert not any("fee" in row for row in first)
        following = (await client.ask(path, f"lastFillTime={first[-1]['fillTime']}"))["fills"]
        assert all(row["fillTime"] < first[-1]["fillTime"] for row in following)

    @pytest.mark.parametrize(("name", "version"), [("executions", 3), ("executions", 2),
                                                   ("positions", 3)])  # fmt: skip
    async def test_events_are_walked_by_tokens(
        self, client: FuturesClient, name: str, version: int
    ) -> None:
        path, token, found = f"/api/history/v{version}/{name}", "", []
        while True:
            query = f"count=30&sort=asc{token and f'&continuation_token={quote(token)}'}"
            response = await client.send(path, query)
            body = response.json()
            assert body["len"] == len(body["elements"])
            found += body["elements"]
            token = body.get("continuationToken", "")
            assert response.headers.get("next-continuation-token", "") == token
            if not token:
                break
        assert len(found) == len(FILLS)
        one = FILLS[0].contract.symbol
        some = (await client.ask(path, f"tradeable={one}&count=1000"))["elements"]
        assert len(some) == sum(row.contract.symbol == one for row in FILLS)

    async def test_accounts_are_what_the_log_ends_with(self, client: FuturesClient) -> None:
        response = await client.send("/derivatives/api/v3/accounts")
        accounts = decoder.decode(response.content)["accounts"]
        held = {place: Decimal(shown(n)) for place, n in ACCOUNT.balances().items()}
        for asset, name in (("usd", "USD"), ("usdt", "USDT"), ("xbt", "BTC")):
            assert accounts["flex"]["currencies"][name]["quantity"] == held["flex", asset]
        assert accounts["fi_xbtusd"]["balances"]["xbt"] == held["fi_xbtusd", "xbt"]
        assert accounts["cash"]["balances"]["eth"] == held["cash", "eth"]

    async def test_positions_are_the_sizes_of_the_log(self, client: FuturesClient) -> None:
        found = (await client.ask("/derivatives/api/v3/openpositions"))["openPositions"]
        sizes = {row.asset: row.new for row in LOG if row.asset == row.contract}
        expected = {asset.upper(): size for asset, size in sizes.items() if size}
        assert {row["symbol"] for row in found} == expected.keys()
        for row in found:
            sign = 1 if row["side"] == "long" else -1
            assert sign * row["size"] == pytest.approx(expected[row["symbol"]] / 10**12)


class TestLimits:
    @pytest.mark.parametrize(
        ("count", "pages"), [(25, 100), (50, 50), (500, 33), (5_000, 16), (100_000, 10)]
    )
    async def test_pages_of_the_log_cost_by_their_size(self, count: int, pages: int) -> None:
        now = [NOW_MS]
        client = FuturesClient(futures(now_ms=lambda: now[0]))
        query = f"count={count}&info=nothing"
        for _ in range(pages):
            await client.ask(LOG_PATH, query)
        refused = await client.send(LOG_PATH, query)
        assert refused.status_code == 429
        assert refused.headers["content-type"].startswith("text/plain")
        now[0] += 1_000 * int(refused.headers["rate-limit-reset"])
        await client.ask(LOG_PATH, query)
        await client.http.aclose()

    async def test_the_other_pool_refuses_in_its_own_words(self) -> None:
        client = FuturesClient(futures())
        for _ in range(20):
            await client.ask("/derivatives/api/v3/fills", "lastFillTime=2020-01-01T00:00:00.000Z")
        response = await client.send("/derivatives/api/v3/accounts")
        assert response.status_code == 200
        assert json.decode(response.content)["error"] == "apiLimitExceeded"
        await client.ask(LOG_PATH)  # history has a pool of its own
        await client.http.aclose()

    async def test_an_account_that_was_never_activated(self) -> None:
        client = FuturesClient(futures(active=False))
        response = await client.send("/derivatives/api/v3/accounts")
        assert json.decode(response.content)["error"] == "accountInactive"
        assert (await client.ask(LOG_PATH))["logs"] == []
        await client.http.aclose()

    @pytest.mark.parametrize("fault", FUTURES_FAULTS)
    async def test_faults(self, fault: str) -> None:
        async def sleep(seconds: float) -> None:
            assert seconds == 1.0

        faults = AccountFaults()
        client = FuturesClient(futures(faults=faults, sleep=sleep))
        faults.queue(LOG_PATH, fault)
        if fault == "reset":
            with pytest.raises(httpx.ReadError):
                await client.send(LOG_PATH)
        else:
            response = await client.send(LOG_PATH)
            expected = {"429": 429, "502": 502, "truncated": 200, "slow": 200}
            assert response.status_code == expected.get(fault, 500)
        await client.ask(LOG_PATH)
        await client.http.aclose()

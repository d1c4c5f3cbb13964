"""The simulated Kraken spot API is true to Kraken's: signatures, limits, lists, faults."""

import asyncio
import csv
import io
import zipfile
from collections import Counter
from typing import Any

import httpx
import pytest
from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedKrakenKey,
    demo,
)
from onebook.simulator.accounts.kraken.facts import Movement
from onebook.simulator.accounts.kraken.keys import spot_signature
from onebook.simulator.accounts.kraken.names import ASSETS, MS_TICKS, PAIRS, TICKS, id_of
from onebook.simulator.accounts.kraken.rows import fixed, movement, number
from onebook.simulator.accounts.kraken.server import FAULTS, PERMISSIONS, consolidated
from simulator.accounts.kraken_client import ACCOUNT, HISTORY, KEY, NOW_MS, SECRET, SpotClient, spot

LEDGER = list(ACCOUNT.ledger())


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
async def client() -> Any:
    client = SpotClient(spot(limited=False))
    yield client
    await client.http.aclose()


class TestSignatures:
    def test_the_vectors_of_the_documentation(self) -> None:
        body = b"nonce=1616492376594&ordertype=limit&pair=XBTUSD&price=37500&type=buy&volume=1.25"
        assert spot_signature(SECRET, "/0/private/AddOrder", "1616492376594", body) == (
            "4/dpxb3iT4tp/ZCVEwSnEsLxx0bqyhLpdfOpc6fn7OR8+UClSV5n9E6aSS8MPtnRfp32bAb0nmbRn6H8ndwLUQ=="
        )
        body = b"nonce=1700000000000000000&ofs=50&start=1688000000&end=1690000000&type=all"
        assert spot_signature(SECRET, "/0/private/Ledgers", "1700000000000000000", body) == (
            "paYj6Rh05kYOvzuE5qaSJ/LrFFmnvLO1y+/V3yGINzldsFPop+12g3wq2cFjp/UO+i8JuzsedGM1s1Y9PxSa5Q=="
        )

    async def test_a_wrong_signature_key_or_method_is_refused(self, client: SpotClient) -> None:
        assert await client.error("Balance", sign="bm8=") == "EAPI:Invalid signature"
        stranger = SpotClient(spot(), SimulatedKrakenKey("nobody", SECRET))
        assert await stranger.error("Balance") == "EAPI:Invalid key"
        response = await client.http.get("/0/private/Balance")
        assert json.decode(response.content) == {"error": ["EAPI:Bad request"]}
        assert await client.error("Nothing") == "EGeneral:Unknown method"
        await stranger.http.aclose()

    async def test_a_json_body_is_read_as_well(self, client: SpotClient) -> None:
        body = b'{"nonce": 1900000000000, "ofs": 10, "without_count": true}'
        sign = spot_signature(SECRET, "/0/private/Ledgers", "1900000000000", body)
        headers = {"API-Key": KEY.api_key, "API-Sign": sign, "Content-Type": "application/json"}
        response = await client.http.post("/0/private/Ledgers", content=body, headers=headers)
        assert "count" not in json.decode(response.content)["result"]


class TestNonces:
    async def test_a_nonce_must_rise_for_each_key(self, client: SpotClient) -> None:
        await client.ask("Balance", nonce=10**18)
        assert await client.error("Balance", nonce=10**18) == "EAPI:Invalid nonce"
        # Nanoseconds once, and milliseconds are refused for ever.
        assert await client.error("Balance", nonce=NOW_MS) == "EAPI:Invalid nonce"
        await client.ask("Balance", nonce=10**18 + 1)
        assert await client.error("Balance", nonce=2**64) == "EAPI:Invalid nonce"

    async def test_a_window_lets_a_late_one_pass_once(self) -> None:
        key = SimulatedKrakenKey("windowed", SECRET, nonce_window=10)
        client = SpotClient(spot(key=key), key)
        for nonce, valid in ((100, True), (95, True), (95, False), (90, False), (99, True)):
            response = json.decode((await client.send("Balance", nonce=nonce)).content)
            assert (response["error"] == []) is valid, nonce
        info = await client.ask("GetApiKeyInfo", nonce=101)
        assert (info["nonce"], info["nonce_window"]) == ("101", "10")
        await client.http.aclose()

    async def test_too_many_bad_ones_lock_the_key_out_and_asking_prolongs_it(self) -> None:
        clock = Clock()
        client = SpotClient(spot(now_ms=clock))
        await client.ask("Balance", nonce=500)
        for _ in range(10):
            assert await client.error("Balance", nonce=1) == "EAPI:Invalid nonce"
        assert await client.error("Balance", nonce=501) == "EGeneral:Temporary lockout"
        clock.ms += 890_000
        assert await client.error("Balance", nonce=502) == "EGeneral:Temporary lockout"
        clock.ms += 890_000
        assert await client.error("Balance", nonce=503) == "EGeneral:Temporary lockout"
        clock.ms += 900_000
        await client.ask("Balance", nonce=504)
        await client.http.aclose()

    async def test_unknown_keys_lock_their_address_out(self) -> None:
        client = SpotClient(spot(), SimulatedKrakenKey("nobody", SECRET))
        errors = [await client.error("Balance") for _ in range(11)]
        assert errors == ["EAPI:Invalid key"] * 10 + ["EGeneral:Temporary lockout"]
        await client.http.aclose()


class TestLimits:
    @pytest.mark.parametrize(
        ("tier", "pages", "seconds"), [("starter", 7, 7), ("intermediate", 10, 4), ("pro", 10, 2)]
    )
    async def test_a_page_costs_two_and_the_counter_sinks(
        self, tier: str, pages: int, seconds: int
    ) -> None:
        clock = Clock()
        client = SpotClient(spot(now_ms=clock, tier=tier))
        for _ in range(pages):
            await client.ask("Ledgers")
        assert await client.error("Ledgers") == "EAPI:Rate limit exceeded"
        clock.ms += seconds * 1_000
        await client.ask("Ledgers")
        assert await client.error("Ledgers") == "EAPI:Rate limit exceeded"
        await client.http.aclose()

    async def test_other_requests_cost_one_and_are_counted_with_them(self) -> None:
        client = SpotClient(spot())
        for _ in range(7):
            await client.ask("TradesHistory")
        await client.ask("Balance")
        assert await client.error("Balance") == "EAPI:Rate limit exceeded"
        await client.http.aclose()

    async def test_an_address_has_a_limit_of_public_requests(self) -> None:
        clock = Clock()
        client = SpotClient(spot(now_ms=clock))
        for _ in range(15):
            await client.public("Time")
        body = json.decode((await client.http.get("/0/public/Time")).content)
        assert body == {"error": ["EGeneral:Too many requests"]}
        clock.ms += 1_000
        assert (await client.public("Time"))["unixtime"] == clock.ms // 1_000
        await client.http.aclose()


class TestPermissions:
    @pytest.mark.parametrize("name", [name for name, needed in PERMISSIONS.items() if needed])
    async def test_a_key_needs_the_permission_of_an_endpoint(self, name: str) -> None:
        key = SimulatedKrakenKey("bare", SECRET, permissions=())
        client = SpotClient(spot(key=key), key)
        assert await client.error(name) == "EGeneral:Permission denied"
        await client.http.aclose()

    async def test_a_key_describes_itself_without_any(self) -> None:
        key = SimulatedKrakenKey("bare", SECRET, permissions=(), query_from_s=1_700_000_000)
        client = SpotClient(spot(key=key), key)
        info = await client.ask("GetApiKeyInfo")
        assert info["permissions"] == []
        assert (info["query_from"], info["query_to"], info["valid_until"]) == (
            "1700000000", "0", "0",
        )  # fmt: skip
        await client.http.aclose()

    async def test_an_expired_key_is_unknown(self) -> None:
        key = SimulatedKrakenKey("old", SECRET, valid_until_s=NOW_MS // 1_000)
        client = SpotClient(spot(key=key), key)
        assert await client.error("Balance") == "EAPI:Invalid key"
        await client.http.aclose()

    async def test_the_dates_of_a_key_cut_its_lists_in_silence(self) -> None:
        from_s, to_s = (
            HISTORY.from_ms // 1_000 + 400 * 86_400,
            HISTORY.to_ms // 1_000 - 100 * 86_400,
        )
        key = SimulatedKrakenKey("dated", SECRET, query_from_s=from_s, query_to_s=to_s)
        client = SpotClient(spot(key=key, limited=False), key)
        found = await client.walk("Ledgers", "ledger")
        seen = [row for row in LEDGER if from_s * TICKS <= row.time <= to_s * TICKS]
        assert found.keys() == {id_of("L", row.seq) for row in seen}
        assert 0 < len(seen) < len(LEDGER)
        trades = await client.walk("TradesHistory", "trades", consolidate_taker="false")
        assert all(from_s <= row["time"] <= to_s for row in trades.values())
        hidden = id_of("L", LEDGER[0].seq)
        assert await client.ask("QueryLedgers", id=hidden) == {}
        everything = await client.ask("Balance")  # holdings are those of now
        assert everything == await SpotClient(spot()).ask("Balance")
        deposits = (await client.ask("DepositStatus", cursor="true", limit=500))["deposit"]
        assert all(from_s <= row["time"] <= to_s for row in deposits)
        await client.http.aclose()


class TestLedgers:
    async def test_a_walk_along_offsets_has_every_row(self, client: SpotClient) -> None:
        found = await client.walk("Ledgers", "ledger")
        assert len(found) == len(LEDGER)
        for row in LEDGER:
            shown = found[id_of("L", row.seq)]
            asset = ASSETS[row.asset]
            assert shown["amount"] == fixed(row.amount, asset.decimals)
            assert shown["balance"] == fixed(row.balance, asset.decimals)
            assert shown["aclass"] == asset.aclass
            assert shown["asset"] == row.asset

    async def test_pages_are_of_fifty_newest_first_in_no_order_of_keys(
        self, client: SpotClient
    ) -> None:
        first = await client.ask("Ledgers")
        assert first["count"] == len(LEDGER)
        assert first["ledger"].keys() == {id_of("L", row.seq) for row in LEDGER[-50:]}
        newest_first = [id_of("L", row.seq) for row in reversed(LEDGER[-50:])]
        assert list(first["ledger"]) != newest_first
        sorted_client = SpotClient(spot(shuffled=False))
        assert list((await sorted_client.ask("Ledgers"))["ledger"]) == newest_first
        assert len((await client.ask("Ledgers", ofs=len(LEDGER) - 3))["ledger"]) == 3
        assert (await client.ask("Ledgers", ofs=len(LEDGER)))["ledger"] == {}
        await sorted_client.http.aclose()

    async def test_start_is_exclusive_and_end_inclusive(self, client: SpotClient) -> None:
        row = next(row for row in LEDGER[900:] if row.time % TICKS)
        text = f"{row.time // TICKS}.{row.time % TICKS:07}"
        at = {each.seq for each in LEDGER if each.time == row.time}
        ids = {id_of("L", seq) for seq in at}
        from_it = (await client.ask("Ledgers", end=text, without_count="true"))["ledger"]
        assert ids <= from_it.keys()
        low, high = row.time // TICKS - 86_400, row.time // TICKS + 86_400
        after = await client.ask("Ledgers", start=text, end=high)
        assert after["count"] == sum(row.time < r.time <= high * TICKS for r in LEDGER)
        before = await client.ask("Ledgers", start=low, end=text)
        assert before["count"] == sum(low * TICKS < r.time <= row.time for r in LEDGER)
        # Whole seconds cut within a second.
        assert not ids & (await client.ask("Ledgers", end=row.time // TICKS))["ledger"].keys()

    async def test_bounds_may_be_ids(self, client: SpotClient) -> None:
        first, last = LEDGER[300], LEDGER[340]
        bounds = {"start": id_of("L", first.seq), "end": id_of("L", last.seq)}
        found = (await client.ask("Ledgers", **bounds))["ledger"]
        assert found.keys() == {id_of("L", row.seq) for row in LEDGER[301:341]}
        error = await client.error("Ledgers", start="L4UESK-KG3EQ-UFO4T5")
        assert error.startswith("EGeneral:Invalid arguments")

    async def test_filters(self, client: SpotClient) -> None:
        deposits = await client.ask("Ledgers", type="deposit")
        assert deposits["count"] == sum(row.type == "deposit" for row in LEDGER)
        assert {row["type"] for row in deposits["ledger"].values()} == {"deposit"}
        two = await client.ask("Ledgers", asset="XBT,ZEUR")
        assert two["count"] == sum(row.asset in ("XXBT", "ZEUR") for row in LEDGER)
        nfts = await client.ask("Ledgers", type="nft_rebate")
        assert nfts["count"] == sum(row.type == "nftrebate" for row in LEDGER)
        # There is no filter of earn, spend and receive.
        assert await client.error("Ledgers", type="earn") == "EGeneral:Invalid arguments:type"
        assert await client.error("Ledgers", asset="NOTHING") == "EQuery:Unknown asset"

    async def test_count_can_be_wrong_under_filters(self) -> None:
        client = SpotClient(spot(wrong_counts=True))
        found = await client.ask("Ledgers", type="deposit")
        assert found["count"] == len(LEDGER) > len(found["ledger"])
        await client.http.aclose()

    async def test_rows_arrive_while_it_is_walked(self) -> None:
        account = KrakenAccount(KrakenHistory(NOW_MS - 300 * DAY_MS, NOW_MS, rows=500))
        exchange = spot(account, limited=False)
        client, second = SpotClient(exchange), [0]

        def arrive(name: str) -> None:
            second[0] += 1
            account.happen("order", NOW_MS + second[0] * 1_000)

        old = {id_of("L", row.seq) for row in account.ledger()}
        exchange.before_page = arrive
        seen: Counter[str] = Counter()
        offset = 0
        while True:
            page = (await client.ask("Ledgers", ofs=offset))["ledger"]
            seen.update(page.keys())
            offset += len(page)
            if len(page) < 50:
                break
        assert old <= seen.keys()  # nothing is lost,
        assert max(seen.values()) > 1  # and rows come again
        await client.http.aclose()

    async def test_rows_by_id_are_at_most_twenty(self, client: SpotClient) -> None:
        names = [id_of("L", row.seq) for row in LEDGER[100:120]]
        found = await client.ask("QueryLedgers", id=",".join(names))
        assert found.keys() == set(names)
        assert "refid" in found[names[0]]
        many = ",".join([*names, names[0]])
        assert await client.error("QueryLedgers", id=many) == "EGeneral:Invalid arguments:id"


class TestTrades:
    async def test_a_walk_has_every_fill_unless_takers_are_consolidated(
        self, client: SpotClient
    ) -> None:
        trades = list(ACCOUNT.rows("trades"))
        found = await client.walk(
            "TradesHistory", "trades", consolidate_taker="false", ledgers="true"
        )
        assert found.keys() == {id_of("T", row.seq) for row in trades}
        refids = {row.reference for row in LEDGER if row.type in ("trade", "margin")}
        assert refids <= found.keys()
        for row in trades:
            shown = found[id_of("T", row.seq)]
            assert shown["ledgers"] == [id_of("L", seq) for seq in row.ledger]
        merged = consolidated(trades)
        assert len(merged) < len(trades)
        assert sum(row.volume for row in merged) == sum(row.volume for row in trades)
        assert {row.seq for row in merged} < {row.seq for row in trades}

    async def test_types_of_positions(self, client: SpotClient) -> None:
        trades = list(ACCOUNT.rows("trades"))
        counts = {
            name: (await client.ask("TradesHistory", type=name))["count"]
            for name in ("all", "no position", "any position", "closed position",
                         "closing position")
        }  # fmt: skip
        assert counts["all"] == len(trades)
        assert counts["any position"] == sum(row.margin > 0 for row in trades)
        assert counts["no position"] + counts["any position"] == counts["all"]
        assert counts["closed position"] + counts["closing position"] == counts["any position"]
        opened = await client.walk("TradesHistory", "trades", type="closed position")
        assert {row["posstatus"] for row in opened.values()} <= {"open", "closed"}

    async def test_a_delisted_pair_is_only_a_name(self, client: SpotClient) -> None:
        pairs = await client.public("AssetPairs")
        found = await client.walk("TradesHistory", "trades", consolidate_taker="false")
        names = {row["pair"] for row in found.values()}
        assert "REPEUR" in names - pairs.keys()
        assert pairs.keys() == {pair.id for pair in PAIRS.values() if pair.open(NOW_MS * MS_TICKS)}
        assets = await client.public("Assets")
        assert "XICN" not in assets  # which the ledger has
        assert assets["XXBT"]["altname"] == "XBT"
        assert not any(name.endswith(".T") for name in assets)
        tokens = await client.public("Assets", aclass="tokenized_asset")
        assert {row["aclass"] for row in tokens.values()} == {"tokenized_asset"}

    async def test_orders_are_closed_or_cancelled(self, client: SpotClient) -> None:
        found = await client.walk("ClosedOrders", "closed", trades="true")
        assert len(found) == sum(1 for _ in ACCOUNT.rows("orders"))
        assert {row["status"] for row in found.values()} == {"closed", "canceled"}
        fills = {name for row in found.values() for name in row["trades"]}
        assert fills == {id_of("T", row.seq) for row in ACCOUNT.rows("trades")}

    async def test_trades_by_id(self, client: SpotClient) -> None:
        row = next(iter(ACCOUNT.rows("trades")))
        found = await client.ask("QueryTrades", txid=id_of("T", row.seq))
        assert found[id_of("T", row.seq)]["type"] == row.side


class TestFunding:
    @pytest.mark.parametrize(
        ("name", "key", "shown"),
        [("DepositStatus", "deposit", 25), ("WithdrawStatus", "withdrawals", 500)],
    )
    async def test_the_plain_list_is_cut_and_cursors_lead_to_the_end(
        self, client: SpotClient, name: str, key: str, shown: int
    ) -> None:
        moves = [each for each in ACCOUNT.movements if each.incoming == (key == "deposit")]
        plain = await client.ask(name)
        assert len(plain) == min(shown, len(moves))
        assert [row["time"] for row in plain] == sorted((r["time"] for r in plain), reverse=True)
        found: list[dict[str, Any]] = []
        cursor = "true"
        while cursor:
            page = await client.ask(name, cursor=cursor, limit=7)
            found += page[key]
            cursor = page["next_cursor"]
        assert {row["refid"] for row in found} == {each.refid for each in moves}
        assert len(found) == len(moves)

    async def test_references_are_those_of_the_ledger(self, client: SpotClient) -> None:
        booked = {row.refid for row in LEDGER if row.type in ("deposit", "withdrawal")}
        listed = (await client.ask("DepositStatus", cursor="true", limit=500))["deposit"]
        listed += (await client.ask("WithdrawStatus", cursor="true", limit=500))["withdrawals"]
        assert booked <= {row["refid"] for row in listed}
        by_status = Counter(row["status"] for row in listed)
        assert by_status.keys() >= {"Success", "Failure"}
        refused = [row for row in listed if row["refid"] not in booked]
        assert {row["status"] for row in refused} <= {"Failure", "Pending", "Settled", "Initial"}
        props = {row.get("status-prop") for row in listed}
        assert props >= {None, "on-hold", "return", "canceled"}
        assert any("fee" not in row for row in listed)
        assert {row["refid"][:1] for row in listed} >= {"Q", "F"}

    async def test_amounts_are_net_of_the_fee(self, client: SpotClient) -> None:
        rows = {row.refid: row for row in reversed(LEDGER) if row.type == "withdrawal"}
        listed = (await client.ask("WithdrawStatus", cursor="true"))["withdrawals"]
        for row in listed:
            booked, decimals = rows[row["refid"]], ASSETS[row["asset"]].decimals
            assert row["amount"] == fixed(-booked.amount, decimals)
            assert row["fee"] == fixed(booked.fee, decimals)

    async def test_bounds_are_inclusive(self, client: SpotClient) -> None:
        row = (await client.ask("DepositStatus"))[5]
        found = await client.ask("DepositStatus", start=row["time"], end=row["time"])
        assert row["refid"] in [each["refid"] for each in found]
        assert await client.ask("DepositStatus", asset="XBT", end=1) == []

    async def test_the_lists_can_forget(self) -> None:
        client = SpotClient(spot(funding_days=90))
        found = (await client.ask("DepositStatus", cursor="true", limit=500))["deposit"]
        assert all(row["time"] >= NOW_MS // 1_000 - 90 * 86_400 for row in found)
        assert len(found) < sum(each.incoming for each in ACCOUNT.movements)
        await client.http.aclose()

    def test_a_deposit_is_settled_before_it_is_credited(self) -> None:
        at = NOW_MS * MS_TICKS
        move = Movement(1, True, "Q1", "XXDG", "Dogecoin", "Dogecoin", 997 * 10**12, 0, True, at,
                        at + 3_000 * TICKS)  # fmt: skip
        after = {
            seconds: movement(move, at + seconds * TICKS) for seconds in (1, 900, 2_800, 3_000)
        }
        assert [row["status"] for row in after.values()] == [
            "Initial", "Pending", "Settled", "Success",
        ]  # fmt: skip
        assert after[1]["txid"] is None is not after[900]["txid"]
        assert after[3_000]["amount"] == "997.00000000"


class TestSnapshots:
    async def test_balances_are_what_the_ledger_ends_with(self, client: SpotClient) -> None:
        last = {row.asset: row.balance for row in LEDGER}
        found = await client.ask("Balance")
        expected = {name: fixed(n, ASSETS[name].decimals) for name, n in last.items() if n}
        assert found == expected
        extended = await client.ask("BalanceEx")
        assert {name: row["balance"] for name, row in extended.items()} == expected
        assert float(extended["XXBT"]["hold_trade"]) > 0

    async def test_earn_and_margin(self, client: SpotClient) -> None:
        items, cursor = [], ""
        while cursor is not None:
            page = await client.ask("Earn/Allocations", cursor=cursor)
            items += page["items"]
            cursor = page["next_cursor"]
        held = await client.ask("Balance")
        allocated = [row["amount_allocated"]["total"]["native"] for row in items]
        products = (".S", ".B", ".F", ".M")
        assert sorted(allocated) == sorted(n for name, n in held.items() if name.endswith(products))
        pages = [await client.ask("Earn/Strategies", cursor=str(n)) for n in (0, 4, 8, 12)]
        strategies = {row["id"] for page in pages for row in page["items"]}
        assert {row["strategy_id"] for row in items} <= strategies
        positions = await client.ask("OpenPositions")
        assert positions.keys() == {id_of("T", n) for n in ACCOUNT.state.margin}
        assert (await client.ask("TradeBalance"))["eb"]
        assert (await client.public("SystemStatus"))["status"] == "online"


class TestExports:
    async def test_a_report_takes_its_time_and_lists_movements_twice(self) -> None:
        clock = Clock()
        client = SpotClient(spot(now_ms=clock, limited=False))
        id_ = (await client.ask("AddExport", report="ledgers", description="mine", format="CSV"))[
            "id"
        ]
        states = []
        for seconds in (0, 10, 60):
            clock.ms = NOW_MS + seconds * 1_000
            (job,) = await client.ask("ExportStatus", report="ledgers")
            states.append(job["status"])
            if job["status"] != "Processed":
                assert await client.error("RetrieveExport", id=id_) == "EExport:Not ready"
        assert states == ["Queued", "Processing", "Processed"]
        body = (await client.send("RetrieveExport", id=id_)).content
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            (name,) = archive.namelist()
            lines = list(csv.DictReader(io.StringIO(archive.read(name).decode())))
        booked = [line for line in lines if line["txid"]]
        assert [line["txid"] for line in booked] == [id_of("L", row.seq) for row in LEDGER]
        doubles = [line for line in lines if not line["txid"]]
        assert len(doubles) == len(ACCOUNT.movements)
        assert {line["balance"] for line in doubles} == {""}
        assert {line["asset"] for line in booked} >= {"BTC", "EUR", "DOGE"}
        assert "earn / flexible" in {line["wallet"] for line in booked}
        assert await client.ask("RemoveExport", id=id_, type="delete") == {"delete": True}
        assert await client.ask("ExportStatus", report="ledgers") == []
        await client.http.aclose()

    async def test_trades_by_range(self) -> None:
        clock = Clock()
        client = SpotClient(spot(now_ms=clock, limited=False))
        start_s = HISTORY.to_ms // 1_000 - 200 * 86_400
        id_ = (await client.ask("AddExport", report="trades", description="", starttm=start_s))[
            "id"
        ]
        clock.ms += 60_000
        body = (await client.send("RetrieveExport", id=id_)).content
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            lines = list(csv.DictReader(io.StringIO(archive.read("trades.csv").decode())))
        expected = [r for r in ACCOUNT.rows("trades") if r.time >= start_s * TICKS]
        assert [line["txid"] for line in lines] == [id_of("T", row.seq) for row in expected]
        await client.http.aclose()


class TestFaults:
    @pytest.mark.parametrize("fault", [*FAULTS, "EGeneral:Temporary lockout"])
    async def test_each_is_served_once(self, fault: str) -> None:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        faults = AccountFaults(slow_s=30.0)
        client = SpotClient(spot(faults=faults, limited=False, sleep=sleep))
        faults.queue("/0/private/Ledgers", fault)
        if fault == "reset":
            with pytest.raises(httpx.ReadError):
                await client.send("Ledgers")
        else:
            check(fault, await client.send("Ledgers"), slept)
        assert faults.served == {("/0/private/Ledgers", fault): 1}
        await client.ask("Ledgers")
        await client.http.aclose()


def check(fault: str, response: httpx.Response, slept: list[float]) -> None:
    """The effect of each fault."""
    if fault in ("502", "520"):
        assert response.status_code == int(fault)
        assert response.text.startswith("<html>")
        return
    assert response.status_code == 200
    if fault == "truncated":
        with pytest.raises(Exception, match="truncated"):
            json.decode(response.content)
        return
    body = json.decode(response.content)
    if fault.startswith("E"):
        assert body == {"error": [fault]}
    elif fault == "throttled":
        assert body == {"error": [f"EService: Throttled: {NOW_MS // 1_000 + 5}"]}
    elif fault == "bare_error":
        assert body == {"error": "EService:Unavailable"}
    elif fault == "no_result":
        assert body == {"error": []}
    elif fault == "warning":
        assert body["error"][0].startswith("W")
        assert body["result"]["ledger"]
    elif fault == "unknown_type":
        assert {row["type"] for row in body["result"]["ledger"].values()} == {
            "something from the future"
        }
    else:
        assert (fault, slept) == ("slow", [30.0])
        assert body["result"]["ledger"]


class TestNumbers:
    def test_amounts_have_their_decimals(self) -> None:
        assert fixed(-24_500_000_000_000, 4) == "-24.5000"
        assert fixed(0, 10) == "0.0000000000"
        assert fixed(-50, 10) == "-0.0000000000"

    def test_small_floats_have_an_exponent(self) -> None:
        texts = {
            5_440_000: b"5.44e-06", 1: b"1e-12", -10: b"-1e-11", 0: b"0.0", 10**12: b"1.0",
            -3_500_000_000: b"-0.0035", 100_000_000: b"0.0001", 99_000_000: b"9.9e-05",
        }  # fmt: skip
        for units, text in texts.items():
            raw = number(units)
            assert raw is not None
            assert bytes(raw) == text
            assert abs(float(text) * 10**12 - units) < 1e-3
        assert number(None) is None


async def test_the_demo_serves_both_hosts() -> None:
    async with asyncio.timeout(60), demo() as served:
        async with httpx.AsyncClient(base_url=served.url) as http:
            assert (await http.get("/0/public/Time")).json()["error"] == []
        async with httpx.AsyncClient(base_url=served.futures_url) as http:
            body = (await http.get("/derivatives/api/v3/instruments")).json()
            assert body["result"] == "success"
        assert served.key.secret not in repr(served)
        assert served.futures_key.secret not in repr(served)
        assert served.hosts == {"futures": served.futures_url}
        assert set(served.fields) == {"api_key", "secret", "futures_key", "futures_secret"}

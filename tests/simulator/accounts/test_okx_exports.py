"""Exports of the simulated OKX: jobs, their states, and files from another host."""

import csv
import io
import zipfile
from typing import Any

import httpx
import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkxFiles
from onebook.simulator.accounts.okx.exports import FILE_FAULTS
from onebook.simulator.accounts.okx.names import BILL_WORDS, ms_of, trading_id
from onebook.simulator.accounts.okx.rows import EXPORTED, exported_bill
from onebook.simulator.accounts.serving import SimulatedTransport, serving
from simulator.accounts.okx_client import ACCOUNT, NOW_MS, Clock, OkxClient, okx

NAME = "account/bills-history-archive"
HOUR_MS = 3_600_000
BILLS = list(ACCOUNT.bills())
# A quarter, and the next one.
START, END = ms_of("2024-07-01"), ms_of("2024-10-01")


class Exports:
    """An exchange, its file host and a client, on one clock."""

    def __init__(self, account: OkxAccount = ACCOUNT, **options: Any) -> None:
        self.clock = Clock()
        self.faults = AccountFaults()
        self.requests = AccountFaults()
        self.files = SimulatedOkxFiles(account, now_ms=self.clock, faults=self.faults, **options)
        exchange = okx(account, now_ms=self.clock, files=self.files, faults=self.requests)
        self.client = OkxClient(exchange, clock=self.clock)
        self.http = httpx.AsyncClient(transport=SimulatedTransport(self.files))

    async def made(self, year: str, quarter: str, **more: str) -> bytes:
        """The file of a quarter, after its time."""
        await self.client.apply(year, quarter, **more)
        self.clock.ms += 2 * HOUR_MS
        row = (await self.client.ask(NAME, year=year, quarter=quarter, **more))[0]
        assert row["state"] == "finished"
        response = await self.http.get(row["fileHref"])
        assert response.status_code == 200
        return response.content

    async def __aenter__(self) -> "Exports":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.http.aclose()
        await self.http.aclose()


def table(body: bytes) -> list[dict[str, str]]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        (name,) = archive.namelist()
        assert name.endswith(".csv")
        return list(csv.DictReader(io.StringIO(archive.read(name).decode())))


async def test_a_file_is_requested_made_and_downloaded() -> None:
    async with Exports() as exports:
        client = exports.client
        assert await client.error(NAME, year="2024", quarter="Q3") == (200, "51604")
        assert (await client.apply("2024", "Q3"))["result"] == "false"
        (row,) = await client.ask(NAME, year="2024", quarter="Q3")
        assert (row["state"], row["fileHref"]) == ("ongoing", "")
        body = {"year": "2024", "quarter": "Q3"}
        assert await client.error(NAME, "POST", body) == (200, "51607")
        exports.clock.ms += 31 * 60_000
        (row,) = await client.ask(NAME, year="2024", quarter="Q3")
        assert row["state"] == "finished"
        assert int(row["ts"]) == NOW_MS
        assert (await client.apply("2024", "Q3"))["result"] == "true"
        found = table((await exports.http.get(row["fileHref"])).content)
        expected = [each for each in reversed(BILLS) if START <= each.ts < END]
        assert found == [exported_bill(each) for each in expected]
        assert len(found) > 50
        assert list(found[0]) == list(EXPORTED)
        assert not {"type", "from", "to", "notes", "earnAmt"} & found[0].keys()


async def test_quarters_and_the_archive_join_without_a_hole() -> None:
    """All quarters since 2021 and the three months that the list still has."""
    async with Exports() as exports:
        rows: dict[str, dict[str, Any]] = {}
        for year in range(2021, 2027):
            for quarter in ("Q1", "Q2", "Q3", "Q4"):
                body = {"year": str(year), "quarter": quarter}
                response = await exports.client.send(NAME, "POST", body)
                code = response.json()["code"]
                if code == "50011":  # twelve a day
                    exports.clock.ms += DAY_MS
                    code = (await exports.client.send(NAME, "POST", body)).json()["code"]
                if code != "0":
                    # Before the first bill, and the quarter of now.
                    assert (code, year, quarter) in {
                        ("51608", 2021, "Q1"), ("51608", 2021, "Q2"), ("51608", 2021, "Q3"),
                        ("51606", 2026, "Q4"),
                    }  # fmt: skip
                    continue
                exports.clock.ms += 2 * HOUR_MS
                (row,) = await exports.client.ask(NAME, year=str(year), quarter=quarter)
                found = table((await exports.http.get(row["fileHref"])).content)
                rows |= {each["billId"]: each for each in found}
        recent = OkxClient(okx(limited=False))
        rows |= {row["billId"]: row for row in await recent.walk("account/bills-archive", "billId")}
        await recent.http.aclose()
        assert rows.keys() == {str(trading_id(row.time, row.seq)) for row in BILLS}


async def test_a_file_can_have_some_types() -> None:
    async with Exports() as exports:
        found = table(await exports.made("2024", "Q3", type="1,8"))
        types = {sub for type_ in ("1", "8") for sub in BILL_WORDS[type_][1]}
        expected = [row for row in BILLS if START <= row.ts < END and row.type in ("1", "8")]
        assert len(found) == len(expected) > 0
        assert {row["subType"] for row in found} <= types
        body = {"year": "2024", "quarter": "Q3"}
        assert await exports.client.error(NAME, **body) == (200, "51604")  # another file


async def test_quarters_that_are_not_offered() -> None:
    early = OkxAccount(OkxHistory(ms_of("2020-11-01"), ms_of("2021-04-01"), rows=300))
    async with Exports(early) as exports:
        for year, quarter, code in (("2020", "Q4", "51605"), ("2026", "Q4", "51606"),
                                    ("2027", "Q1", "51606"), ("2022", "Q1", "51608")):  # fmt: skip
            body = {"year": year, "quarter": quarter}
            assert await exports.client.error(NAME, "POST", body) == (200, code)
        for body in ({"year": "2024", "quarter": "5"}, {"year": "24", "quarter": "Q1"}):
            assert await exports.client.error(NAME, "POST", body) == (400, "51000")
        assert await exports.client.error(NAME, "POST", {"year": "2024"}) == (400, "50014")
        # The first quarter begins with February.
        found = table(await exports.made("2021", "Q1"))
        assert min(int(row["ts"]) for row in found) >= ms_of("2021-02-01")


async def test_a_link_expires_and_a_file_is_kept_a_month() -> None:
    async with Exports() as exports:
        await exports.client.apply("2024", "Q3")
        exports.clock.ms += HOUR_MS
        (row,) = await exports.client.ask(NAME, year="2024", quarter="Q3")
        exports.clock.ms += 5 * HOUR_MS + HOUR_MS // 2
        response = await exports.http.get(row["fileHref"])
        assert (response.status_code, "AccessDenied" in response.text) == (403, True)
        (row,) = await exports.client.ask(NAME, year="2024", quarter="Q3")
        assert (await exports.http.get(row["fileHref"])).status_code == 200
        exports.clock.ms += 30 * DAY_MS
        assert await exports.client.error(NAME, year="2024", quarter="Q3") == (200, "51604")
        assert (await exports.http.get(f"{exports.files.url}/exports/none.zip")).status_code == 404


async def test_an_export_can_fail_and_is_requested_again() -> None:
    async with Exports() as exports:
        exports.requests.queue(f"/api/v5/{NAME}", "failed")
        await exports.client.apply("2024", "Q3")
        exports.clock.ms += HOUR_MS
        (row,) = await exports.client.ask(NAME, year="2024", quarter="Q3")
        assert (row["state"], row["fileHref"]) == ("failed", "")
        assert table(await exports.made("2024", "Q3"))


async def test_twelve_requests_a_day() -> None:
    async with Exports() as exports:
        quarters = [(str(year), f"Q{n}") for year in (2022, 2023, 2024) for n in range(1, 5)]
        for year, quarter in quarters:
            await exports.client.apply(year, quarter)
            exports.clock.ms += 1_000
        body = {"year": "2025", "quarter": "Q1"}
        assert await exports.client.error(NAME, "POST", body) == (429, "50011")
        exports.clock.ms += DAY_MS
        await exports.client.apply("2025", "Q1")


async def test_quarters_can_begin_at_another_midnight() -> None:
    async with Exports(zone_hours=8) as exports:
        found = table(await exports.made("2024", "Q3"))
        start = START - 8 * HOUR_MS
        assert len(found) == sum(start <= row.ts < END - 8 * HOUR_MS for row in BILLS)


@pytest.mark.parametrize("kind", FILE_FAULTS)
async def test_faults_of_the_host(kind: str) -> None:
    async with Exports() as exports:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        exports.files._sleep = sleep
        await exports.client.apply("2024", "Q3")
        exports.clock.ms += HOUR_MS
        (row,) = await exports.client.ask(NAME, year="2024", quarter="Q3")
        exports.faults.queue("/exports", kind)
        if kind == "reset":
            with pytest.raises(httpx.ReadError):
                await exports.http.get(row["fileHref"])
        else:
            response = await exports.http.get(row["fileHref"])
            assert (response.status_code == 502) is (kind == "502")
            if kind == "truncated":
                with pytest.raises(zipfile.BadZipFile):
                    table(response.content)
            assert slept == ([1.0] if kind == "slow" else [])
        assert table((await exports.http.get(row["fileHref"])).content)


async def test_over_sockets_from_another_host() -> None:
    clock = Clock()
    exchange = okx(now_ms=clock, files=SimulatedOkxFiles(ACCOUNT, now_ms=clock, making_s=0.0))
    async with serving(exchange.files) as exchange.files.url, serving(exchange) as url:
        client = OkxClient(url, clock=clock)
        await client.apply("2024", "Q3")
        (row,) = await client.ask(NAME, year="2024", quarter="Q3")
        assert not row["fileHref"].startswith(url)
        async with httpx.AsyncClient() as http:
            assert table((await http.get(row["fileHref"])).content)
        await client.http.aclose()

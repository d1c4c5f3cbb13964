"""Exports of OKX: years of history, of which its lists keep three months."""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from databases import migrated
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxHistory
from onebook.store import Store
from onebook.transactions.collector import CollectedAccount, Collector
from onebook.transactions.export_files import SEALED
from onebook.transactions.export_jobs import GIVE_UP_MS, RETRY_MS
from onebook.transactions.okx import OKX
from onebook.transactions.request import TransactionsRequest
from transactions.accounting import by_currency, summed
from transactions.bybit_support import NOW_MS
from transactions.okx.exporting import EXPORT_PATH, HISTORY, ExportService, ExportWorld
from transactions.okx.test_accounts import held

EVERYTHING = OKX.entry.types
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
QUARTERS = 2  # of the history, without the current one
Summary = dict[str, Any]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(await migrated(tmp_path)) as opened:
        yield opened


@pytest.fixture
def world(store: Store, tmp_path: Path) -> ExportWorld:
    return ExportWorld(store, tmp_path / "exports")


def trades_of(summary: Summary) -> dict[str, Any]:
    return next(each for each in summary["coverage"] if each["transaction_type"] == "trades")


def messages_of(summary: Summary) -> set[tuple[str, str]]:
    return {(each["error"], each["message"]) for each in summary["errors"]}


async def completed(here: ExportService) -> None:
    """Query until the answer is complete, and compare it with the true events."""
    records, summary = await here.ask(*EVERYTHING, verify=True)
    assert summary["errors"] == []
    assert not summary["partial"]
    assert all(each["complete"] for each in summary["coverage"])
    assert summed(records) == by_currency(held(here.world.account))
    assert summary["verification"]["holds"] is True


async def requested(here: ExportService) -> Summary:
    """Query for the first time, and let the exchange make its exports."""
    _, summary = await here.ask("trades")
    await here.settled()
    here.world.time.passed_s += HOUR_S
    return summary


@pytest.mark.parametrize(
    "zone_hours", [8, *(pytest.param(each, marks=pytest.mark.soak) for each in (0, -8))]
)
async def test_years_are_exported_to_the_last_digit(
    store: Store, tmp_path: Path, zone_hours: int
) -> None:
    history = OkxHistory(NOW_MS - 800 * DAY_MS, NOW_MS, rows=900, seed=5)
    files = {"zone_hours": zone_hours}
    world = ExportWorld(store, tmp_path / "exports", history=history, files=files)
    async with world.service() as here:
        records, summary = await here.ask(*EVERYTHING)
        coverage = {each["transaction_type"]: each for each in summary["coverage"]}
        assert coverage["trades"]["reason"] == "export_pending"
        assert NOW_MS - 90 * DAY_MS < coverage["trades"]["from"] < NOW_MS - 80 * DAY_MS
        assert coverage["deposits"]["complete"]
        assert summary["partial"]
        assert {each["error"] for each in summary["errors"]} == {"export_pending"}
        assert min(each["timestamp"] for each in records) < NOW_MS - 700 * DAY_MS
        await here.settled()
        world.time.passed_s += DAY_S  # the ninth quarter is beyond the first day's budget
        await requested(here)
        await completed(here)
    posts = world.api.posts()
    assert len(posts) == len({(each["year"], each["quarter"]) for each in posts}) == 9


async def test_no_more_exports_are_requested_than_the_budget_allows(
    store: Store, tmp_path: Path
) -> None:
    history = OkxHistory(NOW_MS - 1_500 * DAY_MS, NOW_MS, rows=300, seed=6)
    world = ExportWorld(store, tmp_path / "exports", history=history)
    async with world.service() as here:
        await requested(here)
        # Of the 12 a day, a third is the user's.
        assert len(world.api.posts()) == 8
        _, summary = await here.ask("trades")
        await here.settled()
        assert trades_of(summary)["reason"] == "export_pending"
        ((_, message),) = messages_of(summary)
        said = re.fullmatch(
            "OKX makes 12 exports a day, of which 4 are left to you; those of (20..) (Q.) and "
            "earlier can be requested from .*Z.",
            message,
        )
        assert said is not None
        requested_names = [each["year"] + each["quarter"] for each in world.api.posts()]
        assert requested_names == sorted(requested_names, reverse=True)  # newest first
        assert said[1] + said[2] < requested_names[-1]
    # A restart has no other budget.
    async with world.service() as here:
        await here.ask("trades")
        await here.settled()
        assert len(world.api.posts()) == 8
        world.time.passed_s += DAY_S
        await requested(here)
        await completed(here)


async def test_processes_request_and_download_a_quarter_once(world: ExportWorld) -> None:
    async with world.service() as one, world.service() as other:
        await asyncio.gather(one.ask("trades"), other.ask("trades"), other.ask("ledger"))
        await asyncio.gather(one.settled(), other.settled())
        assert len(world.api.posts()) == QUARTERS
        world.time.passed_s += HOUR_S
        await asyncio.gather(one.ask("trades"), other.ask("trades"))
        await asyncio.gather(one.settled(), other.settled())
        await completed(one)
        await completed(other)
    assert len(world.api.posts()) == len(world.downloads.requests) == QUARTERS


async def test_jobs_and_files_survive_a_restart(world: ExportWorld, tmp_path: Path) -> None:
    async with world.service() as here:
        await requested(here)
    async with world.service() as here:
        await completed(here)
    asked, loaded = len(world.api.posts()), len(world.downloads.requests)
    async with world.service() as here:
        await completed(here)
    assert (len(world.api.posts()), len(world.downloads.requests)) == (asked, loaded)
    # Another host downloads them again, and requests nothing.
    world.folder = tmp_path / "elsewhere"
    async with world.service() as here:
        await completed(here)
    assert (len(world.api.posts()), len(world.downloads.requests)) == (asked, 2 * loaded)


async def test_no_credentials_reach_the_host_of_files(world: ExportWorld) -> None:
    async with world.service() as here:
        await requested(here)
        await completed(here)
    for request in world.downloads.requests:
        said = str(request.headers).lower() + str(request.url)
        assert "ok-access" not in said
        assert here.vault
        assert set(request.headers) <= {
            "host", "accept", "accept-encoding", "connection", "user-agent"
        }  # fmt: skip
    assert world.downloads.requests


def answered(status: int, body: bytes = b"", **more: Any) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(body), **more)


def respond(status: int, body: bytes = b"", **more: Any) -> Callable[[httpx.Response], Any]:
    async def changed(answer: httpx.Response) -> httpx.Response:
        await answer.aread()
        return answered(status, body, **more)

    return changed


def table(change: Callable[[str], str]) -> Callable[[httpx.Response], Any]:
    """Edit the table of an export."""

    async def changed(answer: httpx.Response) -> httpx.Response:
        with ZipFile(io.BytesIO(await answer.aread())) as archive:
            (name,) = archive.namelist()
            text = archive.read(name).decode()
        target = io.BytesIO()
        with ZipFile(target, "w") as archive:
            archive.writestr(name, change(text))
        return answered(200, target.getvalue())

    return changed


async def cut(answer: httpx.Response) -> httpx.Response:
    body = await answer.aread()
    return answered(200, body[: len(body) // 2])


async def unreachable(answer: httpx.Response) -> httpx.Response:
    await answer.aread()
    raise httpx.ConnectError("no route")


FAULTS = [
    (respond(403), "OKX gives links to the export of 2025 Q3 that do not work."),
    (respond(200, b"<html>"), "sent a damaged export of 2025 Q3: it is not an intact zip"),
    (cut, "sent a damaged export of 2025 Q3: it is not an intact zip archive"),
    (table(lambda text: text[: len(text) * 2 // 3]), "its table ends within row"),
    (table(lambda text: text.replace("balChg", "change")), "its table lacks the columns balChg"),
    (respond(302, headers={"location": "https://elsewhere/"}), "on an unknown host"),
    (respond(418), "OKX returned HTTP 418 for the export of 2025 Q3."),
    (respond(502), "on a host that cannot be reached."),
    (unreachable, "on a host that cannot be reached."),
]


@pytest.mark.parametrize(("changed", "says"), FAULTS)
async def test_a_file_that_is_not_whole_has_one_clear_reason(
    world: ExportWorld, changed: Callable[[httpx.Response], Any], says: str
) -> None:
    async with world.service() as here:
        await requested(here)
        world.downloads.changed = changed
        records, summary = await here.ask("trades")
        await here.settled()
        assert records
        assert trades_of(summary)["reason"] == "export_failed"
        ((error, message),) = messages_of(summary)
        assert error == "export_failed"
        assert says in message
        # What was downloaded of it is not left behind.
        assert [each for each in world.folder.iterdir() if each.suffix == ".part"] == []
        world.downloads.changed = None
        world.time.passed_s += RETRY_MS / 1_000
        _, summary = await here.ask("trades")
        assert summary["errors"] == []
        assert trades_of(summary)["complete"]
    assert len(world.api.posts()) == QUARTERS


async def test_a_link_that_has_expired_is_replaced(world: ExportWorld) -> None:
    async with world.service() as here:
        await requested(here)

        async def once(answer: httpx.Response) -> httpx.Response:
            world.downloads.changed = None
            return await respond(403)(answer)

        world.downloads.changed = once
        await completed(here)


async def test_an_export_that_fails_at_the_exchange_is_requested_again(world: ExportWorld) -> None:
    world.exchange.faults.queue(EXPORT_PATH, "failed")
    async with world.service() as here:
        await requested(here)
        _, summary = await here.ask("trades")
        ((_, message),) = messages_of(summary)
        assert message == "OKX could not make the export of 2025 Q3; it will be requested again."
        await here.settled()
        assert len(world.api.posts()) == QUARTERS
        world.time.passed_s += RETRY_MS / 1_000
        await requested(here)
        assert len(world.api.posts()) == QUARTERS + 1
        await completed(here)


async def test_an_export_that_never_ends_is_given_up(store: Store, tmp_path: Path) -> None:
    world = ExportWorld(store, tmp_path / "exports", files={"making_s": 10 * DAY_S})
    async with world.service() as here:
        await requested(here)
        _, summary = await here.ask("trades")
        ((_, message),) = messages_of(summary)
        assert message.startswith("OKX is making the export of 2025 Q3, requested at 2025-")
        world.time.passed_s += GIVE_UP_MS / 1_000
        _, summary = await here.ask("trades")
        assert trades_of(summary)["reason"] == "export_failed"
        ((_, message),) = messages_of(summary)
        assert message == (
            "OKX has not finished the export of 2025 Q3 in 24 hours; it will be requested again."
        )


async def test_a_full_directory_is_said(world: ExportWorld) -> None:
    async with world.service() as here:
        await requested(here)
    async with world.service(bytes_max=20_000) as here:
        _, summary = await here.ask("trades")
        await here.settled()
        assert trades_of(summary)["reason"] == "export_directory_full"
        ((_, message),) = messages_of(summary)
        assert "is full: " in message
        assert "transactions.exports_bytes_max" in message
        assert here.jobs.files.used_bytes() < 20_000
    async with world.service() as here:
        await completed(here)


async def test_files_are_encrypted_if_the_operator_wants(world: ExportWorld) -> None:
    async with world.service(sealed=True) as here:
        await requested(here)
        await completed(here)
        bodies = [each.read_bytes() for each in world.folder.iterdir()]
    assert len(bodies) == QUARTERS
    assert all(body.startswith(SEALED) and b"BTC" not in body for body in bodies)
    async with world.service() as here:  # what is stored stays readable
        await completed(here)
        assert len(world.downloads.requests) == QUARTERS
        # A file that was changed is not believed, but downloaded again.
        path = next(world.folder.iterdir())
        body = bytearray(path.read_bytes())
        body[-40] ^= 1
        path.write_bytes(body)
        await completed(here)
        assert len(world.downloads.requests) == QUARTERS + 1


async def test_files_that_are_not_used_are_deleted(world: ExportWorld) -> None:
    async with world.service() as here:
        await requested(here)
        await completed(here)
        files = here.jobs.files
        assert files.prune(NOW_MS / 1_000) == 0
        newest_s = max(each.stat().st_mtime for each in world.folder.iterdir())
        assert files.prune(newest_s + 29 * DAY_S) == 0
        assert files.prune(newest_s + 31 * DAY_S) == QUARTERS
        assert files.used_bytes() == 0


async def test_the_first_days_of_a_quarter_are_pending_until_it_is_over(
    world: ExportWorld,
) -> None:
    """On 30 December the list no longer has 1 October, and the quarter is not exported yet."""
    world.time.passed_s += 47 * DAY_S
    async with world.service() as here:
        await requested(here)
        _, summary = await here.ask("trades")
        assert trades_of(summary)["reason"] == "export_pending"
        ((_, message),) = messages_of(summary)
        assert message == "OKX exports 2025 Q4 only after it has ended."
        world.time.passed_s += 4 * DAY_S
        await requested(here)
        await completed(here)


async def test_a_small_answer_of_new_records_requests_no_export(world: ExportWorld) -> None:
    async with world.service() as here:
        records, _ = await here.ask("trades", limit=20)
        await here.settled()
        assert len(records) == 20
        await here.ask(*EVERYTHING, start_time=NOW_MS - 30 * DAY_MS)
    assert not [each for each in world.api.requests if each.url.path == EXPORT_PATH]


async def test_a_command_waits_and_shows_for_what(store: Store, tmp_path: Path) -> None:
    world = ExportWorld(store, tmp_path / "exports", files={"making_s": 600.0})
    async with world.service() as here:
        ask = TransactionsRequest(
            exchange="okx", transaction_types=list(EVERYTHING), start_time=HISTORY.from_ms
        )
        query = await here.service.prepare(ask, key_id="operator", streamed=True)
        waited: set[tuple[str, bool]] = set()

        async with here.service.run(query, key_id="operator", patient=True) as run:

            async def look(response: httpx.Response) -> httpx.Response:
                waited.update((e.name, e.requested_at is not None) for e in run.exports)
                return response

            world.api.changed = look
            async for _ in run.records(30 * DAY_S):
                pass
            assert run.exports == []
            assert run.errors() == []
            assert all(each.complete for each in run.coverage())
        assert ("2025 Q3", True) in waited


async def test_pages_say_what_they_lack(world: ExportWorld) -> None:
    async with world.service() as here:
        await requested(here)
        world.downloads.changed = respond(403)
        cursor, reasons = None, []
        while cursor or not reasons:
            _, summary = await here.ask("ledger", limit=150, cursor=cursor)
            (entry,) = summary["coverage"]
            reasons.append(entry["reason"])
            cursor = summary["next_cursor"]
        assert reasons[0] == "limit_reached"
        assert reasons[-1] == "export_failed"
        assert summary["partial"]


async def test_a_collection_completes_itself_as_exports_are_made(world: ExportWorld) -> None:
    account = CollectedAccount.of("okx")
    async with world.service() as here:
        collector = Collector(here.service, world.store.facts, clock=world.time.collector)
        done = await collector.collect(account)
        await here.settled()
        assert not done.complete
        assert {each.error for each in done.errors} == {"export_pending"}
        for _ in range(8):  # it asks for every quarter since 2021-02, 8 a day
            world.time.passed_s += DAY_S / 2
            done = await collector.collect(account)
            await here.settled()
            if done.complete:
                break
        assert done.complete
        assert len(world.api.posts()) == 19
        asked = len(world.api.requests)
        stored, summary = await here.ask(*EVERYTHING, source="collected", verify=True)
        assert len(world.api.requests) == asked
        assert summary["verification"]["holds"] is True
        end = {"end_time": summary["summary"]["date_range"]["end"]}
        fetched, _ = await here.ask(*EVERYTHING, source="exchange", **end)
        events = [each for each in fetched if each["view"] != "snapshot"]
        assert [each for each in stored if each["view"] != "snapshot"] == events


async def test_an_answer_beside_a_collection_says_which_exports_it_lacks(
    store: Store, tmp_path: Path
) -> None:
    history = OkxHistory(NOW_MS - 1_500 * DAY_MS, NOW_MS, rows=300, seed=6)
    world = ExportWorld(store, tmp_path / "exports", history=history)
    account = CollectedAccount.of("okx")
    async with world.service() as here:
        collector = Collector(here.service, world.store.facts, clock=world.time.collector)
        for _ in range(3):  # as far as the day's budget reaches
            await collector.collect(account)
            await here.settled()
            world.time.passed_s += HOUR_S
        _, alone = await here.ask("trades", source="exchange")
        _, both = await here.ask("trades")
        assert messages_of(both) == messages_of(alone)
        assert both["partial"]
        assert trades_of(both)["reason"] == "export_pending"
        assert trades_of(both)["from"] == trades_of(alone)["from"]


async def test_a_quarter_that_is_not_over_there_costs_no_budget(
    store: Store, tmp_path: Path
) -> None:
    """A quarter in a time zone behind UTC: the same refusal is repeated at most hourly."""
    world = ExportWorld(store, tmp_path / "exports", files={"zone_hours": -12})
    world.time.passed_s += 48 * DAY_S + 23 * HOUR_S  # 2026-01-01, 01:13 in UTC
    async with world.service() as here:
        for _ in range(3):
            _, summary = await here.ask("trades", start_time=NOW_MS - 50 * DAY_MS)
            await here.settled()
        assert trades_of(summary)["reason"] == "export_pending"
        wanted = [each for each in world.api.posts() if each == {"year": "2025", "quarter": "Q4"}]
        assert len(wanted) == 1
        world.time.passed_s += DAY_S
        await requested(here)
        await completed(here)

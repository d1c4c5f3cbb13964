"""`onebook exchanges`: the supported exchanges, and their reachability."""

import asyncio
import json
import re
import threading
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from longtail import without_connector
from onebook.cli.commands import app
from onebook.cli.exchanges import check_list
from onebook.config import FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.rest import Rest
from onebook.simulator import SimulatedExchanges
from onebook.simulator.okx import Okx


def run(*words):
    return CliRunner().invoke(app, ["exchanges", *words], env={"COLUMNS": "200"})


@pytest.fixture
def settings(tmp_path):
    """A settings file for simulated exchanges, which run in another thread."""
    ready, stop = threading.Event(), threading.Event()
    file = tmp_path / "onebook.toml"

    async def serve():
        async with SimulatedExchanges(["okx", "kraken"], rate_hz=0) as simulated:
            simulated["kraken"].fail_rest(400, times=100)
            lines = ["[feeds]", 'exchanges = ["okx", "kraken"]']
            for name, urls in simulated.urls.items():
                lines += [f"[feeds.overrides.{name}]", f'rest_url = "{urls.rest}"']
            file.write_text("\n".join(lines))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    yield str(file)
    stop.set()
    thread.join()


def test_list_names_every_exchange():
    text = run("list").output
    for each in EXCHANGES.values():
        assert each.display in text
    listed = json.loads(run("list", "--json").output)
    assert {row["exchange_name"] for row in listed} == set(EXCHANGES)


@pytest.mark.parametrize("name", EXCHANGES)
def test_show_has_the_facts_and_the_evidence(name):
    text = run("show", name).output
    assert EXCHANGES[name].ws_url in text
    assert f"{EXCHANGES[name].limits.messages[0].count:,} in " in text
    assert "https://" in text.partition("Page")[2], "it names the exchange's page"


def test_show_as_json_has_the_facts_of_the_list_and_more():
    listed = json.loads(run("list", "--json").stdout)
    for row in listed:
        shown = json.loads(run("show", row["exchange_name"], "--json").stdout)
        assert shown.items() >= row.items()
        assert [each["rule"] for each in shown["proof"] if each["holds"] == "yes"] or (
            row["quality"] == "none"
        )
    okx = json.loads(run("show", "okex", "--json").stdout)
    assert (okx["former_names"], okx["rest_url"]) == (
        ["okex", "okex5", "myokx"],
        EXCHANGES["okx"].rest_url,
    )
    kraken = json.loads(run("show", "kraken", "--json").stdout)
    assert kraken["checksum"] == "CRC-32 of the 10 best levels per side"
    attempts = EXCHANGES["okx"].limits.connects[0]
    assert okx["limits"]["connection_attempts"][0] == {
        "count": attempts.count, "per_s": attempts.per_s, "scope": "address",
    }  # fmt: skip


def test_show_names_a_fact_as_its_json_does():
    facts = json.loads(run("show", "okx", "--json").output)
    named = {*facts, *facts["limits"]}
    shown = run("show", "okx").output.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in shown if line.split()[0] not in named] == []


def test_show_takes_former_names_and_refuses_others():
    assert "480 in 1 h" in run("show", "okex").output
    unknown = run("show", "mtgox")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("error: Unknown exchange 'mtgox'; known: binance, ")
    assert run("show", "krakem").stderr.endswith(". Did you mean kraken?\n")
    assert unknown.stderr.count("\n") == 1


def test_list_has_the_limits_that_silence_is_checked_by():
    rows = {line.split()[0]: line for line in run("list").output.splitlines()}
    assert re.search(r" 100 +checksum +5 +600 +yes +wss://ws.kraken.com", rows["kraken"])
    assert re.search(r" all +numbers +none +600 +yes +wss://", rows["binance"])
    facts = {row["exchange_name"]: row for row in json.loads(run("list", "--json").output)}
    assert (facts["okx"]["heartbeat_s"], facts["okx"]["quiet_s"]) == (None, 130.0)


async def test_check_counts_the_pairs_of_every_page():
    async with SimulatedExchanges(["okx"], rate_hz=0) as simulated, Rest() as rest:
        one_page = simulated.exchanges()["okx"]
        path = one_page.instruments_path
        pages = replace(one_page, next_page=lambda bodies: path if len(bodies) < 3 else None)
        counted = [
            (await check_list(rest, each, FeedSettings())).pairs for each in (one_page, pages)
        ]
    listed = len(Okx.listings)
    assert counted == [listed, 3 * listed]


def test_check_says_who_answers_and_who_does_not(settings):
    answer = run("check", "--config", settings)
    assert answer.exit_code == 1
    assert re.search(r"^okx .* none$", answer.output, re.MULTILINE)
    assert "answered 400" in answer.output


def test_check_of_one_that_answers_is_status_0(settings):
    answer = run("check", "okx", "--config", settings, "--json")
    assert answer.exit_code == 0
    (okx,) = json.loads(answer.output)
    assert okx["exchange"] == "okx"
    assert okx["pairs"] > 0


def test_an_unknown_exchange_is_one_clear_line_and_status_2():
    answer = run("check", "okxx")
    assert answer.exit_code == 2
    assert "Unknown exchange 'okxx'" in answer.output


def test_list_and_show_name_what_comes_through_ccxt(tmp_path):
    pytest.importorskip("ccxt.pro", reason="the extra onebook[ccxt] is not installed")
    file = tmp_path / "onebook.toml"
    file.write_text('[feeds.ccxt]\nexchanges = ["bitopro"]\ndepth = 77\n')
    rows = {
        row["exchange_name"]: row
        for row in json.loads(run("list", "--json", f"--config={file}").output)
    }
    assert (rows["bitopro"]["via"], rows["bitopro"]["depth"]) == ("ccxt", 77)
    assert {name for name, row in rows.items() if row["via"] == "own"} == set(EXCHANGES)
    text = run("show", "BitoPro", f"--config={file}").output
    assert re.search(r"via\W+ccxt", text)
    assert "numbers are floats" in " ".join(text.split())
    assert "Unknown exchange" in run("show", "bitopro").output


async def test_check_reads_the_markets_through_ccxt(tmp_path):
    pytest.importorskip("ccxt.pro", reason="the extra onebook[ccxt] is not installed")
    async with AsyncExitStack() as stack:
        simulated = await stack.enter_async_context(SimulatedExchanges(["okx"], rate_hz=0))
        place = simulated.urls["okx"]
        stack.enter_context(without_connector("okx"))
        file = tmp_path / "onebook.toml"
        file.write_text(
            f'[feeds.ccxt]\nexchanges = ["okx"]\n[feeds.overrides.okx]\nrest_url = "{place.rest}"'
        )
        answer = await asyncio.to_thread(run, "check", "okx", "--json", f"--config={file}")
        (row,) = json.loads(answer.output)
        assert (row["exchange"], row["problem"]) == ("okx", "")
        assert row["pairs"] > 3
        simulated["okx"].fail_rest(503, times=100)
        answer = await asyncio.to_thread(run, "check", "okx", "--json", f"--config={file}")
        (row,) = json.loads(answer.output)
        assert row["problem"].startswith("ccxt could not load the markets of okx (")
        assert answer.exit_code == 1

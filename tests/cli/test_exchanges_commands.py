"""`onebook exchanges`: what there is, and who answers."""

import asyncio
import json
import threading

import pytest
from typer.testing import CliRunner

from onebook.cli.main import app
from onebook.exchanges import EXCHANGES
from onebook.simulator.server import SimulatedExchanges


def run(*words):
    return CliRunner().invoke(app, ["exchanges", *words], env={"COLUMNS": "200"})


@pytest.fixture
def settings(tmp_path):
    """A settings file that points at simulated exchanges, which run in a thread of their own."""
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
    assert {row["name"] for row in json.loads(run("list", "--json").output)} == set(EXCHANGES)


def test_check_says_who_answers_and_who_does_not(settings):
    answer = run("check", "--config", settings)
    assert answer.exit_code == 1
    assert "answers" in answer.output
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
    assert "There is no exchange 'okxx'" in answer.output

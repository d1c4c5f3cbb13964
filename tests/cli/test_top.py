"""`onebook top`: the difference of two scrapes, and the screen of a running node."""

import asyncio
from io import StringIO
from pathlib import Path

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from e2e.service import settings_in
from onebook import app
from onebook.cli.commands import app as commands
from onebook.cli.common import size
from onebook.cli.top_view import Between, Readiness, Scrape, screen, span

HISTOGRAM = """\
# TYPE lag histogram
lag_bucket{le="0.1"} %d
lag_bucket{le="0.2"} %d
lag_bucket{le="+Inf"} %d
"""
EXCHANGES = """\
# TYPE onebook_exchange_up gauge
onebook_exchange_up{exchange="okx"} 1
onebook_exchange_up{exchange="kraken"} 0
onebook_exchange_up{exchange="binance"} 1
onebook_exchange_up{exchange="aaa"} 0
# TYPE onebook_books gauge
onebook_books{exchange="okx",health="live"} 2
onebook_books{exchange="kraken",health="offline"} 1
onebook_books{exchange="binance",health="live"} 1
# TYPE onebook_exchange_frames counter
onebook_exchange_frames_total{exchange="okx"} %d
"""


def between(text: str, before: tuple[int, ...], now: tuple[int, ...], s: float = 2.0) -> Between:
    return Between(Scrape(text % before, 10.0), Scrape(text % now, 10.0 + s))


def lines(shown: object, width: int) -> list[str]:
    out = StringIO()
    Console(width=width, height=40, file=out).print(shown)
    return out.getvalue().splitlines()


def test_a_rate_is_growth_by_time_and_no_number_below_zero() -> None:
    counted = '# TYPE n counter\nn_total{a="x"} %d\nn_total{a="y"} %d\n'
    assert between(counted, (10, 5), (14, 7)).rate("n_total") == 3.0
    assert between(counted, (10, 5), (14, 7)).rate("n_total", a="x") == 2.0
    assert between(counted, (10, 5), (0, 0)).rate("n_total") == 0.0
    assert between(counted, (10, 5), (14, 7)).rate("no_such_total") == 0.0


def test_a_quantile_is_of_what_was_counted_between() -> None:
    assert between(HISTOGRAM, (9, 9, 9), (9, 9, 9)).quantile(0.5, "lag") is None
    found = between(HISTOGRAM, (100, 100, 100), (100, 110, 110)).quantile(0.5, "lag")
    assert found == pytest.approx(0.15)
    assert between(HISTOGRAM, (0, 0, 0), (10, 10, 10)).quantile(0.99, "lag") == 0.1
    assert between(HISTOGRAM, (0, 0, 0), (0, 0, 10)).quantile(0.99, "lag") == 0.2


def test_what_is_in_trouble_comes_first_then_what_is_up() -> None:
    shown = screen(
        between(EXCHANGES, (10,), (30,)),
        Readiness(False, ("The database does not answer.",)),
        url="http://node",
        wall_s=100.0,
        width=110,
        height=40,
    )
    text = lines(shown, 110)
    assert "NOT READY" in text[0]
    assert text[1] == "  The database does not answer."
    names = [line.partition(" ")[0] for line in text]
    first = names.index("exchange")
    assert names[first + 1 :] == ["kraken", "binance", "okx", "aaa"]
    assert "DOWN" in text[first + 1]
    assert " 10.0 " in text[first + 3]


@pytest.mark.parametrize("width", [80, 110, 160])
async def test_the_screen_of_a_running_node_fits(tmp_path: Path, width: int) -> None:
    async with app.running(settings_in(tmp_path), overrides={}) as node:
        async with httpx.AsyncClient(base_url=node.url) as http:
            looks = [Scrape((await http.get("/metrics")).text, at_s) for at_s in (0.0, 1.0)]
        words = ["top", "--url", node.url, "--interval", "0.5", "--looks", "1"]
        answer = await asyncio.to_thread(CliRunner().invoke, commands, words)
        assert answer.exit_code == 0, answer.output
        assert f"{node.url}  ready" in answer.stdout
        piped = await asyncio.to_thread(CliRunner().invoke, commands, words[:-2])
        assert piped.stdout.count(f"{node.url}  ready") == 1, "a pipe gets one screen"
    shown = screen(
        Between(*looks), Readiness(True, ()), url=node.url, wall_s=0, width=width, height=24
    )
    text = lines(shown, width)
    assert max(map(len, text)) <= width
    assert not [line for line in text if "…" in line], "something is cut"
    for name in ("cpu", "loop lag p99", "database", "clients", "delivery", "exchange"):
        assert any(name in line for line in text), name


def test_what_is_no_node_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(commands, ["top", "--url", "http://127.0.0.1:1", "--looks", "1"])
    assert answer.exit_code == 2
    reason = "Cannot reach http://127.0.0.1:1/metrics: Connection refused."
    assert answer.stderr == f"error: {reason}\n"


def test_spans_and_sizes_are_short() -> None:
    found = [span(each) for each in (0, 59, 61, 3_600, 90_061)]
    assert found == ["0s", "59s", "1m 1s", "1h 0m", "1d 1h"]
    assert [size(each) for each in (0, 1_536, 3 << 30)] == ["0 B", "1.5 KiB", "3.0 GiB"]
    assert [size(each) for each in (1_023.6, (1 << 20) - 1, 5 << 50)] == [
        "1.0 KiB",
        "1.0 MiB",
        "5120.0 TiB",
    ]

"""`onebook replay`: recordings through the service's normal feeds."""

import asyncio
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from onebook.books import Books
from onebook.cli.replay import play, replay_command, speed_of
from onebook.config import ExchangeSettings, FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.feeds import Catalogue, Supervisor, enabled
from onebook.rest import Rest

app = typer.Typer()
app.command()(replay_command)


def invoke(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


async def test_the_normal_feeds_bring_every_replayed_book_to_life(
    samples: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = samples / "exchange_frames"
    names = ("OKX.ws.1.0", "POLONIEX.ws.1.0", "BINANCE.ws.1.0", "BINANCE.http.0.0")
    wanted = {"okx": "BTC/USDT", "poloniex": "BTC/USDT", "binance": "NKN/USDT"}

    async def serve(addresses: dict[str, ExchangeSettings]) -> None:
        settings = FeedSettings(exchanges=tuple(addresses), overrides=addresses)
        exchanges = enabled(EXCHANGES, settings)
        books, health = Books(), {}
        async with (
            Rest() as rest,
            Catalogue(exchanges, rest=rest, settings=settings) as catalogue,
            Supervisor(
                exchanges, books=books, rest=rest, catalogue=catalogue, settings=settings
            ) as supervisor,
            asyncio.timeout(30),
        ):
            all_live = asyncio.Event()

            def changed(book: object) -> None:
                health.update({each.instrument.exchange: each.health for each in books.live()})
                if set(health) == set(wanted):
                    all_live.set()

            books.subscribe(on_changed=changed)
            assert await catalogue.first_read()
            for name, symbol in wanted.items():
                instrument = catalogue.instrument(name, symbol)
                assert instrument is not None
                supervisor.acquire(instrument)
            await all_live.wait()
            supervisor.sweep(time.monotonic())  # publishes what was sampled

    await play([folder / name for name in names], speed=None, loop=False, serve=serve)
    assert "s old" not in caplog.text  # by the recording's own clock it was not


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("missing.rec",), "missing.rec cannot be read: No such file or directory."),
        (
            ("missing.rec", "--speed", "fast"),
            "--speed must be a number above 0 or max, not 'fast'.",
        ),
        (("missing.rec", "--speed", "0"), "--speed must be a number above 0 or max, not '0'."),
        (("missing.rec", "--speed", "nan"), "--speed must be a number above 0 or max, not 'nan'."),
    ],
)
def test_bad_input_is_one_line_and_status_2(args: tuple[str, ...], words: str) -> None:
    got = invoke(*args)
    assert got.exit_code == 2
    assert words in got.output
    assert "Traceback" not in got.output


def test_an_old_protocol_is_one_line_and_status_2(samples: Path) -> None:
    got = invoke(samples / "exchange_frames" / "KRAKEN.ws.50.0")
    assert got.exit_code == 2
    assert "the address of Kraken is now /v2" in got.output.replace("\n", " ")


def test_speeds_are_numbers_or_max() -> None:
    assert [speed_of(text) for text in ("1", "10", "0.5", "max")] == [1.0, 10.0, 0.5, None]

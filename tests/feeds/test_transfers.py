"""Transfers of coins, read through the real ccxt from servers with the exchanges' responses."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import httpx
import pytest

from onebook.clock import ManualClock
from onebook.config import CcxtSettings, ExchangeSettings, FeedSettings
from onebook.errors import ConfigError
from onebook.exchanges import EXCHANGES
from onebook.feeds import Catalogue, Library, enabled
from onebook.feeds.ccxt import library as library_module
from onebook.feeds.transfers import TransferReader, transfers_of
from onebook.model import Instrument
from onebook.rest import Rest
from onebook.transfers import CoinTransfer, NetworkTransfer, transferable

pytest.importorskip("ccxt")

# As in https://www.kucoin.com/docs-new/rest/spot-trading/market-data/get-all-currencies
KUCOIN: dict[str, Any] = {
    "code": "200000",
    "data": [
        {
            "currency": "BTC", "name": "BTC", "fullName": "Bitcoin", "precision": 8,
            "confirms": None, "contractAddress": None, "isMarginEnabled": True,
            "isDebitEnabled": True,
            "chains": [
                {
                    "chainName": "BTC", "withdrawalMinSize": "0.001", "depositMinSize": "0.0002",
                    "withdrawFeeRate": "0", "withdrawalMinFee": "0.0005", "isWithdrawEnabled": True,
                    "isDepositEnabled": True, "confirms": 3, "preConfirms": 1,
                    "contractAddress": "", "withdrawPrecision": 8, "maxWithdraw": None,
                    "maxDeposit": None, "needTag": False, "chainId": "btc",
                },
                {
                    "chainName": "KCC", "withdrawalMinSize": "0.0008", "depositMinSize": None,
                    "withdrawFeeRate": "0", "withdrawalMinFee": "0.00002",
                    "isWithdrawEnabled": False, "isDepositEnabled": True, "confirms": 20,
                    "preConfirms": 20, "contractAddress": "0xfa93", "withdrawPrecision": 8,
                    "maxWithdraw": None, "maxDeposit": None, "needTag": False, "chainId": "kcc",
                },
            ],
        },
        {
            "currency": "CSP", "name": "CSP", "fullName": "Caspian", "precision": 8,
            "confirms": None, "contractAddress": None, "isMarginEnabled": False,
            "isDebitEnabled": False,
            "chains": [
                {
                    "chainName": "ERC20", "withdrawalMinSize": "2999", "depositMinSize": None,
                    "withdrawFeeRate": "0", "withdrawalMinFee": "2999", "isWithdrawEnabled": False,
                    "isDepositEnabled": False, "confirms": 12, "preConfirms": 12,
                    "withdrawPrecision": 8, "needTag": False, "chainId": "eth",
                    "contractAddress": "0xa6446d655a0c34bc4f05042ee88170d056cbaf45",
                },
            ],
        },
    ],
}  # fmt: skip
# As in https://www.gate.com/docs/developers/apiv4/en/#query-all-currency-information
GATE = [
    {
        "currency": code, "name": code, "delisted": False, "withdraw_disabled": False,
        "withdraw_delayed": False, "deposit_disabled": closed, "trade_disabled": False,
        "fixed_rate": "", "chain": chain,
        "chains": [
            {
                "name": chain, "addr": "", "withdraw_disabled": False, "withdraw_delayed": False,
                "deposit_disabled": closed,
            },
        ],
    }
    for code, chain, closed in (("BTC", "BTC", False), ("CSP", "ETH", True))
]  # fmt: skip
PATHS = {"/api/v3/currencies": KUCOIN, "/api/v4/spot/currencies": GATE}


class Server:
    """HTTP on loopback; `paths` are the bodies, `asked` the requests."""

    def __init__(self, paths: dict[str, Any]) -> None:
        self.paths = paths
        self.asked: list[str] = []
        self.url = ""
        self.delay_s = 0.0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1].partition("?")[0]
        self.asked.append(path)
        if self.delay_s and await _disconnected(reader, self.delay_s):
            writer.close()
            return
        status = "200 OK" if path in self.paths else "500 Internal Server Error"
        body = json.dumps(self.paths.get(path, {"message": "broken"})).encode()
        lines = (f"HTTP/1.1 {status}", "Content-Type: application/json", "Connection: close")
        writer.write("\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body)
        await writer.drain()
        writer.close()


async def _disconnected(reader: asyncio.StreamReader, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return not await reader.read(1)
    except TimeoutError:
        return False


@asynccontextmanager
async def serving(paths: dict[str, Any]) -> AsyncIterator[Server]:
    found = Server(paths)
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    async with server:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


def listed(exchange: str, *codes: str) -> list[Instrument]:
    return [Instrument(exchange, f"{each}/USDT", each, codes=f"{each}/USDT") for each in codes]


@asynccontextmanager
async def reading(
    paths: dict[str, Any], *names: str, clock: ManualClock | None = None
) -> AsyncIterator[tuple[TransferReader, Catalogue, Server]]:
    async with serving(paths) as server:
        settings = FeedSettings(
            overrides={name: ExchangeSettings(rest_url=server.url) for name in names},
            ccxt=CcxtSettings(transfers=True),
        )
        clock = clock or ManualClock(epoch_us=1_000_000)
        client = httpx.AsyncClient()  # never used: the catalogue reads nothing itself
        catalogue = Catalogue({}, rest=Rest(client), settings=settings, clock=clock)
        for name in names:
            catalogue.update(name, listed(name, "BTC", "CSP", "NEW"))
        async with Library(settings) as library:
            yield TransferReader(catalogue, library, names, clock=clock), catalogue, server


async def test_two_exchanges_are_read_through_ccxt() -> None:
    heard: list[str] = []
    async with reading(PATHS, "kucoin", "gate") as (reader, catalogue, server):
        catalogue.on_read.subscribe(heard.append)
        assert [await reader.read(name) for name in ("kucoin", "gate")] == [True, True]
    assert server.asked == ["/api/v3/currencies", "/api/v4/spot/currencies"]
    assert heard == ["kucoin", "gate"]
    kucoin, gate = (catalogue.transfer(name, "BTC") for name in ("kucoin", "gate"))
    assert kucoin is not None
    assert (kucoin.via, kucoin.read_at_ms, kucoin.deposit, kucoin.withdraw) == (
        "ccxt", 1_000, True, True
    )  # fmt: skip
    networks = {each.network: each for each in kucoin.networks}
    assert networks["BTC"] == NetworkTransfer("BTC", True, True, Decimal("0.0005"))
    assert networks["KCC"] == NetworkTransfer("KCC", True, False, Decimal("0.00002"))
    moved = transferable("BTC", kucoin, gate)
    assert moved is not None
    assert moved.possible is True
    csp = transferable(
        "CSP", catalogue.transfer("kucoin", "CSP"), catalogue.transfer("gate", "CSP")
    )
    assert csp is not None
    assert csp.possible is False
    assert catalogue.transfer("kucoin", "NEW") is None  # it is not in the answer


async def test_binance_tells_only_the_owners_of_accounts() -> None:
    async with reading({}, "binance") as (reader, catalogue, server):
        assert await reader.read("binance")
    assert server.asked == []
    assert catalogue.transfer("binance", "BTC") is None


async def test_a_failure_is_one_line_and_old_states_are_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(epoch_us=1_000_000)
    with caplog.at_level(logging.INFO, "onebook.feeds"):
        async with reading(dict(PATHS), "gate", clock=clock) as (reader, catalogue, server):
            assert await reader.read("gate")
            body = server.paths.pop("/api/v4/spot/currencies")
            assert [await reader.read("gate") for _ in range(2)] == [False, False]
            assert catalogue.transfer("gate", "BTC") is not None
            clock.move_to(3 * 3_600 + 1)
            assert catalogue.transfer("gate", "BTC") is None
            server.paths["/api/v4/spot/currencies"] = body
            assert await reader.read("gate")
            assert catalogue.transfer("gate", "BTC") is not None
    lines = [each.message for each in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("Cannot read deposits and withdrawals: ccxt could not load")
    assert lines[1] == "Deposits and withdrawals of gate can be read again."


async def test_an_exchange_that_never_answers_has_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library_module, "LIST_S", 0.2)
    async with reading(PATHS, "gate") as (reader, catalogue, server):
        server.delay_s = 60.0
        assert not await reader.read("gate")
    assert server.asked == ["/api/v4/spot/currencies"]
    assert catalogue.transfer("gate", "BTC") is None


async def test_every_exchange_is_read_again_after_an_hour() -> None:
    clock = ManualClock(epoch_us=1_000_000)
    async with reading(PATHS, "gate", clock=clock) as (reader, catalogue, server):
        done = asyncio.Queue[str]()
        catalogue.on_read.subscribe(done.put_nowait)
        async with reader:
            await done.get()
            await asyncio.sleep(0)
            clock.move_to(3_600 * 1.1)
            await done.get()
    assert len(server.asked) == 2
    found = catalogue.transfer("gate", "BTC")
    assert found is not None
    assert found.read_at_ms == 1_000 + 3_960_000


def test_a_currency_belongs_to_the_coin_with_its_code() -> None:
    def currency(id_: str, code: str) -> library_module.CcxtCurrency:
        return library_module.CcxtCurrency(id_, code, True, True, ())

    pairs = [
        Instrument("kraken", "BTC/USD", "XBT/USD", codes="XBT/USD"),
        Instrument("kraken", "LUNC/USD", "LUNA/USD", codes="LUNA/USD"),
        Instrument("kraken", "TWO/USD", "TWO/USD", codes="TWO/USD"),
    ]
    found = transfers_of(
        pairs,
        [
            currency("XXBT", "BTC"),
            currency("luna", "LUNC"),
            currency("LUNA2", "LUNA"),
            currency("TWO", "A"),
            currency("two", "TWO"),
        ],
        5,
    )
    assert found == {
        "BTC": CoinTransfer("ccxt", 5, True, True),
        "LUNC": CoinTransfer("ccxt", 5, True, True),
    }


NETWORKS = {
    "open": (NetworkTransfer("TRC20", True, True, None),),
    "other": (NetworkTransfer("ERC20", True, True, None),),
    "shut": (NetworkTransfer("TRC20", False, False, None),),
}


def state(networks: str, deposit: bool | None = True, withdraw: bool | None = True) -> CoinTransfer:
    return CoinTransfer("ccxt", 1, deposit, withdraw, NETWORKS[networks])


@pytest.mark.parametrize(
    ("buy", "sell", "possible"),
    [
        (state("open"), state("open"), True),
        (state("open"), state("other"), None),  # names of networks may differ
        (state("open"), state("shut"), None),
        (state("open", withdraw=False), None, False),
        (None, state("open", deposit=False), False),
        (state("open", deposit=False), state("open", withdraw=False), True),
        (state("open", withdraw=None), state("open", deposit=None), True),
        (state("open"), None, None),
        (None, state("open"), None),
    ],
)
def test_what_is_not_known_is_not_guessed(
    buy: CoinTransfer | None, sell: CoinTransfer | None, possible: bool | None
) -> None:
    found = transferable("X", buy, sell)
    assert found is not None
    assert found.possible is possible


def test_without_any_knowledge_nothing_is_said() -> None:
    assert transferable("X", None, None) is None


@pytest.mark.parametrize("value", [None, 1, "yes", {}, {"X": None}])
def test_values_that_are_no_states_are_unknown(value: Any) -> None:
    network = {"deposit": value, "withdraw": value, "fee": -1 if value == 1 else value}
    raw = {"id": "x", "code": "X", "deposit": value, "withdraw": value, "networks": {"N": network}}
    (found,) = library_module.currencies_of({"X": raw}, str)
    assert found[2:] == (None, None, (NetworkTransfer("N", None, None, None),))
    percent = {**raw, "networks": {"N": {"fee": 0.1, "percentage": True}}}
    (found,) = library_module.currencies_of({"X": percent}, str)
    assert found.networks[0].withdraw_fee is None


def test_names_that_are_none_or_endless_are_skipped() -> None:
    raw = [{"id": None, "code": "X"}, {"id": "x" * 65, "code": "X"}, {"id": "x", "code": ""}]
    assert [*library_module.currencies_of(dict(enumerate(raw)), str)] == []  # type: ignore[arg-type]


def test_without_ccxt_the_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = FeedSettings(ccxt=CcxtSettings(transfers=True))
    assert {*enabled(EXCHANGES, settings)} == {*EXCHANGES}
    monkeypatch.setattr(library_module, "installed", lambda: False)
    with pytest.raises(ConfigError, match=r"feeds.ccxt.transfers: ccxt is not installed"):
        enabled(EXCHANGES, settings)

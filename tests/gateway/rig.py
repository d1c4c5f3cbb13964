"""A whole gateway on loopback: real accounts, books, streams and sockets; a manual clock."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from decimal import Decimal

import uvicorn
from msgspec import Raw
from uvicorn.server import ServerState
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

from databases import migrated
from onebook.accounts import Accounts, Admin, Peppers
from onebook.books import Books
from onebook.clock import Clock
from onebook.config import AccountsSettings, GatewaySettings
from onebook.errors import InvalidRequest
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Delta, Snapshot
from onebook.gateway import LIMITS, Gateway
from onebook.gateway.upgrade import PATH
from onebook.model import Health, Instrument, Tier
from onebook.signals import Signal
from onebook.store import AuditedChange, Store
from steady import PATIENCE_S

PEPPER = Peppers(b"p" * 32)
SYMBOL = "BTC/USDT"
BOOK = ([("100", "1"), ("99", "2")], [("101", "3"), ("102", "4")])


class MovableClock(Clock):
    """The real clock, which a test can advance and whose wall clock it can set."""

    def __init__(self):
        super().__init__()
        self._ahead_s = 0.0
        self.wall_step_s = 0.0

    def monotonic(self):
        return super().monotonic() + self._ahead_s

    def wall_us(self):
        return super().wall_us() + round((self._ahead_s + self.wall_step_s) * 1_000_000)

    def wall_ms(self):
        return self.wall_us() // 1_000

    def call_at(self, when, callback):
        return super().call_at(when - self._ahead_s, callback)

    def put_forward(self, seconds):
        self._ahead_s += seconds


class Market:
    """Catalogue and supervisor: listed pairs, and subscribed books."""

    def __init__(self, books, listed):
        self._books = books
        self._instruments = {
            (exchange, symbol): Instrument(exchange, symbol, f"{exchange}:{symbol}")
            for exchange, symbols in listed.items()
            for symbol in symbols
        }
        self.wanted = {}
        self.states = {}
        self.lists_missing = set()
        self.on_read = Signal()

    def instrument(self, exchange, symbol):
        return self._instruments.get((exchange, symbol))

    def exchanges(self, symbol):
        return [exchange for exchange, traded in self._instruments if traded == symbol]

    def pairs(self, exchange):
        return [symbol for name, symbol in self._instruments if name == exchange]

    def unread(self):
        return self.lists_missing

    def suggest(self, symbol, n=3):
        return sorted({traded for _, traded in self._instruments})[:n]

    def in_use(self):
        return EXCHANGES

    def state(self, exchange):
        return self.states.get(exchange, "active")

    def acquire(self, instrument):
        self.wanted[instrument] = self.wanted.get(instrument, 0) + 1
        self._books.open(instrument)

    def release(self, instrument):
        self.wanted[instrument] -= 1


LISTED = {
    "binance": [SYMBOL, "ETH/USDT", "DOGE/USDT"],
    "okx": [SYMBOL, "ETH/USDT"],
    "kraken": [SYMBOL, "BTC/USD"],
}


class Node:
    """All parts of a gateway, and controls of the exchanges and the operator."""

    def __init__(
        self,
        store,
        *,
        settings,
        listed,
        limits=LIMITS,
        allowance_bytes=1 << 30,
        clock=None,
        make_market=Market,
        history=None,
    ):
        self.clock = clock or MovableClock()
        self.settings = settings
        self.store = store
        self.admin = Admin(store, PEPPER)
        self.accounts = Accounts(
            store,
            PEPPER,
            settings=AccountsSettings(allowance_bytes=allowance_bytes),
            clock=self.clock,
        )
        self.books = Books()
        self.market = make_market(self.books, listed)
        self.gateway = Gateway(
            settings,
            accounts=self.accounts,
            books=self.books,
            catalogue=self.market,
            supervisor=self.market,
            clock=self.clock,
            limits=limits,
            history=history,
        )
        self.streams = self.gateway.streams
        self.port = 0
        self.server_state = ServerState()
        self.app = _nothing  # what HTTP requests get

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}{PATH}"

    def change(self):
        return AuditedChange(self.clock.wall_ms(), "operator", "test")

    async def key(self, tier=Tier.BASIC, name="alice", **options):
        """The text of a new key."""
        with suppress(InvalidRequest):  # the account is there already
            await self.admin.create_account(name, self.change())
        return (await self.admin.create_key(name, tier, self.change(), **options)).text

    def snapshot(self, exchange, bids=BOOK[0], asks=BOOK[1], symbol=SYMBOL):
        instrument = self.market.instrument(exchange, symbol)
        self.books.open(instrument)
        whole = Snapshot(instrument, levels(bids), levels(asks))
        assert self.books.fill(whole, self.clock.monotonic()) is None

    def delta(self, exchange, bids, asks=(), symbol=SYMBOL):
        changed = Delta(self.market.instrument(exchange, symbol), levels(bids), levels(asks))
        assert self.books.change(changed, self.clock.monotonic()) is None

    def lose(self, exchange, reason="gap", symbol=SYMBOL):
        instrument = self.market.instrument(exchange, symbol)
        self.books.set_health(instrument, Health.STALE, reason, self.clock.monotonic())

    async def acknowledged(self):
        """Have every client acknowledge its received bytes, and charge them."""

        def nothing_left():
            tuple(self.gateway.charges.portions())
            return not any(
                each.output.sent for each in self.gateway.connections if each.processor.key
            )

        await settled(nothing_left)

    def later(self, seconds):
        """Advance the clock and tick once."""
        self.clock.put_forward(seconds)
        while self.gateway.scheduler.tick():
            pass

    @asynccontextmanager
    async def listening(self, protocol=None):
        """Serve on a free port, through uvicorn's own HTTP protocol."""
        config = uvicorn.Config(
            self.app, ws=protocol or self.gateway.protocol, lifespan="off", log_config=None
        )
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: config.http_protocol_class(
                config=config, server_state=self.server_state, app_state={}
            ),
            "127.0.0.1",
            0,
        )
        before, self.port = self.port, server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.port = before
            server.close()
            for connection in tuple(self.server_state.connections):
                connection.transport.abort()
            await self.gateway.stop()
            await server.wait_closed()

    @asynccontextmanager
    async def client(self, key=None, *, compression=None, query="", **options):
        """A connected client, authenticated if there is a key; the welcomes have been read."""
        async with connect(
            self.url + query,
            compression=compression,
            proxy=None,
            ping_interval=None,
            close_timeout=0.2,
            **options,
        ) as socket:
            talk = Talk(socket)
            if key is not None:
                assert (await talk.next())["type"] == "welcome"
                await talk.say(type="authenticate", api_key=key)
                assert (await talk.next())["session_id"]
            yield talk


class Talk:
    """One client's side of a conversation."""

    def __init__(self, socket):
        self.socket = socket

    async def say(self, **message):
        await self.socket.send(json.dumps(message))

    async def next(self):
        async with asyncio.timeout(PATIENCE_S):
            return parse(await self.socket.recv())

    async def until(self, kind):
        """The next message of a type; earlier ones are dropped."""
        while True:
            message = await self.next()
            if message["type"] == kind:
                return message

    async def ask(self, **message):
        await self.say(**message)
        return await self.next()

    async def closed(self):
        """The close code, after any remaining messages."""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionClosedError):
                async for _ in self.socket:
                    pass
            await self.socket.wait_closed()
        return self.socket.close_code


def parse(text):
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def levels(pairs):
    return Raw(json.dumps([[str(price), str(amount)] for price, amount in pairs]).encode())


async def settled(condition):
    """Run the event loop until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


async def _nothing(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def gateway(
    folder,
    *,
    listed=LISTED,
    limits=LIMITS,
    allowance_bytes=1 << 30,
    history=None,
    app_of=lambda node: _nothing,
    **options,
):
    """A listening node over a fresh database; `options` are its settings."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(Store(await migrated(folder)))
        settings = GatewaySettings(**{"connects_per_minute": 0, **options})
        node = Node(
            store,
            settings=settings,
            listed=listed,
            history=history,
            limits=limits,
            allowance_bytes=allowance_bytes,
        )
        node.app = app_of(node)
        yield await stack.enter_async_context(node.listening())

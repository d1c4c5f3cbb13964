"""A service of one page and one scripted WebSocket, for tests of the first page.

It speaks section 2 of the contract as far as the page does, from a seeded market. Run it to look:
`python tests/web/scripted.py 8123`, then open `/#key=any`.
"""

import asyncio
import json
import random
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal
from zlib import crc32

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from onebook.api import HealthFacts, Services, WebSocketFacts, create_app
from onebook.api.documents import asyncapi_of
from onebook.app.node import section_of
from onebook.clock import ManualClock
from onebook.config import ApiSettings
from onebook.core.types import CHECKSUM_LEVELS
from onebook.gateway import codes, messages
from onebook.http import EmbeddedServer
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.service import Transactions
from onebook.web import DocumentedLimit, Site, pages

EXCHANGES = ("binance", "bybit", "coinbase", "kraken", "okx", "poloniex")
TICK = Decimal("0.1")
GOOD_KEY = "ob_live_good"
# Documents for scripts that import modules of the page: an empty one, and one with its colours.
EMPTY = "/web/page/format.js"
COLOURED = "/docs/explanation/honesty"
UNSAID = object()


class Market:
    """Books of every exchange around one wandering price."""

    def __init__(self, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.middle = Decimal("97310.4")
        self.tick = TICK
        self.lot = 1.0  # what an amount is a multiple of, about
        self.stale: dict[str, str] = {}
        self.sockets: set[WebSocket] = set()
        self.heard: list[dict] = []  # but for what names a view
        self.viewed: list[dict] = []  # what names one
        self.views = True  # whether a symbol may have several
        self.interval_s = 0.2  # between two updates
        self.hurry = 1  # times faster than that
        self.frozen = False
        self.deaf = False  # it sends nothing at all
        self.deaf_to_pings = False
        self.horizons: dict[str, dict] = {}  # where the books of exchanges end, by name
        self.listed = list(EXCHANGES)  # what it says that there is
        self.names = list(EXCHANGES)  # whose books there are
        self.crossed = False
        self.reports = 0  # of usage
        self.quality: dict[str, list[dict]] | None = None  # rows by `by`
        self.quality_asked: list[dict] = []
        self.fees: dict[str, str] = {}  # the key's table
        self.updates = 0
        self.delivered: dict[str, dict] = {}  # the last update of each symbol and view, whole
        self.clock_ahead = timedelta()  # of the service
        self.transit_ms: dict[str, float | None] = {}  # by exchange; None: it sends no times
        self.late = timedelta()  # what updates wait on the line
        self.unplaced = 0.0  # of a route: what no lot fits
        self.unknown_rules: list[str] = []  # exchanges of a route without lots
        self.crossed_to = False  # whether the last update of crossings had one
        self.transferable: bool | object | None = UNSAID  # whether the coin can be moved
        self.quoted: list[str] = []  # further pairs, all of okx
        self.conversions: list[dict] = []  # of a view with quotes
        self.fills = True  # whether its books hold a size that is asked for

    def now(self) -> datetime:
        """The send time of an update that arrives now, by the clock of the service."""
        return datetime.now(UTC) + self.clock_ahead - self.late

    def levels(self, sign: int, depth: int) -> list:
        live = [name for name in self.names if name not in self.stale]
        rows = []
        price = self.middle + sign * self.tick
        for _ in range(depth):
            shares = [
                [name, round(self.lot * self.random.lognormvariate(-1.5, 1), 5)]
                for name in live
                if self.random.random() < 0.45
            ] or ([[live[0], 0.01]] if live else [])
            rows.append([float(price), round(sum(a for _, a in shares), 5), shares])
            price += sign * self.tick * self.random.randint(1, 9)
        return rows if live else []

    def fill(self, levels: list, kind: str, text: str) -> dict:
        """The first level covers the whole size, half from each of two exchanges."""
        price, notional = levels[0][0], float(text) if kind == "notionals" else 0.0
        amount = notional / price if notional else float(text)
        held = amount if self.fills else amount / 4
        half = {"amount": held / 2, "notional": held * price / 2}
        return {
            "by": kind.removesuffix("s"),
            "size": float(text),
            "amount": held,
            "notional": held * price,
            "average": price,
            "worst": price,
            "levels": 1,
            "complete": self.fills,
            "uncovered": [] if self.fills else ["okx"],
            "split": [{"exchange": name} | half for name in ("kraken", "okx")],
        }

    def update(self, symbol: str, asked: dict) -> dict:
        """The next update: full after a subscribe, then deltas in delta mode."""
        name = name_of(asked)
        before = self.delivered.get(name)
        if "view" in asked:
            number = before["update_number"] + 1 if before else 1
            views = {"cost": self.routed, "crossings": self.crossing, "depth": self.far}
            now = views[asked["view"]](symbol, number, asked)
        else:
            self.updates += 1
            self.middle += self.tick * self.random.randint(-6, 6)
            now = self.whole(symbol, self.updates, asked)
        self.delivered[name] = now
        return delta(before, now) if before and asked.get("mode") == "delta" else now

    def far(self, symbol: str, number: int, asked: dict) -> dict:
        """A named view in bins around the current price; the market does not move."""
        state, tick = self.random.getstate(), self.tick
        self.tick = Decimal(asked["group"]) / 5  # about a level in each bin, as far as was asked
        found = self.whole(symbol, number, asked)
        self.random.setstate(state)
        self.tick = tick
        return found | {"view": asked["view"]}

    def routed(self, symbol: str, number: int, asked: dict) -> dict:
        """The view of a size: its routes after fees."""
        found = self.still(symbol, number, asked)
        for direction, fills in found["data"].get("fill", {}).items():
            for fill in fills:
                sign = 1 if direction == "buy" else -1
                for part in fill["split"]:
                    part["fee"] = part["notional"] * fee_of(asked["fees"], part["exchange"]) / 100
                    part["limit"] = fill["worst"]
                fees = sum(part["fee"] for part in fill["split"])
                net = fill["notional"] + sign * fees
                fill |= {"fees": fees, "net": net, "net_average": net / fill["amount"]}
                fill |= {"extra": 0.25, "unplaced": self.unplaced, "exact": True, "oldest_ms": 40}
                fill["unknown_rules"] = self.unknown_rules
                del fill["levels"]
        return found

    def crossing(self, symbol: str, number: int, asked: dict) -> dict:
        """The view of crossings, sent when one begins or ends."""
        found = self.still(symbol, number, asked)
        began = self.crossed_to != self.crossed
        self.crossed_to, pair = self.crossed, {"buy": "okx", "sell": "kraken", "lasted_ms": 0}
        paid, received = float(self.middle), float(self.middle + 5)
        fees = [fee_of(asked["fees"], name) / 100 for name in ("okx", "kraken")]
        profit = 0.5 * (received * (1 - fees[1]) - paid * (1 + fees[0]))
        crossings = [] if number == 1 and not self.crossed else [pair | {"phase": "ended"}]
        if self.crossed:
            figures = {"amount": 0.5, "buy_limit": paid, "sell_limit": received, "gross": 2.5}
            figures |= {"profit": profit, "percent": 200 * profit / paid}
            figures |= {"buy_age_ms": 40, "sell_age_ms": 40, "phase": "began" if began else "lasts"}
            crossings = [pair | figures]
            if self.transferable is not UNSAID:
                parts = {"coin": "BTC", "possible": self.transferable, "buy": None, "sell": None}
                crossings[0]["transferable"] = parts
        found["data"]["crossings"] = crossings
        return found

    def still(self, symbol: str, number: int, asked: dict) -> dict:
        """A named view of the current market; the market does not move."""
        state = self.random.getstate()
        found = self.whole(symbol, number, asked)
        self.random.setstate(state)
        return found | {"view": asked["view"]}

    def once(self, symbol: str) -> dict:
        """A book with the times of its exchanges; the market does not move."""
        state = self.random.getstate()
        found = self.whole(symbol, max(1, self.updates), {"depth": 1})
        self.random.setstate(state)
        received, ahead = 1_763_632_800_000_000, 123_456  # microseconds
        layers = {
            name: None if ms is None else received - ahead - int(1_000 * ms)
            for name, ms in self.transit_ms.items()
        }
        found["data"]["times"] = {
            "merged": received,
            "sent": received,
            "exchanges": {
                name: {
                    "top": {"exchange": sent, "received": received},
                    "depth": {"exchange": sent, "received": received},
                    "offset": ahead,
                    "error": 100,
                }
                for name, sent in layers.items()
            },
        }
        return found | {"type": "aggregated_orderbook_data"}

    def whole(self, symbol: str, number: int, asked: dict) -> dict:
        depth = asked["depth"]
        bids, asks = self.levels(-1, depth), self.levels(1, depth)
        if self.crossed:
            price = float(self.middle + 5)
            bids.insert(0, [price, 0.5, [["kraken", 0.5]]])
        sizes = asked.get("fill")
        fill = {"fill": self.both(bids, asks, sizes)} if bids and sizes else {}
        if group := asked.get("group"):
            bids, asks = binned(bids, Decimal(group), -1), binned(asks, Decimal(group), 1)
        if asked.get("net"):
            bids, asks = (
                after(side, asked["fees"], -sign) for side, sign in ((bids, 1), (asks, -1))
            )
        best = (bids[0][0], asks[0][0]) if bids else (None, None)
        exact = [Decimal(str(price)) for price in best if price is not None]
        stats = {
            "best_bid": best[0],
            "best_ask": best[1],
            "spread": float(exact[1] - exact[0]) if bids else None,
            "spread_percent": (bids and round(100 * (best[1] - best[0]) / best[0], 4)) or None,
            "mid_price": float(sum(exact) / 2) if bids else None,
            "total_bid_volume": 1,
            "total_ask_volume": 1,
            "participating_exchanges": len(EXCHANGES) - len(self.stale),
            "crossed": self.crossed,
        }
        return {
            "type": "aggregated_orderbook_update",
            "symbol": symbol,
            "timestamp": self.now().isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "update_number": number,
            "subscription_id": "sub_0123456789ab",
            "data": {
                "bids": bids,
                "asks": asks,
                "market_stats": stats,
                "stale_exchanges": sorted(self.stale),
                "ages": {name: 40 for name in self.names if name not in self.stale},
                **({"coverage": self.horizons} if asked.get("coverage") else {}),
                **fill,
                **({"conversions": self.conversions} if asked.get("quotes") else {}),
            },
        }

    def both(self, bids: list, asks: list, sizes: dict) -> dict:
        """Fills by amount first, as the service orders them: of whole books, whatever the step."""
        each = [(kind, text) for kind in ("amounts", "notionals") for text in sizes.get(kind, [])]
        sides = {"buy": asks, "sell": bids}
        return {name: [self.fill(side, *size) for size in each] for name, side in sides.items()}

    async def publish(self, message: dict) -> None:
        for each in list(self.sockets):
            await each.send_text(json.dumps(message))

    async def close(self, socket: WebSocket, code: int, *, reconnect_in_ms: int) -> None:
        message = {"type": "server_shutdown", "message": "Restarting."}
        await socket.send_text(json.dumps(message | {"reconnect_in_ms": reconnect_in_ms}))
        self.sockets.discard(socket)
        await socket.close(code)

    async def set_stale(self, exchange: str, reason: str) -> None:
        self.stale[exchange] = reason
        await self.publish(status("BTC/USDT", exchange, "stale", reason))


def name_of(message: dict) -> str:
    """The symbol of a message, with its view if it names one."""
    return " ".join(message[part] for part in ("symbol", "view") if part in message)


Fees = dict[str, str] | Literal["published"]  # the option of a view

STATED: dict[str, str] = {"kraken": "0.26", "okx": "0.1"}  # the published fees


def fee_of(fees: Fees, name: str) -> float:
    """The fee of an exchange in percent; 0 if the table has none."""
    table = STATED if fees == "published" else fees
    return float(table.get(name, table.get("*", "0")))


def stated(symbol: str) -> list[dict]:
    """The published fees of a reply: one from a list, and an old one from a page."""
    kraken = {"exchange": "kraken", "source": "instruments", "date": "2026-11-27"}
    okx = {"exchange": "okx", "source": "page", "date": "2026-01-05", "old": True}
    okx["page"] = "https://okx.example/fees"
    return [
        each | {"symbol": symbol, "percent": STATED[each["exchange"]]} for each in (kraken, okx)
    ]


def after(levels: list, fees: Fees, sign: int) -> list:
    """Levels of one exchange each, ordered by price after fees, with gross prices."""
    parts = [
        [round(price * (1 + sign * fee_of(fees, name) / 100), 12), amount, name, price]
        for price, _, shares in levels
        for name, amount in shares
    ]
    merged: dict[float, list] = {}
    for net, amount, name, gross in sorted(parts, key=lambda part: sign * part[0]):
        level = merged.setdefault(net, [net, 0, []])
        level[1] = round(level[1] + amount, 5)
        level[2].append([name, amount, gross])
    return list(merged.values())[: len(levels)]


def binned(levels: list, step: Decimal, sign: int) -> list:
    """Levels binned by a step, bids rounded down and asks up, as the service does."""
    bins: dict[float, list] = {}
    for price, amount, shares in levels:
        edge = float(sign * -(-sign * Decimal(str(price)) // step) * step)
        bins.setdefault(edge, [edge, 0, []])
        bins[edge][1] = round(bins[edge][1] + amount, 5)
        bins[edge][2] += shares
    return list(bins.values())


def delta(before: dict, now: dict) -> dict:
    """The difference of two updates in delta mode: contract, section 2."""
    sides = {}
    for side in ("bids", "asks"):
        old, new = ({row[0]: row for row in each["data"][side]} for each in (before, now))
        gone = [[price, 0, []] for price in old if price not in new]
        sides[side] = gone + [row for price, row in new.items() if old.get(price) != row]
    best = [row for side in ("bids", "asks") for row in now["data"][side][:CHECKSUM_LEVELS]]
    text = ":".join(f"{json.dumps(price)}:{json.dumps(amount)}" for price, amount, _ in best)
    return now | {
        "type": "aggregated_orderbook_delta",
        "previous_update_number": before["update_number"],
        "data": now["data"] | sides,
        "checksum": crc32(text.encode()),
    }


def status(symbol: str, exchange: str, state: str, reason: str) -> dict:
    return {
        "type": "exchange_status",
        "symbol": symbol,
        "exchange": exchange,
        "state": state,
        "reason": reason,
        "timestamp": "2026-11-20T10:00:00.000000Z",
    }


def reply(message: dict, market: Market) -> dict | None:
    """The service's reply to one message of the page, books excepted."""
    match message["type"]:
        case "authenticate" if message["api_key"] == GOOD_KEY:
            return {
                "type": "welcome",
                "message": "Welcome.",
                "session_id": "s",
                "user_tier": "basic",
            }
        case "get_exchanges":
            return {"type": "exchanges_data", "data": {"supported_exchanges": market.listed}}
        case "get_pairs":
            pairs = {name: ["BTC/USDT", "ETH/USDT", "SOL/USDT"] for name in EXCHANGES}
            pairs["okx"] = [*pairs["okx"], "ETH/BTC", *market.quoted]
            return {"type": "pairs_data", "data": {"exchanges": pairs}}
        case "ping" if market.late or market.deaf or market.deaf_to_pings:
            return None
        case "ping":
            return {"type": "pong", "client_time": message["client_time"], "latency_ms": 0.4}
        case "get_aggregated_orderbook":
            return market.once(message["symbol"])
        case "subscribe_aggregated" if "view" in message and not market.views:
            return {
                "type": "subscription_error",
                "error": "subscription_limit_exceeded",
                "message": "This key may have at most 1 different view at a time.",
            }
        case "subscribe_aggregated" if message["symbol"] == "NO/PE":
            return {
                "type": "subscription_error",
                "error": "invalid_symbol",
                "message": "None of the exchanges trades NO/PE.",
                "suggested_symbols": ["BTC/USDT"],
            }
        case "subscribe_aggregated":
            chosen = message["exchanges"]
            fees = message.get("fees", {"*": "0"})
            named = STATED if fees == "published" else fees
            unknown = [] if "*" in named else [name for name in market.names if name not in named]
            published = {"published_fees": stated(message["symbol"])}
            return {
                **(published if fees == "published" else {}),
                **({"unknown_fee": unknown} if "fees" in message else {}),
                "type": "aggregated_subscription_response",
                "symbol": message["symbol"],
                "exchanges": list(market.names) if chosen == "all" else chosen,
                "requested": chosen,
                "success": True,
                **({"view": message["view"]} if "view" in message else {}),
                "rejected": [{"exchange": "gate", "reason": "symbol_not_traded"}],
            }
    return None


def services_of(**parts: Any) -> Services:
    """The parts of an API: those that are given, others without content."""
    absent: dict[str, Any] = dict.fromkeys(("accounts", "book_at", "quality", "recorded"), Any)
    return Services(
        transactions=Transactions(
            [ExchangeAdapter(BYBIT)], Vault(Any, MasterKeys(None)), cursor_secret=b"c" * 32
        ),
        health=lambda: HealthFacts(ready=True),
        published_fees=lambda symbol: ([], []),
        websocket=WebSocketFacts(
            messages.MESSAGES, codes.ERRORS, codes.ACTION_ERRORS, codes.CLOSE_CODES
        ),
        settings=ApiSettings(),
        **{"clock": ManualClock(), **absent, **parts},
    )


def site() -> Site:
    """The real API documents, without requests."""
    services = services_of()
    return Site(
        openapi=create_app(services).openapi,
        asyncapi=lambda: asyncapi_of(services, "http://books.example"),
        exchanges=[section_of(BYBIT.entry)],
        limits=[
            DocumentedLimit("server.port", "8000", "TCP port of REST and WebSocket; `0` takes one.")
        ],
    )


def make_app(market: Market) -> FastAPI:
    app = FastAPI(docs_url=None, openapi_url=None)
    wanted: dict[str, dict] = {}

    @app.get("/api/v1/data-usage/{key}")
    async def usage(key: str) -> dict:
        market.reports += 1
        used = 10 * 2**30 + market.reports * 2**20
        return {
            "username": "alice",
            "billing_tier": "premium",
            "api_key_active": True,
            "data_usage": {
                "bytes_used": used,
                "bytes_limit": 50 * 2**30,
                "usage_percentage": 20.0,
            },
            "billing_period": {"reset_date": "2126-12-01T00:00:00.000Z"},
        }

    @app.post("/api/v1/authenticate")
    async def authenticate() -> dict:
        return {"session_token": "ob_session"}

    @app.get("/api/v1/exchanges/quality")
    async def quality(request: Request) -> Response:
        market.quality_asked.append(dict(request.query_params))
        if market.quality is None:
            error = {"error": "history_unavailable", "message": "This node has no history."}
            return JSONResponse(error, 503)
        return JSONResponse({"rows": market.quality[request.query_params["by"]]})

    @app.get("/api/v1/fees")
    async def fees() -> dict:
        return {"fees": market.fees}

    @app.put("/api/v1/fees")
    async def replace_fees(request: Request) -> dict:
        market.fees = (await request.json())["fees"]
        return {"fees": market.fees}

    async def books(socket: WebSocket, name: str) -> None:
        while True:
            asked = wanted[name]
            silent = name.endswith(" crossings") and name in market.delivered
            silent = silent and market.crossed == market.crossed_to
            if not market.frozen and not market.deaf and not silent:
                await socket.send_text(json.dumps(market.update(asked["symbol"], asked)))
            own_s = asked["interval_ms"] / 1_000 if "view" in asked else 0
            await asyncio.sleep(max(market.interval_s, own_s) / market.hurry)

    @app.websocket("/api/v1/ws")
    async def ws(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(json.dumps({"type": "welcome", "available_commands": []}))
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                message = json.loads(await socket.receive_text())
                (market.viewed if "view" in message else market.heard).append(message)
                if message["type"] == "authenticate" and message["api_key"] != GOOD_KEY:
                    error = {"type": "authentication_error", "message": "The API key is not valid."}
                    await socket.send_text(json.dumps(error))
                    await socket.close(4002)
                    return
                if message["type"] == "authenticate":
                    market.sockets.add(socket)
                if (answer := reply(message, market)) is not None:
                    if "id" in message:
                        answer["id"] = message["id"]
                    await socket.send_text(json.dumps(answer))
                if (
                    message["type"] == "subscribe_aggregated"
                    and answer["type"] != "subscription_error"
                ):
                    name = name_of(message)
                    wanted[name] = message
                    market.delivered.pop(name, None)
                    if name not in tasks:
                        tasks[name] = asyncio.create_task(books(socket, name))
                if message["type"] == "resync":
                    market.delivered.pop(name_of(message), None)
                if message["type"] == "unsubscribe_aggregated" and name_of(message) in tasks:
                    tasks.pop(name_of(message)).cancel()
        except WebSocketDisconnect:
            pass
        finally:
            market.sockets.discard(socket)
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    app.mount("/", site_app())
    return app


@cache
def site_app() -> FastAPI:
    """The pages: the same for all markets."""
    app = FastAPI(docs_url=None, openapi_url=None)
    app.include_router(pages(site()))
    return app


@asynccontextmanager
async def serving(
    app: FastAPI, port: int = 0, *, listener: socket.socket | None = None
) -> AsyncIterator[int]:
    """Serve an app on a loopback port, or on a listening socket, which stays open."""
    config = uvicorn.Config(
        app, port=port, log_level="warning", ws="websockets-sansio", lifespan="off"
    )
    server = EmbeddedServer(config)
    if listener:
        refuse_waiting(listener)
    task = asyncio.create_task(server.serve(sockets=[listener.dup()] if listener else None))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.force_exit = True
        server.end()
        await task
        # A connection whose peer does not read would outlive the loop of the test.
        for connection in [*server.server_state.connections]:
            if connection.transport is not None:
                connection.transport.abort()
        while server.server_state.connections:
            await asyncio.sleep(0)


def refuse_waiting(listener: socket.socket) -> None:
    """Close the connections that clients of the server before have opened after its end."""
    listener.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()


async def main(port: int) -> None:
    market = Market()
    async with serving(make_app(market), port):
        await asyncio.sleep(8)
        await market.set_stale("kraken", "gap: a message is missing")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

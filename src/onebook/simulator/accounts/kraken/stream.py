"""Kraken's simulated private WebSocket, version 2: tokens, the channels balances and executions.

https://docs.kraken.com/api/docs/guides/spot-ws-auth, .../websocket-v2/balances and `executions`.
Unconfirmed: the text of a refused subscription, and `executions` other than fills (orders).
"""

import secrets
from collections.abc import Callable
from typing import Any, Final

from onebook.simulator.accounts.kraken.facts import BookedRow, SpotTrade
from onebook.simulator.accounts.kraken.names import ASSETS, LOT_DECIMALS, MS_TICKS, id_of
from onebook.simulator.accounts.kraken.rows import fixed, iso
from onebook.simulator.accounts.streams import PrivateConnection, PrivateStreams

CHANNELS: Final = ("balances", "executions")
TOKEN_S: Final = 900  # validity of an unused token


class KrakenStreams(PrivateStreams):
    """The private connections to a simulated Kraken."""

    paths = ("/v2",)

    def __init__(self, now_ms: Callable[[], int], held: Callable[[], dict[str, int]]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._held = held
        self._tokens: dict[str, int] = {}
        self._sequence = 0

    def token(self) -> dict[str, Any]:
        """Return a new token, like `GetWebSocketsToken`."""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = self._now_ms() + TOKEN_S * 1_000
        return {"token": token, "expires": TOKEN_S}

    def announce(self, booked: list[BookedRow], trades: list[SpotTrade]) -> None:
        """Send new rows of the ledger, and fills."""
        if trades:
            self._push("executions", "update", [_execution(each) for each in trades])
        if booked:
            self._push("balances", "update", [_transaction(each) for each in booked])

    def _push(self, channel: str, kind: str, data: list[dict[str, Any]]) -> None:
        self._sequence += 1
        message = {"channel": channel, "type": kind, "data": data, "sequence": self._sequence}
        self.push(channel, message)

    def _greet(self, connection: PrivateConnection) -> None:
        system = {"version": "2.0.10", "system": "online", "api_version": "v2"}
        facts = system | {"connection_id": 10_000 + connection.number}
        connection.send({"channel": "status", "type": "update", "data": [facts]})

    def _take(self, connection: PrivateConnection, request: dict[str, Any]) -> None:
        method, params = request.get("method"), request.get("params") or {}
        now = self._time()
        reply: dict[str, Any] = {"method": method, "time_in": now, "time_out": now}
        if "req_id" in request:
            reply["req_id"] = request["req_id"]
        if method == "ping":
            connection.send(reply | {"method": "pong"})
            return
        channel = str(params.get("channel"))
        problem = self._problem(connection, method, params)
        if problem:
            connection.send(reply | {"success": False, "error": problem})
            return
        asked = bool(params.get("snapshot", True)) and channel == "balances"
        connection.owner = params["token"]
        connection.send(
            reply | {"success": True, "result": {"channel": channel, "snapshot": asked}}
        )
        if method == "unsubscribe":
            connection.topics.discard(channel)
            return
        connection.topics.add(channel)
        if asked:
            data = [
                _balance(asset, units) for asset, units in sorted(self._held().items()) if units
            ]
            connection.send(
                {"channel": "balances", "type": "snapshot", "data": data, "sequence": 1}
            )

    def _problem(self, connection: PrivateConnection, method: Any, params: dict[str, Any]) -> str:
        if method not in ("subscribe", "unsubscribe") or params.get("channel") not in CHANNELS:
            return "Unknown request"
        token = params.get("token")
        if connection.owner is not None and token == connection.owner:
            return ""  # a token does not expire while it is in use
        if self._tokens.get(str(token), 0) <= self._now_ms():
            return "EGeneral:Permission denied"
        return ""

    def _time(self) -> str:
        return iso(self._now_ms() * MS_TICKS)


def _number(units: int, decimals: int) -> float:
    return float(fixed(units, decimals))


def _balance(asset: str, units: int) -> dict[str, Any]:
    listed = ASSETS[asset]
    amount = _number(units, listed.decimals)
    wallet = {"type": "spot", "id": "main", "balance": amount}
    return {"asset": listed.altname, "asset_class": "currency", "balance": amount,
            "wallets": [wallet]}  # fmt: skip


def _transaction(row: BookedRow) -> dict[str, Any]:
    """A ledger row in the form of the channel."""
    asset = ASSETS[row.asset]
    return {
        "ledger_id": id_of("L", row.seq),
        "ref_id": row.reference,
        "timestamp": iso(row.time),
        "type": row.type,
        "subtype": row.subtype,
        "asset": asset.altname,
        "asset_class": "currency",
        "category": row.type,
        "wallet_type": "spot",
        "wallet_id": "main",
        "amount": _number(row.amount, asset.decimals),
        "fee": _number(row.fee, asset.decimals),
        "balance": _number(row.balance, asset.decimals),
    }


def _execution(row: SpotTrade) -> dict[str, Any]:
    """A fill in the form of the channel."""
    decimals = row.pair.cost_decimals
    price = _number(row.price, row.pair.price_decimals)
    volume = _number(row.volume, LOT_DECIMALS)
    quote = ASSETS[row.pair.quote].altname
    return {
        "order_id": id_of("O", row.order),
        "exec_id": id_of("T", row.seq),
        "exec_type": "trade",
        "trade_id": 40_000_000 + row.seq,
        "symbol": row.pair.wsname,
        "side": row.side,
        "last_qty": volume,
        "last_price": price,
        "liquidity_ind": "m" if row.maker else "t",
        "cost": _number(row.cost, decimals),
        "order_type": row.ordertype,
        "order_status": "filled",
        "cum_qty": volume,
        "cum_cost": _number(row.cost, decimals),
        "avg_price": price,
        "fees": [{"asset": quote, "qty": _number(row.fee, decimals)}],
        "timestamp": iso(row.time),
    }

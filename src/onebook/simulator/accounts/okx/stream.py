"""OKX's simulated private WebSockets: login, channels of two paths, heartbeat, pushes.

https://www.okx.com/docs-v5/en/#overview-websocket and the pages of the channels. Each channel
exists under one path only. Unconfirmed: the error for a key of demo trading, and the event names of
balances for bills that the page does not mention.
"""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from onebook.simulator.accounts.okx import rows
from onebook.simulator.accounts.okx.account import OkxAccount
from onebook.simulator.accounts.okx.facts import OkxFill, OkxOrder, TradingBill
from onebook.simulator.accounts.okx.keys import SimulatedOkxKey
from onebook.simulator.accounts.okx.names import MASTER
from onebook.simulator.accounts.streams import PrivateConnection, PrivateStreams

PRIVATE, BUSINESS = "/ws/v5/private", "/ws/v5/business"
CHANNELS: Final = {
    "orders": PRIVATE,
    "account": PRIVATE,
    "balance_and_position": PRIVATE,
    "positions": PRIVATE,
    "deposit-info": BUSINESS,
    "withdrawal-info": BUSINESS,
}
EXPIRES_S: Final = 30
ERRORS: Final = {
    "60004": "Invalid timestamp",
    "60006": "Timestamp request expired",
    "60007": "Invalid sign",
    "60008": "The current WebSocket endpoint does not support subscribing to {} channels. "
    "Please check the WebSocket URL",
    "60011": "Please log in",
    "60012": "Invalid request",
    "60018": "Wrong URL or {} doesn't exist. Please use the correct URL, channel and parameters "
    "referring to API document.",
    "60024": "Wrong passphrase",
    "60031": "The WebSocket endpoint does not allow multiple or repeated logins.",
    "60032": "API key doesn't exist.",
}
# The event of balances for a bill, by its type; none for other types.
EVENTS: Final = {
    "1": "transferred",
    "2": "filled",
    "3": "delivered",
    "5": "liquidation",
    "6": "adjust_margin",
    "7": "interest_deduction",
    "8": "funding_fee",
    "9": "adl",
    "10": "claw_back",
    "24": "filled",
    "30": "filled",
    "34": "settlement",
}
Row = dict[str, Any]


class OkxStreams(PrivateStreams):
    """The private connections to a simulated OKX.

    Args:
        keys: The keys of this site, without those of demo trading.
        held: Returns the answer of account/balance.
    """

    paths = (PRIVATE, BUSINESS)

    def __init__(
        self,
        keys: Mapping[str, SimulatedOkxKey],
        now_ms: Callable[[], int],
        held: Callable[[], Row],
    ) -> None:
        super().__init__()
        self._keys = keys
        self._now_ms = now_ms
        self._held = held
        self._told_ms = now_ms()  # up to when deposits and withdrawals were announced

    # Pushes ---------------------------------------------------------------------------------

    def announce(self, account: OkxAccount) -> None:
        """Push the changes of an account's last event."""
        now = self._now_ms()
        happened = account.happened
        orders = {(each.time, each.seq): each for each in happened.orders}
        for fill in happened.fills:
            self._push("orders", [_filled(orders[fill.order], fill)])
        for name, bills in _by_event(happened.bills).items():
            self._push("balance_and_position", [_changed(bills, name, now)])
        if happened.bills:
            self._push("account", [self._held()], eventType="event_update")
        for name, shown in (("deposit", rows.deposit), ("withdrawal", rows.withdrawal)):
            self._push(f"{name}-info", self._moved(account.lists[f"{name}s"], shown, now))
        self._told_ms = now

    def _moved(
        self, listed: Iterable[Any], shown: Callable[[Any, int], Row], now: int
    ) -> list[Row]:
        """The new or changed rows of a list."""
        found = []
        for each in listed:
            row = shown(each, now)
            fresh = each.time > self._told_ms
            if each.time <= now and (fresh or shown(each, self._told_ms) != row):
                found.append(row | {"uid": MASTER, "subAcct": "", "pTime": str(now)})
        return found

    def _push(self, channel: str, data: list[Row], **facts: str) -> None:
        for row in data:
            arg = {"channel": channel, "uid": MASTER}
            if channel == "orders":
                arg["instType"] = "ANY"
            self.push(channel, {"arg": arg, **facts, "data": [row]})

    # Requests -------------------------------------------------------------------------------

    def _receive(self, connection: PrivateConnection, text: str) -> None:
        if text == "ping":
            connection.send_text("pong")
        else:
            super()._receive(connection, text)

    def _take(self, connection: PrivateConnection, request: Row) -> None:
        place = {"connId": f"{connection.number:08x}"}
        if "id" in request:
            place["id"] = str(request["id"])
        op, args = request.get("op"), request.get("args")
        if op not in ("login", "subscribe", "unsubscribe") or not isinstance(args, list):
            connection.send(_error("60012") | place)
        elif op == "login":
            code = self._login(connection, args[0] if args else {})
            reply = _error(code) if code else {"event": "login", "code": "0", "msg": ""}
            connection.send(reply | place)
        else:
            for each in args:
                connection.send(self._subscribe(connection, str(op), each) | place)
                self._show(connection, str(op), each)

    def _login(self, connection: PrivateConnection, asked: Any) -> str:
        """Check a login; return the code of its fault."""
        if connection.owner is not None:
            return "60031"
        if not isinstance(asked, dict):
            return "60012"
        stamp = str(asked.get("timestamp"))
        if not stamp.isdigit() or len(stamp) != 10:
            return "60004"
        if abs(int(stamp) - self._now_ms() // 1_000) > EXPIRES_S:
            return "60006"
        key = self._keys.get(str(asked.get("apiKey")))
        if key is None:
            return "60032"
        if not hmac.compare_digest(key.passphrase, str(asked.get("passphrase"))):
            return "60024"
        text = f"{stamp}GET/users/self/verify".encode()
        sign = b64encode(hmac.new(key.secret.encode(), text, hashlib.sha256).digest()).decode()
        if not hmac.compare_digest(sign, str(asked.get("sign"))):
            return "60007"
        connection.owner = key
        return ""

    def _subscribe(self, connection: PrivateConnection, op: str, asked: Any) -> Row:
        channel = str(asked.get("channel")) if isinstance(asked, dict) else ""
        if connection.owner is None:
            return _error("60011")
        if channel not in CHANNELS:
            return _error("60018", f"channel:{channel}")
        if CHANNELS[channel] != connection.path:
            return _error("60008", channel)
        if op == "subscribe":
            connection.topics.add(channel)
        else:
            connection.topics.discard(channel)
        return {"event": op, "arg": asked}

    def _show(self, connection: PrivateConnection, op: str, asked: Any) -> None:
        """Send the initial data of a channel."""
        channel = asked.get("channel") if isinstance(asked, dict) else ""
        if op != "subscribe" or channel not in connection.topics:
            return
        arg = {"channel": channel, "uid": MASTER}
        if channel == "account":
            facts = {"eventType": "snapshot", "curPage": 1, "lastPage": True}
            connection.send({"arg": arg, **facts, "data": [self._held()]})
        if channel == "balance_and_position":
            details = self._held()["details"]
            balances = [
                {name: row[name] for name in ("ccy", "cashBal", "uTime")} for row in details
            ]
            row = {"pTime": str(self._now_ms()), "eventType": "snapshot", "balData": balances}
            connection.send({"arg": arg, "data": [row | {"posData": [], "trades": []}]})
        if CHANNELS.get(channel) == PRIVATE:
            event = "channel-conn-count"
            count = sum(channel in each.topics for each in self.connections)
            connection.send({"event": event, "channel": channel, "connCount": str(count)})


def _error(code: str, detail: str = "") -> Row:
    return {"event": "error", "code": code, "msg": ERRORS[code].format(detail)}


def _by_event(bills: Iterable[TradingBill]) -> dict[str, list[TradingBill]]:
    found: dict[str, list[TradingBill]] = {}
    for each in bills:
        if each.type in EVENTS:
            found.setdefault(EVENTS[each.type], []).append(each)
    return found


def _changed(bills: list[TradingBill], event: str, now: int) -> Row:
    """A push of balances: the last one of each currency."""
    last = {each.ccy: each for each in bills}
    return {
        "pTime": str(now),
        "eventType": event,
        "balData": [
            {"ccy": ccy, "cashBal": rows.text(each.balance), "uTime": str(each.ts)}
            for ccy, each in last.items()
        ],
        "posData": [],
        "trades": [
            {"instId": each.instrument.id, "tradeId": str(each.trade)}
            for each in bills
            if each.instrument is not None and each.trade is not None
        ],
    }


def _filled(order: OkxOrder, fill: OkxFill) -> Row:
    """A push of an order that was filled."""
    return rows.order(order) | {
        "tradeId": str(fill.trade),
        "fillPx": rows.text(fill.price),
        "fillSz": rows.text(fill.size),
        "fillTime": str(fill.ts),
        "fillFee": rows.text(fill.fee),
        "fillFeeCcy": fill.fee_ccy,
        "fillPnl": rows.text(fill.pnl),
        "fillNotionalUsd": "",
        "execType": fill.liquidity,
        "code": "0",
        "msg": "",
        "reqId": "",
        "amendResult": "",
    }

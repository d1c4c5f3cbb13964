"""Kraken and OKX accounts of any length, whose rows are generated on request.

Event `n` is a trade of two rows; every twentieth is a deposit and a withdrawal instead. All figures
follow from `n` alone, so a million rows need no memory here, and every balance chains.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx
from msgspec import Raw, json

Row = dict[str, Any]
Query = dict[str, str]
STEP_MS: Final = 13_000  # by which half a million events take less than three months
ONE: Final = 10**8
EACH: Final = 20  # events, of which the last is a deposit and a withdrawal
BOUGHT, PAID, CHARGED = ONE // 1_000, 50 * ONE, ONE * 13 // 100
OPENING_BASE, OPENING_QUOTE = 10 * ONE, 10**9 * ONE
DEPOSITED, WITHDRAWN, NETWORK = ONE, ONE // 2, ONE // 1_000


def shown(units: int) -> str:
    """An amount with all its decimals."""
    whole, part = divmod(abs(units), ONE)
    return f"{'-' if units < 0 else ''}{whole}.{part:08}"


class Events:
    """Times and counts of the events of an account, oldest first.

    Args:
        rows: Rows of its ledger, two for each event.
        step_ms: Time between two events.
    """

    def __init__(self, rows: int, now_ms: int, step_ms: int) -> None:
        self.count = rows // 2
        self._step_ms = step_ms
        self._first_ms = now_ms - (self.count + 1) * step_ms

    def at_ms(self, number: int) -> int:
        return self._first_ms + number * self._step_ms

    def newest(self, to_ms: int) -> int:
        """The newest event up to a time, inclusive; -1 without one."""
        return max(-1, min(self.count - 1, (to_ms - self._first_ms) // self._step_ms))

    @staticmethod
    def is_move(number: int) -> bool:
        return number % EACH == EACH - 1

    @staticmethod
    def moves(number: int) -> int:
        """Deposits and withdrawals up to an event."""
        return (number + 1) // EACH

    def trades(self, number: int) -> int:
        """Trades up to an event; event 0 opens the account."""
        return max(0, number - self.moves(number))

    @staticmethod
    def trade(index: int) -> int:
        """The event of a trade by its place among the trades."""
        first = EACH - 2
        if index < first:
            return 1 + index
        block, place = divmod(index - first, EACH - 1)
        return EACH * (1 + block) + place

    def base(self, number: int) -> int:
        """What is held of the base coin after an event."""
        gained = DEPOSITED - WITHDRAWN - NETWORK
        return OPENING_BASE + self.trades(number) * BOUGHT + self.moves(number) * gained

    def quote(self, number: int) -> int:
        return OPENING_QUOTE - self.trades(number) * (PAID + CHARGED)


class Endless(httpx.AsyncBaseTransport):
    """Answers requests for an account by the names of its lists."""

    def __init__(self, rows: int, *, now_ms: Callable[[], int], step_ms: int = STEP_MS) -> None:
        self.events = Events(rows, now_ms(), step_ms)
        self.now_ms = now_ms
        self.asked = 0

    def answer(self, name: str, query: Query) -> Any:
        """The decoded body of an answer."""
        raise NotImplementedError

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        query = dict(parse_qsl(request.url.query.decode()))
        if request.method == "POST":
            query |= dict(parse_qsl(request.content.decode()))
        return httpx.Response(200, content=json.encode(self.answer(request.url.path, query)))


class EndlessKraken(Endless):
    """A spot account; `page_rows` is the size of its pages, which no request can set."""

    page_rows = 50

    def answer(self, name: str, query: Query) -> Any:
        return {"error": [], "result": self._result(name.rpartition("/")[2], query)}

    def _result(self, name: str, query: Query) -> Any:
        last = self.events.count - 1
        if name == "Ledgers":
            return self._ledger(query)
        if name == "TradesHistory":
            return self._trades(query)
        if name in ("DepositStatus", "WithdrawStatus"):
            return self._moves(name, query)
        if name in ("Balance", "BalanceEx"):
            held = {"XXBT": self.events.base(last), "ZUSD": self.events.quote(last)}
            if name == "Balance":
                return {asset: shown(units) for asset, units in held.items()}
            return {
                asset: {"balance": shown(units), "hold_trade": "0"} for asset, units in held.items()
            }
        if name == "GetApiKeyInfo":
            return {
                "api_key": "k", "nonce": "1", "nonce_window": "0", "query_from": "0",
                "query_to": "0", "valid_until": "0",
                "permissions": ["query-funds", "query-ledger", "query-closed-trades"],
            }  # fmt: skip
        if name == "Earn/Allocations":
            return {"items": [], "next_cursor": None}
        return {}

    def _span(self, query: Query) -> tuple[int, int]:
        """The oldest and the newest event of a query."""
        end_ms = int(float(query["end"]) * 1_000) if query.get("end") else 1 << 60
        start_ms = int(float(query["start"]) * 1_000) if query.get("start") else -1
        return self.events.newest(start_ms) + 1, self.events.newest(end_ms)

    def _ledger(self, query: Query) -> Row:
        low, high = self._span(query)
        kind, offset = query.get("type", "all"), int(query.get("ofs") or 0)
        if kind in ("deposit", "withdrawal"):
            moves = [n for n in range(high, low - 1, -1) if self.events.is_move(n)]
            numbers = [
                2 * n + (kind == "withdrawal") for n in moves[offset : offset + self.page_rows]
            ]
            return {"ledger": {f"L{n:012}": self._row(n) for n in numbers}, "count": len(moves)}
        top = 2 * high + 1 - offset
        page = range(top, max(2 * low, top + 1 - self.page_rows) - 1, -1)
        return {
            "ledger": {f"L{n:012}": self._row(n) for n in page}, "count": 2 * (high + 1 - low),
        }  # fmt: skip

    def _row(self, place: int) -> Row:
        number, second = divmod(place, 2)
        events = self.events
        if not number:
            native, amount = ("ZUSD", OPENING_QUOTE) if second else ("XXBT", OPENING_BASE)
            kind, refid, fee, held = "deposit", f"Q0{second}", 0, amount
        elif events.is_move(number):
            native, held = "XXBT", events.base(number)
            if second:
                kind, refid, amount, fee = "withdrawal", f"A{number}", -WITHDRAWN, NETWORK
            else:
                kind, refid, amount, fee = "deposit", f"Q{number}", DEPOSITED, 0
                held += WITHDRAWN + NETWORK
        elif second:
            native, kind, refid, amount, fee = "ZUSD", "trade", f"T{number}", -PAID, CHARGED
            held = events.quote(number)
        else:
            native, kind, refid, amount, fee = "XXBT", "trade", f"T{number}", BOUGHT, 0
            held = events.base(number)
        return {
            "refid": refid, "time": _seconds(events.at_ms(number)), "type": kind,
            "subtype": "tradespot" if kind == "trade" else "", "aclass": "currency",
            "asset": native, "amount": shown(amount), "fee": shown(fee), "balance": shown(held),
        }  # fmt: skip

    def _trades(self, query: Query) -> Row:
        low, high = self._span(query)
        first, last = self.events.trades(low - 1), self.events.trades(high) - 1
        top = last - int(query.get("ofs") or 0)
        least = max(first, top + 1 - self.page_rows)
        numbers = [Events.trade(index) for index in range(top, least - 1, -1)]
        trades = {
            f"T{number}": {
                "ordertxid": f"O{number}", "pair": "XXBTZUSD", "type": "buy", "ordertype": "limit",
                "time": _seconds(self.events.at_ms(number)), "price": "50000.00000",
                "cost": shown(PAID), "fee": shown(CHARGED), "vol": shown(BOUGHT), "margin": "0",
                "leverage": "0", "misc": "", "trade_id": number,
            }
            for number in numbers
        }  # fmt: skip
        return {"trades": trades, "count": last + 1 - first}

    def _moves(self, name: str, query: Query) -> Row:
        low, high = self._span(query)
        deposits, cursor = name == "DepositStatus", query.get("cursor", "true")
        if cursor != "true":
            high = int(cursor)
        limit, rows = int(query.get("limit") or 25), []
        high -= (high + 1) % EACH
        while high >= max(low, 1) and len(rows) < limit:
            rows.append({
                "method": "Bitcoin", "aclass": "currency", "asset": "XXBT",
                "refid": f"{'Q' if deposits else 'A'}{high}", "txid": f"{high:064x}",
                "info": "bc1", "amount": shown(DEPOSITED if deposits else WITHDRAWN),
                "fee": shown(0 if deposits else NETWORK),
                "time": self.events.at_ms(high) // 1_000, "status": "Success",
            })  # fmt: skip
            high -= EACH
        following = str(high) if high >= max(low, 1) else None
        return {"deposit" if deposits else "withdrawals": rows, "next_cursor": following}


class EndlessOkx(Endless):
    """A trading account, and a funding account for deposits and withdrawals."""

    def answer(self, name: str, query: Query) -> Any:
        return {"code": "0", "msg": "", "data": list(self._data(name, query))}

    def _data(self, name: str, query: Query) -> Iterator[Row]:
        name = name.removeprefix("/api/v5/")
        limit, last = int(query.get("limit", "100")), self.events.count - 1
        if name in ("account/bills", "account/bills-archive"):
            yield from self._bills(query, limit, 7 if name.endswith("bills") else 89)
        elif name in ("asset/bills", "asset/bills-history"):
            yield from self._funding(query, limit)
        elif name == "trade/fills-history" and query["instType"] == "SPOT":
            for number in self._trades(query, limit):
                yield self._fill(number)
        elif name in ("asset/deposit-history", "asset/withdrawal-history"):
            yield from self._moves(query, limit, deposits="deposit" in name)
        elif name == "account/balance":
            held = {
                "BTC": self.events.trades(last) * BOUGHT + OPENING_BASE,
                "USDT": self.events.quote(last),
            }
            yield {"details": [{"ccy": c, "cashBal": shown(n)} for c, n in held.items()]}
        elif name == "asset/balances":
            gained = self.events.moves(last) * (DEPOSITED - WITHDRAWN - NETWORK)
            yield {"ccy": "BTC", "bal": shown(gained)}

    def _span(self, query: Query, kept_days: int = 10_000) -> tuple[int, int]:
        kept_ms = self.now_ms() - kept_days * 86_400_000
        begin_ms = max(int(query.get("begin", "0")), kept_ms)
        return self.events.newest(begin_ms - 1) + 1, self.events.newest(
            int(query.get("end", 1 << 60))
        )

    def _bills(self, query: Query, limit: int, kept_days: int) -> Iterator[Row]:
        low, high = self._span(query, kept_days)
        place = min(2 * high + 1, int(query.get("after", 1 << 60)) - 1)
        while place >= 2 * low and limit:
            number, second = divmod(place, 2)
            if not self.events.is_move(number):
                yield self._bill(number, second)
                limit -= 1
            place -= 1

    def _bill(self, number: int, second: int) -> Row:
        events = self.events
        held = events.quote(number) if second else OPENING_BASE + events.trades(number) * BOUGHT
        row = {
            "billId": str(2 * number + second), "ts": str(events.at_ms(number)), "notes": "",
            "ccy": "USDT" if second else "BTC", "bal": shown(held), "pnl": "0", "mgnMode": "",
            "from": "", "to": "", "clOrdId": "", "interest": "0",
        }  # fmt: skip
        if not number:
            amount = OPENING_QUOTE if second else OPENING_BASE
            return row | {
                "type": "22", "subType": "308", "balChg": shown(amount), "fee": "0", "instType": "",
                "instId": "", "ordId": "", "tradeId": "", "px": "", "sz": "",
            }  # fmt: skip
        change, fee = (-PAID - CHARGED, -CHARGED) if second else (BOUGHT, 0)
        return row | {
            "type": "2", "subType": "1", "balChg": shown(change), "fee": shown(fee),
            "instType": "SPOT", "instId": "BTC-USDT", "ordId": f"7{number}",
            "tradeId": f"9{number}", "px": "50000", "sz": shown(BOUGHT), "execType": "T",
            "fillTime": str(events.at_ms(number)),
        }  # fmt: skip

    def _trades(self, query: Query, limit: int) -> Iterator[int]:
        low, high = self._span(query)
        number = min(high, (int(query.get("after", 1 << 60)) - 1) // 2)
        while number >= max(low, 1) and limit:
            if not self.events.is_move(number):
                yield number
                limit -= 1
            number -= 1

    def _fill(self, number: int) -> Row:
        at = str(self.events.at_ms(number))
        return {
            "instType": "SPOT", "instId": "BTC-USDT", "ordId": f"7{number}", "fillTime": at,
            "tradeId": f"9{number}", "billId": str(2 * number), "side": "buy", "ts": at,
            "fillPx": "50000", "fillSz": shown(BOUGHT), "fee": shown(-CHARGED), "feeCcy": "USDT",
        }  # fmt: skip

    def _funding(self, query: Query, limit: int) -> Iterator[Row]:
        by_time = query.get("pagingType", "1") == "1"
        after, place = int(query.get("after", 1 << 60)), 2 * (self.events.count - 1) + 1
        if by_time:
            place = min(place, 2 * self.events.newest(after - 1) + 1)
        else:
            place = min(place, after - 1)
        number = place // 2
        number -= (number + 1) % EACH
        while number > 0 and limit > 0:
            for second in (1, 0):
                if 2 * number + second <= place and limit:
                    yield self._moved(number, second)
                    limit -= 1
            number -= EACH

    def _moved(self, number: int, second: int) -> Row:
        change = -WITHDRAWN - NETWORK if second else DEPOSITED
        held = self.events.moves(number) * (DEPOSITED - WITHDRAWN - NETWORK)
        if not second:
            held += WITHDRAWN + NETWORK
        return {
            "billId": str(2 * number + second), "ts": str(self.events.at_ms(number)),
            "type": "2" if second else "1", "ccy": "BTC", "balChg": shown(change),
            "bal": shown(held), "notes": "", "clientId": "",
        }  # fmt: skip

    def _moves(self, query: Query, limit: int, *, deposits: bool) -> Iterator[Row]:
        after, before = int(query.get("after", 1 << 60)), int(query.get("before", -1))
        number = self.events.newest(after - 1)
        number -= (number + 1) % EACH
        while number > 0 and limit and self.events.at_ms(number) > before:
            row = {
                "ccy": "BTC", "chain": "BTC-Bitcoin", "from": "", "to": "bc1",
                "txId": f"{number:064x}", "ts": str(self.events.at_ms(number)), "state": "2",
                "amt": shown(DEPOSITED if deposits else WITHDRAWN),
            }  # fmt: skip
            if deposits:
                yield row | {"depId": str(number), "fromWdId": ""}
            else:
                yield row | {
                    "wdId": str(number), "fee": shown(NETWORK), "feeCcy": "BTC", "clientId": "",
                }  # fmt: skip
            limit -= 1
            number -= EACH


def _seconds(at_ms: int) -> Raw:
    return Raw(f"{at_ms // 1_000}.{at_ms % 1_000:03}".encode())

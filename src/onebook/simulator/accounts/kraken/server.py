"""The simulated Kraken spot API as an ASGI application.

It checks signatures, nonces, permissions and the counter of each key, and returns errors as Kraken
does: HTTP 200 with `error`. https://docs.kraken.com/exchange/guides/general/errors
"""

import asyncio
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Iterable
from decimal import Decimal, InvalidOperation
from email.utils import formatdate
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from msgspec import MsgspecError, json
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from onebook.clock import SYSTEM_CLOCK
from onebook.simulator.accounts.admission import AccountFaults, DecayingCounter
from onebook.simulator.accounts.blocks import FIRST, LAST, Place
from onebook.simulator.accounts.history import UNIT
from onebook.simulator.accounts.kraken import rows
from onebook.simulator.accounts.kraken.account import KrakenAccount
from onebook.simulator.accounts.kraken.exports import REPORTS_MAX, ExportJob
from onebook.simulator.accounts.kraken.facts import SpotTrade
from onebook.simulator.accounts.kraken.keys import (
    LOCKOUT_S,
    KrakenRefused,
    SimulatedKrakenKey,
    SpotGate,
)
from onebook.simulator.accounts.kraken.names import (
    ASSETS,
    MS_TICKS,
    PAIRS,
    TICKS,
    hash_of,
    id_of,
    number_of,
)
from onebook.simulator.accounts.kraken.stream import KrakenStreams
from onebook.simulator.accounts.serving import SimulatedHost, cloudflare, path_of

JSON: Final = "application/json; charset=utf-8"
PAGE_ROWS: Final = 50
IDS_MAX: Final = 20
TIERS: Final = {"starter": (15, 0.33), "intermediate": (20, 0.5), "pro": (20, 1.0)}
COSTS: Final = {"Ledgers": 2, "TradesHistory": 2, "QueryLedgers": 2, "QueryTrades": 2}
PUBLIC_LIMIT: Final = (15, 1.0)  # per address
# The permissions that a call needs, one from each line; none for the key's own description.
PERMISSIONS: Final[dict[str, tuple[str, ...]]] = {
    "Balance": ("query-funds",),
    "BalanceEx": ("query-funds",),
    "TradeBalance": ("query-funds",),
    "DepositStatus": ("query-funds",),
    "WithdrawStatus": ("withdraw-funds", "query-ledger"),
    "Earn/Allocations": ("query-funds",),
    "Earn/Strategies": ("query-funds",),
    "Ledgers": ("query-ledger",),
    "QueryLedgers": ("query-ledger",),
    "TradesHistory": ("query-closed-trades",),
    "QueryTrades": ("query-closed-trades",),
    "ClosedOrders": ("query-closed-trades",),
    "OpenPositions": ("query-open-trades",),
    "AddExport": ("export-data",),
    "ExportStatus": ("export-data",),
    "RetrieveExport": ("export-data",),
    "RemoveExport": ("export-data",),
    "GetApiKeyInfo": (),
    "GetWebSocketsToken": (),
}
TYPES: Final = frozenset((
    "all", "trade", "deposit", "withdrawal", "transfer", "margin", "adjustment", "rollover",
    "credit", "settled", "staking", "dividend", "sale", "nft_rebate",
))  # fmt: skip
TRADE_TYPES: Final = {
    "any position": ("opening", "closing"),
    "closed position": ("opening",),
    "closing position": ("closing",),
    "no position": ("",),
}
DEPOSITS_SHOWN, WITHDRAWALS_SHOWN = 25, 500
ON_ORDER: Final = ("ZEUR", "XXBT")  # a tenth is on hold for open orders
EARN_ROWS: Final = 4
EARN_SUFFIXES: Final = (".S", ".B", ".F", ".M")
# Faults from which `AccountFaults` draws; any other name that begins with E is that error.
FAULTS: Final = (
    "EService:Unavailable",
    "EService:Busy",
    "EGeneral:Internal error",
    "EAPI:Rate limit exceeded",
    "EAPI:Invalid nonce",
    "throttled",  # EService: Throttled: and until when
    "502",  # the edge, with an HTML body
    "520",
    "truncated",  # half of the body
    "reset",  # the connection is closed
    "slow",  # a delayed answer
    "bare_error",  # error as a string
    "no_result",  # neither an error nor a result
    "warning",  # a warning in addition to a valid result
    "unknown_type",  # ledger rows of an undocumented type
)
Result = Any


class SpotQuery(NamedTuple):
    """A private request: its fields, its key, and its time."""

    fields: dict[str, str]
    key: SimulatedKrakenKey
    now: int

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean field."""
        return self.fields.get(name, str(default)).lower() in ("true", "1")

    def whole(self, name: str, default: int = 0) -> int:
        """Return a field that is a whole number."""
        text = self.fields.get(name, "")
        if text and not text.isdecimal():
            raise KrakenRefused("EGeneral:Invalid arguments")
        return int(text) if text else default


class SimulatedKraken(SimulatedHost):
    """The simulated exchange with one account.

    Args:
        account: Its history.
        keys: The keys that it accepts.
        now_ms: The exchange's clock.
        faults: The faults to inject.
        tier: The tier of the counter: starter, intermediate or pro.
        limited: Whether rate limits are enforced.
        shuffled: Whether the rows of a page are in random order in their object.
        wrong_counts: Whether `count` counts all rows, whatever the filter.
        funding_days: Retention of the lists of deposits and withdrawals; 0: for ever.
        lockout_s: Duration of a lockout after repeated failures of a key.
    """

    edge_errors = {"502": cloudflare(502), "520": cloudflare(520)}  # noqa: RUF012

    def __init__(
        self,
        account: KrakenAccount,
        keys: Iterable[SimulatedKrakenKey],
        *,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        faults: AccountFaults | None = None,
        tier: str = "starter",
        limited: bool = True,
        shuffled: bool = True,
        wrong_counts: bool = False,
        funding_days: int = 0,
        lockout_s: float = LOCKOUT_S,
    ) -> None:
        super().__init__(now_ms, sleep, faults)
        self.account = account
        self._tier = tier
        self._limited = limited
        self._shuffled = shuffled
        self._wrong_counts = wrong_counts
        self._funding_days = funding_days
        self._random = Random(1)  # noqa: S311  # a simulation
        self.gate = SpotGate({key.api_key: key for key in keys}, lockout_s)
        self._counters: dict[str, DecayingCounter] = {}
        self._exports: dict[str, ExportJob] = {}
        self._answers: dict[str, Callable[[SpotQuery], Result]] = {
            "Balance": self._balance,
            "BalanceEx": self._balance_extended,
            "TradeBalance": self._trade_balance,
            "Ledgers": self._ledgers,
            "QueryLedgers": self._query_ledgers,
            "TradesHistory": self._trades,
            "QueryTrades": self._query_trades,
            "ClosedOrders": self._orders,
            "OpenPositions": self._positions,
            "DepositStatus": lambda query: self._movements(query, "deposit", DEPOSITS_SHOWN),
            "WithdrawStatus": lambda query: self._movements(
                query, "withdrawals", WITHDRAWALS_SHOWN
            ),
            "Earn/Allocations": self._allocations,
            "Earn/Strategies": self._strategies,
            "AddExport": self._add_export,
            "ExportStatus": self._export_status,
            "RetrieveExport": self._retrieve_export,
            "RemoveExport": self._remove_export,
            "GetApiKeyInfo": self._key_info,
            "GetWebSocketsToken": self._token,
        }
        self.streams = KrakenStreams(now_ms, lambda: dict(account.state.held))

    async def _stream(self, socket: WebSocket) -> None:
        await self.streams.serve(socket)

    def act(self, kind: str) -> None:
        """Run an event now, and notify the private streams; see `KrakenAccount.happen`."""
        tables = ("ledger", "trades")
        before = [self.account.select(each, limit=0).total for each in tables]
        self.account.happen(kind, self._now_ms())
        booked, trades = (
            self.account.select(each, limit=self.account.select(each, limit=0).total - count).rows
            for each, count in zip(tables, before, strict=True)
        )
        self.streams.announce(booked[::-1], trades[::-1])

    def _token(self, query: SpotQuery) -> Result:
        if not query.key.websockets:
            raise KrakenRefused("EGeneral:Permission denied")
        return self.streams.token()

    def _answer(self, request: Request, body: bytes, fault: str) -> Response:
        try:
            if fault.startswith("E"):
                raise KrakenRefused(fault)
            if fault == "throttled":
                raise KrakenRefused(f"EService: Throttled: {self._now_ms() // 1_000 + 5}")
            result = self._result(request, body)
        except KrakenRefused as refused:
            return _enveloped([str(refused)])
        if isinstance(result, Response):
            return result
        if fault == "bare_error":
            return _enveloped("EService:Unavailable")
        if fault == "no_result":
            return _enveloped([])
        if fault == "unknown_type":
            _estrange(result)
        return _enveloped(["WGeneral:Danger"] if fault == "warning" else [], result)

    def _result(self, request: Request, body: bytes) -> Result:
        path = path_of(request)
        _, _, rest = path.partition("/0/")
        kind, _, name = rest.partition("/")
        address = request.client.host if request.client else ""
        if kind == "public":
            self._count(f"address {address}", 1, PUBLIC_LIMIT, "EGeneral:Too many requests")
            return self._public(name, dict(request.query_params))
        if kind != "private" or name not in self._answers:
            raise KrakenRefused("EGeneral:Unknown method")
        if request.method != "POST":
            raise KrakenRefused("EAPI:Bad request")
        fields = _fields(request, body)
        key = self.gate.admit(
            request.headers, path, body, fields.get("nonce", ""),
            now_ms=self._now_ms(), address=address,
        )  # fmt: skip
        self._count(key.api_key, COSTS.get(name, 1), TIERS[self._tier], "EAPI:Rate limit exceeded")
        needed = PERMISSIONS[name]
        if needed and not set(needed) & set(key.permissions):
            raise KrakenRefused("EGeneral:Permission denied")
        if self.before_page is not None:
            self.before_page(name)
        return self._answers[name](SpotQuery(fields, key, self._now_ms() * MS_TICKS))

    def _count(self, key: str, cost: int, limit: tuple[int, float], refusal: str) -> None:
        counter = self._counters.setdefault(key, DecayingCounter(*limit))
        if self._limited and not counter.count_request(cost, self._now_ms()):
            raise KrakenRefused(refusal)

    # Public ---------------------------------------------------------------------------------

    def _public(self, name: str, query: dict[str, str]) -> Result:
        now_s = self._now_ms() // 1_000
        if name == "Time":
            return {"unixtime": now_s, "rfc1123": formatdate(now_s, usegmt=True)}
        if name == "SystemStatus":
            return {"status": "online", "timestamp": rows.iso(now_s * TICKS)[:-5] + "Z"}
        if name == "Assets":
            aclass = query.get("aclass", "currency")
            listed = [each for each in ASSETS.values() if each.listed and each.aclass == aclass]
            chosen = _chosen(query.get("asset", ""), listed)
            return {each.id: rows.asset_facts(each) for each in chosen}
        if name == "AssetPairs":
            if query.get("aclass_base", "currency") != "currency":
                return {}
            now = now_s * TICKS
            pairs = [pair for pair in PAIRS.values() if pair.open(now)]
            return {
                each.id: rows.pair_facts(each) for each in _chosen(query.get("pair", ""), pairs)
            }
        raise KrakenRefused("EGeneral:Unknown method")

    # Lists ----------------------------------------------------------------------------------

    def _ledgers(self, query: SpotQuery) -> Result:
        kind, assets = query.fields.get("type", "all"), query.fields.get("asset", "all")
        if kind not in TYPES:
            raise KrakenRefused("EGeneral:Invalid arguments:type")
        names = None if assets == "all" else frozenset(_asset_ids(assets))
        kind = "nftrebate" if kind == "nft_rebate" else kind
        wanted: Callable[[Any], bool] | None = None
        if names is not None or kind != "all":
            wanted = lambda label: (  # noqa: E731
                kind in ("all", label[0]) and (names is None or label[1] in names)
            )
        page = self._page(query, "ledger", "L", wanted)
        now = query.now
        found = {id_of("L", row.seq): rows.ledger(row, now) for row in page.rows}
        return {"ledger": self._mixed(found)} | page.total

    def _page(
        self, query: SpotQuery, table: str, kind: str, wanted: Callable[[Any], bool] | None = None
    ) -> "SpotPage":
        after, until = self._bounds(query, table, kind)
        counted = not query.flag("without_count")
        selection = self.account.select(
            table, after=after, until=until, wanted=wanted, skip=query.whole("ofs"),
            limit=PAGE_ROWS, counted=counted,
        )  # fmt: skip
        total = selection.total
        if self._wrong_counts and counted:
            total = self.account.select(table, limit=0).total
        return SpotPage(selection.rows, {"count": total} if counted else {})

    def _bounds(self, query: SpotQuery, table: str, kind: str) -> tuple[Place, Place]:
        """Return the bounds of a query as places: `start` is exclusive, `end` inclusive."""
        after, until = FIRST, LAST
        for name in ("start", "end"):
            text = query.fields.get(name, "")
            if not text:
                continue
            time = _ticks(text)
            if time is not None:
                place = (time, float("inf"))
            else:
                number = number_of(kind, text)
                row = None if number is None else self.account.numbered(table, number)
                if row is None:
                    raise KrakenRefused(f"EGeneral:Invalid arguments:{name}")
                place = (row.time, row.seq)
            if name == "start":
                after = place
            else:
                until = place
        key = query.key
        if key.query_from_s:
            after = max(after, (key.query_from_s * TICKS - 1, float("inf")))
        if key.query_to_s:
            until = min(until, (key.query_to_s * TICKS, float("inf")))
        return after, until

    def _mixed(self, found: dict[str, Any]) -> dict[str, Any]:
        if not self._shuffled:
            return found
        names = list(found)
        self._random.shuffle(names)
        return {name: found[name] for name in names}

    def _by_ids(self, query: SpotQuery, field: str, table: str, kind: str) -> list[Any]:
        names = [each for each in query.fields.get(field, "").split(",") if each]
        if not names or len(names) > IDS_MAX:
            raise KrakenRefused(f"EGeneral:Invalid arguments:{field}")
        found = []
        for name in names:
            number = number_of(kind, name)
            row = None if number is None else self.account.numbered(table, number)
            if row is not None and self._seen(query.key, row.time):
                found.append(row)
        return found

    def _seen(self, key: SimulatedKrakenKey, time: int) -> bool:
        """Whether the dates of a key permit it to see a row."""
        return key.query_from_s * TICKS <= time and (
            not key.query_to_s or time <= key.query_to_s * TICKS
        )

    def _query_ledgers(self, query: SpotQuery) -> Result:
        found = self._by_ids(query, "id", "ledger", "L")
        return {id_of("L", row.seq): rows.ledger(row, query.now) for row in found}

    def _trades(self, query: SpotQuery) -> Result:
        kind = query.fields.get("type", "all")
        if kind != "all" and kind not in TRADE_TYPES:
            raise KrakenRefused("EGeneral:Invalid arguments:type")
        wanted = None if kind == "all" else TRADE_TYPES[kind].__contains__
        page = self._page(query, "trades", "T", wanted)
        found = page.rows
        if query.flag("consolidate_taker", default=True):
            found = consolidated(found)
        ledgers = query.flag("ledgers")
        shown = {id_of("T", row.seq): self._trade(row, query.now, ledgers) for row in found}
        return {"trades": self._mixed(shown)} | page.total

    def _trade(self, row: SpotTrade, now: int, ledgers: bool) -> rows.Row:
        closed = self.account.trade_shown(row) if row.margin and not row.opened else None
        return rows.trade(row, now, closed, ledgers=ledgers)

    def _query_trades(self, query: SpotQuery) -> Result:
        found = self._by_ids(query, "txid", "trades", "T")
        return {id_of("T", row.seq): self._trade(row, query.now, False) for row in found}

    def _orders(self, query: SpotQuery) -> Result:
        page = self._page(query, "orders", "O")
        trades = query.flag("trades")
        found = {
            id_of("O", row.seq): rows.order(row, query.now, trades=trades) for row in page.rows
        }
        return {"closed": self._mixed(found)} | page.total

    def _positions(self, query: SpotQuery) -> Result:
        return {id_of("T", n): rows.position(each) for n, each in self.account.state.margin.items()}

    # Funding --------------------------------------------------------------------------------

    def _movements(self, query: SpotQuery, name: str, shown: int) -> Result:
        now = min(query.now, self.account.until)
        start, end = _ticks(query.fields.get("start", "0")), _ticks(query.fields.get("end", ""))
        first = max(start or 0, query.now - self._funding_days * 86_400 * TICKS) if (
            self._funding_days
        ) else start or 0  # fmt: skip
        names = frozenset(_asset_ids(query.fields.get("asset", "")))
        method = query.fields.get("method", "")
        found = [
            each
            for each in self.account.movements
            if each.incoming == (name == "deposit")
            and first <= each.asked // TICKS * TICKS
            and (end is None or each.asked // TICKS * TICKS <= end)
            and (not names or each.asset in names)
            and (not method or each.method == method)
            and self._seen(query.key, each.asked)
        ]
        found.sort(key=lambda each: (-each.asked, -each.seq))
        limit, cursor = query.whole("limit", shown), query.fields.get("cursor", "false")
        if cursor.lower() == "false":
            return [rows.movement(each, now) for each in found[:limit]]
        skip = 0 if cursor.lower() == "true" else _position(cursor)
        page, rest = found[skip : skip + limit], found[skip + limit :]
        following = urlsafe_b64encode(b"at:%d" % (skip + limit)).decode() if rest else None
        return {name: [rows.movement(each, now) for each in page], "next_cursor": following}

    # Snapshots ------------------------------------------------------------------------------

    def _held(self) -> dict[str, int]:
        return {asset: held for asset, held in sorted(self.account.state.held.items()) if held}

    def _balance(self, query: SpotQuery) -> Result:
        return {name: rows.fixed(n, ASSETS[name].decimals) for name, n in self._held().items()}

    def _balance_extended(self, query: SpotQuery) -> Result:
        held = self._held()
        on_hold = {name: n // 10 for name, n in held.items() if name in ON_ORDER}
        return {
            name: {
                "balance": rows.fixed(n, ASSETS[name].decimals),
                "hold_trade": rows.fixed(on_hold.get(name, 0), ASSETS[name].decimals),
            }
            for name, n in held.items()
        }

    def _trade_balance(self, query: SpotQuery) -> Result:
        dollars = rows.fixed(self.account.state.held.get("ZUSD", 0), 4)
        used = rows.fixed(sum(each.margin for each in self.account.state.margin.values()), 4)
        zero = rows.fixed(0, 4)
        return {
            "eb": dollars, "tb": dollars, "m": used, "n": zero, "c": zero, "v": zero,
            "e": dollars, "mf": dollars, "ml": "100.00",
        }  # fmt: skip

    def _allocations(self, query: SpotQuery) -> Result:
        held = [place for place in self._held().items() if place[0].endswith(EARN_SUFFIXES)]
        page, following = _earn_page(held, query)
        return {
            "converted_asset": query.fields.get("converted_asset", "USD"),
            "total_allocated": "0.0000",
            "total_rewarded": "0.0000",
            "next_cursor": following,
            "items": [rows.allocation(asset, units) for asset, units in page],
        }

    def _strategies(self, query: SpotQuery) -> Result:
        names = [name for name in ASSETS if name.endswith(EARN_SUFFIXES)]
        page, following = _earn_page(names, query)
        return {"next_cursor": following, "items": [rows.strategy(name) for name in page]}

    def _key_info(self, query: SpotQuery) -> Result:
        key = query.key
        return {
            "api_key_name": "simulated",
            "api_key": key.api_key,
            "nonce": str(self.gate.nonces.highest(key.api_key)),
            "nonce_window": str(key.nonce_window),
            "permissions": list(key.permissions),
            "iban": rows.IIBAN,
            "valid_until": str(key.valid_until_s),
            "query_from": str(key.query_from_s),
            "query_to": str(key.query_to_s),
            "created_time": "1522132642",
            "modified_time": "1618230358",
            "ip_allowlist": list(key.ips) or [""],
            "last_used": str(query.now // TICKS),
        }

    # Exports --------------------------------------------------------------------------------

    def _add_export(self, query: SpotQuery) -> Result:
        now_s, report = query.now // TICKS, query.fields.get("report", "")
        format_ = query.fields.get("format", "CSV")
        if report not in ("ledgers", "trades") or format_ not in ("CSV", "TSV"):
            raise KrakenRefused("EGeneral:Invalid arguments")
        if len(self._exports) >= REPORTS_MAX:
            raise KrakenRefused("EExport:Too many reports")
        number = 1 + len(self._exports)
        id_ = b64encode(hash_of(number).encode()).decode()[:4].upper()
        self._exports[id_] = ExportJob(
            id_, report, format_, query.fields.get("description", ""),
            query.whole("starttm"), query.whole("endtm", now_s), now_s,
        )  # fmt: skip
        return {"id": id_}

    def _export_status(self, query: SpotQuery) -> Result:
        wanted, now_s = query.fields.get("report", ""), query.now // TICKS
        return [each.row(now_s) for each in self._exports.values() if each.report == wanted]

    def _retrieve_export(self, query: SpotQuery) -> Result:
        job = self._exports.get(query.fields.get("id", ""))
        if job is None or job.status(query.now // TICKS) != "Processed":
            raise KrakenRefused("EExport:Not ready")
        return Response(job.zipped(self.account), media_type="application/octet-stream")

    def _remove_export(self, query: SpotQuery) -> Result:
        job = self._exports.get(query.fields.get("id", ""))
        kind = query.fields.get("type", "")
        if job is None or kind not in ("cancel", "delete"):
            raise KrakenRefused("EGeneral:Invalid arguments")
        if kind == "delete":
            del self._exports[job.id]
        job.cancelled = kind == "cancel"
        return {kind: True}


class SpotPage(NamedTuple):
    """A page of a list, with its `count` unless that was declined."""

    rows: list[Any]
    total: dict[str, int]


def consolidated(trades: list[SpotTrade]) -> list[SpotTrade]:
    """Merge the taker fills of an order into one trade with the id of the first one."""
    merged: dict[tuple[int, int], SpotTrade] = {}
    for row in sorted(trades, key=lambda each: each.seq):
        place = (row.order, 0 if not row.maker and not row.margin else row.seq)
        first = merged.get(place)
        if first is None:
            merged[place] = row
            continue
        volume, cost = first.volume + row.volume, first.cost + row.cost
        merged[place] = first._replace(
            volume=volume, cost=cost, fee=first.fee + row.fee, price=cost * UNIT // volume,
            ledger=first.ledger + row.ledger,
        )  # fmt: skip
    return sorted(merged.values(), key=lambda each: (-each.time, -each.seq))


def _enveloped(errors: Any, result: Any = None) -> Response:
    body = {"error": errors} if result is None else {"error": errors, "result": result}
    return Response(json.encode(body), media_type=JSON)


def _fields(request: Request, body: bytes) -> dict[str, str]:
    try:
        if request.headers.get("content-type", "").startswith("application/json"):
            found = json.decode(body, type=dict[str, Any])
            return {
                name: str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in found.items()
            }
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True))
    except (ValueError, MsgspecError):
        raise KrakenRefused("EAPI:Bad request") from None


def _ticks(text: str) -> int | None:
    """Return a time in seconds, with or without decimals; None if the text is not a number."""
    try:
        return int(Decimal(text) * TICKS)
    except InvalidOperation:
        return None


def _position(cursor: str) -> int:
    try:
        return int(urlsafe_b64decode(cursor).removeprefix(b"at:"))
    except (ValueError, Base64Error):
        raise KrakenRefused("EGeneral:Invalid arguments:cursor") from None


def _asset_ids(text: str) -> list[str]:
    """Return the ids of a list of assets, by id or other name."""
    names = {each.altname: each.id for each in ASSETS.values()}
    found = [names.get(name, name) for name in text.split(",") if name]
    if any(name not in ASSETS for name in found):
        raise KrakenRefused("EQuery:Unknown asset")
    return found


def _chosen(text: str, listed: list[Any]) -> list[Any]:
    names = [name for name in text.split(",") if name]
    found = [each for each in listed if not names or {each.id, each.altname} & set(names)]
    if names and not found:
        raise KrakenRefused("EQuery:Unknown asset pair")
    return found


def _earn_page(listed: list[Any], query: SpotQuery) -> tuple[list[Any], str | None]:
    """Return a page of an Earn list, and the cursor of the next."""
    skip = query.whole("cursor")
    following = skip + EARN_ROWS
    return listed[skip:following], str(following) if following < len(listed) else None


def _estrange(result: Any) -> None:
    """Insert undocumented types."""
    for row in result.get("ledger", {}).values() if isinstance(result, dict) else ():
        row["type"] = "something from the future"

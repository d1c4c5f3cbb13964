"""The adapter of Fennec: its facts and rows; everything else is the neutral parts'."""

import hashlib
import hmac
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import MsgspecError, json
from msgspec.structs import replace

from onebook.core import canonical, iso, record_id
from onebook.model import DAY_MS
from onebook.transactions.adapter import (
    KEY_FIELD,
    PASSPHRASE_FIELD,
    SECRET_FIELD,
    AccountInfo,
    AdapterEntry,
    Bookkeeping,
    Environment,
    FailureReason,
    Page,
    RequestVerdict,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.client import (
    ApiFacts,
    Call,
    ExchangeClient,
    ExchangeHost,
    Outcome,
    Reply,
    Then,
)
from onebook.transactions.clock import REAL, ServiceClock
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import Rate, Retries
from onebook.transactions.markets import InstrumentRow, MarketCache, Markets
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Fee,
    Holder,
    Ids,
    Money,
    Record,
    RecordView,
    TradedMarket,
    money,
)

WALLET: Final = Holder("MAIN", "fox")
LISTED: Final = {"window_ms": 7 * DAY_MS, "oldest_first": True, "page_rows": 20,
                 "page_rows_least": 20}  # fmt: skip
SOURCES: Final = {
    source.name: source
    for source in (
        Source(name="balances", type="holdings", window_ms=0),
        Source(
            name="deposits", type="deposits", window_ms=3_650 * DAY_MS, page_rows=10,
            page_rows_least=10, ranged=False, cursor_lasts=True,
        ),
        Source(name="withdrawals", type="withdrawals", **LISTED),
        Source(name="fills", type="trades", **LISTED),
        Source(name="orders", type="trades", **LISTED),
        Source(name="ledger", type="ledger", **(LISTED | {"page_rows": 50})),
    )
}  # fmt: skip
TYPES: Final = ("holdings", "deposits", "withdrawals", "trades", "ledger")
ENTRY: Final = AdapterEntry(
    name="fennec",
    display="Fennec",
    types=TYPES,
    words={t: tuple(n for n, s in SOURCES.items() if s.type == t) for t in TYPES},
    default=("deposits", "withdrawals", "trades"),
    books=Bookkeeping(trades="trades", held=frozenset({"MAIN"})),
    singular={"trades": "trade"},
    fields=(KEY_FIELD, SECRET_FIELD, PASSPHRASE_FIELD),
    testnet_available=False,
)
_BUSY = Outcome(FailureReason.EXCHANGE_ERROR, "Fennec could not answer in time.", retryable=True)
_ERRORS: Final[Mapping[str, Outcome]] = {
    "key": Outcome(
        FailureReason.AUTHENTICATION_FAILED, "Fennec does not know the key.", fatal=True
    ),
    "sign": Outcome(
        FailureReason.AUTHENTICATION_FAILED, "Fennec refused the signature.", fatal=True
    ),
    "passphrase": Outcome(
        FailureReason.AUTHENTICATION_FAILED, "Fennec refused the passphrase.", fatal=True
    ),
    "nonce": Outcome(FailureReason.EXCHANGE_ERROR, "Fennec wants a higher nonce.", retryable=True),
    "limit": Outcome(FailureReason.RATE_LIMITED, "Fennec's rate limit is used up.", retryable=True),
    "cursor": Outcome(FailureReason.EXCHANGE_ERROR, "Fennec does not know the cursor."),
}
_REFUSED = Outcome(FailureReason.EXCHANGE_ERROR, "Fennec refused the request.")


class FennecApi:
    """How Fennec is asked and how it answers."""

    facts: Final = ApiFacts(
        name="fennec",
        display="Fennec",
        rates={"private": Rate(400, 1.0), "public": Rate(10, 1.0)},
        address_rate=Rate(1_000, 1.0),
        circuit_s=60.0,
        rising=True,
    )

    def sign(self, call: Call, credentials: Credentials, *, stamp: int) -> Call:
        body = json.encode({"nonce": stamp} | json.decode(call.body or b"{}"))
        text, secret = call.path.encode() + body, credentials.secret.encode()
        headers = {
            "Fennec-Key": credentials.api_key,
            "Fennec-Pass": credentials.field("passphrase"),
            "Fennec-Sign": hmac.new(secret, text, hashlib.sha512).hexdigest(),
        }
        return replace(call, body=body, headers=headers)

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        if status != 200:
            return _BUSY.reply(status)
        try:
            said = json.decode(body)
        except MsgspecError:
            return _BUSY.reply()
        if said["ok"]:
            return Reply(value=said["data"], server_ms=said["time"])
        error = said["error"]
        outcome = _ERRORS.get(error, _REFUSED)
        if error == "cursor":
            return Reply(failure=outcome.failure(), then=Then.CURSOR_GONE)
        if error in ("nonce", "limit"):
            block_s = 0.2 if error == "limit" else 0.0
            return Reply(failure=outcome.failure(), then=Then.RETRY_NOW, block_s=block_s)
        return outcome.reply()


class Fennec:
    """The adapter, over the neutral client."""

    def __init__(self, url: str, *, clock: ServiceClock = REAL) -> None:
        self._client = ExchangeClient(FennecApi(), clock)
        self._hosts = {environment: self._client.host(url) for environment in Environment}
        pages = partial(self._pairs, self._hosts[Environment.MAINNET])
        markets = Markets(_listed, lambda c, s: TradedMarket(s, c, None, None, None, None, None))
        self._cache = MarketCache(markets, pages, clock=clock, display="Fennec")

    async def _pairs(
        self, host: ExchangeHost, category: str, retries: Retries
    ) -> AsyncGenerator[list[InstrumentRow]]:
        call = Call("/public/pairs", rate="public")
        yield (await self._client.ask(host, call, credentials=None, retries=retries)).value

    @property
    def entry(self) -> AdapterEntry:
        return ENTRY

    @property
    def sources(self) -> Mapping[str, Source]:
        return SOURCES

    @property
    def waiting_s(self) -> float:
        return self._client.waits.left_s

    def reader(
        self,
        environment: Environment,
        credentials: Credentials,
        *,
        include_raw: bool,
        key_id: str,
    ) -> "FennecReader":
        host, retries = self._hosts[environment], Retries(self._client.random, key=key_id)
        ask = partial(self._client.ask, host, credentials=credentials, retries=retries)
        return FennecReader(
            ask, self._cache, environment, retries, now_ms=self._client.clock.now_ms
        )

    def verdict(self, environment: Environment) -> RequestVerdict | None:
        return self._hosts[environment].verdict

    async def close(self) -> None:
        await self._client.close()


class FennecReader:
    """Reads one account."""

    def __init__(
        self,
        ask: Any,
        cache: MarketCache,
        environment: Environment,
        retries: Retries,
        *,
        now_ms: Any,
    ) -> None:
        self._ask = ask
        self._cache = cache
        self._environment = environment.value
        self._retries = retries
        self._now_ms = now_ms

    @property
    def trouble(self) -> SourceFailed | None:
        return self._retries.trouble

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        await self._cache.load("spot", self._retries)
        asked: dict[str, Any] = {}
        if source.window_ms:
            asked = {"size": source.page_rows} | ({"cursor": cursor} if cursor else {})
            if source.ranged:
                asked |= {"from": window.from_ms, "to": window.to_ms - 1}
        data = (await self._ask(_private(source.name, asked))).value
        rows, following = (data, "") if isinstance(data, list) else (data["rows"], data["cursor"])
        read = getattr(self, f"_{source.name}")
        return Page([read(row) for row in rows], len(rows), following)

    async def account(self) -> AccountInfo:
        await self._ask(_private("me", {}))
        return AccountInfo("MAIN", read_only=True, unavailable_types=())

    def _id(self, source: str, native: str) -> str:
        return record_id("fennec", self._environment, source, native)

    def _record(
        self, row: dict[str, Any], type_: str, kind: str, title: str, **more: Any
    ) -> Record:
        at_ms = row.get("at") or self._now_ms()
        return Record(
            transactionId=self._id(kind if type_ != "ledger" else "ledger", row["id"]),
            timestamp=at_ms,
            label=title,
            description=Description(f"Fennec {title}", title),
            datetime=iso(at_ms),
            exchange="fennec",
            environment=self._environment,
            type=type_,
            kind=kind,
            **({"ids": Ids(native=row["id"]), "account": WALLET} | more),
        )

    def _balances(self, row: dict[str, Any]) -> Record:
        return self._record(
            row | {"id": row["coin"]}, "holdings", "balance", "Balance", view=RecordView.SNAPSHOT,
            asset=row["coin"], balance=Balance(total=canonical(row["total"])),
        )  # fmt: skip

    def _deposits(self, row: dict[str, Any]) -> Record:
        return self._record(
            row, "deposits", "deposit", "Deposit", direction=Direction.IN, asset=row["coin"],
            amount=row["amount"], receivedCurrency=money(row["coin"], row["amount"]),
        )  # fmt: skip

    def _withdrawals(self, row: dict[str, Any]) -> Record:
        return self._record(
            row, "withdrawals", "withdrawal", "Withdrawal", direction=Direction.OUT,
            asset=row["coin"], amount=row["amount"], fees=_fees(row["coin"], row["fee"]),
            sentCurrency=money(row["coin"], row["amount"]),
        )  # fmt: skip

    def _fills(self, row: dict[str, Any]) -> Record:
        market, buy = self._cache.markets.find("spot", row["pair"]), row["side"] == "buy"
        base, quote = money("BTC", row["size"]), money("USDT", row["value"])
        sent, received = _ways(buy=buy, base=base, quote=quote)
        return self._record(
            row, "trades", "trade", "Trade", sentCurrency=sent, receivedCurrency=received,
            instrument=market, asset=market.base, amount=row["size"], price=row["price"],
            quantity=row["size"], value=row["value"], side=row["side"],
            fees=_fees(market.quote or "", row["fee"]),
            ids=Ids(native=row["id"], trade_id=row["id"], order_id=row["order"]),
        )  # fmt: skip

    def _orders(self, row: dict[str, Any]) -> Record:
        return self._record(
            row, "trades", "order", "Order", view=RecordView.SUMMARY, side=row["side"],
            quantity=row["size"], value=row["value"],
            instrument=self._cache.markets.find("spot", row["pair"]),
            ids=Ids(native=row["id"], order_id=row["id"]),
        )  # fmt: skip

    def _ledger(self, row: dict[str, Any]) -> Record:
        of_fill = bool(row["fill"])
        return self._record(
            row, "ledger", row["kind"], "Ledger", view=RecordView.LEDGER, asset=row["coin"],
            amount=row["change"].removeprefix("-"), fees=_fees(row["coin"], row["fee"]),
            balance=Balance(
                after=row["balance"], change=row["change"], cash_flow=row["flow"],
            ),
            instrument=self._cache.markets.find("spot", "BTC-USDT") if of_fill else None,
            related=(self._id("trade", row["fill"]),) if of_fill else (),
        )  # fmt: skip


def _private(name: str, asked: dict[str, Any]) -> Call:
    return Call(f"/private/{name}", method="POST", body=json.encode(asked), rate="private")


def _ways(*, buy: bool, base: Money, quote: Money) -> tuple[Money, Money]:
    return (quote, base) if buy else (base, quote)


def _fees(coin: str, amount: str) -> tuple[Fee, ...]:
    return () if amount == "0" else (Fee(coin, amount, None, "trading", "fee"),)


def _listed(category: str, row: Mapping[str, Any]) -> TradedMarket:
    return TradedMarket(row["pair"], category, None, row["base"], row["quote"], None, None)

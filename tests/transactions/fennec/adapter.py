"""The adapter of Fennec in one file: facts, a signature, answers, rows."""

import hashlib
import hmac
from collections.abc import AsyncGenerator, Mapping
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
    Source,
    Window,
)
from onebook.transactions.client import Call, ExchangeApi, Outcome, Reply, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.exchange import AccountSession, Ask, ExchangeDefinition
from onebook.transactions.markets import InstrumentRow
from onebook.transactions.pools import CostLimit, PoolScope, PoolState
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Fee,
    Holder,
    Ids,
    Record,
    RecordView,
    TradedMarket,
    money,
)  # fmt: skip

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
    sources_by_type={t: tuple(n for n, s in SOURCES.items() if s.type == t) for t in TYPES},
    default=("deposits", "withdrawals", "trades"),
    bookkeeping=Bookkeeping(trades="trades", held=frozenset({"MAIN"})),
    singular={"trades": "trade"},
    fields=(KEY_FIELD, SECRET_FIELD, PASSPHRASE_FIELD),
    hosts={Environment.MAINNET: {"": "https://api.fennec.example"}},
)
BAD_KEY, BROKEN = FailureReason.AUTHENTICATION_FAILED, FailureReason.EXCHANGE_ERROR
BUSY: Final = Outcome(BROKEN, "Fennec could not answer in time.", retryable=True)
REFUSED: Final = Outcome(BROKEN, "Fennec refused the request.")
ERRORS: Final = {
    "key": Outcome(BAD_KEY, "Fennec does not know the key.", fatal=True),
    "sign": Outcome(BAD_KEY, "Fennec refused the signature.", fatal=True),
    "passphrase": Outcome(BAD_KEY, "Fennec refused the passphrase.", fatal=True),
    "nonce": Outcome(BROKEN, "Fennec wants a higher nonce.", retryable=True),
    "limit": Outcome(FailureReason.RATE_LIMITED, "Fennec's rate limit is used up.", retryable=True),
    "cursor": Outcome(BROKEN, "Fennec does not know the cursor."),
}


def sign(call: Call, credentials: Credentials, stamp: int) -> Call:
    body = json.encode({"nonce": stamp} | json.decode(call.body or b"{}"))
    text, secret = call.path.encode() + body, credentials.secret.encode()
    headers = {
        "Fennec-Key": credentials.api_key,
        "Fennec-Pass": credentials.field("passphrase"),
        "Fennec-Sign": hmac.new(secret, text, hashlib.sha512).hexdigest(),
    }
    return replace(call, body=body, headers=headers)


def costs(call: Call) -> dict[str, float]:
    return {"private" if call.method == "POST" else "public": 1, "address": 1}


def read(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    if status != 200:
        return BUSY.reply(status)
    try:
        said = json.decode(body)
    except MsgspecError:
        return BUSY.reply()
    if said["ok"]:
        return Reply(value=said["data"], server_ms=said["time"])
    error = said["error"]
    outcome = ERRORS.get(error, REFUSED)
    if error == "cursor":
        return Reply(failure=outcome.failure(), then=Then.CURSOR_GONE)
    if error in ("nonce", "limit"):
        pools = {"private": PoolState(blocked_s=0.2)} if error == "limit" else {}
        return Reply(failure=outcome.failure(), then=Then.RETRY_NOW, pools=pools)
    return outcome.reply()


async def pairs(ask: Ask, category: str) -> AsyncGenerator[list[InstrumentRow]]:
    yield (await ask(Call("/public/pairs"))).value


def listed(category: str, row: InstrumentRow) -> TradedMarket:
    return TradedMarket(row["pair"], category, None, row["base"], row["quote"], None, None)


class FennecReader:
    """Reads one account."""

    def __init__(self, account: AccountSession) -> None:
        self._account = account

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        await self._account.load_markets("spot")
        asked: dict[str, Any] = {}
        if source.window_ms:
            asked = {"size": source.page_rows} | ({"cursor": cursor} if cursor else {})
            if source.ranged:
                asked |= {"from": window.from_ms, "to": window.to_ms - 1}
        data = (await self._account.ask(private(source.name, asked))).value
        rows, following = (data, "") if isinstance(data, list) else (data["rows"], data["cursor"])
        read = getattr(self, f"_{source.name}")
        return Page([read(row) for row in rows], len(rows), following)

    async def check(self) -> AccountInfo:
        await self._account.ask(private("me", {}))
        return AccountInfo("MAIN", read_only=True, unavailable_types=())

    def _id(self, source: str, native: str) -> str:
        return record_id("fennec", self._account.environment.value, source, native)

    def _record(
        self, row: dict[str, Any], type_: str, kind: str, title: str, **more: Any
    ) -> Record:
        at_ms = row.get("at") or self._account.now_ms()
        return Record(
            transactionId=self._id(kind if type_ != "ledger" else "ledger", row["id"]),
            timestamp=at_ms,
            label=title,
            description=Description(f"Fennec {title}", title),
            datetime=iso(at_ms),
            exchange="fennec",
            environment=self._account.environment.value,
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
            asset=row["coin"], amount=row["amount"], fees=fees_of(row["coin"], row["fee"]),
            sentCurrency=money(row["coin"], row["amount"]),
        )  # fmt: skip

    def _fills(self, row: dict[str, Any]) -> Record:
        market, buy = self._account.markets.find("spot", row["pair"]), row["side"] == "buy"
        sent, received = money("USDT", row["value"]), money("BTC", row["size"])
        if not buy:
            sent, received = received, sent
        return self._record(
            row, "trades", "trade", "Trade", sentCurrency=sent, receivedCurrency=received,
            instrument=market, asset=market.base, amount=row["size"], price=row["price"],
            quantity=row["size"], value=row["value"], side=row["side"],
            fees=fees_of(market.quote or "", row["fee"]),
            ids=Ids(native=row["id"], trade_id=row["id"], order_id=row["order"]),
        )  # fmt: skip

    def _orders(self, row: dict[str, Any]) -> Record:
        return self._record(
            row, "trades", "order", "Order", view=RecordView.SUMMARY, side=row["side"],
            quantity=row["size"], value=row["value"],
            instrument=self._account.markets.find("spot", row["pair"]),
            ids=Ids(native=row["id"], order_id=row["id"]),
        )  # fmt: skip

    def _ledger(self, row: dict[str, Any]) -> Record:
        of_fill = bool(row["fill"])
        return self._record(
            row, "ledger", row["kind"], "Ledger", view=RecordView.LEDGER, asset=row["coin"],
            amount=row["change"].removeprefix("-"), fees=fees_of(row["coin"], row["fee"]),
            balance=Balance(
                after=row["balance"], change=row["change"], cash_flow=row["flow"],
            ),
            instrument=self._account.markets.find("spot", "BTC-USDT") if of_fill else None,
            related=(self._id("trade", row["fill"]),) if of_fill else (),
        )  # fmt: skip


def private(name: str, asked: dict[str, Any]) -> Call:
    return Call(f"/private/{name}", method="POST", body=json.encode(asked))


def fees_of(coin: str, amount: str) -> tuple[Fee, ...]:
    return () if amount == "0" else (Fee(coin, amount, None, "trading", "fee"),)


FENNEC: Final = ExchangeDefinition(
    entry=ENTRY,
    sources=SOURCES,
    api=ExchangeApi(
        limits={
            "private": CostLimit(400, 1.0),
            "public": CostLimit(10, 1.0),
            "address": CostLimit(1_000, 1.0, scope=PoolScope.ADDRESS),
        },
        costs=costs,
        circuit_s=60.0,
        rising=True,
        sign=sign,
        read=read,
    ),
    reader=FennecReader,
    instruments=pairs,
    listed=listed,
)

"""The adapter of Corsac in one file: facts, a signature, answers, rows, joined rows."""

import hashlib
import hmac
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from msgspec import MsgspecError, json
from msgspec.structs import replace

from onebook.core import canonical, iso, record_id
from onebook.model import DAY_MS
from onebook.transactions.adapter import (
    HOST_FIELD,
    KEY_FIELD,
    SECRET_FIELD,
    AccountInfo,
    AdapterEntry,
    Bookkeeping,
    CredentialField,
    Environment,
    EventRow,
    FailureReason,
    Page,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.client import Call, ExchangeApi, Outcome, Reply, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.exchange import AccountSession, Ask, ExchangeDefinition
from onebook.transactions.markets import InstrumentRow, unknown_market
from onebook.transactions.pools import CostLimit, PoolScope, PoolState
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Holder,
    Ids,
    Record,
    RecordView,
    TradedMarket,
    money,
)  # fmt: skip

VAULT_KEY: Final = CredentialField("vault_key", "Vault key", optional=True)
VAULT_SECRET: Final = CredentialField("vault_secret", "Vault secret", optional=True)
TEN_YEARS_MS: Final = 3_650 * DAY_MS
BEGAN_MS: Final = 1_700_000_000_000
OF_WALLETS: Final = {
    "walk": "wallets", "branched": True, "ranged": False, "window_ms": TEN_YEARS_MS,
    "join_ms": 1_000, "cursor_lasts": True, "page_rows": 100, "begins_ms": BEGAN_MS,
}  # fmt: skip
SOURCES: Final = {
    source.name: source
    for source in (
        Source(name="balances", type="holdings", window_ms=0),
        Source(name="snapshots", type="holdings", window_ms=TEN_YEARS_MS, begins_ms=BEGAN_MS),
        Source(name="wallet_deposits", type="deposits", **OF_WALLETS),
        Source(name="wallet_withdrawals", type="withdrawals", **OF_WALLETS),
        Source(name="wallet_conversions", type="conversions", **OF_WALLETS),
        Source(name="wallet_rewards", type="earn", **OF_WALLETS),
        Source(name="grants", type="earn", window_ms=30 * DAY_MS, begins_ms=BEGAN_MS),
        Source(name="staking", type="staking", window_ms=30 * DAY_MS, begins_ms=BEGAN_MS),
        Source(
            name="vault", type="vault", window_ms=TEN_YEARS_MS, begins_ms=BEGAN_MS,
            needs=VAULT_KEY.name,
        ),
    )
}  # fmt: skip
TYPES: Final = ("holdings", "deposits", "withdrawals", "conversions", "earn", "staking", "vault")
ENTRY: Final = AdapterEntry(
    name="corsac",
    display="Corsac",
    types=TYPES,
    sources_by_type={t: tuple(n for n, s in SOURCES.items() if s.type == t) for t in TYPES},
    default=("deposits", "withdrawals", "conversions", "earn", "vault"),
    bookkeeping=Bookkeeping(
        held=frozenset({"MAIN"}),
        sums_from_ms=BEGAN_MS,
        readings=True,
        withheld={"vault": "Corsac does not show what the vault holds."},
    ),
    fields=(KEY_FIELD, SECRET_FIELD, replace(HOST_FIELD, choices=("north", "south")),
            VAULT_KEY, VAULT_SECRET),
    hosts={
        Environment.MAINNET: {"north": "https://north.example", "south": "https://south.example",
                              "vault": "https://vault.example"},
        Environment.DEMO: {"north": "https://north.example", "south": "https://south.example"},
    },
)  # fmt: skip
MEANINGS: Final = {
    "deposit": ("deposits", "deposit"),
    "withdrawal": ("withdrawals", "withdrawal"),
    "reward": ("earn", "earn"),
    "vault": ("vault", "earn"),
}
UNKNOWN: Final = ("earn", "other")
BAD_KEY, BROKEN = FailureReason.AUTHENTICATION_FAILED, FailureReason.EXCHANGE_ERROR
REFUSED: Final = Outcome(BROKEN, "Corsac refused the request.")
ERRORS: Final = {
    "bad_key": Outcome(BAD_KEY, "Corsac does not know the key.", fatal=True),
    "bad_sign": Outcome(BAD_KEY, "Corsac refused the signature.", fatal=True),
    "region": Outcome(BAD_KEY, "Corsac does not know the key in this region.", fatal=True),
    "demo": Outcome(BAD_KEY, "The key is of another environment of Corsac.", fatal=True),
    "not_opened": Outcome(FailureReason.NOT_OPENED, "The account never used this product."),
    "weight": Outcome(FailureReason.RATE_LIMITED, "Corsac's limit is used up.", retryable=True),
}


def costs(call: Call) -> dict[str, float]:
    limit = next((p[6:] for p in call.query.split("&") if p.startswith("limit=")), "0")
    return {"weight": 1 + int(limit) // 10}


def sign(call: Call, credentials: Credentials, stamp: int) -> Call:
    secret = credentials.field("vault_secret" if call.key == VAULT_KEY.name else "secret")
    text = f"{call.path}?{call.query}".encode()
    headers = {
        "Corsac-Key": credentials.field(call.key),
        "Corsac-Sign": hmac.new(secret.encode(), text, hashlib.sha256).hexdigest(),
    }
    return replace(call, headers=headers)


def read(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    try:
        said = json.decode(body)
    except MsgspecError:
        return REFUSED.reply(status)
    used = headers.get("corsac-weight-used")
    pools = {"weight": PoolState(used=None if used is None else int(used))}
    if "data" in said:
        return Reply(value=said["data"], pools=pools)
    code = said["error"]["code"]
    if code == "weight":
        pools = {"weight": PoolState(refused=True)}
        return Reply(failure=ERRORS[code].failure(code), then=Then.RETRY_NOW, pools=pools)
    return ERRORS.get(code, REFUSED).reply(code)


async def no_instruments(ask: Ask, category: str) -> AsyncGenerator[list[InstrumentRow]]:
    yield []


def listed(category: str, row: InstrumentRow) -> TradedMarket:
    return unknown_market(category, str(row["symbol"]))


class CorsacReader:
    """Reads one account."""

    def __init__(self, account: AccountSession) -> None:
        self._account = account
        self._coins: dict[str, str] = {}
        self._visible_from_ms = 0

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        if source.name == "balances":
            rows = await self._get("/wallets")
            return Page([self._balance(row) for row in rows], len(rows), "")
        if source.name == "snapshots":
            found = await self._get("/snapshots", f"to={window.to_ms - 1}")
            records = [
                self._held_at(one["at"], coin, amount)
                for one in reversed(found)
                for coin, amount in one["held"].items()
            ]
            return Page(records, len(records), "")
        if source.name == "grants":
            query = f"from={window.from_ms}&to={window.to_ms - 1}"
            said = await self._get("/grants", query)
            records = [self._single(r | {"type": "reward"}, r["coin"]) for r in said["rows"]]
            return Page(records, len(records), "", cut=said["total"] > len(records))
        if source.name == "staking":
            await self._get("/staking")
        if source.name == "vault":
            said = await self._get("/vault/rows", host="vault", key=VAULT_KEY.name)
            records = [self._single(r | {"type": "vault"}, r["coin"]) for r in said["rows"]]
            return Page(records, len(records), "")
        return await self._wallet_page(source, cursor)

    async def _wallet_page(self, source: Source, cursor: str) -> Page:
        query = f"limit={source.page_rows}" + (f"&after={cursor}" if cursor else "")
        said = await self._get(f"/wallets/{source.branch}/rows", query)
        rows = [row | {"coin": self._coins[source.branch]} for row in said["rows"]]
        return Page(
            [self._single(row, row["coin"]) for row in rows if "trade" not in row],
            len(rows),
            said["more"],
            parts=[
                EventRow(row["trade"], row["id"], row["at"], row) for row in rows if "trade" in row
            ],
            hidden_before_ms=self._visible_from_ms or None,
        )

    async def branches(self, source: Source) -> list[str]:
        self._coins = {row["id"]: row["coin"] for row in await self._get("/wallets")}
        self._visible_from_ms = (await self._get("/me"))["visible_from"]
        return list(self._coins)

    async def join(self, source: Source, groups: list[list[EventRow]]) -> Page:
        return Page([self._conversion([part.row for part in group]) for group in groups], 0, "")

    async def check(self) -> AccountInfo:
        found: dict[str, str] = {}
        me: dict[str, Any] = {}
        failure: SourceFailed | None = None
        for host in self._account.host_names:
            if host == "vault":
                continue
            try:
                me = await self._get("/me", host=host)
            except SourceFailed as failed:
                failure = failed
            else:
                found = {"host": host}
                break
        if not found and failure is not None:
            raise failure
        return AccountInfo(
            "MAIN", read_only=True, unavailable_types=(), found=found,
            may_withdraw=me["withdraw"],
        )  # fmt: skip

    async def _get(self, path: str, query: str = "", **where: str) -> Any:
        return (await self._account.ask(Call(path, query, **where))).value

    def _record(self, native: str, at_ms: int, type_: str, kind: str, **more: Any) -> Record:
        return Record(
            transactionId=record_id("corsac", self._account.environment.value, kind, native),
            timestamp=at_ms,
            label=kind,
            description=Description(f"Corsac {kind}", kind),
            datetime=iso(at_ms),
            exchange="corsac",
            environment=self._account.environment.value,
            type=type_,
            kind=kind,
            account=Holder("VAULT" if type_ == "vault" else "MAIN", None),
            **({"ids": Ids(native=native)} | more),
        )

    def _single(self, row: dict[str, Any], coin: str) -> Record:
        amount = row["amount"].removeprefix("-")
        incoming = not row["amount"].startswith("-")
        name = "receivedCurrency" if incoming else "sentCurrency"
        return self._record(
            row["id"], row["at"], *MEANINGS.get(row["type"], UNKNOWN), native_type=row["type"],
            asset=coin, amount=amount,
            direction=Direction.IN if incoming else Direction.OUT, **{name: money(coin, amount)},
        )  # fmt: skip

    def _conversion(self, rows: list[dict[str, Any]]) -> Record:
        legs = {
            ("sentCurrency" if row["amount"].startswith("-") else "receivedCurrency"): money(
                row["coin"], row["amount"].removeprefix("-")
            )
            for row in rows
        }
        at_ms = max(row["at"] for row in rows)
        whole: tuple[str, ...] = () if len(legs) == 2 else ("receivedCurrency",)
        return self._record(
            rows[0]["trade"], at_ms, "conversions", "convert", incomplete=whole, **legs
        )

    def _balance(self, row: dict[str, Any]) -> Record:
        return self._held_at(self._account.now_ms(), row["coin"], row["balance"])

    def _held_at(self, at_ms: int, coin: str, amount: str) -> Record:
        return self._record(
            f"{coin}:{at_ms}", at_ms, "holdings", "balance", view=RecordView.SNAPSHOT,
            asset=coin, balance=Balance(total=canonical(amount)),
        )  # fmt: skip


CORSAC: Final = ExchangeDefinition(
    entry=ENTRY,
    sources=SOURCES,
    api=ExchangeApi(
        limits={"weight": CostLimit(200, 2.0, scope=PoolScope.USER)},
        costs=costs,
        circuit_s=60.0,
        headers={Environment.DEMO: {"corsac-demo": "1"}},
        sign=sign,
        read=read,
    ),
    reader=CorsacReader,
    instruments=no_instruments,
    listed=listed,
)

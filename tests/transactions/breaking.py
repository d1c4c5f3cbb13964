"""Deliberate damage to an exchange's answers in transit, and the proof of the rest."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import httpx
from msgspec import json

from transactions.bybit_support import AccountWorld, run

DECODER: Final = json.Decoder(float_hook=Decimal)
ENCODER: Final = json.Encoder(decimal_format="number")
KEY: Final = "key"  # what a body names a row by, beside the row's own members
Row = dict[str, Any]
Around = Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport]
Breaker = Callable[[Row, str], Row | None]  # a row and its name, to the row that is answered


class Break(NamedTuple):
    """Rows of some paths, and their replacement; None drops them."""

    paths: tuple[str, ...]
    hits: Callable[[Row], bool]
    change: Callable[[Row], Row] | None = None


class Undecided(NamedTuple):
    """Damage that the exchange's data cannot reveal, with the check that says so, and why."""

    account: Any
    broken: Break
    check: str
    why: str = ""


class Breakable(NamedTuple):
    """An exchange whose simulated answers are broken.

    Args:
        world: Makes a service over an account; wraps its transport.
        tamper: Passes each row of a decoded body through a breaker; False: the body is an error.
        types: Every type.
        since_ms: Start of the range that is all of an account.
        healthy: Accounts that are proven.
        parts: Accounts of which a part gives no alarm, and what its proof may hold.
        breaks: What is found, and by which checks at least.
        first: Whether a break hits one row alone: the first.
    """

    world: Callable[[Any, Around], AccountWorld]
    tamper: Callable[[str, Row, Breaker], bool]
    types: tuple[str, ...]
    since_ms: Callable[[Any], int]
    healthy: Mapping[str, Any]
    parts: Mapping[str, tuple[Any, tuple[bool | None, ...]]]
    breaks: Mapping[str, tuple[Break, set[str]]]
    undecided: Mapping[str, Undecided]
    first: bool = False

    @property
    def account(self) -> Any:
        """The account whose answers are damaged."""
        return next(iter(self.healthy.values()))


class Tampering(httpx.AsyncBaseTransport):
    """Damages answers in transit."""

    def __init__(self, inner: httpx.AsyncBaseTransport, exchange: Breakable, broken: Break) -> None:
        self._inner = inner
        self._exchange = exchange
        self._break = broken
        self._chosen: str | None = None
        self.hits = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        content = await response.aread()
        if request.url.path in self._break.paths and response.status_code == 200:
            body = DECODER.decode(content)
            if self._exchange.tamper(request.url.path, body, self._broken):
                content = ENCODER.encode(body)
        headers = {k: v for k, v in response.headers.items() if k != "content-length"}
        return httpx.Response(response.status_code, headers=headers, content=content)

    def _broken(self, row: Row, name: str) -> Row | None:
        is_other = self._exchange.first and self._chosen not in (None, name)
        if is_other or not self._break.hits(row | {KEY: name}):
            return row
        self._chosen = name
        self.hits += 1
        return None if self._break.change is None else self._break.change(row)


def listed(rows: list[Row], broken: Breaker, name: str = "") -> list[Row]:
    """The remaining rows of a list; `name` is the member that identifies them."""
    found = [broken(row, str(row.get(name, ""))) for row in rows]
    return [row for row in found if row is not None]


def proof_of(
    exchange: Breakable, account: Any, broken: Break | None = None, *types: str, **fields: Any
) -> dict[str, Any]:
    """The verification of one answer, healthy or broken."""
    tampering: list[Tampering] = []

    def around(inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        if broken is None:
            return inner
        tampering.append(Tampering(inner, exchange, broken))
        return tampering[0]

    async def collected() -> Any:
        async with exchange.world(account, around) as world:
            wanted = {"start_time": exchange.since_ms(account), "limit": 10_000, "verify": True}
            answer = await world.fetch(*types or exchange.types, **(wanted | fields))
            assert answer["next_cursor"] is None
            return answer["verification"]

    proof: dict[str, Any] = run(collected())
    assert not tampering or tampering[0].hits, "nothing was broken"
    return proof


def states(proof: dict[str, Any]) -> dict[str, str]:
    """The state of each check."""
    return {check["name"]: check["state"] for check in proof["checks"]}


def more(name: str, digit: str = "1") -> Callable[[Row], Row]:
    """The same row with a changed first digit of a figure."""

    def changed(row: Row) -> Row:
        figure = row[name]
        if not isinstance(figure, str):
            return row | {name: figure + int(digit)}
        sign = "-" if figure.startswith("-") else ""
        return row | {name: f"{sign}{digit}{figure.removeprefix('-')}"}

    return changed

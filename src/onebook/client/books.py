"""Order books of a service as asynchronous context managers, with the methods of the library's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, Self, Unpack

from onebook.client.failures import Refused, Unavailable
from onebook.client.link import ServiceLink, ViewUpdates
from onebook.client.options import (
    SubscribeOptions,
    ViewRequest,
    apart,
    fields_of,
    named_exchanges,
)
from onebook.client.view import BookView
from onebook.fees import Fees, fee_factors
from onebook.fill import BUY, Direction, Fill
from onebook.orderbook import (
    ALL,
    EXACT,
    BookLevel,
    Names,
    member_fees,
    require_plain,
    sampled,
    symbols_of,
)
from onebook.routes import UNKNOWN, Route, Rules

TIMEOUT_S: Final = 30.0
DEPTH: Final = 20  # of a subscription that sets none
LEVELS_MAX: Final = 500  # per side of a view


class BookSession:
    """Books of several symbols over one connection, across reconnects; they may change.

    Entering connects and, if it was opened with symbols, waits for their first books. Then
    `async for` yields views, `run` calls a function for each, and `snapshots` returns the newest
    ones. Any number of tasks may iterate; each gets every view's newest state at its own pace.
    Leaving closes the connection and ends every iteration.

    Raises, when it is entered or iterated: Refused: A retry would fail in the same way.
        Unavailable: No book was live within `timeout_s`, or `attempts_max` attempts failed.
    """

    def __init__(
        self,
        link: ServiceLink,
        timeout_s: float,
        subscriptions: Sequence[ViewRequest] = (),
        *,
        merged: bool = True,
    ) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._open = False
        self._apart = () if merged else subscriptions
        if merged:
            link.hold(subscriptions)

    async def __aenter__(self) -> Self:
        try:
            if self._apart:
                self._link.hold(apart(self._apart, await self._supported()))
            await self._link.settled(self._timeout_s)
        except BaseException:
            await self._link.close()
            raise
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        await self._link.close()

    async def _supported(self) -> list[str]:
        """The service's exchanges, unless every subscription names its own."""
        if all(named_exchanges(each.fields["exchanges"]) for each in self._apart):
            return []
        try:
            async with asyncio.timeout(self._timeout_s):
                listed = await self._link.ask({"type": "get_exchanges"}, "exchanges_data")
        except TimeoutError:
            message = f"The service did not list its exchanges within {self._timeout_s:g} s."
            raise Unavailable("no_answer", message) from None
        return list(listed["data"].get("supported_exchanges", ()))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The pairs, each once."""
        return tuple(dict.fromkeys(held.view.symbol for held in self._link.held.values()))

    @property
    def exchanges(self) -> tuple[str, ...]:
        """The exchanges of all views, each once; "all" is included once the service has
        answered."""
        views = (held.view for held in self._link.held.values())
        return tuple(dict.fromkeys(name for each in views for name in each.members))

    def __aiter__(self) -> ViewUpdates:
        """Iterate over views: the current state of each, then each change."""
        return self._opened().updates()

    async def run(self, callback: Callable[[BookView], object]) -> None:
        """Call a function for every view, from the event loop, until the books are closed.

        Raises:
            TypeError: The function is a coroutine function; use `async for`.
            Exception: What the function raised; it is not called again.
        """
        require_plain(callback)
        async for view in self:
            callback(view)

    def sampled(self, every_s: float) -> AsyncIterator[BookView]:
        """Iterate over the current views at even times, changed or not, until they are closed."""
        self._opened()
        return sampled(lambda: self.snapshots() if self._open else None, every_s)

    def snapshots(self) -> list[BookView]:
        """Return the current views, in the order of their subscription."""
        return [held.view.copy() for held in self._opened().held.values()]

    async def subscribe(
        self,
        symbol: str,
        *,
        view: str = "",
        exchanges: Names = ALL,
        **options: Unpack[SubscribeOptions],
    ) -> None:
        """Add a symbol, or change exchanges and options of a subscribed one.

        Returns when the service has accepted it, which waits until the service is reachable.

        Args:
            symbol: The pair, such as BTC/USDT.
            view: Your name for an additional view of a symbol, with other options.
            exchanges: One name or several, or "all", where "-name" excludes one.
            options: See `SubscribeOptions`.

        Raises:
            Refused: The service refuses it; an existing subscription remains unchanged.
            Unavailable: The connection ended permanently.
        """
        (symbol,) = symbols_of(symbol)
        await self._opened().subscribe(symbol, view, fields_of(exchanges, options))

    async def unsubscribe(self, symbol: str, *, view: str = "") -> None:
        """End a subscription.

        Raises:
            KeyError: The symbol has no book.
        """
        (symbol,) = symbols_of(symbol)
        await self._opened().unsubscribe(symbol, view)

    def _opened(self) -> ServiceLink:
        if not self._open:
            raise Refused("book_closed", "The books are not open: use them in their `async with`.")
        return self._link


class ServiceBook(BookSession):
    """The order book of one symbol of a service; see `AsyncOnebook.order_book`, `BookSession`."""

    @property
    def symbol(self) -> str:
        """The pair."""
        (held,) = self._link.held.values()
        return held.view.symbol

    def snapshot(self) -> BookView:
        """Return the current book."""
        (view,) = self.snapshots()
        return view

    def fill(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
    ) -> Fill:
        """Return what buying or selling a size would cost now, over the best 500 levels.

        The levels are those of the subscription, which needs `split`, no `group`, and enough
        `depth` for the size. `Fill.complete` is whether 500 levels cover the size, `Fill.uncovered`
        lists exchanges that may have more than is known.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency; floats are refused, as they are not exact.
            notional: The size in the quote currency, instead of `amount`.

        Raises:
            ValueError: The size is not a positive decimal number, or the subscription has too few
                levels.
        """
        view = self.snapshot()
        (held,) = self._link.held.values()
        if held.fields.get("group") is not None:
            raise ValueError("A fill needs exact prices: open the book without group.")
        found = view.fill(direction, amount=amount, notional=notional)
        depth = len(view.asks if direction == "buy" else view.bids)
        if not found.complete and depth >= held.fields.get("depth", DEPTH) and depth < LEVELS_MAX:
            raise ValueError(
                f"The {depth} subscribed levels do not cover this size: open the book with a "
                f"larger depth, at most {LEVELS_MAX}."
            )
        return found

    def route(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
        fees: Fees,
        limit: Decimal | str | int | None = None,
        exclude: Iterable[str] = (),
        max_exchanges: int | None = None,
        rules: Mapping[str, Rules] | None = None,
    ) -> Route:
        """Return the best split of an order after fees now, over the best 500 levels.

        The levels are those of the subscription, which needs `split`, no `group`, no `net`, and
        enough `depth` for the size. See `OrderBookState.route`.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency; floats are refused, as they are not exact.
            notional: What is paid or received after fees, instead of `amount`.
            fees: Taker fees in percent as text, by exchange; "*" for all others; or "published",
                if the book was opened with them.
            limit: The worst price, before fees, that any order may take.
            exclude: Exchanges that take no part.
            max_exchanges: The most exchanges of the split.
            rules: Lots and minimums by exchange; those not given are unknown.

        Raises:
            ValueError: A size, a fee or the limit is invalid, or a level beyond the subscribed ones
                may belong to the split.
        """
        view = self.snapshot()
        (held,) = self._link.held.values()
        if held.fields.get("group") is not None:
            raise ValueError("A route needs exact prices: open the book without group.")
        without = tuple(exclude)
        found = view.route(
            direction,
            amount=amount,
            notional=notional,
            fees=fees,
            limit=limit,
            exclude=without,
            max_exchanges=max_exchanges,
            rules=rules,
        )
        side = view.asks if direction == BUY else view.bids
        if held.fields.get("depth", DEPTH) <= len(side) < LEVELS_MAX:
            known = member_fees(view.route_fees(fees), view.members, view.symbol, without)
            if not is_settled(found, side, known, limit, rules or {}):
                raise ValueError(
                    f"The {len(side)} subscribed levels do not decide this route: open the book "
                    f"with a larger depth, at most {LEVELS_MAX}."
                )
        return found


def is_settled(
    route: Route,
    side: Sequence[BookLevel],
    fees: Mapping[str, str],
    limit: Decimal | str | int | None,
    rules: Mapping[str, Rules],
) -> bool:
    """Return whether no level beyond these can be part of the best route."""
    buys = route.direction == BUY
    end = side[-1].price
    if limit is not None and (end > Decimal(limit) if buys else end < Decimal(limit)):
        return True
    if route.complete and route.worst is not None and not route.extra:
        # The best net price that a level beyond the end can have.
        scale, factors = fee_factors(fees.values())
        best = (min if buys else max)(pair[buys] for pair in factors)
        beyond = EXACT.multiply(end, Decimal(best).scaleb(-scale))
        return route.worst <= beyond if buys else route.worst >= beyond
    # Lots or minimums change the split: each exchange must show more than it could get.
    shown = dict.fromkeys(fees, Decimal(0))
    for level in side:
        for name, amount in zip(level.exchanges, level.amounts, strict=True):
            if name in shown:
                shown[name] += amount
    most = route.amount + route.unplaced
    return all(shown[name] > most + (rules.get(name, UNKNOWN).lot or 0) for name in fees)

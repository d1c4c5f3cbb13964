"""What a changed level costs at each exchange of the registry, fed by its own simulated dialect.

The whole path behind the socket, as in `ingest.py`, with frames of the simulated market: a frame
has as many levels as the market changed there, so that exchanges compare by the level. Peers read
few of them; the rows beside peers are in `ingest.py`.

    every.py [NAME ...]
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from onebook.books import Books
from onebook.config import FeedSettings
from onebook.core.types import LEVELS_MAX
from onebook.exchanges import EXCHANGES
from onebook.feeds.actions import Request, Transmit
from onebook.feeds.session import Session
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health
from onebook.simulator.board import Board, Channel, Dialect, Frame, Now, TextChanges
from onebook.simulator.board import Session as Client
from onebook.simulator.dialects import DIALECTS
from onebook.simulator.market import Market
from timing import each_at, interleaved, report

FRAMES = 1_000
NOW = Now(1_000.0, 1_700_000_000_000)
OPENING_S = 5.0  # until what limits of the exchange delay has been sent
STEP_S = 0.5


def cost(name: str, market: Market) -> float:
    """Start a book and return what each level of `FRAMES` changes costs, in nanoseconds."""
    kind, exchange = DIALECTS[name], EXCHANGES[name]
    board = Board(kind.listings, market.books(name), rules=kind.rules)
    dialect = kind(board)
    url = urlsplit(exchange.instruments_path)
    answer = dialect.get(url.path, dict(parse_qsl(url.query)), NOW)
    listed = exchange.parse_instruments(answer.body)
    instrument = next(each for each in listed if each.native == kind.listings[0].native)
    books = Books()
    levels_max = exchange.depth if exchange.truncate else LEVELS_MAX
    book = books.open(instrument, levels_max=levels_max)
    session = Session(
        exchange, [instrument], books=books, settings=FeedSettings(), stats=ExchangeStats(name)
    )
    url = urlsplit(exchange.ws_url)
    client = Client(f"{url.path}?{url.query}" if url.query else url.path, now_s=NOW.s)
    board.sessions.append(client)
    subscribe(session, dialect, client)
    (window,) = board.followed()
    frames, levels = changed(name, market, window, partial(told, dialect, client, window))
    took = each_at(session.received, frames, NOW.s + OPENING_S)
    assert book.health is Health.LIVE, book.reason
    return took * len(frames) / levels


def subscribe(session: Session, dialect: Dialect, client: Client) -> None:
    """Carry frames and bodies both ways until everything that waits for a limit is sent."""
    session.opened(NOW.s)
    hear(session, dialect.opened(client, NOW), NOW)
    for step in range(int(OPENING_S / STEP_S)):
        now = Now(NOW.s + step * STEP_S, NOW.ms + int(step * STEP_S * 1_000))
        while actions := session.take(now.s):
            for action in actions:
                match action:
                    case Transmit(frame):
                        hear(session, dialect.received(client, frame.decode(), now), now)
                    case Request(fetch):
                        url = urlsplit(fetch.path)
                        body = dialect.get(url.path, dict(parse_qsl(url.query)), now)
                        session.fetched(fetch.instrument, body.body, now.s)


def hear(session: Session, frames: Iterable[Frame], now: Now) -> None:
    """Hand frames of the exchange to the session."""
    for frame in frames:
        session.received(encoded(frame), now.s)


def encoded(frame: Frame) -> bytes:
    """A frame as it leaves the socket, inflated where the exchange compresses it."""
    return frame.encode() if isinstance(frame, str) else frame


def told(dialect: Dialect, client: Client, window: Channel, changes: TextChanges) -> list[bytes]:
    """The frames of a change as a client gets them, with its own numbers if it has such."""
    frame = dialect.delta(window, changes, NOW)
    return [encoded(each) for each in client.told([frame], frame)]


def changed(
    name: str, market: Market, window: Channel, told: Callable[[TextChanges], list[bytes]]
) -> tuple[list[bytes], int]:
    """Move the market; returns the frames of it and how many levels are in them."""
    frames, levels = [], 0
    while len(frames) < FRAMES:
        market.move()
        for _ in market.step(name, {window.listing.symbol}):
            pass
        changes = window.advance()
        if changes is not None:
            levels += len(changes.bids) + len(changes.asks)
            frames += told(changes)
    return frames, levels


def main() -> None:
    names = sys.argv[1:] or EXCHANGES
    markets = {name: Market({name: DIALECTS[name]}, seed=1) for name in names}
    report(
        "changed level of the simulated market",
        interleaved({name: partial(cost, name, market) for name, market in markets.items()}),
        "ns",
    )


if __name__ == "__main__":
    main()

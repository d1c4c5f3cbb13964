"""Keeps one connection to an exchange open: handshake, reconnects with backoff, subscriptions.

`connection.py` owns the socket, `session.py` interprets its frames.
"""

import logging
import random
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace
from picows import (
    WSError,
    WSInvalidStatusError,
    WSUpgradeResponse,
)

from onebook.backoff import Backoff
from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ExchangeFailed
from onebook.exchanges.kit.contract import Exchange, ProtocolError
from onebook.exchanges.kit.limits import Quotas
from onebook.feeds.ccxt.connection import CcxtConnection
from onebook.feeds.ccxt.library import Library
from onebook.feeds.connection import ExchangeConnection, FrameRecorder, Link, NotReached
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.session import FAULTS, FeedSession
from onebook.feeds.stats import LIMITED, MAINTENANCE, OFFLINE, ExchangeStats
from onebook.feeds.subscriptions import Cadences
from onebook.model import Health, Instrument, Reason
from onebook.proxies import ENVIRONMENT, Proxies
from onebook.rest import Rest, retry_after_s

log = logging.getLogger("onebook.feeds")

MAINTENANCE_S: Final = 30.0  # minimum wait after 503, 429 or 418 without Retry-After
ADDRESS_BYTES_MAX: Final = 65_536  # size limit of the response with a connection's address
KEY_REFUSALS: Final = frozenset((400, 401, 403))  # of a handshake with a key
TROUBLES: Final = {503: MAINTENANCE, 418: LIMITED, 429: LIMITED}
# States shown to clients if an exchange refuses connections or is unreachable.
REASONS: Final = {
    MAINTENANCE: Reason.MAINTENANCE,
    LIMITED: Reason.RATE_LIMITED,
    OFFLINE: Reason.UNREACHABLE,
}
TROUBLE_OF: Final = {reason: trouble for trouble, reason in REASONS.items()}


class Feed:
    """The instruments of one connection, which is kept open while `run` runs.

    Args:
        exchange: The exchange's facts, with the operator's addresses.
        instruments: Subscribed first; their books are open.
        books: Receive the data.
        rest: Fetches snapshots over REST.
        limits: Limits and timeouts.
        stats: Counters of the exchange.
        quotas: The exchange's limits, shared by its feeds.
        recorder: Records all frames and bodies.
        library: ccxt, for an exchange without a connector.
        proxies: Selects the proxy for an address.
        api_key: The operator's key for a channel that needs one; "" if there is none.
        tls: A shared TLS context, because creating one reads every certificate of the machine.
        clock: Times the waits.
        jitter: Returns a number in [0, 1) for each wait.
    """

    def __init__(
        self,
        exchange: Exchange,
        instruments: Sequence[Instrument],
        *,
        books: Books,
        rest: Rest,
        limits: FeedLimits = LIMITS,
        stats: ExchangeStats,
        quotas: Quotas,
        recorder: FrameRecorder | None = None,
        library: Library | None = None,
        proxies: Proxies = ENVIRONMENT,
        api_key: str = "",
        tls: ssl.SSLContext | None = None,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.exchange = exchange
        self.books = books
        self.rest = rest
        self._limits = limits
        self.recorder = recorder
        self._clock = clock
        self._instruments = dict.fromkeys(instruments)
        self.stats = stats
        self._quotas = quotas
        self._library = library
        self._proxies = proxies
        self._api_key = api_key
        self._tls = tls
        self._jitter = jitter
        self._cadences = Cadences()
        self._backoff = Backoff(limits.reconnect_base_s, limits.reconnect_max_s, jitter)
        self._connection: Link | None = None  # while it is open
        self._broken = False

    @property
    def room(self) -> int:
        """Return how many more instruments fit on this connection."""
        return self.exchange.limits.topics - len(self._instruments)

    @property
    def instruments(self) -> list[Instrument]:
        """Return the instruments of this feed."""
        return list(self._instruments)

    def add(self, instruments: Sequence[Instrument]) -> None:
        """Add instruments, on the open connection if any."""
        self._instruments.update(dict.fromkeys(instruments))
        if self._connection is not None:
            now = self._clock.monotonic()
            self._connection.session.add(instruments, now)
            self._connection.execute(now)

    def remove(self, instruments: Sequence[Instrument]) -> None:
        """Remove instruments."""
        for instrument in instruments:
            self._instruments.pop(instrument, None)
        if self._connection is not None:
            now = self._clock.monotonic()
            self._connection.session.remove(instruments, now)
            self._connection.execute(now)

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        while True:
            await self._clock.sleep(self._quotas.connects.take(1, self._clock.monotonic()))
            try:
                wait_s = await self._connect()
            except Exception:
                log.exception("A feed of %s failed.", self.exchange.name)
                wait_s = self._backoff.next_s()
            await self._clock.sleep(wait_s)

    async def _connect(self) -> float:
        """Run one connection and return how long to wait before the next."""
        try:
            exchange = await self._addressed()
        except ExchangeFailed as error:
            return self._unreachable(OFFLINE, f"returns no connection address ({error.message})")
        except ProtocolError as error:
            return self._unreachable(OFFLINE, f"returns no connection address ({error.reason})")
        session = FeedSession(
            exchange,
            self.instruments,
            books=self.books,
            limits=self._limits,
            stats=self.stats,
            jitter=self._jitter,
            cadences=self._cadences,
            quotas=self._quotas,
            wall_ms=self._clock.wall_ms,
        )
        connection = self._link(session, exchange.ws_url)
        try:
            try:
                await connection.open()
            except NotReached as error:
                return self._unreachable(error.trouble, error.problem)
            except WSInvalidStatusError as error:
                return self._rejected(error.response)
            except (OSError, WSError) as error:
                return self._unreachable(OFFLINE, f"cannot be reached ({type(error).__name__})")
            opened_at = self._up(connection)
            await connection.run()
            return self._down(session, self._clock.monotonic() - opened_at)
        finally:
            if self._connection is not None:
                self._connection = None
                self.stats.connected -= 1
            session.closed(self._clock.monotonic())
            await connection.release()

    async def _addressed(self) -> Exchange:
        """Return the exchange's facts with the address issued for this connection.

        Raises:
            ExchangeFailed: The exchange does not answer.
            ProtocolError: The response contains no usable address.
        """
        exchange = self.exchange
        if exchange.connect is None:
            return exchange
        answer = await self.rest.send(
            exchange.connect.method,
            exchange.rest_url + exchange.connect.path,
            weight=exchange.connect.weight,
            total_s=self._limits.connect_timeout_s,
            bytes_max=ADDRESS_BYTES_MAX,
        )
        if answer.status != 200:
            raise ProtocolError(f"status {answer.status}")
        address = exchange.connect.address(answer.body, self.instruments)
        if exchange.ws_url.startswith("wss:") and not address.url.startswith("wss://"):
            raise ProtocolError("an address without TLS")
        heartbeat = address.heartbeat or exchange.heartbeat
        return replace(exchange, ws_url=address.url, heartbeat=heartbeat)

    def _link(self, session: FeedSession, url: str) -> Link:
        if self.exchange.via:
            assert self._library is not None, self.exchange.name
            return CcxtConnection(self.exchange.name, session, self._library, clock=self._clock)
        return ExchangeConnection(
            self.exchange,
            session,
            url=url,
            tls=self._tls,
            rest=self.rest,
            proxies=self._proxies,
            api_key=self._api_key,
            limits=self._limits,
            stats=self.stats,
            recorder=self.recorder,
            clock=self._clock,
        )

    def _up(self, connection: Link) -> float:
        known = connection.session.instruments
        self._connection = connection
        self.stats.connected += 1
        self.stats.trouble = ""
        self._catch_up(connection, known)
        if self._broken:
            self._broken = False
            log.info("Reconnected to %s.", self.exchange.name)
        return self._clock.monotonic()

    def _catch_up(self, connection: Link, known: Sequence[Instrument]) -> None:
        """Apply subscriptions that changed during the handshake."""
        now = self._clock.monotonic()
        added = [each for each in self._instruments if each not in known]
        removed = [each for each in known if each not in self._instruments]
        if added:
            connection.session.add(added, now)
        if removed:
            connection.session.remove(removed, now)
        connection.execute(now)

    def _down(self, session: FeedSession, lived_s: float) -> float:
        self.stats.reconnects += 1
        end = session.ended
        assert end is not None
        self._broken = True
        trouble = TROUBLE_OF.get(end.reason, OFFLINE)
        if not end.at_once:
            self.stats.trouble = trouble
        if end.detail == FAULTS:
            self._use_instead("sends frames that cannot be read")
        level = logging.INFO if end.at_once else logging.WARNING
        why = f"{end.reason} ({end.detail})" if end.detail else end.reason
        log.log(level, "A connection to %s ended: %s.", self.exchange.name, why)
        if lived_s >= self._limits.stable_s:
            self._backoff.reset()
            if end.at_once:
                return self._held_through_ccxt(trouble)
        return max(self._backoff.next_s(), self._held_through_ccxt(trouble))

    def _rejected(self, response: WSUpgradeResponse | None) -> float:
        """Return the wait required by a rejected handshake (429, Retry-After)."""
        assert response is not None
        status = int(response.status)
        holds = self.exchange.holds
        trouble = LIMITED if status in holds else TROUBLES.get(status, OFFLINE)
        if status in KEY_REFUSALS:
            self._use_instead(f"refuses the API key (HTTP {status})")
        wait_s = self._unreachable(trouble, f"rejects the handshake (HTTP {status})")
        if trouble is OFFLINE:
            return wait_s
        asked_s = retry_after_s(response.headers.get("Retry-After"), self._clock.wall_ms() / 1_000)
        if asked_s is None:
            asked_s = holds.get(status, MAINTENANCE_S) * (1.0 + self._jitter())
        # All feeds of the exchange wait, then reconnect one by one.
        self._quotas.connects.hold(self._clock.monotonic() + asked_s)
        return max(wait_s, asked_s)

    def _use_instead(self, problem: str) -> None:
        """Use the exchange's other channel from now on, if it has one."""
        instead = self.exchange.instead
        if instead is not None:
            log.warning("%s %s; the default channel is used instead.", instead.name, problem)
            self.exchange = instead

    def _unreachable(self, trouble: str, problem: str) -> float:
        self.stats.trouble = trouble
        now = self._clock.monotonic()
        for instrument in self._instruments:
            self.books.set_health(instrument, Health.OFFLINE, REASONS[trouble], now, detail=problem)
        if not self._broken:
            self._broken = True
            log.warning("%s %s.", self.exchange.name, problem)
        return max(self._backoff.next_s(), self._held_through_ccxt(trouble))

    def _held_through_ccxt(self, trouble: str) -> float:
        """Pause all ccxt clients of the exchange after a rate limit error or maintenance.

        ccxt does not pass on Retry-After, which `_rejected` reads from a socket's handshake.
        """
        if trouble == OFFLINE or not self.exchange.via:
            return 0.0
        wait_s = MAINTENANCE_S * (1.0 + self._jitter())
        self._quotas.connects.hold(self._clock.monotonic() + wait_s)
        return wait_s

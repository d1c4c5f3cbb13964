"""Requests an exchange's time at intervals, to bound the offset of its clock.

While books of the exchange are followed, it sends two requests a minute: the first may have to open
a connection, so that the second measures only the round trip. Without spare budget they are
skipped. After a failure the error of the offset grows, and finally becomes unknown.
"""

import logging
import random
from collections.abc import Callable
from typing import Final

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ExchangeFailed
from onebook.exchanges.kit import Exchange, ProtocolError, ServerTime, time_in
from onebook.rest import Rest
from onebook.skew import ClockSkew

ASK_S: Final = 60.0  # mean time between requests
SPREAD: Final = 0.5  # random variation, so that exchanges are not queried together
FIRST_S: Final = 5.0  # maximum wait before the first request
REQUESTS: Final = 2  # consecutive requests
TOTAL_S: Final = 5.0  # a slower answer bounds nothing
BYTES_MAX: Final = 16_384  # maximum of an answer
log = logging.getLogger("onebook.feeds")


class ServerClock:
    """Measures the clock of one exchange until it is cancelled.

    Args:
        exchange: The exchange's facts; `time` describes the request.
        rest: Sends the requests.
        skew: Receives the measurements.
        clock: Times the waits.
        jitter: Returns a number in [0, 1) for each wait.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        rest: Rest,
        skew: ClockSkew,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        assert exchange.time is not None
        self._name = exchange.name
        self._request: ServerTime = exchange.time
        self._url = exchange.rest_url + self._request.path
        self._rest = rest
        self._skew = skew
        self._clock = clock
        self._jitter = jitter

    async def run(self) -> None:
        """Request the time at intervals."""
        await self._clock.sleep(FIRST_S * self._jitter())
        while True:
            await self.ask()
            await self._clock.sleep(ASK_S * (1.0 + SPREAD * (self._jitter() - 0.5)))

    async def ask(self) -> None:
        """Request the time, unless other requests need the budget."""
        weight = self._request.weight
        for _ in range(REQUESTS):
            if not self._rest.spares(self._url, weight):
                return
            try:
                answer = await self._rest.timed(
                    self._url, weight=weight, total_s=TOTAL_S, bytes_max=BYTES_MAX
                )
                at_us = time_in(answer.body, self._request.member)
            except (ExchangeFailed, ProtocolError) as error:
                log.debug("%s: its time is unknown: %s", self._name, error)
                return
            self._skew.answered(at_us, answer.sent_at, answer.received_at)

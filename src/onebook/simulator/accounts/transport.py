"""The simulated exchange as an httpx transport: no socket, no real time."""

import httpx
from starlette.types import ASGIApp

from onebook.clock import SYSTEM_CLOCK, Clock


class SimulatedTransport(httpx.AsyncBaseTransport):
    """Asks an ASGI application after a way that takes `latency_s`, and breaks like a wire."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        latency_s: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.requests = 0
        self.in_flight = 0
        self._inner = httpx.ASGITransport(app)
        self._latency_s = latency_s
        self._clock = clock

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry one request there and its answer back."""
        self.requests += 1
        self.in_flight += 1
        try:
            await self._clock.sleep(self._latency_s / 2)
            response = await self._inner.handle_async_request(request)
            await self._clock.sleep(self._latency_s / 2)
            return response
        except ConnectionResetError as error:
            raise httpx.ReadError(str(error), request=request) from None
        finally:
            self.in_flight -= 1

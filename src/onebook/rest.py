"""Outgoing HTTP to exchanges: budgets, timeouts, retries and one clear error.

Knows hosts, not exchanges: it neither builds paths nor reads bodies. A host that asks for patience
(429, 418, 503 with Retry-After, RFC 9110 section 10.2.3) gets it from all requests at once.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Final, NamedTuple, Self

import httpx

from onebook.errors import ExchangeFailed

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 10.0  # also for writing, and for a free connection of the pool
TOTAL_S: Final = 60.0  # one request with its waits and retries
ATTEMPTS_MAX: Final = 5
RETRY_BASE_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
BODY_BYTES_MAX: Final = 32 << 20  # the longest instrument list known is about half of this
PER_MINUTE: Final = 600.0  # request budget of a host that nobody spoke for, in weight units
HOLD_S: Final = {418: 120.0, 429: 10.0, 503: 0.0}  # patience where the host names none
HOLD_MAX_S: Final = 3_600.0  # a Retry-After beyond this is cut to it
RETRIED: Final = frozenset((418, 429, 500, 502, 503, 504))
CONNECTIONS_MAX: Final = 64
SAFE_METHODS: Final = frozenset(("GET", "HEAD"))  # nothing else is sent twice


class Bucket:
    """A token bucket; time is monotonic seconds and comes in.

    Waiting is by debt: `take` always takes, and says how long the taker must wait for it, so
    that takers are served in the order they came.
    """

    __slots__ = ("capacity", "filled_at", "rate", "tokens")

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self.tokens = capacity
        self.filled_at = 0.0

    def refill(self, now: float) -> None:
        """Bring the tokens up to `now`."""
        if now > self.filled_at:
            self.tokens = min(self.capacity, self.tokens + (now - self.filled_at) * self.rate)
            self.filled_at = now

    def wait_s(self, tokens: float, now: float) -> float:
        """Return how long a taker of `tokens` would wait."""
        self.refill(now)
        # More than the bucket ever holds: a full bucket suffices, the debt is paid afterwards.
        return max(0.0, (min(tokens, self.capacity) - self.tokens) / self.rate)

    def take(self, tokens: float, now: float) -> float:
        """Take `tokens` and return how long to wait before using them."""
        wait_s = self.wait_s(tokens, now)
        self.tokens -= tokens
        return wait_s


class Answer(NamedTuple):
    """What a host answered, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Host:
    """The budget and the patience of one host.

    Half of a minute's budget may go at once and the other half comes back evenly: no minute,
    wherever it starts, ever holds more than the budget.
    """

    __slots__ = ("bucket", "held_until")

    def __init__(self, per_minute: float) -> None:
        self.bucket = Bucket(per_minute / 120.0, per_minute / 2.0)
        self.held_until = 0.0

    def wait_s(self, weight: float, now: float) -> float:
        """Return how long a request of `weight` would wait now."""
        return max(self.held_until - now, self.bucket.wait_s(weight, now))


class Rest:
    """The one HTTP client of the node.

    Args:
        client: Made here where None; closed with this object either way.
        clock: Monotonic seconds.
        wall: Unix seconds, for Retry-After dates.
        sleep: Waits.
        jitter: A number in [0, 1) for each retry.
    """

    def __init__(
        self,
        client: httpx.AsyncClient | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client = client or httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            follow_redirects=False,
        )
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._jitter = jitter
        self._hosts: dict[str, Host] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    def budget(self, url: str, per_minute: float) -> None:
        """Set the budget of the host of `url`, in its weight units a minute."""
        name = authority(httpx.URL(url))
        if name not in self._hosts:
            self._hosts[name] = Host(per_minute)

    async def get(self, url: str, *, weight: float = 1, total_s: float = TOTAL_S) -> bytes:
        """Return the body of a GET that the host answered with 200.

        Raises:
            ExchangeFailed: It did not, within `total_s` and the retries.
        """
        answer = await self.send("GET", url, weight=weight, total_s=total_s)
        if answer.status != 200:
            raise ExchangeFailed(f"{httpx.URL(url).host} answered {answer.status} instead of data.")
        return answer.body

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        weight: float = 1,
        total_s: float = TOTAL_S,
    ) -> Answer:
        """Return the host's answer; busy and broken answers to safe methods are tried again.

        Raises:
            ExchangeFailed: No answer, a redirect, a body over the limit, or a wait for the
                budget or the host's patience that is longer than `total_s`.
        """
        request = self._client.build_request(method, url, headers=headers, content=content)
        name = authority(request.url)
        deadline = self._clock() + total_s
        attempts = ATTEMPTS_MAX if method in SAFE_METHODS else 1
        for attempt in range(1, attempts + 1):
            await self._wait_turn(name, weight, deadline)
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock())):
                    answer = await self._once(request)
                failure = ExchangeFailed(f"{name} answered {answer.status}.")
            except TimeoutError:
                raise ExchangeFailed(f"{name} did not answer within {total_s:g} s.") from None
            except (httpx.TransportError, httpx.DecodingError) as error:
                failure = ExchangeFailed(f"{name} cannot be reached: {plain(error)}.")
            else:
                self._hold(name, answer)
                if answer.status not in RETRIED or attempt == attempts:
                    return answer
            if attempt < attempts:
                await self._back_off(attempt, deadline, failure)
        raise failure

    async def _wait_turn(self, name: str, weight: float, deadline: float) -> None:
        host = self._hosts.setdefault(name, Host(PER_MINUTE))
        now = self._clock()
        wait_s = host.wait_s(weight, now)
        if now + wait_s > deadline:
            raise ExchangeFailed(
                f"{name} takes no more requests for {wait_s:.0f} s.", retry_after_s=wait_s
            )
        host.bucket.take(weight, now)
        while wait_s > 0:
            await self._sleep(wait_s)
            # The host may have asked for patience in the meantime.
            wait_s = host.held_until - self._clock()
            if self._clock() + wait_s > deadline:
                raise ExchangeFailed(
                    f"{name} asked us to wait {wait_s:.0f} s.", retry_after_s=wait_s
                )

    async def _once(self, request: httpx.Request) -> Answer:
        response = await self._client.send(request, stream=True)
        try:
            if response.is_redirect:
                raise ExchangeFailed(f"{request.url.host} redirects, which is not followed.")
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > BODY_BYTES_MAX:
                    raise ExchangeFailed(
                        f"{request.url.host} answered with more than {BODY_BYTES_MAX} bytes."
                    )
            return Answer(response.status_code, response.headers, bytes(body))
        finally:
            await response.aclose()

    def _hold(self, name: str, answer: Answer) -> None:
        if answer.status in HOLD_S:
            asked_s = retry_after_s(answer.headers.get("retry-after"), self._wall())
            hold_s = HOLD_S[answer.status] if asked_s is None else asked_s
            host = self._hosts[name]
            host.held_until = max(host.held_until, self._clock() + hold_s)

    async def _back_off(self, attempt: int, deadline: float, failure: ExchangeFailed) -> None:
        wait_s = self._jitter() * min(RETRY_MAX_S, RETRY_BASE_S * 2.0**attempt)
        if self._clock() + wait_s > deadline:
            raise failure
        await self._sleep(wait_s)


def authority(url: httpx.URL) -> str:
    """Return whose budget a URL counts against: a host with its port, for some share a host."""
    return url.netloc.decode("ascii")


def retry_after_s(text: str | None, now_s: float) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date; None where it says nothing usable."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return min(float(text), HOLD_MAX_S)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    # RFC 9110 dates are in GMT; one without a zone is read so too.
    seconds = date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s
    return min(max(0.0, seconds), HOLD_MAX_S)


def plain(error: Exception) -> str:
    """Name a foreign error without what it may quote: its kind, in words."""
    name = type(error).__name__
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()

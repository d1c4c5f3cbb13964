"""Outgoing HTTP: budgets, Retry-After, retries; the clock is a number that sleeping advances."""

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest

from clocks import SleepingClock, sleeping
from onebook.errors import ExchangeFailed
from onebook.exchanges.kit import Limit, Scope
from onebook.exchanges.kit.limits import JITTER_S
from onebook.rest import (
    ATTEMPTS_MAX,
    BODY_BYTES_MAX,
    CONNECT_TIMEOUT_S,
    HOLD_MAX_S,
    HOLD_S,
    READ_TIMEOUT_S,
    SPARE_SHARE,
    TOTAL_S,
    NoCookies,
    Rest,
    retry_after_s,
)

URL = "https://api.toy.example/book?secret=hush"
Handler = Callable[[httpx.Request], httpx.Response]


def per_minute(count: int) -> tuple[Limit, ...]:
    return (Limit(count, 60.0, Scope.ADDRESS),)


class Web:
    """A client whose network is a function and whose time is a number."""

    def __init__(self, handler: Handler, *, jitter: float = 0.5) -> None:
        self.clock = SleepingClock(1_000.0, epoch_us=1_700_000_000_000_000)
        self.slept = self.clock.slept
        self.requests: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return handler(request)

        self.rest = Rest(
            httpx.AsyncClient(transport=httpx.MockTransport(answer)),
            clock=self.clock,
            jitter=lambda: jitter,
        )

    async def get(self, url: str = URL, **options) -> bytes:
        async with self.rest:
            return await self.rest.get(url, **options)


def answers(*responses: httpx.Response | Exception) -> Handler:
    waiting: Iterator[httpx.Response | Exception] = iter(responses)

    def handler(request: httpx.Request) -> httpx.Response:
        answer = next(waiting)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handler


def ok(body: bytes = b"{}") -> httpx.Response:
    return httpx.Response(200, content=body)


async def test_a_body_comes_back_as_it_was_sent():
    web = Web(answers(ok(b"[1]")))
    assert await web.get() == b"[1]"
    assert (web.slept, len(web.requests)) == ([], 1)


async def test_send_gives_any_status_headers_and_the_request_as_written():
    web = Web(answers(httpx.Response(401, headers={"x-a": "b"}, content=b"no")))
    async with web.rest:
        answer = await web.rest.send("POST", URL, headers={"x-key": "k"}, content=b"body")
    assert (answer.status, answer.headers["X-A"], answer.body) == (401, "b", b"no")
    [request] = web.requests
    assert (request.url.query, request.headers["x-key"], request.content) == (
        b"secret=hush",
        "k",
        b"body",
    )


def test_timeouts_are_named_and_redirects_are_not_followed():
    client = Rest()._client
    assert client.timeout.connect == CONNECT_TIMEOUT_S
    assert client.timeout.read == READ_TIMEOUT_S
    assert not client.follow_redirects


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_broken_answers_are_tried_again_with_full_jitter(status):
    web = Web(answers(httpx.Response(status), httpx.Response(status), ok()))
    assert await web.get() == b"{}"
    assert web.slept == [0.5, 1.0]


async def test_network_errors_are_tried_again():
    error = httpx.ConnectError("https://api.toy.example/book?secret=hush")
    web = Web(answers(error, httpx.ReadTimeout("slow"), ok()))
    assert await web.get() == b"{}"


async def test_what_stays_unreachable_is_one_clear_sentence_without_the_query():
    web = Web(answers(*[httpx.ConnectError(URL)] * ATTEMPTS_MAX))
    with pytest.raises(ExchangeFailed) as caught:
        await web.get()
    assert caught.value.message == "api.toy.example cannot be reached: connect error."
    assert len(web.requests) == ATTEMPTS_MAX


async def test_what_stays_broken_is_reported_with_its_status():
    web = Web(answers(*[httpx.Response(500)] * ATTEMPTS_MAX))
    with pytest.raises(ExchangeFailed, match=r"^api\.toy\.example answered 500 instead of data\.$"):
        await web.get()


async def test_a_refusal_is_not_tried_again():
    web = Web(answers(httpx.Response(404)))
    with pytest.raises(ExchangeFailed, match="answered 404"):
        await web.get()


async def test_nothing_but_safe_methods_is_sent_twice():
    web = Web(answers(httpx.ConnectError("gone")))
    async with web.rest:
        with pytest.raises(ExchangeFailed):
            await web.rest.send("POST", URL)
    assert len(web.requests) == 1


async def test_retries_stop_at_the_total():
    web = Web(answers(*[httpx.Response(500)] * 9), jitter=0.9)
    with pytest.raises(ExchangeFailed, match="answered 500"):
        await web.get(total_s=2.0)
    assert web.clock.now_s <= 1_002.0


async def test_a_host_that_never_answers_is_left_after_the_total():
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with Rest(httpx.AsyncClient(transport=httpx.MockTransport(never))) as rest:
        with pytest.raises(ExchangeFailed, match="did not answer within"):
            await rest.get(URL, total_s=0.02)
        assert rest.connections_in_use == 0


async def test_a_request_cancelled_while_it_waits_gives_its_budget_back():
    """Cancelled requests must not delay the others."""
    held = asyncio.Event()

    async def sleep(seconds: float) -> None:
        held.set()
        await asyncio.Event().wait()

    web = Web(lambda request: ok())
    sleeping(sleep, web.clock)
    async with web.rest:
        web.rest.budget(URL, per_minute(60))
        for _ in range(30):
            await web.rest.get(URL)
        for _ in range(5):
            held.clear()
            task = asyncio.create_task(web.rest.get(URL))
            await held.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert web.rest._hosts["api.toy.example"].wait_s(1, web.clock.now_s) == pytest.approx(
            2.0 + 2 * JITTER_S / 60
        )


async def test_a_redirect_is_an_error():
    web = Web(answers(httpx.Response(302, headers={"location": "https://evil.example/"})))
    with pytest.raises(ExchangeFailed, match="redirects; redirects are not followed"):
        await web.get()
    assert len(web.requests) == 1


async def test_a_body_over_the_limit_is_refused_while_it_comes():
    web = Web(answers(ok(b" " * (BODY_BYTES_MAX + 1))))
    with pytest.raises(ExchangeFailed, match=f"more than {BODY_BYTES_MAX} bytes"):
        await web.get()


async def test_a_body_that_is_not_what_its_encoding_says_is_an_error():
    class Broken(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield b"not gzip"

    responses = [
        httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Broken())
        for _ in range(ATTEMPTS_MAX)
    ]
    with pytest.raises(ExchangeFailed, match="unreadable answer: the body cannot be inflated"):
        await Web(answers(*responses)).get()


@pytest.mark.parametrize("status", [418, 429, 503])
async def test_fault_maintenance_retry_after_in_seconds_holds_the_whole_host(status):
    web = Web(answers(httpx.Response(status, headers={"retry-after": "30"}), ok(), ok(), ok()))
    async with web.rest:
        await web.rest.get(URL)
        assert web.clock.now_s >= 1_030.0
        await web.rest.get("https://other.example/")
        assert web.clock.now_s < 1_031.0
        assert len(web.requests) == 3


async def test_fault_maintenance_retry_after_as_a_date_is_obeyed():
    # Unix 1,700,001,000 is what the wall clock reads at the start.
    web = Web(
        answers(httpx.Response(503, headers={"retry-after": "Tue, 14 Nov 2023 22:30:20 GMT"}), ok())
    )
    await web.get()
    assert web.clock.now_s == pytest.approx(1_020.0, abs=0.6)


async def test_limits_without_retry_after_get_a_patience_of_our_own():
    web = Web(answers(httpx.Response(429), ok()))
    await web.get()
    assert web.clock.now_s >= 1_010.0


async def test_a_status_by_which_one_host_shuts_us_out_holds_that_host_alone():
    web = Web(lambda request: httpx.Response(403))
    web.rest.budget(URL, per_minute(600), {403: 300.0})
    async with web.rest:
        with pytest.raises(ExchangeFailed, match="answered 403"):
            await web.rest.get(URL)
        with pytest.raises(ExchangeFailed, match="allows no more requests for 300 s"):
            await web.rest.get(URL)
        for _ in range(2):
            with pytest.raises(ExchangeFailed, match="answered 403"):
                await web.rest.get("https://other.example/")
    assert len(web.requests) == 3


async def test_patience_beyond_the_total_is_reported_at_once_with_its_length():
    web = Web(answers(httpx.Response(418)))
    with pytest.raises(ExchangeFailed) as caught:
        await web.get()
    assert caught.value.retry_after_s == pytest.approx(119.5)
    assert len(web.requests) == 1


async def waiting_while_held(until: float) -> Web:
    """Two requests: the second waits for the budget, then the host sends Retry-After."""
    web = Web(answers(ok(), ok()))
    web.rest.budget(URL, per_minute(60))
    host = web.rest._hosts["api.toy.example"]

    async def sleep(seconds: float) -> None:
        web.clock.now_s += seconds
        host.held_until = until

    sleeping(sleep, web.clock)
    async with web.rest:
        await web.rest.get(URL, weight=30)
        await web.rest.get(URL, weight=5)
    return web


async def test_patience_asked_for_while_waiting_for_the_budget_is_obeyed_too():
    assert (await waiting_while_held(1_020.0)).clock.now_s == pytest.approx(1_020.0)


async def test_patience_asked_for_while_waiting_may_be_too_long():
    with pytest.raises(ExchangeFailed, match="asked us to wait 490 s"):
        await waiting_while_held(1_500.0)


async def test_the_budget_of_a_host_is_kept_and_a_longer_wait_than_the_total_refused():
    web = Web(lambda request: ok())
    web.rest.budget(URL, per_minute(120))
    web.rest.budget(URL, per_minute(999_999))  # the first word counts
    async with web.rest:
        for _ in range(60):
            await web.rest.get(URL)
        assert web.slept == []
        await web.rest.get(URL)
        assert web.slept == [pytest.approx(1.0 + JITTER_S / 60)]
        with pytest.raises(ExchangeFailed, match="allows no more requests for 60 s") as caught:
            await web.rest.get(URL, weight=60, total_s=30.0)
    assert caught.value.retry_after_s == pytest.approx(60.0 + JITTER_S)
    assert TOTAL_S > 30.0


async def test_a_host_that_cannot_be_connected_to_uses_no_budget():
    def refused(request):
        raise httpx.ConnectError("refused")

    web = Web(refused)
    web.rest.budget(URL, per_minute(60))
    async with web.rest:
        for _ in range(40):
            with pytest.raises(ExchangeFailed, match="cannot be reached"):
                await web.rest.post(URL, b"{}")
    assert web.slept == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e9", None),
        ("٣", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("999999999", HOLD_MAX_S),
        ("99999999999", HOLD_MAX_S),
        ("9" * 5_000, HOLD_MAX_S),
        (f"Tue, 14 Nov {10**20} 22:13:20 GMT", None),
        (f"Tue, 14 Nov 2023 22:13:20 +{10**15}", None),
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0.0),
        ("Tue, 14 Nov 2023 22:13:25 GMT", 5.0),
        ("Tue, 14 Nov 2023 22:13:25 -0000", 5.0),
        ("Tue, 14 Nov 2093 22:13:25 GMT", HOLD_MAX_S),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_beyond_its_limit(text, seconds):
    assert retry_after_s(text, 1_700_000_000.0) == seconds


async def test_a_date_that_overflows_leaves_the_pause_of_the_status():
    date = f"Tue, 14 Nov {10**20} 22:13:20 GMT"
    web = Web(answers(httpx.Response(429, headers={"retry-after": date}), ok()))
    assert await web.get() == b"{}"
    assert sum(web.slept) == HOLD_S[429]


async def test_no_cookie_is_kept():
    web = Web(answers(httpx.Response(200, headers={"set-cookie": "a=b; Path=/"}), ok()))
    async with Rest() as rest:
        assert isinstance(rest._client.cookies.jar, NoCookies)
    web.rest._client.cookies = NoCookies()
    async with web.rest:
        await web.rest.get(URL)
        await web.rest.get(URL)
    assert "cookie" not in web.requests[1].headers


async def test_what_can_be_put_off_leaves_half_of_a_burst_to_the_others():
    web = Web(lambda _: httpx.Response(200))
    web.rest.budget(URL, per_minute(1_200))  # a burst of 600, 10 a second
    async with web.rest:
        assert web.rest.spares(URL, 300)
        assert not web.rest.spares(URL, 301)
        assert web.rest.spares(URL, 300), "to ask takes nothing"
        await web.rest.get(URL, weight=300)
        assert not web.rest.spares(URL, 1)
        web.clock.now_s += 600 * (1 - SPARE_SHARE) / 10 * (1 + JITTER_S / 60) + 0.001
        assert web.rest.spares(URL, 300)


async def test_a_host_that_asks_for_patience_spares_nothing():
    web = Web(lambda _: httpx.Response(429, headers={"retry-after": "30"}))
    async with web.rest:
        with pytest.raises(ExchangeFailed):
            await web.rest.get(URL, total_s=5)
        assert not web.rest.spares(URL, 1)
        web.clock.now_s += 31
        assert web.rest.spares(URL, 1)


async def test_the_cause_of_a_failed_connection_is_named(unused_tcp_port: int) -> None:
    async def at_once(seconds: float) -> None:
        pass

    async with Rest(clock=sleeping(at_once)) as rest:
        with pytest.raises(ExchangeFailed) as caught:
            await rest.get(f"http://127.0.0.1:{unused_tcp_port}/book?secret=hush")
    assert caught.value.message == (
        f"127.0.0.1:{unused_tcp_port} cannot be reached: connect error (ConnectionRefusedError)."
    )

"""The clock offset, limits and stamps of an environment."""

import httpx
from msgspec import json

from onebook.transactions.host import ClockOffset
from transactions.bybit.asking import Asked, asked, ok
from transactions.bybit_support import NOW_MS, loop_now_ms, run


class TestClock:
    """Our clock may be wrong; the exchange's is the one that counts."""

    def test_a_refused_time_is_corrected_from_the_message(self) -> None:
        server_ms = NOW_MS + 60_000
        message = (
            "invalid request, please check your server timestamp or recv_window param. "
            f"req_timestamp[{NOW_MS}],server_timestamp[{server_ms}],recv_window[5000]"
        )
        wrong = httpx.Response(
            200, content=json.encode({"retCode": 10002, "retMsg": message, "result": {}, "time": 0})
        )
        _, here, spent_s = asked(wrong, ok())
        assert [r.headers["x-bapi-timestamp"] for r in here.requests] == [
            str(NOW_MS),
            str(server_ms),
        ]
        assert spent_s == 0.0

    def test_every_answer_measures_the_offset(self) -> None:
        def ahead(request: httpx.Request) -> httpx.Response:
            content = {"retCode": 0, "result": {}, "time": loop_now_ms() - 3_000}
            return httpx.Response(200, content=json.encode(content))

        async def story() -> list[str]:
            async with Asked(ahead) as here:
                await here.get()
                await here.get()
                return [r.headers["x-bapi-timestamp"] for r in here.requests]

        assert run(story()) == [str(NOW_MS), str(NOW_MS - 3_000)]

    def test_the_answer_with_the_shortest_way_is_believed(self) -> None:
        offset = ClockOffset()
        offset.heard(1_100, sent_ms=1_000, way_s=0.2, now_s=1.0)
        assert offset.ms == 0
        offset.heard(9_000, sent_ms=1_000, way_s=4.0, now_s=2.0)
        assert offset.ms == 0
        offset.heard(9_000, sent_ms=1_000, way_s=4.0, now_s=400.0)  # the old one has aged
        assert offset.ms == 6_000

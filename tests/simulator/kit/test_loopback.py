"""Binary frames and POST requests over a loopback, with an invented exchange."""

import httpx
import pytest
import websockets

from onebook.clock import ManualClock
from onebook.simulator.kit.board import (
    Dialect,
    ExchangeBoard,
    ExchangeRules,
    Frame,
    Now,
    PublishedBook,
    RestReply,
    SimulatedSession,
    TextChanges,
    answered,
)
from onebook.simulator.kit.loopback import Front, Loopback


class Made(Dialect):
    """Echoes, in binary frames at one address, and answers POST requests; has no books."""

    rules = ExchangeRules(posted=("/info",))

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        session.binary = session.path == "/pushed"
        return ["welcome"]

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        return [frame]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> Frame:
        raise NotImplementedError

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        return []

    def get(self, path, query, now: Now) -> RestReply | None:
        return answered(dict(query)) if path == "/info" else None

    def post(self, path: str, host: str, now: Now) -> RestReply | None:
        return answered(f"ws://{host}/pushed") if path == "/address" else None

    @staticmethod
    def native_of(frame: object) -> str | None:
        return None


@pytest.fixture
async def loopback():
    board = ExchangeBoard((), {}, rules=Made.rules)
    front = Front(
        Made(board),
        board,
        clock=ManualClock(),
        instead=lambda path, query: None,
    )
    loopback = Loopback("okx", front)
    await loopback.start()
    yield loopback
    await loopback.stop()


async def test_a_question_by_post_is_the_query_and_get_is_refused(loopback: Loopback) -> None:
    async with httpx.AsyncClient(base_url=loopback.urls.rest) as http:
        assert (await http.post("/info", json={"type": "list"})).json() == {"type": "list"}
        assert (await http.post("/info", content=b"nonsense")).json() == {}
        assert (await http.get("/info?type=list")).status_code == 404


async def test_an_address_is_given_to_post_and_its_frames_may_be_binary(loopback: Loopback) -> None:
    async with httpx.AsyncClient(base_url=loopback.urls.rest) as http:
        assert (await http.get("/address")).status_code == 404
        assert (await http.post("/other")).status_code == 404
        address = (await http.post("/address")).json()
        assert (await http.post("/address", json={"pair": "X" * 10_000})).json() == address
    async with websockets.connect(address) as ws:
        assert await ws.recv() == b"welcome"
        await ws.send("ping")
        assert await ws.recv() == b"ping"
    async with websockets.connect(loopback.urls.ws) as ws:
        assert await ws.recv() == "welcome"

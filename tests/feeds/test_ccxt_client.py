"""A ccxt client in its thread, with a scripted ccxt: frames, errors, leftovers."""

import asyncio
import decimal
import json
import logging
import threading
import time

import pytest

from onebook.config import CcxtSettings
from onebook.feeds.ccxt.client import CcxtClient, CcxtHandle, SideWriter
from onebook.feeds.ccxt.connection import Mailbox
from onebook.feeds.ccxt.worker import Tasks, Worker
from onebook.model import Reason

PATIENCE_S = 60.0
SETTINGS = CcxtSettings(depth=2)
FAST_S = 0.01


class InvalidNonce(Exception):
    """Has the name of ccxt's exception."""


class BadRequest(Exception):
    pass


class NetworkError(Exception):
    pass


class Scripted:
    """The parts of a ccxt.pro exchange that a client uses, controlled by the test."""

    def __init__(self, *, unwatch=True):
        self.has = {"unWatchOrderBook": unwatch}
        self.answers = {}
        self.left = []
        self.closed = 0
        self.read = []
        self.strays = []

    def queue(self, symbol):
        return self.answers.setdefault(symbol, asyncio.Queue())

    async def watch_order_book(self, symbol):
        answer = await self.queue(symbol).get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def un_watch_order_book(self, symbol):
        self.left.append(symbol)

    def handle_message(self, client, message):
        if message == "broken":
            raise KeyError("data")
        self.read.append(message)

    def stray(self):
        """Start a task that is never awaited, as ccxt does."""
        task = asyncio.ensure_future(asyncio.Event().wait())
        self.strays.append(task)

    async def close(self):
        self.closed += 1


def book(*bids, at=None):
    return {"bids": [[price, 1.0] for price in bids], "asks": [[101.0, 2.0]], "timestamp": at}


class Desk:
    """A worker with a client of a scripted ccxt; frames arrive in the test's event loop."""

    def __init__(self, scripted, *, interval_s=FAST_S, **limits):
        self.scripted = scripted
        self.frames = []
        self._stirred = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.worker = Worker("test-ccxt")
        self.ends = []
        self.client = CcxtClient(
            self._make, self._told, self._over, SETTINGS, interval_s=interval_s, **limits
        )

    def _make(self):
        def market(native):
            if native == "gone":
                raise KeyError(native)
            return native.upper(), SideWriter(str, str, str)

        return CcxtHandle(self.scripted, self.scripted.close, market)

    def _told(self, native, frame):
        self._loop.call_soon_threadsafe(self._take, json.loads(frame))

    def _over(self, end):
        self._loop.call_soon_threadsafe(self.ends.append, end)
        self._loop.call_soon_threadsafe(self._stirred.set)

    def _take(self, frame):
        self.frames.append(frame)
        self._stirred.set()

    async def __aenter__(self):
        await self.worker.start()
        self.running = asyncio.ensure_future(self.worker.call(self.client.run))
        return self

    async def __aexit__(self, *details):
        self.worker.post(self.client.stop)
        await asyncio.wait({self.running}, timeout=PATIENCE_S)
        await self.worker.stop(PATIENCE_S)

    def command(self, **command):
        self.worker.post(self.client.command, json.dumps(command).encode())

    async def do(self, action, *arguments):
        """Call a function in the worker's thread."""

        async def call():
            return action(*arguments)

        return await self.worker.call(call)

    async def answer(self, symbol, answer):
        await self.do(lambda: self.scripted.queue(symbol).put_nowait(answer))

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not (found := [each for each in self.frames if condition(each)]):
                self._stirred.clear()
                await self._stirred.wait()
        return found[-1]

    async def ended(self):
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.shield(self.running)
        (end,) = self.ends
        return end


async def test_books_are_reported_cut_to_the_depth_and_failures_by_their_extent():
    scripted = Scripted()
    async with Desk(scripted) as desk:
        desk.command(watch=["a", "b", "gone"])
        refused = await desk.until(lambda frame: frame["native"] == "gone")
        assert refused["type"] == "refused"
        await desk.answer("A", book(3.0, 2.0, 1.0, at=1_763_632_800_123))
        told = await desk.until(lambda frame: frame["type"] == "book")
        assert told == {
            "type": "book",
            "native": "a",
            "bids": [["3.0", "1.0"], ["2.0", "1.0"]],
            "asks": [["101.0", "2.0"]],
            "at": 1_763_632_800_123,
        }
        await desk.answer("A", InvalidNonce("5 follows 3"))
        lost = await desk.until(lambda frame: frame["type"] == "lost")
        assert (lost["native"], lost["words"]) == ("a", "InvalidNonce: 5 follows 3")
        await desk.answer("B", BadRequest("no such pair"))
        assert await desk.until(lambda frame: frame["type"] == "refused" and frame["native"] == "b")
        desk.command(watch=["a"])  # again, and ccxt subscribes anew
        await desk.answer("A", book(4.0))
        await desk.until(lambda frame: frame.get("bids") == [["4.0", "1.0"]])
        assert scripted.left == ["A"]
        await desk.answer("A", {"bids": [[None]], "asks": []})
        broken = await desk.until(lambda f: f["type"] == "lost" and "IndexError" in f["words"])
        assert broken["native"] == "a"
        assert not desk.running.done(), "none of this is of the connection"


async def test_a_refusal_that_reaches_several_books_names_none_and_what_has_come_is_asked_again():
    async with Desk(Scripted()) as desk:
        desk.command(watch=["a", "b", "c"])
        await desk.answer("A", book(1.0))
        await desk.until(lambda frame: frame["type"] == "book")
        error = BadRequest("unknown")
        for symbol in "ABC":  # as ccxt rejects all that waits on a socket
            await desk.answer(symbol, error)
        await desk.until(lambda frame: frame["type"] == "unnamed")
        await desk.until(lambda frame: frame["type"] == "lost")
        desk.command(unwatch=["c"])
        desk.command(watch=["b"])
        await desk.answer("B", BadRequest("unknown"))
        assert (await desk.until(lambda frame: frame["type"] == "refused"))["native"] == "b"
        kinds = [(frame["type"], frame.get("native")) for frame in desk.frames]
        assert sorted(kinds, key=str) == [
            ("book", "a"),
            ("lost", "a"),
            ("refused", "b"),
            ("unnamed", None),
        ]


async def test_a_book_is_reported_once_in_an_interval_and_the_last_one_always():
    async with Desk(Scripted(), interval_s=0.2) as desk:
        began = time.monotonic()
        desk.command(watch=["a"])
        for price in range(1, 21):
            await desk.answer("A", book(float(price)))
        await desk.until(lambda frame: frame["bids"] == [["20.0", "1.0"]])
        elapsed_s = time.monotonic() - began
        assert len(desk.frames) <= 1 + elapsed_s / 0.2


async def test_an_instrument_that_left_is_no_longer_published():
    scripted = Scripted()
    async with Desk(scripted) as desk:
        desk.command(watch=["a", "b"])
        await desk.answer("A", book(1.0))
        await desk.until(lambda frame: frame["native"] == "a")
        desk.command(unwatch=["a"])
        await desk.answer("A", book(2.0))
        await desk.answer("B", book(3.0))
        await desk.until(lambda frame: frame["native"] == "b")
        assert [frame["bids"][0][0] for frame in desk.frames] == ["1.0", "3.0"]
        assert scripted.left == ["A"]


async def test_a_message_that_ccxt_cannot_read_ends_the_client():
    scripted = Scripted()
    async with Desk(scripted) as desk:
        desk.command(watch=["a"])
        await desk.answer("A", book(1.0))
        await desk.until(lambda frame: frame["type"] == "book")
        await desk.do(scripted.handle_message, None, "fine")
        assert (await desk.until(lambda frame: frame["type"] == "open")) == {"type": "open"}
        await desk.do(scripted.handle_message, None, "broken")
        assert await desk.ended() == (Reason.PROTOCOL_ERROR, "KeyError: 'data'", False, False)
        assert (scripted.read, scripted.closed) == (["fine"], 1)


@pytest.mark.parametrize("error", [NetworkError("reset"), asyncio.CancelledError()])
async def test_a_lost_connection_ends_the_client_with_all_that_ccxt_began(error):
    scripted = Scripted()
    async with Desk(scripted) as desk:
        desk.command(watch=["a"])
        watch = scripted.watch_order_book

        async def watch_and_stray(symbol):
            scripted.stray()
            return await watch(symbol)

        scripted.watch_order_book = watch_and_stray
        desk.command(watch=["b"])
        await desk.answer("B", book(1.0))
        await desk.until(lambda frame: frame["native"] == "b")
        await desk.answer("B", error)
        assert (await desk.ended()).reason is Reason.DISCONNECTED
        assert scripted.closed == 1
        desk.command(watch=["late"])
        await desk.do(lambda: None)
        assert "LATE" not in scripted.answers
        assert scripted.strays
        assert all(task.cancelled() for task in scripted.strays)


async def test_the_end_is_reported_before_everything_is_closed():
    scripted, closing = Scripted(), asyncio.Event()
    async with Desk(scripted) as desk:

        async def close():
            await closing.wait()

        scripted.close = close
        desk.command(watch=["a"])
        await desk.answer("A", NetworkError("reset"))
        async with asyncio.timeout(PATIENCE_S):
            while not desk.ends:
                desk._stirred.clear()
                await desk._stirred.wait()
        assert not desk.running.done()
        await desk.do(closing.set)
        await desk.ended()


async def test_a_library_that_starts_tasks_without_end_is_ended():
    scripted = Scripted()
    async with Desk(scripted, tasks_max=100) as desk:

        async def watch(symbol):
            for _ in range(200):
                scripted.stray()
            return await asyncio.Event().wait()

        scripted.watch_order_book = watch
        desk.command(watch=["a"])
        assert (await desk.ended()).reason is Reason.INTERNAL_ERROR
        assert all(task.cancelled() for task in scripted.strays)


async def test_a_client_that_cannot_be_made_says_why():
    desk = Desk(Scripted())

    def broken():
        raise NetworkError("no route")

    desk.client = CcxtClient(broken, desk._told, desk._over, SETTINGS)
    async with desk:
        end = await desk.ended()
        assert (end.reason, end.detail) == (Reason.DISCONNECTED, "NetworkError: no route")


async def test_nothing_of_the_thread_is_left_and_its_decimal_context_is_its_own(caplog):
    ours = decimal.getcontext()
    ours.traps[decimal.Underflow] = False
    worker = Worker("test-own")
    await worker.start()
    failures = []
    tasks = Tasks(10, failures.append)
    begun = []

    async def meddle():
        tasks.own()
        decimal.getcontext().traps[decimal.Underflow] = True
        begun.append(asyncio.ensure_future(asyncio.Event().wait()))
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        return len(tasks)

    caplog.set_level(logging.INFO)
    assert await worker.call(meddle) == 1
    assert ours.traps[decimal.Underflow] is False
    await worker.stop(PATIENCE_S)
    assert begun[0].cancelled()
    assert "ZeroDivisionError" in caplog.text
    assert [type(error) for error in failures] == [ZeroDivisionError], "its owner hears of it"
    assert "test-own" not in {thread.name for thread in threading.enumerate()}
    worker.post(print)  # after the end: nothing happens
    await worker.stop(PATIENCE_S)


async def test_a_mailbox_holds_the_newest_frame_of_each_book():
    taken = []
    mailbox = Mailbox(asyncio.get_running_loop(), taken.append)
    for number in range(3):
        mailbox.put("a", b"a%d" % number)
        mailbox.put("b", b"b%d" % number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taken == [[b"a2", b"b2"]]
    await asyncio.to_thread(mailbox.put, "a", b"a3")
    async with asyncio.timeout(PATIENCE_S):
        while len(taken) < 2:
            await asyncio.sleep(0)
    assert taken[1:] == [[b"a3"]]

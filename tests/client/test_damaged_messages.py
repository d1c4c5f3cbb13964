"""Messages with a missing or mistyped field.

Each real message is damaged in every way, one by one, on its way to both clients. They show only
books that are right, and come to the last one or raise their own exception.
"""

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from decimal import Decimal

import pytest
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from client.place import place
from client.recorded import OPTIONS, QUESTIONS, SYMBOL, damaged, exact, record
from client.test_js import needs_node, run
from client.test_watch import HOST
from onebook.cli.ladder import Ladder, market_lines
from onebook.client import AsyncOnebook, BookView, ServiceError, failures
from steady import PATIENCE_S

AT_ONCE = 16
ACCEPTED = 2  # the place of the acceptance in a conversation, which has the id of its question
IN_JAVASCRIPT = """
import { Onebook, ServiceError } from "MODULE";
const { ONEBOOK_URL: url, STREAMS: streams, OPTIONS: options, LAST: last } = process.env;
const shown = ({ bids, asks, marketStats, staleExchanges }) => [
  ...[bids, asks].map((side) =>
    side.map(({ price, amount, exchanges }) => [price, amount, exchanges])),
  Object.values(marketStats), staleExchanges,
];
const codeOf = (error) => (error instanceof ServiceError ? error.code : error.stack);
async function follow(number) {
  const views = [];
  try {
    const client = new Onebook(url, `stream ${number}`, { random: () => 0 });
    for await (const view of client.watch("BTC/USDT", JSON.parse(options))) {
      views.push(view.live ? [view.updateNumber, shown(view)] : null);
      if (view.live && view.updateNumber === Number(last)) return [views, ""];
    }
    return [views, "an end without an exception"];
  } catch (error) {
    return [views, codeOf(error)];
  }
}
async function question(number, kind) {
  try {
    const client = new Onebook(url, `reply ${number}`);
    if (kind === "get_pairs") return await client.pairs();
    if (kind === "get_exchanges") return await client.exchanges();
    return shown(await client.orderBook("BTC/USDT", JSON.parse(options)));
  } catch (error) {
    return codeOf(error);
  }
}
async function allOf(count, work) {
  const found = {};
  let next = 0;
  const oneAfterTheOther = async () => {
    while (next < count) {
      const number = next++;
      found[number] = await work(number);
    }
  };
  await Promise.all(Array.from({ length: 16 }, oneAfterTheOther));
  return found;
}
const kinds = JSON.parse(process.env.KINDS);
console.log(JSON.stringify([
  await allOf(Number(streams), follow),
  await allOf(kinds.length, (number) => question(number, kinds[number])),
]));
"""


class Damaging:
    """A server that plays the conversation named by the API key."""

    def __init__(self, heard):
        self.heard = heard
        self.streams = [
            (f"{message['type']}: {done}", [*heard.starts[:at], wrong, *heard.starts[at + 1 :]])
            for at, message in enumerate(heard.starts)
            for done, wrong in damaged(message)
        ]
        self.replies = [
            (kind, f"{kind}: {done}", wrong)
            for kind, reply in heard.replies.items()
            for done, wrong in damaged(reply)
            if not done.startswith("id ")  # the reply to another question
        ]
        self.begun = set()

    async def __call__(self, ws):
        try:
            case = json.loads(await ws.recv())["api_key"]
            if case in self.begun:
                steps = self.heard.starts[:-2]
            else:
                self.begun.add(case)
                kind, _, number = case.partition(" ")
                if kind == "reply":
                    await ws.recv()
                    return await ws.send(json.dumps(self.replies[int(number)][2]))
                steps = self.streams[int(number)][1]
            asked = json.loads(await ws.recv())["id"]
            for at, step in enumerate([*steps, self.heard.last]):
                await ws.send(json.dumps(step | {"id": asked} if at == ACCEPTED else step))
                await (await ws.ping())
            await ws.wait_closed()
        except ConnectionClosed:
            pass


@pytest.fixture
async def service(request, tmp_path):
    async with asyncio.timeout(PATIENCE_S), place(tmp_path) as rig:
        heard = await record(rig, request.param)
    async with serving(Damaging(heard)) as found:
        yield found


def levels_as(usual, other):
    """Each client with one form of levels; `make soak` tests the other."""
    forms = [usual, pytest.param(other, marks=pytest.mark.soak)]
    return pytest.mark.parametrize("service", forms, indirect=True)


@asynccontextmanager
async def serving(script):
    async with serve(script, HOST, 0, compression=None) as server:
        script.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        yield script


def truth(heard):
    """The right view after each update, with its number."""
    view, right = BookView(SYMBOL), []
    for message in [*heard.starts, heard.last]:
        if message["type"].startswith("aggregated_orderbook_"):
            assert view.apply(exact(message))
            right.append((view.update_number, shown(view)))
    return right


def shown(view):
    """The values that must never be shown wrong: numbers as text, with their exchange."""
    sides = [
        [[f"{level.price:f}", f"{level.amount:f}", list(level.exchanges)] for level in side]
        for side in (view.bids, view.asks)
    ]
    stats = [_text(value) for value in view.market_stats.values()]
    return [*sides, stats, view.stale_exchanges]


def _text(value):
    return value if value is None or isinstance(value, bool) else f"{Decimal(value):f}"


async def all_of(numbers, work):
    """Run a function for each number, some concurrently; return the results by number."""
    found, waiting = {}, list(numbers)

    async def one_after_the_other():
        while waiting:
            number = waiting.pop()
            found[number] = await work(number)

    await asyncio.gather(*[one_after_the_other() for _ in range(AT_ONCE)])
    return found


@levels_as("object", "array")
async def test_the_views_of_the_python_client_are_right_whatever_comes(service, monkeypatch):
    monkeypatch.setattr(failures, "BACKOFF_BASE_S", 0.0)
    right, last = truth(service.heard), service.heard.last["update_number"]

    async def follow(number):
        views = []
        async with AsyncOnebook(service.url, f"stream {number}") as client:
            try:
                async with aclosing(client.watch(SYMBOL, **OPTIONS)) as updates:
                    async for view in updates:
                        views.append((view.update_number, shown(view)) if view.live else None)
                        assert Ladder(None).lines(view, 5)  # as `onebook watch` does
                        market_lines(view, with_fees=True, width=None)
                        if view.live and view.update_number == last:
                            return views, ""
            except ServiceError as error:
                return views, error.code
            except Exception as error:
                return views, repr(error)

    async with asyncio.timeout(PATIENCE_S):
        found = await all_of(range(len(service.streams)), follow)
    judge(found, [name for name, _ in service.streams], right)


def judge(found, names, right, *, as_text=False):
    """Nothing wrong was shown, and each case ended with the last book or a documented error."""
    wrong = {
        names[number]: (end, unlike)
        for number, (views, end) in found.items()
        if (
            (unlike := [view for view in views if view and view not in right])
            and not (as_text and names[number].endswith("7.5"))
        )
        or end not in ("", "not_onebook", "protocol_error", "rate_limit_exceeded")
    }
    assert len(found) == len(names) > 200
    assert wrong == {}
    assert sum(end == "" for _, end in found.values()) > len(names) / 2


@levels_as("object", "array")
async def test_an_answer_of_the_python_client_is_right_or_an_exception(service):
    async def question(number):
        kind, _, _ = service.replies[number]
        async with AsyncOnebook(service.url, f"reply {number}") as client:
            try:
                if kind == "get_aggregated_orderbook":
                    return shown(await client.snapshot(**QUESTIONS[kind]))
                return await (client.pairs if kind == "get_pairs" else client.exchanges)()
            except ServiceError as error:
                return error.code
            except Exception as error:
                return repr(error)

    async with asyncio.timeout(PATIENCE_S):
        judge_replies(await all_of(range(len(service.replies)), question), service)


def judge_replies(found, service, *, as_text=False):
    """Each book is right, other data is an object, and everything else is a documented error."""
    book = BookView(SYMBOL)
    right = exact(service.heard.replies["get_aggregated_orderbook"])
    book.apply(right | {"type": "aggregated_orderbook_update", "update_number": 0})
    wrong = {
        service.replies[number][1]: answer
        for number, answer in found.items()
        if answer not in (shown(book), "not_onebook", "protocol_error")
        and not isinstance(answer, dict)
        and not (as_text and service.replies[number][1].endswith("7.5"))
    }
    assert len(found) == len(service.replies) > 100
    assert wrong == {}


@needs_node
@levels_as("array", "object")
async def test_in_node_the_views_and_the_answers_are_right_whatever_comes(service):
    """Numbers are text there, so a number in place of another text is not detected."""
    streams, replies = await run(
        IN_JAVASCRIPT,
        ONEBOOK_URL=service.url,
        STREAMS=str(len(service.streams)),
        KINDS=json.dumps([kind for kind, _, _ in service.replies]),
        OPTIONS=json.dumps(OPTIONS),
        LAST=str(service.heard.last["update_number"]),
    )
    views = {
        int(number): ([view and (view[0], view[1]) for view in seen], end)
        for number, (seen, end) in streams.items()
    }
    judge(views, [name for name, _ in service.streams], truth(service.heard), as_text=True)
    judge_replies(
        {int(number): answer for number, answer in replies.items()}, service, as_text=True
    )

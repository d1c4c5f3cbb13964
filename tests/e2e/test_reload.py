"""SIGHUP on a running node changes exchanges and limits without ending a connection."""

import asyncio
import json
import signal

import httpx
from websockets.asyncio.client import connect

from onebook.simulator import SimulatedExchanges
from steady import PATIENCE_S

from .test_process import ended, listening, process, read_until

ANSWERS = ("subscription_error", "aggregated_subscription_response")


async def onebook(*words, **environment):
    async with process(*words, **environment) as running:
        status, out, errors = await ended(running)
    assert status == 0, errors
    return out


class Subscriber:
    """A client that repeats a request until the node answers as expected."""

    def __init__(self, socket):
        self.socket = socket

    async def ask(self, kind, **message):
        """Send a message; the next message of a kind."""
        await self.socket.send(json.dumps(message))
        return await self.until(lambda each: each["type"] == kind)

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition(message := json.loads(await self.socket.recv())):
                pass
        return message

    async def book_of(self, *exchanges):
        """Subscribe until the book has exactly these exchanges: lists are still being read."""
        message = {"type": "subscribe_aggregated", "symbol": "BTC/USDT"}
        found = None
        async with asyncio.timeout(PATIENCE_S):
            while found != sorted(exchanges):
                await self.socket.send(json.dumps(message))
                answer = await self.until(lambda each: each["type"] in ANSWERS)
                found = sorted(answer.get("exchanges", ()))


def written(file, urls, names, *, requests, subscriptions, port=0):
    """The settings file with some of the exchanges in use."""
    places = "".join(
        f'[feeds.overrides.{name}]\nws_url = "{each.ws}"\nrest_url = "{each.rest}"\n'
        for name, each in urls.items()
    )
    file.write_text(
        f"[server]\nport = {port}\n"
        f"[gateway]\nsubscriptions_max = {subscriptions}\ndrain_s = 0\n"
        f"[accounts.tiers.basic]\nrequests_per_minute = {requests}\nconnections_max = 2\n"
        f"[feeds]\nexchanges = {json.dumps(names)}\n{places}"
    )


async def test_exchanges_and_limits_change_and_no_connection_ends(tmp_path):
    file = tmp_path / "onebook.toml"
    environment = {"XDG_DATA_HOME": str(tmp_path / "data")}
    async with SimulatedExchanges(["okx", "kraken", "binance"]) as simulated:
        first = {"requests": 1_000, "subscriptions": 2}
        written(file, simulated.urls, ["okx", "kraken"], **first)
        words = ("--config", str(file))
        await onebook("accounts", "create", "alice", *words, **environment)
        key = (await onebook("keys", "create", "alice", *words, **environment)).strip()
        async with process("serve", *words, **environment) as serve:
            port = await listening(serve)
            async with connect(f"ws://127.0.0.1:{port}/api/v1/ws", compression=None) as socket:
                client = Subscriber(socket)
                await client.until(lambda each: each["type"] == "welcome")
                await client.ask("welcome", type="authenticate", api_key=key)
                await client.book_of("okx", "kraken")
                await client.until(lambda each: each.get("data", {}).get("bids"))

                second = {"requests": 900, "subscriptions": 1, "port": 1}
                written(file, simulated.urls, ["okx", "binance"], **second)
                serve.send_signal(signal.SIGHUP)
                await read_until(
                    serve.stderr,
                    r"changed: accounts\.tiers\.basic\.requests_per_minute, feeds\.exchanges, "
                    r"gateway\.subscriptions_max\.",
                )
                await read_until(serve.stderr, r"need a restart: server\.port\.")
                gone = await client.until(lambda each: each.get("reason") == "switched_off")
                assert (gone["exchange"], gone["state"]) == ("kraken", "offline")
                await client.until(lambda each: "data" in each)
                await client.ask(
                    "unsubscribe_response",
                    type="unsubscribe_aggregated",
                    symbol="BTC/USDT",
                )
                await client.book_of("okx", "binance")
                refused = await client.ask("error", type="subscribe_aggregated", symbol="ETH/USDT")
                assert "1 subscriptions" in refused["message"]
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                    root = await http.get("/api/v1/")
                    assert root.headers["x-ratelimit-limit"] == "900"
                    metrics = ""
                    async with asyncio.timeout(PATIENCE_S):  # published once a second
                        while 'onebook_exchange_up{exchange="binance"}' not in metrics:
                            metrics = (await http.get("/metrics")).text
                assert 'onebook_exchange_up{exchange="kraken"}' not in metrics

                written(file, simulated.urls, ["okx", "nonsense"], **second)
                serve.send_signal(signal.SIGHUP)
                await read_until(
                    serve.stderr,
                    rf"SIGHUP: nothing was changed: {file}: feeds\.exchanges: ",
                )
            serve.send_signal(signal.SIGTERM)
            status, _, _ = await ended(serve)
        assert status == 0

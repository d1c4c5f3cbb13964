"""A client of Bybit with scripted answers."""

from collections.abc import Callable
from random import Random
from typing import Any

import httpx
import pytest
from msgspec import json

from onebook.transactions.adapter import Environment, SourceFailed
from onebook.transactions.bybit.api import API
from onebook.transactions.bybit.endpoints import ENTRY, EXECUTIONS
from onebook.transactions.client import Call, ExchangeClient, ExchangeSite, Reply
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import Retries
from transactions.bybit_support import CLOCK, loop_now_ms, loop_s, run

MINE = Credentials("mykey00000000000000", "mysecret0000000000000000000000000000")


Answer = Callable[[httpx.Request], httpx.Response]


def ok(result: Any = None, **headers: str) -> Answer:
    return body(0, "OK", result or {}, **headers)


def body(code: int, message: str = "", result: Any = None, **headers: str) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        content = {"retCode": code, "retMsg": message, "result": result, "time": loop_now_ms()}
        return httpx.Response(200, content=json.encode(content), headers=headers)

    return answer


class Asked:
    """A client with scripted answers, and its requests."""

    def __init__(self, *answers: Answer | httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)
        self.client: ExchangeClient
        self.site: ExchangeSite

    async def __aenter__(self) -> "Asked":
        transport = httpx.MockTransport(self._answer)
        self.client = ExchangeClient(ENTRY, API, CLOCK, transport=transport, random=Random(1))
        self.site = self.client.site(Environment.MAINNET, {"": "http://exchange.example/"})
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    async def get(self, query: str = "category=spot", retries: Retries | None = None) -> Reply:
        return await self.client.ask(
            self.site,
            Call(EXECUTIONS, query),
            credentials=MINE,
            retries=retries or Retries(Random(1)),
        )


def asked(*answers: Any, query: str = "category=spot") -> tuple[Reply, Asked, float]:
    async def story() -> tuple[Reply, Asked, float]:
        async with Asked(*answers) as here:
            return await here.get(query), here, loop_s()

    return run(story())


def refused(*answers: Any) -> tuple[SourceFailed, Asked]:
    async def story() -> tuple[SourceFailed, Asked]:
        async with Asked(*answers) as here:
            with pytest.raises(SourceFailed) as caught:
                await here.get()
            return caught.value, here

    return run(story())

"""Shared reads: what is asked, what is read for it and when, and who hears of it."""

import asyncio
import gc
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pytest

from onebook.accounts import coalescing
from onebook.accounts.coalescing import CoalescedReads
from onebook.errors import ServiceUnavailable
from steady import PATIENCE_S

UNAVAILABLE = ServiceUnavailable("The database does not answer; retry shortly.")


class Question(NamedTuple):
    """One read of the store: the names it is for, and the answer that the test gives."""

    names: list[str]
    answer: asyncio.Future[Mapping[str, int]]


class Asked:
    """Reads over a store whose answers the test gives."""

    def __init__(self) -> None:
        self.reads = CoalescedReads(self._read_all)
        self.questions: asyncio.Queue[Question] = asyncio.Queue()

    async def _read_all(self, names: Collection[str]) -> Mapping[str, int]:
        answer = asyncio.get_running_loop().create_future()
        self.questions.put_nowait(Question(list(names), answer))
        return await answer

    def ask(self, names: str) -> list[asyncio.Task[int | None]]:
        """One asker for each letter."""
        return [asyncio.create_task(self.reads.read(name)) for name in names]

    async def question(self, names: str) -> asyncio.Future[Mapping[str, int]]:
        """The answer to the next question, which is for these names, and the only one."""
        async with asyncio.timeout(PATIENCE_S):
            question = await self.questions.get()
        assert ("".join(question.names), self.questions.empty()) == (names, True)
        return question.answer


@pytest.fixture
def asked() -> Asked:
    return Asked()


async def results(askers: list[asyncio.Task[int | None]]) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(*askers, return_exceptions=True)


async def test_a_lone_name_is_read_at_once_and_each_time(asked: Asked) -> None:
    for value in (1, 2):
        askers = asked.ask("a")
        (await asked.question("a")).set_result({"a": value})
        assert await results(askers) == [value]


async def test_names_that_are_asked_for_at_once_are_read_together(asked: Asked) -> None:
    askers = asked.ask("abcab")
    (await asked.question("abc")).set_result({"a": 1, "b": 2, "c": 3})
    assert await results(askers) == [1, 2, 3, 1, 2]


async def test_what_is_asked_for_while_a_read_is_under_way_is_read_by_the_next(
    asked: Asked,
) -> None:
    first = asked.ask("a")
    answer = await asked.question("a")
    later = asked.ask("bcabc")
    answer.set_result({"a": 1})
    answer = await asked.question("bc")
    assert await results(first) == [1]
    last = asked.ask("da")
    answer.set_result({"b": 2, "c": 3})
    answer = await asked.question("da")
    assert await results(later) == [2, 3, 1, 2, 3]
    answer.set_result({"d": 4, "a": 5})
    assert await results(last) == [4, 5]


async def test_a_read_is_of_a_bounded_number_of_names(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "NAMES_MAX", 3)
    askers = asked.ask("a")
    answer = await asked.question("a")
    askers += asked.ask("bcdefgh")
    for names in ("bcd", "efg", "h"):
        answer.set_result({})
        answer = await asked.question(names)
    answer.set_result({})
    assert await results(askers) == [None] * 8


async def test_a_name_that_nothing_is_found_for_leaves_the_others_theirs(asked: Asked) -> None:
    askers = asked.ask("axb")
    (await asked.question("axb")).set_result({"a": 1, "b": 2})
    assert await results(askers) == [1, None, 2]


async def test_an_error_is_for_those_who_waited_for_that_read_and_nobody_else(
    asked: Asked,
) -> None:
    first = asked.ask("aba")
    answer = await asked.question("ab")
    later = asked.ask("bc")
    answer.set_exception(UNAVAILABLE)
    answer = await asked.question("c")
    assert await results(first) == [UNAVAILABLE] * 3
    again = asked.ask("a")
    answer.set_result({"c": 3})
    assert await results(later) == [UNAVAILABLE, 3]
    (await asked.question("a")).set_result({"a": 1})
    assert await results(again) == [1]


async def test_who_stops_waiting_stops_no_read(asked: Asked) -> None:
    first = asked.ask("aa")
    answer = await asked.question("a")
    later = asked.ask("bcb")
    await asyncio.sleep(0)
    for asker in (first[0], later[0], later[1]):
        asker.cancel()
    answer.set_result({"a": 1})
    (await asked.question("bc")).set_result({"b": 2, "c": 3})
    assert (await results(first))[1:] == [1]
    assert (await results(later))[2:] == [2]
    assert [asker.cancelled() for asker in first + later] == [True, False, True, True, False]


async def test_an_error_that_nobody_waits_for_any_more_is_no_noise(asked: Asked) -> None:
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))
    askers = asked.ask("a")
    answer = await asked.question("a")
    askers[0].cancel()
    await results(askers)
    answer.set_exception(UNAVAILABLE)
    again = asked.ask("b")
    (await asked.question("b")).set_result({"b": 2})
    assert await results(again) == [2]
    del answer, askers
    gc.collect()
    assert noise == []


async def test_closing_ends_the_read_under_way_and_those_that_wait(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "NAMES_MAX", 2)
    askers = asked.ask("a")
    await asked.question("a")
    askers += asked.ask("bcd")
    await asyncio.sleep(0)
    closing = asyncio.create_task(asked.reads.close())
    assert [type(each) for each in await results(askers)] == [asyncio.CancelledError] * 4
    await closing
    assert asked.questions.empty()


async def test_who_asks_while_it_closes_or_later_does_not_wait_for_ever(asked: Asked) -> None:
    ended = asked.ask("a")
    await asked.question("a")
    ended += asked.ask("b")
    await asyncio.sleep(0)
    closing = asyncio.create_task(asked.reads.close())
    askers = asked.ask("c")
    (await asked.question("c")).set_result({"c": 3})
    assert await results(askers) == [3]
    await closing
    assert [type(each) for each in await results(ended)] == [asyncio.CancelledError] * 2
    askers = asked.ask("ab")
    (await asked.question("ab")).set_result({"a": 1, "b": 2})
    assert await results(askers) == [1, 2]


async def test_closing_what_is_at_rest_does_nothing(asked: Asked) -> None:
    await asked.reads.close()

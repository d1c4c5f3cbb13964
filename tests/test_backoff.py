"""Exponential waits, full jitter and retries, each against its own definition."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.backoff import Backoff, TryAgain, full_jitter_s, retried


@given(st.integers(0, 10_000), st.floats(0, 0.999))
def test_full_jitter_stays_between_zero_and_its_doubling_maximum(attempt, random):
    wait_s = full_jitter_s(attempt, 1.0, 60.0, random=random)
    assert 0 <= wait_s <= 60.0
    assert attempt > 5 or wait_s <= 2.0**attempt


def test_a_backoff_doubles_to_its_maximum_and_starts_again_after_a_reset():
    backoff = Backoff(1.0, 8.0, lambda: 0.5)
    assert [backoff.next_s() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


@given(st.integers(0, 10_000), st.floats(0, 0.999))
def test_a_least_wait_bounds_the_jitter_from_below(attempt, random):
    wait_s = full_jitter_s(attempt, 0.25, 8.0, random=random, least_s=0.125)
    assert 0.125 <= wait_s <= min(8.0, 0.25 * 2.0 ** min(attempt, 5))


def test_units_are_in_the_names():
    with pytest.raises(TypeError):
        full_jitter_s(1, 1.0, 1.0, 0.5)  # type: ignore[misc]


async def test_a_failed_attempt_is_followed_by_others_until_one_returns():
    waited: list[float] = []
    failures = [TryAgain(ValueError("one")), TryAgain(ValueError("two"), wait_s=7.0)]

    async def attempt(number: int) -> int:
        if number <= len(failures):
            raise failures[number - 1]
        return number

    def failed(number: int, again: TryAgain) -> float:
        return float(number) if again.wait_s is None else again.wait_s

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    assert await retried(attempt, attempts_max=3, failed=failed, sleep=sleep) == 3
    assert waited == [1.0, 7.0]
    waited.clear()
    with pytest.raises(ValueError, match="two") as raised:
        await retried(attempt, attempts_max=2, failed=failed, sleep=sleep)
    assert raised.value.__context__ is None
    assert waited == [1.0], "nothing is waited for after the last"


async def test_what_the_caller_raises_after_a_failure_ends_the_attempts():
    numbers: list[int] = []

    async def attempt(number: int) -> None:
        numbers.append(number)
        raise TryAgain(ValueError("failed"))

    def failed(number: int, again: TryAgain) -> float:
        raise LookupError

    with pytest.raises(LookupError):
        await retried(attempt, attempts_max=9, failed=failed, sleep=asyncio.sleep)
    assert numbers == [1]


async def test_an_attempt_that_may_be_repeated_once_ends_with_the_second_failure():
    tried: list[int] = []

    async def attempt(number: int) -> None:
        tried.append(number)
        raise TryAgain(ValueError(str(number)), once=True)

    async def sleep(wait_s: float) -> None:
        assert wait_s == 0.0

    with pytest.raises(ValueError, match="2"):
        await retried(attempt, attempts_max=6, failed=lambda number, again: 0.0, sleep=sleep)
    assert tried == [1, 2]

"""The description of a key is kept for a bounded time, and forgotten after a refusal."""

import asyncio

import pytest
from msgspec.structs import replace as replaced

from onebook.transactions.adapter import Environment
from onebook.transactions.credentials import Credentials
from onebook.transactions.described_keys import KEY_MAX_AGE_S, owner_of
from onebook.transactions.kraken import KRAKEN
from transactions.bybit_support import NOW_MS, run
from transactions.kraken_support import KEY, KrakenWorld

DESCRIBED = "GetApiKeyInfo"


class Counting(KrakenWorld):
    """A world that counts the descriptions of the key that were requested."""

    def __init__(self) -> None:
        super().__init__(definition=replaced(KRAKEN, streams=()))
        self.described = 0
        self.exchange.before_page = self._count

    def _count(self, name: str) -> None:
        self.described += name == DESCRIBED

    async def page(self) -> None:
        await self.fetch("deposits", limit=1)


def test_it_is_requested_once_for_many_requests_until_it_is_old() -> None:
    async def story() -> list[int]:
        async with Counting() as world:
            seen = []
            for pause_s in (0.0, 1.0, KEY_MAX_AGE_S - 10, 20.0):
                await asyncio.sleep(pause_s)
                await world.page()
                seen.append(world.described)
            return seen

    assert run(story()) == [1, 1, 1, 2]


def test_it_is_requested_again_after_a_refusal_and_with_other_credentials() -> None:
    async def story() -> list[int]:
        async with Counting() as world:
            await world.page()
            seen = [world.described]
            keys = world.exchange.gate._keys
            keys[KEY.api_key] = type(KEY)(KEY.api_key, KEY.secret, ("query-ledger",))
            refused = await world.fetch("holdings")
            assert [each["error"] for each in refused["errors"]] == ["permission_denied"]
            await world.page()
            seen.append(world.described)
            other = type(KEY)("anotherkey000000000", KEY.secret)
            keys[other.api_key] = other
            credentials = Credentials(other.api_key, other.secret)
            await world.vault.put("kraken", "mainnet", credentials, now_ms=NOW_MS)
            await world.page()
            await world.page()
            seen.append(world.described)
            return seen

    assert run(story()) == [1, 2, 3]


def test_checks_and_the_background_always_request_it() -> None:
    async def story() -> list[int]:
        async with Counting() as world:
            await world.page()
            seen = []
            credentials = world.credentials
            assert credentials is not None
            account = world.adapter.account(Environment.MAINNET, credentials)
            await account.reader.check()
            seen.append(world.described)
            account = world.adapter.account(Environment.MAINNET, credentials, background=True)
            await account.key_described(lambda: asyncio.sleep(0, "described"))
            assert await account.key_described(lambda: asyncio.sleep(0, "again")) == "again"
            seen.append(world.described)
            return seen

    assert run(story()) == [2, 2]


@pytest.mark.parametrize(
    "other",
    [Credentials("key", "other"), Credentials("key", "secret", host="eu"), Credentials("k", "s")],
)
def test_other_credentials_have_other_descriptions(other: Credentials) -> None:
    own = Credentials("key", "secret")
    assert owner_of("mainnet", own) == owner_of("mainnet", Credentials("key", "secret"))
    assert owner_of("mainnet", own) != owner_of("demo", own)
    assert owner_of("mainnet", own) != owner_of("mainnet", other)
    assert "secret" not in owner_of("mainnet", own)

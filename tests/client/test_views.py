"""Several views of one symbol on one connection of the Python client, and changes of them."""

import asyncio

import pytest

from client.place import place
from onebook.client import AsyncOnebook, Refused
from steady import PATIENCE_S


async def until(books, holds):
    """The newest view of each name, once a condition holds for them."""
    newest = {}
    async with asyncio.timeout(PATIENCE_S):
        async for view in books:
            if view.live:
                newest[view.view] = view
            if holds(newest):
                return newest


async def test_views_of_a_symbol_are_added_changed_refused_and_removed(tmp_path):
    async with place(tmp_path) as rig, AsyncOnebook(rig.url, rig.key).session() as books:
        await books.subscribe("BTC/USDT", depth=5, mode="delta", interval_ms=10)
        await books.subscribe("BTC/USDT", view="top", depth=1, exchanges="okx", interval_ms=10)
        found = await until(books, lambda newest: len(newest) == 2)
        assert [len(found[name].bids) for name in ("", "top")] == [5, 1]
        assert found["top"].bids[0].exchanges == ("okx",)
        await books.subscribe("BTC/USDT", view="top", depth=3, interval_ms=10)
        await until(books, lambda newest: "top" in newest and len(newest["top"].bids) == 3)
        with pytest.raises(Refused, match="depth: must be"):
            await books.subscribe("BTC/USDT", view="wrong", depth=0)
        await books.unsubscribe("BTC/USDT", view="top")
        assert [view.view for view in books.snapshots()] == [""]
        await until(books, lambda newest: set(newest) == {""})

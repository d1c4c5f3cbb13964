"""A session of the Python client: subscriptions that change on one connection, on a real node."""

import asyncio

import pytest

from client.place import NAMES, place
from onebook.client import AsyncOnebook, Refused
from steady import PATIENCE_S

BTC, ETH = "BTC/USDT", "ETH/USDT"


@pytest.fixture
async def rig(tmp_path):
    async with asyncio.timeout(PATIENCE_S * 3), place(tmp_path) as found:
        yield found


@pytest.fixture
async def session(rig):
    async with AsyncOnebook(rig.url, rig.key) as client, client.session() as found:
        yield found


async def until(session, true):
    async for view in session:
        if true(view):
            return view
    raise AssertionError("the views ended")


def exchanges_of(view):
    return {name for level in (*view.bids, *view.asks) for name in level.exchanges}


async def test_symbols_are_added_changed_and_removed_on_one_connection(rig, session):
    await session.subscribe(BTC, depth=3, mode="delta")
    await session.subscribe("eth/usdt", exchanges="okx", depth=2, split=True)
    btc = await until(session, lambda each: each.symbol == BTC and each.live)
    eth = await until(session, lambda each: each.symbol == ETH and each.live)
    assert (len(btc.bids), len(eth.bids)) == (3, 2)
    assert not btc.bids[0].amounts
    assert eth.bids[0].amounts == (eth.bids[0].amount,)
    await session.subscribe(BTC, exchanges=["all", "-okx"], depth=5, split=True)
    btc = await until(session, lambda each: each.symbol == BTC and len(each.bids) == 5)
    assert exchanges_of(btc) == {"kraken"}
    assert btc.bids[0].amounts
    await session.unsubscribe(BTC)
    assert [each.symbol for each in session.snapshots()] == [ETH]
    for _ in range(5):
        assert (await anext(aiter(session))).symbol == ETH
    with pytest.raises(KeyError):
        await session.unsubscribe(BTC)
    await session.subscribe(BTC, depth=1)
    btc = await until(session, lambda each: each.symbol == BTC and each.live)
    assert len(btc.bids) == 1


@pytest.mark.parametrize(
    ("symbol", "options", "code"),
    [
        ("NO/SUCH", {}, "invalid_symbol"),
        (BTC, {"exchanges": "krakn"}, "invalid_exchange"),
        (BTC, {"exchanges": [*NAMES, "krakn"]}, "invalid_exchange"),
        (BTC, {"depth": 501}, "invalid_parameters"),
    ],
)
async def test_what_is_refused_is_raised_and_the_rest_stays(session, symbol, options, code):
    await session.subscribe(ETH, depth=2)
    with pytest.raises(Refused) as refused:
        await session.subscribe(symbol, **options)
    assert refused.value.code == code
    assert [each.symbol for each in session.snapshots()] == [ETH]
    assert (await until(session, lambda each: each.live)).symbol == ETH


async def test_a_change_that_is_refused_leaves_the_subscription_as_it_was(session):
    await session.subscribe(BTC, depth=2)
    for options in ({"depth": 501}, {"exchanges": ["okx", "krakn"]}):
        with pytest.raises(Refused):
            await session.subscribe(BTC, **options)
        await session.subscribe(ETH, depth=1)  # answered after all that came before
        view = await until(session, lambda each: each.symbol == BTC and each.live)
        assert len(view.bids) == 2
        both = await until(session, lambda each: exchanges_of(each) == set(NAMES))
        assert both.live


async def test_subscriptions_outlast_the_connection(rig, session):
    await session.subscribe(BTC, depth=2)
    await session.subscribe(ETH, depth=1)
    await until(session, lambda each: each.live)
    await session._link._session.ws.close()
    await until(session, lambda each: not each.live)
    back = await until(session, lambda each: each.live and each.symbol == BTC)
    assert len(back.bids) == 2
    assert len((await until(session, lambda each: each.live and each.symbol == ETH)).bids) == 1


async def test_options_of_each_symbol_take_precedence_over_the_common_ones(rig):
    symbols = {"btc/usdt": {"depth": 5, "exchanges": "okx"}, ETH: {}}
    async with (
        AsyncOnebook(rig.url, rig.key) as client,
        client.order_books(symbols, depth=2, exchanges="kraken") as books,
    ):
        btc, eth = books.snapshots()
    assert (len(btc.bids), exchanges_of(btc)) == (5, {"okx"})
    assert (len(eth.bids), exchanges_of(eth)) == (2, {"kraken"})

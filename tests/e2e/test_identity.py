"""Another coin under the same symbol: its exchange is not merged; subscribers get the reason."""

import httpx

from e2e.service import client_of, key_of, merged, node_on, shown

SYMBOL = "BTC/USDT"
OTHERS = ["binance", "bybit", "coinbase", "kraken", "poloniex"]
DEPTH = 20


def truth(exchanges, names):
    books = {name: exchanges[name].book(SYMBOL) for name in names}
    return merged({name: (book.bids, book.asks) for name, book in books.items()}, DEPTH)


async def until_shown(client, expected, stale):
    await client.until(
        lambda message: (
            message["type"] == "aggregated_orderbook_update"
            and shown(message["data"]) == expected
            and message["data"]["stale_exchanges"] == stale
        )
    )


async def test_an_exchange_that_lists_another_coin_is_left_out_until_it_lists_the_same(
    exchanges, tmp_path
):
    exchanges["okx"].relist(SYMBOL, price_ppm=3_000_000)
    async with node_on(exchanges.urls, tmp_path) as node:
        guard = node.gateway.streams.guard
        assert guard is not None
        guard.limits = guard.limits._replace(recovery_s=0.0)
        key = await key_of(node)
        async with client_of(node, key) as client, client_of(node, key) as alone:
            await client.say(
                type="subscribe_aggregated", symbol=SYMBOL, depth=DEPTH, exchanges=[*OTHERS, "okx"]
            )
            status = await client.until(
                lambda message: message.get("reason") == "identity_conflict"
            )
            assert (status["exchange"], status["state"]) == ("okx", "stale")
            await until_shown(client, truth(exchanges, OTHERS), ["okx"])

            # One who asks for this exchange alone gets its book and the reason at once.
            await alone.say(
                type="subscribe_aggregated", symbol=SYMBOL, depth=DEPTH, exchanges=["okx"]
            )
            await alone.kind("aggregated_subscription_response")
            status = await alone.kind("exchange_status")
            assert (status["state"], status["reason"]) == ("live", "identity_conflict")
            await until_shown(alone, truth(exchanges, ["okx"]), [])

            node.supervisor.sweep(node.gateway.parts.clock.monotonic())
            async with httpx.AsyncClient(base_url=node.url) as http:
                metrics = (await http.get("/metrics")).text
            assert 'onebook_books_marked{exchange="okx",reason="identity_conflict"} 1.0' in metrics

            exchanges["okx"].relist(SYMBOL, price_ppm=1_000_000)
            await until_shown(client, truth(exchanges, [*OTHERS, "okx"]), [])

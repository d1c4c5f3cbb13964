"""`watch`: an iterator over merged books of a service, across reconnects."""

import ssl
from typing import Unpack

from onebook.client.addresses import websocket_of
from onebook.client.link import ServiceLink, ViewUpdates
from onebook.client.options import SubscribeOptions, Symbols, subscriptions_of
from onebook.client.session import SILENCE_MAX_S
from onebook.orderbook import ALL, Names


def watch(
    url: str,
    api_key: str,
    symbols: Symbols,
    *,
    exchanges: Names = ALL,
    attempts_max: int | None = None,
    silence_max_s: float = SILENCE_MAX_S,
    ssl_context: ssl.SSLContext | None = None,
    **options: Unpack[SubscribeOptions],
) -> ViewUpdates:
    """Iterate over the views of symbols after each change, across reconnects, until closed.

    A caller that is slower than the service gets the newest view of each symbol, never a queue of
    old ones; yielded views do not change afterwards. With `start`, every update of the past is
    yielded, the service waits for the caller, and a new connection continues where the last one
    ended: at the time of the last update, which is repeated. A view is also yielded when it stops
    being live and on each failed attempt to connect: then `view.live` is False and `view.problem`
    has the code, the reason and the time of the next attempt. The first failure of a series is
    logged as a warning of `onebook.client`. A symbol that no exchange lists also yields such a
    view; if no symbol is listed, `watch` raises.

    Args:
        url: The URL of the service, such as https://books.example or 127.0.0.1:8000, or of its
            WebSocket.
        api_key: The key; sent in a message, never in the URL.
        symbols: Pairs such as BTC/USDT, or one; or a mapping of pairs to their own options, which
            take precedence: {"BTC/USDT": {"depth": 5}, "ETH/USDT": {}}.
        exchanges: One name or several, or "all", where "-name" excludes one: ["all", "-okx"].
        attempts_max: Consecutive failures before `Unavailable` is raised; None: unlimited.
        silence_max_s: Seconds without an answer to a ping before the connection is closed.
        ssl_context: Trusted authorities for wss://; the system's by default.
        options: See `SubscribeOptions`.

    Raises:
        Refused: A retry would fail in the same way: wrong URL, untrusted certificate, rejected key,
            unknown exchange, symbol or option, exhausted allowance.
        Unavailable: `attempts_max` attempts failed.
        ValueError: There is no symbol, or an empty one.
        TypeError: A name is not text, or the options of a symbol are not a mapping.
    """
    link = ServiceLink(
        websocket_of(url),
        api_key,
        attempts_max=attempts_max,
        silence_max_s=silence_max_s,
        ssl_context=ssl_context,
    )
    link.hold(subscriptions_of(symbols, exchanges, options))
    return link.updates(owner=True)

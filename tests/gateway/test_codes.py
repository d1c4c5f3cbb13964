"""Every documented error and close code occurs on a real connection, and no other."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.attack import frame, raw, text
from gateway.rig import SYMBOL, gateway
from onebook.gateway import GatewayLimits
from onebook.gateway.codes import CLOSE_CODES, ERRORS
from onebook.model import Tier

BASIC_CONNECTIONS = 5
CLOSE = 0x88


class Way:
    """A way to provoke an error: settings, preparation, whether there is a key, the message."""

    def __init__(self, message=None, *, before=None, authenticated=True, raw_text=None, **settings):
        self.message, self.before, self.authenticated = message, before, authenticated
        self.raw_text, self.settings = raw_text, settings


async def _suspend(node, key):
    await node.admin.move_key(key, "suspend", node.change())


async def _take_database_away(node, key):
    node.store.database.path.unlink()


async def _use_up_the_minute(node, key):
    found = await node.accounts.verify_key(key, node.clock.wall_ms())
    for _ in range(600):
        node.accounts.limits.take(found.key_id, found.tier, node.clock.monotonic())


async def _connect_all(node, key):
    for _ in range(BASIC_CONNECTIONS):
        await node.stack.enter_async_context(node.client(key))


AUTHENTICATE = {"type": "authenticate"}
SUBSCRIBE = {"type": "subscribe_aggregated", "symbol": SYMBOL}
LOOK = {"type": "get_aggregated_orderbook", "symbol": SYMBOL}
E, S, A = "error", "subscription_error", "authentication_error"
NOWHERE = {"exchanges": ["mtgox"]}
ROWS = {
    (E, "authentication_required"): Way({"type": "get_exchanges"}, authenticated=False),
    (A, "invalid_api_key"): Way({**AUTHENTICATE, "api_key": "wrong"}, authenticated=False),
    (A, "api_key_disabled"): Way(AUTHENTICATE, before=_suspend, authenticated=False),
    (E, "connection_limit_exceeded"): Way(AUTHENTICATE, before=_connect_all, authenticated=False),
    (E, "service_unavailable"): Way(AUTHENTICATE, before=_take_database_away, authenticated=False),
    (E, "invalid_message"): Way(raw_text="[]"),
    (E, "unknown_type"): Way({"type": "subscribe_everything"}),
    (E, "invalid_parameters"): Way({**LOOK, "depth": 0}),
    (S, "invalid_parameters"): Way({**SUBSCRIBE, "depth": 0}),
    (E, "invalid_symbol"): Way({**LOOK, "symbol": "NO/PAIR"}),
    (S, "invalid_symbol"): Way({**SUBSCRIBE, "symbol": "NO/PAIR"}),
    (E, "exchange_unavailable"): Way({**LOOK, **NOWHERE}),
    (S, "exchange_unavailable"): Way({**SUBSCRIBE, **NOWHERE}),
    (E, "invalid_exchange"): Way({"type": "get_pairs", "exchange": "mtgox"}),
    (E, "no_subscription"): Way({"type": "resync", "symbol": SYMBOL}),
    (E, "subscription_limit_exceeded"): Way(
        {**SUBSCRIBE, "symbol": "ETH/USDT"}, subscriptions_max=1
    ),
    (E, "history_not_found"): Way({**LOOK, "as_of": "2020-01-01T00:00:00"}, history=Path("absent")),
    (E, "history_unavailable"): Way({**LOOK, "as_of": "2020-01-01T00:00:00"}),
    (E, "rate_limit_exceeded"): Way({"type": "ping"}, before=_use_up_the_minute),
}


@pytest.mark.parametrize(("kind", "code"), ROWS, ids="-".join)
async def test_an_error_of_the_documents_is_answered(tmp_path, kind, code):
    way = ROWS[kind, code]
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(gateway(tmp_path, **way.settings))
        node.stack = stack
        key = await node.key(Tier.BASIC)
        client = await stack.enter_async_context(node.client(key if way.authenticated else None))
        if code == "subscription_limit_exceeded":
            await client.say(**SUBSCRIBE)
        if way.before is not None:
            await way.before(node, key)
        if way.raw_text is not None:
            await client.socket.send(way.raw_text)
        else:
            more = {"api_key": key} if way.message is AUTHENTICATE else {}
            await client.say(**way.message, **more)
        answer = await client.until(kind)
        assert answer["error"] == code
        assert answer["message"]
        assert answer["timestamp"]


def test_no_error_of_the_documents_is_without_a_row():
    assert set(ROWS) == {(kind, code) for code, (kinds, _) in ERRORS.items() for kind in kinds}


async def _wait(node, peer):
    for _ in range(45):
        node.later(1)


async def _used_up(node, peer):
    meter, (key_id,) = node.accounts.meter, node.gateway.connections.by_key
    meter.add(key_id, meter.allowance_bytes + 1)
    await meter.flush()


async def _drain(node, peer):
    await node.gateway.drain(0.0)


# What a peer sends, or what happens; a key where it needs one.
CLOSES = {
    1002: (frame(0xFF), True),
    1003: (frame(0x82, b"x"), True),
    1007: (frame(0x81, b"\xff"), True),
    1009: (frame(0x81, b"x" * 70_000), True),
    4001: (_wait, False),
    4002: (text(type="authenticate", api_key="wrong"), False),
    4003: (_used_up, True),
    4004: (AUTHENTICATE, False),
    4108: (_wait, True),
    4113: (frame(0x89) * 200, True),
    4129: (AUTHENTICATE, False),
    4200: (_drain, True),
}


@pytest.mark.parametrize("code", CLOSES)
async def test_a_close_code_of_the_documents_is_sent(tmp_path, code):
    what, authenticated = CLOSES[code]
    async with AsyncExitStack() as stack:
        limits = GatewayLimits(close_timeout_s=0.1)
        node = await stack.enter_async_context(gateway(tmp_path, limits=limits))
        node.stack = stack
        key = await node.key(Tier.BASIC)
        if code == 4004:
            await _connect_all(node, key)
        if code == 4129:
            await _take_database_away(node, key)
        peer = await stack.enter_async_context(raw(node, key if authenticated else None))
        if what is AUTHENTICATE:
            await peer.send(text(type="authenticate", api_key=key))
        elif callable(what):
            await what(node, peer)
        else:
            await peer.send(what)
        found = []
        while not found:
            found = [payload for first, payload in await peer.frames(1) if first == CLOSE]
        assert int.from_bytes(found[0][:2], "big") == code


def test_no_close_code_of_the_documents_is_without_a_row():
    assert set(CLOSES) == set(CLOSE_CODES)


def test_every_error_has_types_and_a_sentence():
    for types, sentence in ERRORS.values():
        assert types
        assert sentence.endswith(".")


def test_close_codes_state_what_to_do():
    ours = {4001, 4002, 4003, 4004, 4108, 4113, 4129, 4200, 1002, 1003, 1007, 1009}
    assert set(CLOSE_CODES) == ours

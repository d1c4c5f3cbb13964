"""One client's commands and a clock: inputs and outputs, without a socket."""

import json

from onebook.accounts import Key, RateLimiter
from onebook.config import GatewaySettings, TierSettings
from onebook.exchanges import EXCHANGES, NAMES
from onebook.gateway.directory import Directory
from onebook.gateway.effects import (
    MessageTime,
    SendText,
)
from onebook.gateway.processor import CommandProcessor, KeyViews
from onebook.model import KeyStatus, Tier

KEY = Key(
    key_id="key_1",
    account_id="6f9619ff-8b86-4011-b42d-00c04fc964ff",
    username="alice",
    tier=Tier.BASIC,
    status=KeyStatus.ACTIVE,
    prefix="ob_live_",
    created_at_ms=0,
    expires_at_ms=None,
)


LISTED = {
    "BTC/USDT": ["binance", "kraken", "okx"],
    "BTC/USD": ["coinbase", "kraken"],
    "DOGE/USDT": ["binance"],
}


SUPPORTED = sorted(NAMES)


PUBLISHED: dict = {}  # published fees, by exchange and symbol
AWAY = {"bybit": "offline", "coinbase": "maintenance"}


class Listed:
    """A catalogue and the state of its feeds."""

    def exchanges(self, symbol):
        return LISTED.get(symbol, [])

    def pairs(self, exchange):
        return sorted(symbol for symbol, names in LISTED.items() if exchange in names)

    def symbols(self):
        return list(LISTED)

    def suggest(self, symbol, n=3):
        return ["BTC/USD", "BTC/USDT", "DOGE/USDT"][:n]

    def published_fee(self, exchange, symbol):
        return PUBLISHED.get((exchange, symbol))

    unread_names: frozenset = frozenset()

    def unread(self):
        return self.unread_names

    def in_use(self):
        return EXCHANGES

    def state(self, exchange):
        return AWAY.get(exchange, "active")


class Conversation:
    """One client and a clock."""

    def __init__(self, **settings):
        self.now_s = 100.0
        self.limits = RateLimiter()
        listed = Listed()
        self.client = CommandProcessor(
            settings=GatewaySettings(**settings),
            tiers=TierSettings(),
            directory=Directory(listed, listed, monotonic=lambda: self.now_s),
            limits=self.limits,
            views=KeyViews(),
        )

    @property
    def now(self):
        return MessageTime(self.now_s, 1_763_632_800_000_000)

    def says(self, text=None, **message):
        """The outputs: messages as dicts, others unchanged."""
        text = json.dumps(message) if text is None else text
        return shown(self.client.received(text, now=self.now, latency_ms=2.5))

    def authenticated(self):
        self.client.authenticated(KEY, session_id="s1")
        return self


def shown(outputs):
    return [json.loads(each.payload) if isinstance(each, SendText) else each for each in outputs]


def error(code, message=None, /, kind="error", **more):
    body = {"type": kind, "error": code, "timestamp": "2025-11-20T10:00:00.000000Z", **more}
    return body | ({} if message is None else {"message": message})


def assert_error(outputs, code, /, kind="error", **more):
    """Exactly one error with a sentence for users."""
    (got,) = outputs
    assert got.pop("message").endswith((".", "?"))
    assert got == error(code, kind=kind, **more)

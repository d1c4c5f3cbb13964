"""What a client may say, and what follows from it: no I/O, no clock.

A text message goes in, values come out: `Say` this, `Verify` that key, `Subscribe` this stream,
`End` the connection. The hub carries them out and tells what became of a key. Which message is
allowed in which state stands in one table, `TABLE`.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec import Raw

from onebook.accounts import Decision, Key, RateLimiter
from onebook.config import GatewaySettings, TierSettings
from onebook.gateway import actions, commands, messages
from onebook.gateway.choice import completed, options_of, stream_key
from onebook.gateway.codes import CloseCode, ErrorType
from onebook.gateway.commands import Id
from onebook.gateway.directory import Directory
from onebook.gateway.messages import Error, encode, with_id
from onebook.gateway.outputs import (
    Act,
    End,
    Look,
    Now,
    Outputs,
    Refusal,
    Resend,
    Say,
    Subscribe,
    Unsubscribe,
    Verify,
)
from onebook.gateway.plain import sentence, shown
from onebook.gateway.reference import without_zone
from onebook.gateway.views import KeyViews
from onebook.logs import redact
from onebook.streams import StreamKey, iso_us

RATE_WARNING_SHARE: Final = 0.9  # of a minute's messages
RATE_CALM_SHARE: Final = 0.8  # below it, the next warning may come

SUBSCRIBE: Final = "subscribe_aggregated"
AUTHENTICATE: Final = "authenticate"
SUBSCRIPTION_ERRORS: Final = frozenset(
    ("invalid_parameters", "invalid_symbol", "exchange_unavailable")
)


class State(Enum):
    """Where a conversation stands."""

    CONNECTED = auto()
    AUTHENTICATED = auto()
    CLOSING = auto()


class Client:
    """One connection's side of the conversation."""

    __slots__ = (
        "_authentications_until_s",
        "_flood_until_s",
        "_warned",
        "directory",
        "key",
        "limits",
        "looking",
        "opened_by",
        "session_id",
        "settings",
        "stamp",
        "state",
        "subscriptions",
        "tiers",
        "views",
    )

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        tiers: TierSettings,
        directory: Directory,
        limits: RateLimiter,
        views: KeyViews,
    ) -> None:
        self.settings = settings
        self.tiers = tiers
        self.directory = directory
        self.limits = limits
        self.views = views
        self.state = State.CONNECTED
        self.key: Key | None = None
        self.opened_by = b""  # fingerprint of the key's text
        self.session_id = ""
        self.looking = 0  # unanswered looks
        self.subscriptions: dict[str, StreamKey] = NONE_SUBSCRIBED
        self.stamp = without_zone if settings.reference_compatible else iso_us
        self._authentications_until_s = 0.0
        self._flood_until_s = 0.0
        self._warned = False

    @property
    def message_bytes_max(self) -> int:
        """The longest message that may come now: short ones before authentication."""
        longest = self.settings.message_bytes_max
        if self.state is State.CONNECTED:
            return min(longest, self.settings.keyless_message_bytes_max)
        return longest

    def opened(self) -> Outputs:
        """The connection is open."""
        return (WELCOME,)

    def received(self, text: str, *, now: Now, latency_ms: float = 0.0) -> Outputs:
        """Act on one text message."""
        if self.state is State.CLOSING:
            return ()
        head, broken = _head(text)
        try:
            # A repeated authenticate has a budget of its own: some clients answer each welcome.
            warning = () if head.type == AUTHENTICATE else self._count(now)
            if broken is not None:
                raise broken
            if head.type is None:
                return (*warning, *self._act(text, head, now))
            handler, body = self._parse(text, head)
            outputs = handler(self, body, now, latency_ms)
        except Refusal as refusal:
            return self._refuse(refusal, head, now)
        return (*warning, *outputs)

    def flooded(self, now_s: float) -> bool:
        """Count something that costs us and brings nobody anything; whether it was one too many.

        A leaky bucket of `flood_burst` that loses `flood_per_s` each second.
        """
        step = 1 / self.settings.flood_per_s
        self._flood_until_s = max(self._flood_until_s, now_s) + step
        return self._flood_until_s - now_s > self.settings.flood_burst * step

    # What became of a key

    def verified(self, key: Key, *, session_id: str, message_id: Id = None) -> Outputs:
        """The key is good."""
        self.key = key
        self.session_id = self.session_id or session_id
        self.state = State.AUTHENTICATED
        return (Say(encode(self.session_welcome(key), message_id)),)

    def refused(self, error: str, message: str, *, now: Now, message_id: Id = None) -> Outputs:
        """The key is not good, or no longer."""
        refusal = Refusal(error, message, code=CloseCode.AUTHENTICATION_TIMEOUT)
        payload = _error(refusal, message_id, now, kind="authentication_error")
        return self.end(CloseCode.INVALID_KEY, error, payload)

    def crowded(self, connections_max: int, *, now: Now, message_id: Id = None) -> Outputs:
        """The key is good, but all the connections of its tier are taken."""
        refusal = Refusal(
            "connection_limit_exceeded",
            f"This key may have {connections_max} connections at one time.",
            code=CloseCode.CONNECTION_LIMIT,
        )
        return self.end(CloseCode.CONNECTION_LIMIT, refusal.error, _error(refusal, message_id, now))

    def unverifiable(self, *, now: Now, message_id: Id = None) -> Outputs:
        """Nobody can say now whether the key is good."""
        refusal = Refusal("service_unavailable", "Keys cannot be verified now; try again shortly.")
        return self.end(CloseCode.NODE_FULL, refusal.error, _error(refusal, message_id, now))

    def throttled(
        self, message: str, retry_after_s: float, *, now: Now, message_id: Id = None
    ) -> Outputs:
        """Too many keys of this address were wrong."""
        refusal = Refusal("rate_limit_exceeded", message, retry_after=_whole_up(retry_after_s))
        return self.end(CloseCode.FLOOD, refusal.error, _error(refusal, message_id, now))

    def timed_out(self, *, now: Now) -> Outputs:
        """No key came in time."""
        seconds = self.settings.authentication_timeout_s
        refusal = Refusal(
            "authentication_required",
            f"No authenticate message came within {seconds:g} seconds.",
            code=CloseCode.AUTHENTICATION_TIMEOUT,
        )
        return self.end(
            CloseCode.AUTHENTICATION_TIMEOUT,
            "not authenticated in time",
            _error(refusal, None, now),
        )

    def end(self, code: int, reason: str, *payloads: bytes) -> Outputs:
        """Say the last words and close; nothing is heard any more."""
        self.state = State.CLOSING
        return (*map(Say, payloads), End(code, reason))

    # Before a handler

    def _count(self, now: Now) -> Outputs:
        """Count a message under the rate limit.

        Raises:
            Refusal: There were too many.
        """
        if self.key is None:
            return ()
        decision = self.limits.take(self.key.key_id, self.key.tier, now.s)
        if not decision.allowed:
            raise Refusal(
                "rate_limit_exceeded",
                f"This key may send {decision.limit} messages a minute.",
                retry_after=max(1, _whole_up(decision.retry_after_s)),
                current_limit=decision.limit,
                window=messages.WINDOW,
            )
        used = decision.limit - decision.remaining
        if used < decision.limit * RATE_CALM_SHARE:
            self._warned = False
        if self._warned or used < decision.limit * RATE_WARNING_SHARE:
            return ()
        self._warned = True
        return (Say(encode(_rate_warning(decision, used, now))),)

    def _parse(self, text: str, head: commands.Head) -> "tuple[Handler, Any]":
        """Find the handler of a message and read its fields.

        Raises:
            Refusal: Not allowed in this state, unknown, or a field is wrong.
        """
        assert head.type is not None
        handler = TABLE[self.state].get(head.type)
        if handler is None:
            if self.state is State.CONNECTED:
                raise Refusal("authentication_required", f"Authenticate before {shown(head.type)}.")
            raise Refusal("unknown_type", f"There is no message of type {shown(head.type)}.")
        try:
            return handler, DECODERS[head.type].decode(text)
        except msgspec.ValidationError as error:
            body = messages.CLIENT_MESSAGES[head.type]
            raise Refusal("invalid_parameters", sentence(error, body)) from None

    def _refuse(self, refusal: Refusal, head: commands.Head, now: Now) -> Outputs:
        subscribing = head.type == SUBSCRIBE and refusal.error in SUBSCRIPTION_ERRORS
        kind: ErrorType = "subscription_error" if subscribing else "error"
        payload = _error(refusal, head.id, now, kind=kind)
        costly = self.key is None or refusal.error == "rate_limit_exceeded"
        if costly and self.flooded(now.s):
            return self.end(CloseCode.FLOOD, "message flood", payload)
        return (Say(payload),)

    def session_welcome(self, key: Key) -> messages.WelcomeSession:
        """The answer to a key that was accepted."""
        tier = self.tiers.of(key.tier)
        return messages.WelcomeSession(
            message=f"Authenticated as {key.tier} user.",
            session_id=self.session_id,
            user_id=key.account_id,
            user_tier=key.tier,
            authentication=messages.Authentication(api_key=f"{key.prefix}..."),
            limits=messages.Limits(
                requests_per_minute=tier.requests_per_minute,
                connections_max=tier.connections_max,
                subscriptions_max=self.settings.subscriptions_max,
                message_bytes_max=self.settings.message_bytes_max,
            ),
        )

    # Handlers

    def _act(self, text: str, head: commands.Head, now: Now) -> Outputs:
        """Read a message of the transaction interface: it has an action instead of a type."""
        assert head.action is not None
        try:
            if self.key is None:
                raise actions.ActionRefused("authentication_failed", "Authenticate first.")
            return (Act(actions.parse(text, head.action)),)
        except actions.ActionRefused as refusal:
            payload = actions.refused(refusal, head.id, now.wall_us // 1_000)
        if self.key is None and self.flooded(now.s):
            return self.end(CloseCode.FLOOD, "message flood", payload)
        return (Say(payload),)

    def _authenticate(self, body: commands.Authenticate, now: Now, _: float) -> Outputs:
        if self.key is None:
            if self.flooded(now.s):
                return self.end(CloseCode.FLOOD, "message flood")
            return (Verify(body.api_key, body.id),)
        per_minute = self.settings.authentications_per_minute
        step_s = 60 / per_minute
        until_s = max(self._authentications_until_s, now.s) + step_s
        if until_s - now.s > 60 + step_s / 2:
            raise Refusal(
                "rate_limit_exceeded",
                f"A connection may authenticate again {per_minute} times a minute.",
                retry_after=max(1, _whole_up(step_s)),
                current_limit=per_minute,
                window=messages.WINDOW,
            )
        self._authentications_until_s = until_s
        return (Verify(body.api_key, body.id),)

    def _ping(self, body: commands.Ping, now: Now, latency_ms: float) -> Outputs:
        if self.key is None and self.flooded(now.s):
            return self.end(CloseCode.FLOOD, "message flood")
        time = self.stamp(now.wall_us)
        pong = messages.Pong(
            timestamp=time,
            server_time=time,
            latency_ms=round(latency_ms, 3),
            client_time=body.client_time,
        )
        return (Say(encode(pong, body.id)),)

    def _subscribe(self, body: commands.SubscribeAggregated, _: Now, __: float) -> Outputs:
        key, rejected = stream_key(self.directory, body)
        previous = self.subscriptions.get(key.symbol)
        if previous is None and len(self.subscriptions) >= self.settings.subscriptions_max:
            raise Refusal(
                "subscription_limit_exceeded",
                f"A connection may have {self.settings.subscriptions_max} subscriptions.",
                symbol=key.symbol,
            )
        self._require_room(key, previous)
        if self.subscriptions is NONE_SUBSCRIBED:
            self.subscriptions = {}
        self.subscriptions[key.symbol] = key
        response = messages.SubscriptionResponse(
            symbol=key.symbol,
            exchanges=key.exchanges,
            requested=body.exchanges,
            success=True,
            message=f"Subscribed to {key.symbol} on {_exchanges(len(key.exchanges))}.",
            subscription_id=key.id,
            rejected=rejected,
            options=options_of(key),
            expected_gb_per_30_days=self.directory.expected_gb(key),
        )
        return (Say(_masked(encode(response), body.id)), Subscribe(key, previous))

    def _unsubscribe(self, body: commands.UnsubscribeAggregated, _: Now, __: float) -> Outputs:
        key = self._subscribed(body.symbol)
        del self.subscriptions[body.symbol]
        response = messages.UnsubscribeResponse(
            symbol=body.symbol, success=True, message=f"Unsubscribed from {body.symbol}."
        )
        return (Unsubscribe(key), Say(encode(response, body.id)))

    def _look(self, body: commands.GetAggregatedOrderbook, _: Now, __: float) -> Outputs:
        if self.looking >= self.settings.looks_max:
            raise Refusal(
                "subscription_limit_exceeded",
                f"A connection may wait for {self.settings.looks_max} books at one time.",
                symbol=body.symbol,
            )
        chosen = completed(body, self.subscriptions.get(body.symbol))
        return (Look(stream_key(self.directory, chosen)[0], body.id),)

    def _resync(self, body: commands.Resync, _: Now, __: float) -> Outputs:
        return (Resend(self._subscribed(body.symbol), body.id),)

    def _get_subscriptions(self, body: commands.GetSubscriptions, now: Now, _: float) -> Outputs:
        listed = [
            messages.Subscription(
                symbol=key.symbol,
                exchanges=key.exchanges,
                subscription_id=key.id,
                options=options_of(key),
                expected_gb_per_30_days=self.directory.expected_gb(key),
            )
            for key in self.subscriptions.values()
        ]
        reply = messages.SubscriptionsData(
            data=messages.SubscriptionsList(subscriptions=listed, total=len(listed)),
            timestamp=iso_us(now.wall_us),
        )
        return (Say(encode(reply, body.id)),)

    def _get_exchanges(self, body: commands.GetExchanges, now: Now, _: float) -> Outputs:
        data = Raw(self.directory.exchanges_json())
        reply = messages.ExchangesData(data=data, timestamp=self.stamp(now.wall_us))
        return (Say(encode(reply, body.id)),)

    def _get_pairs(self, body: commands.GetPairs, now: Now, _: float) -> Outputs:
        exchange = None if body.exchange is None else self.directory.resolve(body.exchange)
        if exchange is None and body.exchange is not None:
            raise Refusal(
                "invalid_exchange",
                f"There is no exchange {shown(body.exchange)}.",
                supported_exchanges=list(self.directory.supported),
            )
        data = Raw(self.directory.pairs_json(exchange))
        reply = messages.PairsData(data=data, timestamp=self.stamp(now.wall_us))
        return (Say(encode(reply, body.id)),)

    # What a subscription names

    def _require_room(self, view: StreamKey, previous: StreamKey | None) -> None:
        assert self.key is not None
        views_max = self.tiers.of(self.key.tier).views_max
        if not self.views.has_room(self.key.key_id, view, views_max, instead_of=previous):
            raise Refusal(
                "subscription_limit_exceeded",
                f"This key may have {views_max:,} different views at one time.",
                symbol=view.symbol,
            )

    def _subscribed(self, symbol: str) -> StreamKey:
        key = self.subscriptions.get(symbol)
        if key is None:
            raise Refusal(
                "no_subscription",
                f"{shown(symbol)} is not subscribed on this connection.",
                symbol=symbol,
            )
        return key


NONE_SUBSCRIBED: Final[dict[str, StreamKey]] = {}  # shared by all who have none; never written
WELCOME: Final = Say(
    encode(messages.Welcome(message="Connected to Onebook; authenticate with your API key."))
)

Handler = Callable[[Client, Any, Now, float], Outputs]

# The machine: what may be said in which state. A missing row is an error.
TABLE: Final[dict[State, dict[str, Handler]]] = {
    State.CONNECTED: {
        "authenticate": Client._authenticate,
        "ping": Client._ping,
    },
    State.AUTHENTICATED: {
        "authenticate": Client._authenticate,
        SUBSCRIBE: Client._subscribe,
        "unsubscribe_aggregated": Client._unsubscribe,
        "get_aggregated_orderbook": Client._look,
        "get_subscriptions": Client._get_subscriptions,
        "get_exchanges": Client._get_exchanges,
        "get_pairs": Client._get_pairs,
        "resync": Client._resync,
        "ping": Client._ping,
    },
}

_HEAD = msgspec.json.Decoder(commands.Head)
DECODERS: Final = {
    name: msgspec.json.Decoder(body) for name, body in messages.CLIENT_MESSAGES.items()
}


def _head(text: str) -> tuple[commands.Head, Refusal | None]:
    """Read type and id of a message, or say why it has none."""
    try:
        head = _HEAD.decode(text)
    except msgspec.ValidationError as error:
        return commands.Head(), Refusal("invalid_message", sentence(error, commands.Head))
    except (msgspec.DecodeError, RecursionError):
        return commands.Head(), Refusal("invalid_message", "A message is one JSON object.")
    if head.type is None and head.action is None:
        return head, Refusal("invalid_message", "A message has a type.")
    return head, None


def _error(refusal: Refusal, message_id: Id, now: Now, *, kind: ErrorType = "error") -> bytes:
    error = Error(
        type=kind,
        error=refusal.error,
        message=refusal.message,
        timestamp=iso_us(now.wall_us),
        **refusal.extra,
    )
    return _masked(encode(error), message_id)


def _masked(payload: bytes, message_id: Id) -> bytes:
    """Give a message that quotes its client the id it answers; keys and tokens are masked."""
    return with_id(redact(payload.decode()).encode(), message_id)


def _rate_warning(decision: Decision, used: int, now: Now) -> messages.RateLimitWarning:
    return messages.RateLimitWarning(
        message=f"{used} of {decision.limit} messages of this minute are used.",
        current_rate=used,
        limit=decision.limit,
        reset_time=iso_us(now.wall_us + int(decision.reset_s * 1_000_000)),
    )


def _exchanges(number: int) -> str:
    return f"{number} exchange" if number == 1 else f"{number} exchanges"


def _whole_up(seconds: float) -> int:
    return -int(-seconds // 1)

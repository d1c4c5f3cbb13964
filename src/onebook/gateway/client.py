"""What a client may say, and what follows from it: no I/O, no clock.

A text message goes in, values come out: `Say` this, `Verify` that key, `Subscribe` this stream,
`End` the connection. The hub carries them out and tells what became of a key. Which message is
allowed in which state stands in one table, `TABLE`.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from onebook.gateway import messages
from onebook.gateway.messages import CloseCode, Error, Id, encode
from onebook.gateway.settings import GatewaySettings
from onebook.model import Tier
from onebook.streams import StreamKey, iso_us

RATE_WARNING_SHARE: Final = 0.9  # of a minute's messages
GROUP_CHARACTERS_MAX: Final = 18
ALL: Final = "all"

SUBSCRIBE: Final = "subscribe_aggregated"
SUBSCRIPTION_ERRORS: Final = frozenset(
    ("invalid_parameters", "invalid_symbol", "exchange_unavailable")
)
UNKNOWN_EXCHANGE: Final = "unknown_exchange"
NOT_TRADED: Final = "symbol_not_traded"


class Now(Struct, frozen=True):
    """The time of a message: monotonic seconds and microseconds since 1970."""

    s: float
    wall_us: int


class Key(Protocol):
    """What the gateway reads of a verified API key."""

    @property
    def key_id(self) -> Any:
        """Its number in the store."""

    @property
    def account_id(self) -> str:
        """The UUID of its account."""

    @property
    def tier(self) -> Tier:
        """Its billing tier."""

    @property
    def prefix(self) -> str:
        """Its first 8 characters."""


class Decision(Protocol):
    """Whether one more message is allowed."""

    @property
    def allowed(self) -> bool:
        """Whether this one is."""

    @property
    def remaining(self) -> int:
        """How many more are."""

    @property
    def limit(self) -> int:
        """How many a minute has."""

    @property
    def reset_s(self) -> float:
        """Seconds until all are there again."""

    @property
    def retry_after_s(self) -> float:
        """Seconds until the next is allowed."""


class Limits(Protocol):
    """The rate limit that REST and WebSocket share."""

    def take(self, key_id: Any, tier: Tier, now_s: float) -> Decision:
        """Count one message of a key."""


class Directory(Protocol):
    """Which exchanges and pairs there are."""

    @property
    def supported(self) -> Sequence[str]:
        """Every exchange, sorted."""

    def resolve(self, name: str) -> str | None:
        """The exchange of a name or a former name."""

    def trading(self, symbol: str) -> Sequence[str]:
        """The exchanges that trade a symbol now."""

    def suggest(self, symbol: str) -> list[str]:
        """Symbols like this one."""

    def exchanges_json(self) -> bytes:
        """The data of `exchanges_data`."""

    def pairs_json(self, exchange: str | None) -> bytes:
        """The data of `pairs_data`."""


# What follows from a message


class Say(Struct, frozen=True):
    """Send this text."""

    payload: bytes


class Verify(Struct, frozen=True):
    """Verify a key, then call `verified` or `refused`; nothing is heard until then."""

    api_key: str
    message_id: Id = None

    def __repr__(self) -> str:
        return "Verify(...)"


class Subscribe(Struct, frozen=True):
    """Listen to a stream, instead of `previous` if there was one for the symbol."""

    key: StreamKey
    previous: StreamKey | None


class Unsubscribe(Struct, frozen=True):
    """Stop listening to a stream."""

    key: StreamKey


class Look(Struct, frozen=True):
    """Answer once with the book of this key."""

    key: StreamKey
    message_id: Id


class Resend(Struct, frozen=True):
    """Send the whole book of this subscription."""

    key: StreamKey
    message_id: Id


class End(Struct, frozen=True):
    """Close the connection."""

    code: int
    reason: str


Output = Say | Verify | Subscribe | Unsubscribe | Look | Resend | End
Outputs = Iterable[Output]


class State(Enum):
    """Where a conversation stands."""

    CONNECTED = auto()
    AUTHENTICATED = auto()
    CLOSING = auto()


class Refusal(Exception):
    """A message cannot be served: becomes one error message."""

    def __init__(self, error: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.extra = extra


class Client:
    """One connection's side of the conversation."""

    __slots__ = (
        "_flood_until_s",
        "_warned",
        "directory",
        "key",
        "limits",
        "looking",
        "session_id",
        "settings",
        "state",
        "subscriptions",
    )

    def __init__(self, *, settings: GatewaySettings, directory: Directory, limits: Limits) -> None:
        self.settings = settings
        self.directory = directory
        self.limits = limits
        self.state = State.CONNECTED
        self.key: Key | None = None
        self.session_id = ""
        self.looking = 0  # unanswered looks
        self.subscriptions: dict[str, StreamKey] = NONE_SUBSCRIBED
        self._flood_until_s = 0.0
        self._warned = False

    def opened(self) -> Outputs:
        """The connection is open."""
        return (WELCOME,)

    def received(self, text: str, *, now: Now, latency_ms: float = 0.0) -> Outputs:
        """Act on one text message."""
        if self.state is State.CLOSING:
            return ()
        head = messages.Head()
        try:
            head = _head(text)
            warning = self._count(now)
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
        return (Say(encode(self._session_welcome(key), message_id)),)

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
        near = used >= decision.limit * RATE_WARNING_SHARE
        warn, self._warned = near and not self._warned, near
        return (Say(encode(_rate_warning(decision, used, now))),) if warn else ()

    def _parse(self, text: str, head: messages.Head) -> "tuple[Handler, Any]":
        """Find the handler of a message and read its fields.

        Raises:
            Refusal: Not allowed in this state, unknown, or a field is wrong.
        """
        assert head.type is not None
        handler = TABLE[self.state].get(head.type)
        if handler is None:
            if self.state is State.CONNECTED:
                raise Refusal("authentication_required", f"Authenticate before {head.type[:64]}.")
            raise Refusal("unknown_type", f"There is no message of type {head.type[:64]!r}.")
        try:
            return handler, DECODERS[head.type].decode(text)
        except msgspec.ValidationError as error:
            raise Refusal("invalid_parameters", _sentence(error)) from None

    def _refuse(self, refusal: Refusal, head: messages.Head, now: Now) -> Outputs:
        subscribing = head.type == SUBSCRIBE and refusal.error in SUBSCRIPTION_ERRORS
        kind: messages.ErrorType = "subscription_error" if subscribing else "error"
        payload = _error(refusal, head.id, now, kind=kind)
        costly = self.key is None or refusal.error == "rate_limit_exceeded"
        if costly and self.flooded(now.s):
            return self.end(CloseCode.FLOOD, "message flood", payload)
        return (Say(payload),)

    def _session_welcome(self, key: Key) -> messages.WelcomeSession:
        tier = self.settings.tiers[key.tier]
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

    def _authenticate(self, body: messages.Authenticate, now: Now, _: float) -> Outputs:
        if self.key is None and self.flooded(now.s):
            return self.end(CloseCode.FLOOD, "message flood")
        return (Verify(body.api_key, body.id),)

    def _ping(self, body: messages.Ping, now: Now, latency_ms: float) -> Outputs:
        if self.key is None and self.flooded(now.s):
            return self.end(CloseCode.FLOOD, "message flood")
        time = iso_us(now.wall_us)
        pong = messages.Pong(
            timestamp=time,
            server_time=time,
            latency_ms=round(latency_ms, 3),
            client_time=body.client_time,
        )
        return (Say(encode(pong, body.id)),)

    def _subscribe(self, body: messages.SubscribeAggregated, _: Now, __: float) -> Outputs:
        key, rejected = self._stream_key(body)
        previous = self.subscriptions.get(key.symbol)
        if previous is None and len(self.subscriptions) >= self.settings.subscriptions_max:
            raise Refusal(
                "subscription_limit_exceeded",
                f"A connection may have {self.settings.subscriptions_max} subscriptions.",
                symbol=key.symbol,
            )
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
            options=_options(key),
        )
        return (Say(encode(response, body.id)), Subscribe(key, previous))

    def _unsubscribe(self, body: messages.UnsubscribeAggregated, _: Now, __: float) -> Outputs:
        key = self._subscribed(body.symbol)
        del self.subscriptions[body.symbol]
        response = messages.UnsubscribeResponse(
            symbol=body.symbol, success=True, message=f"Unsubscribed from {body.symbol}."
        )
        return (Unsubscribe(key), Say(encode(response, body.id)))

    def _look(self, body: messages.GetAggregatedOrderbook, _: Now, __: float) -> Outputs:
        if self.looking >= self.settings.looks_max:
            raise Refusal(
                "subscription_limit_exceeded",
                f"A connection may wait for {self.settings.looks_max} books at one time.",
                symbol=body.symbol,
            )
        return (Look(self._stream_key(body)[0], body.id),)

    def _resync(self, body: messages.Resync, _: Now, __: float) -> Outputs:
        return (Resend(self._subscribed(body.symbol), body.id),)

    def _get_subscriptions(self, body: messages.GetSubscriptions, now: Now, _: float) -> Outputs:
        listed = [
            messages.Subscription(
                symbol=key.symbol,
                exchanges=key.exchanges,
                subscription_id=key.id,
                options=_options(key),
            )
            for key in self.subscriptions.values()
        ]
        reply = messages.SubscriptionsData(
            data=messages.SubscriptionsList(subscriptions=listed, total=len(listed)),
            timestamp=iso_us(now.wall_us),
        )
        return (Say(encode(reply, body.id)),)

    def _get_exchanges(self, body: messages.GetExchanges, now: Now, _: float) -> Outputs:
        data = Raw(self.directory.exchanges_json())
        reply = messages.ExchangesData(data=data, timestamp=iso_us(now.wall_us))
        return (Say(encode(reply, body.id)),)

    def _get_pairs(self, body: messages.GetPairs, now: Now, _: float) -> Outputs:
        exchange = None if body.exchange is None else self.directory.resolve(body.exchange)
        if exchange is None and body.exchange is not None:
            raise Refusal(
                "invalid_exchange",
                f"There is no exchange {body.exchange[:64]!r}.",
                supported_exchanges=list(self.directory.supported),
            )
        data = Raw(self.directory.pairs_json(exchange))
        reply = messages.PairsData(data=data, timestamp=iso_us(now.wall_us))
        return (Say(encode(reply, body.id)),)

    # What a subscription names

    def _subscribed(self, symbol: str) -> StreamKey:
        key = self.subscriptions.get(symbol)
        if key is None:
            raise Refusal(
                "no_subscription", f"{symbol} is not subscribed on this connection.", symbol=symbol
            )
        return key

    def _stream_key(
        self, body: messages.SubscribeAggregated | messages.GetAggregatedOrderbook
    ) -> tuple[StreamKey, list[messages.Rejected]]:
        """What a client means: the stream, and the exchanges it cannot have."""
        group = _shortest(body.group)
        accepted, rejected = self._choose(body.symbol, body.exchanges)
        key = StreamKey(
            symbol=body.symbol,
            exchanges=tuple(sorted(accepted)),
            depth=body.depth,
            interval_ms=body.interval_ms,
            mode=body.mode,
            levels=body.levels,
            split=body.split,
            group=group,
        )
        return key, rejected

    def _choose(
        self, symbol: str, requested: list[str] | str
    ) -> tuple[set[str], list[messages.Rejected]]:
        """Which of the exchanges asked for trade the symbol, and why the others are left out."""
        names = [ALL] if requested == ALL else list(dict.fromkeys(requested))
        wanted = [name for name in names if name != ALL and not name.startswith("-")]
        unwanted = [name[1:] for name in names if name.startswith("-")]
        resolve = self.directory.resolve
        unknown = [name for name in (*wanted, *unwanted) if resolve(name) is None]
        known = {exchange for name in wanted if (exchange := resolve(name)) is not None}
        trading = set(self.directory.trading(symbol))
        if ALL in names:
            known |= trading
        elif not wanted:
            raise _bad_parameters('exchanges: name at least one, or send "all".')
        elif not known:
            self._none_known(unknown)
        accepted = (known & trading) - {resolve(name) for name in unwanted}
        if not known & trading:
            self._none_trades(symbol)
        if not accepted:
            raise _bad_parameters("exchanges: nothing is left of the exchanges you named.")
        rejected = [messages.Rejected(exchange=name, reason=UNKNOWN_EXCHANGE) for name in unknown]
        for name in wanted:
            exchange = resolve(name)
            if exchange is not None and exchange not in trading:
                rejected.append(messages.Rejected(exchange=name, reason=NOT_TRADED))
        return accepted, rejected

    def _none_known(self, unknown: list[str]) -> None:
        raise Refusal(
            "exchange_unavailable",
            f"There is no exchange {unknown[0][:64]!r}.",
            exchange=unknown[0],
            supported_exchanges=list(self.directory.supported),
        )

    def _none_trades(self, symbol: str) -> None:
        raise Refusal(
            "invalid_symbol",
            f"None of these exchanges trades {symbol}.",
            symbol=symbol,
            suggested_symbols=self.directory.suggest(symbol),
        )


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

_HEAD = msgspec.json.Decoder(messages.Head)
DECODERS: Final = {
    name: msgspec.json.Decoder(body) for name, body in messages.CLIENT_MESSAGES.items()
}


def _head(text: str) -> messages.Head:
    """Read type and id of a message.

    Raises:
        Refusal: Not a JSON object, no type, or an id that is neither string nor number.
    """
    try:
        head = _HEAD.decode(text)
    except msgspec.ValidationError as error:
        raise Refusal("invalid_message", _sentence(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise Refusal("invalid_message", "A message is one JSON object.") from None
    if head.type is None:
        raise Refusal("invalid_message", "A message has a type.")
    return head


def _sentence(error: msgspec.ValidationError) -> str:
    """Name the field first: `depth: expected int <= 500.`"""
    text, _, path = str(error).replace("`", "").partition(" - at ")
    field = path.removeprefix("$").removeprefix(".")
    return f"{field}: {text[:1].lower()}{text[1:]}." if field else f"{text}."


def _error(
    refusal: Refusal, message_id: Id, now: Now, *, kind: messages.ErrorType = "error"
) -> bytes:
    error = Error(
        type=kind,
        error=refusal.error,
        message=refusal.message,
        timestamp=iso_us(now.wall_us),
        **refusal.extra,
    )
    return encode(error, message_id)


def _rate_warning(decision: Decision, used: int, now: Now) -> messages.RateLimitWarning:
    return messages.RateLimitWarning(
        message=f"{used} of {decision.limit} messages of this minute are used.",
        current_rate=used,
        limit=decision.limit,
        reset_time=iso_us(now.wall_us + int(decision.reset_s * 1_000_000)),
    )


def _bad_parameters(message: str) -> Refusal:
    return Refusal("invalid_parameters", message)


def _shortest(group: str | None) -> str:
    """Return the shortest text of a price step, "" for none.

    Raises:
        Refusal: It is not a positive decimal number.
    """
    if group is None:
        return ""
    plain = group.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit()) or len(plain) > GROUP_CHARACTERS_MAX:
        raise _bad_parameters("group: expected a decimal number as text.")
    step = Decimal(group)
    if not step:
        raise _bad_parameters("group: expected more than 0.")
    text = f"{step:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _options(key: StreamKey) -> messages.Options:
    return messages.Options(
        depth=key.depth,
        interval_ms=key.interval_ms,
        mode=key.mode,  # type: ignore[arg-type]
        levels=key.levels,  # type: ignore[arg-type]
        split=key.split,
        group=key.group or None,
    )


def _exchanges(number: int) -> str:
    return f"{number} exchange" if number == 1 else f"{number} exchanges"


def _whole_up(seconds: float) -> int:
    return -int(-seconds // 1)

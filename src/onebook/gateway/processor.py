"""Sans-I/O processor of client commands: text messages in, replies and effects out.

A message becomes effects, such as `SendText`, `VerifyKey`, `OpenView` and `EndConnection`, which
the connection executes. `HANDLERS` lists the commands, `KEYLESS` those allowed before
authentication.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from onebook.accounts import Decision, Key, RateLimiter
from onebook.config import GatewaySettings, TierSettings
from onebook.errors import InvalidRequest
from onebook.fees import NO_FEES, TakerFees
from onebook.gateway import commands, messages, replies
from onebook.gateway.codes import CloseCode, ErrorType
from onebook.gateway.commands import CommandRefused, Id, sentence, shown
from onebook.gateway.directory import (
    Directory,
    no_exchange,
    options_of,
    requested_stream,
    stream_key,
)
from onebook.gateway.effects import (
    CloseView,
    Effects,
    FetchBook,
    MessageTime,
    OpenView,
    PlayView,
    ResendBook,
    RunAction,
    SendText,
    VerifyKey,
    ending,
    whole_seconds,
)
from onebook.gateway.limits import (
    KEYLESS_MESSAGE_BYTES_MAX,
    LIMITS,
    MESSAGE_BYTES_MAX,
    GatewayLimits,
)
from onebook.gateway.messages import (
    decode,
    encode,
    encode_action_refusal,
    encode_masked,
    encode_refusal,
    with_view,
)
from onebook.gateway.reference import AuthenticationSuccess, Greeting, without_zone
from onebook.ratelimit import TokenBucket
from onebook.streams import StreamKey, iso_us
from onebook.streams.options import PROTOBUF
from onebook.streams.past import moment_us

SUBSCRIBE: Final = "subscribe_aggregated"
AUTHENTICATE: Final = "authenticate"
SUBSCRIPTION_ERRORS: Final = frozenset(
    ("invalid_parameters", "invalid_symbol", "exchange_unavailable")
)
FETCHES_MAX: Final = 8  # unanswered book requests per connection
KEYLESS: Final = frozenset(("authenticate", "ping"))  # commands allowed before authentication


class CommandProcessor:
    """The commands of one connection: its key, its subscriptions and its limits."""

    __slots__ = (
        "directory",
        "fetching",
        "greeting",
        "key",
        "limits",
        "numbers",
        "opened_by",
        "plays",
        "session_id",
        "settings",
        "stamp",
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
        views: "KeyViews",
        gateway_limits: GatewayLimits = LIMITS,
    ) -> None:
        self.settings = settings
        self.tiers = tiers
        self.directory = directory
        self.limits = CommandLimits(limits, gateway_limits)
        self.views = views
        self.key: Key | None = None
        self.opened_by = b""  # fingerprint of the key's text
        self.session_id = ""
        self.fetching = 0  # unanswered book requests
        # By symbol and view name.
        self.subscriptions: dict[tuple[str, str | None], StreamKey] = NONE_SUBSCRIBED
        # The numbers of those with binary updates.
        self.numbers: dict[tuple[str, str | None], int] = NONE_NUMBERED
        # Start (microseconds) and speed of those that play the past.
        self.plays: dict[tuple[str, str | None], tuple[int, float]] = NONE_PLAYED
        compatible = settings.reference_compatible
        self.stamp = without_zone if compatible else iso_us
        self.greeting = Greeting() if compatible else None

    @property
    def message_bytes_max(self) -> int:
        """Maximum bytes of a message; lower before authentication."""
        return KEYLESS_MESSAGE_BYTES_MAX if self.key is None else MESSAGE_BYTES_MAX

    def opened(self) -> Effects:
        """Handle the opening of the connection."""
        return (WELCOME,) if self.greeting is None else ()

    def greeting_due(self) -> Effects:
        """Send the delayed first welcome, with `reference_compatible`."""
        return () if self.greeting is None else tuple(map(SendText, self.greeting.due()))

    def received(self, text: str, *, now: MessageTime, latency_ms: float = 0.0) -> Effects:
        """Execute one text message."""
        head, broken = _head(text)
        warning: Effects = ()
        try:
            warning = self._count(head, now)
            if broken is not None:
                raise broken
            handler, body = self._parse(text, head)
            effects = handler(self, body, now, latency_ms)
        except CommandRefused as refusal:
            return (*warning, *self._refuse(refusal, head, now, _view_alone(text)))
        return (*warning, *effects)

    def authenticated(
        self,
        key: Key,
        *,
        session_id: str,
        message_id: Id = None,
        success: AuthenticationSuccess | None = None,
    ) -> Effects:
        """Handle an accepted key; the session keeps the id it got with the first key.

        Args:
            success: The reply of the reference service, with `reference_compatible`.
        """
        self.key = key
        self.session_id = self.session_id or session_id
        welcome = self._session_welcome(key)
        if self.greeting is not None and success is not None:
            replied = self.greeting.authenticated(welcome, success, message_id)
            return tuple(map(SendText, replied))
        return (SendText(encode(welcome, message_id)),)

    def restore(
        self, symbol: str, view: str | None, previous: StreamKey | None, number: int
    ) -> None:
        """Have the previous subscription, if any, in place of one that could not begin."""
        named = symbol, view
        del self.subscriptions[named]
        self.forget_play(symbol, view)
        if named in self.numbers:
            del self.numbers[named]
        if previous is not None:
            self.subscriptions[named] = previous
        if number:
            if self.numbers is NONE_NUMBERED:
                self.numbers = {}
            self.numbers[named] = number

    def forget_play(self, symbol: str, view: str | None) -> None:
        """Forget that a subscription plays the past."""
        if (symbol, view) in self.plays:
            del self.plays[symbol, view]

    def move_views(self, key: Key) -> None:
        """Count the views of the connection towards the limit of another key."""
        for (_, view), stream in self.subscriptions.items():
            assert self.key is not None
            self.views.leave(self.key.key_id, (stream, view))
            self.views.join(key.key_id, (stream, view))

    # Before a handler

    def _count(self, head: commands.Head, now: MessageTime) -> Effects:
        # A repeated authenticate has its own limit, because some clients send one after each
        # welcome.
        if self.key is None or head.type == AUTHENTICATE:
            return ()
        return self.limits.count_message(self.key, now)

    def _parse(self, text: str, head: commands.Head) -> "tuple[Handler, Any]":
        """Find the handler of a message and decode its fields.

        Raises:
            CommandRefused: The message is unknown or not allowed in this state, or a field is
            invalid.
        """
        if head.type is None:
            return CommandProcessor._act, self._parse_action(text, head.action or "")
        if self.key is None and head.type not in KEYLESS:
            raise CommandRefused(
                "authentication_required", f"Authenticate before {shown(head.type)}."
            )
        handler = HANDLERS.get(head.type)
        if handler is None:
            raise CommandRefused("unknown_type", f"Unknown message type {shown(head.type)}.")
        return handler, decode(text, messages.CLIENT_MESSAGES[head.type])

    def _parse_action(self, text: str, action: str) -> Any:
        if self.key is None:
            raise CommandRefused("authentication_failed", "Authenticate first.")
        body = messages.ACTIONS.get(action)
        if body is None:
            raise CommandRefused("invalid_action", f"Unknown action {shown(action)}.")
        return decode(text, body)

    def _refuse(
        self, refusal: CommandRefused, head: commands.Head, now: MessageTime, view: str | None
    ) -> Effects:
        subscribing = head.type == SUBSCRIBE and refusal.error in SUBSCRIPTION_ERRORS
        kind: ErrorType = "subscription_error" if subscribing else "error"
        if head.type is None and head.action is not None:
            payload = encode_action_refusal(refusal, head.id, now.wall_us)
        else:
            payload = encode_refusal(refusal, head.id, now.wall_us, kind=kind, view=view)
        costly = self.key is None or refusal.error == "rate_limit_exceeded"
        if costly and self.limits.flooded(now.s):
            return ending(CloseCode.FLOOD, "message flood", payload)
        return (SendText(payload),)

    def _session_welcome(self, key: Key) -> replies.WelcomeSession:
        tier = self.tiers.of(key.tier)
        return replies.WelcomeSession(
            message=f"Authenticated as {key.tier} user.",
            session_id=self.session_id,
            user_id=key.account_id,
            user_tier=key.tier,
            authentication=replies.Authentication(api_key=f"{key.prefix}..."),
            limits=replies.Limits(
                requests_per_minute=tier.requests_per_minute,
                connections_max=tier.connections_max,
                subscriptions_max=self.settings.subscriptions_max,
                message_bytes_max=MESSAGE_BYTES_MAX,
            ),
        )

    # Handlers

    def _act(self, body: Any, _: MessageTime, __: float) -> Effects:
        """Start an action of the transaction interface."""
        return (RunAction(body),)

    def _authenticate(self, body: commands.Authenticate, now: MessageTime, _: float) -> Effects:
        if self.key is not None:
            self.limits.count_authentication(now)
        elif self.limits.flooded(now.s):
            return ending(CloseCode.FLOOD, "message flood")
        return (VerifyKey(body.api_key, body.id),)

    def _ping(self, body: commands.Ping, now: MessageTime, latency_ms: float) -> Effects:
        if self.key is None and self.limits.flooded(now.s):
            return ending(CloseCode.FLOOD, "message flood")
        time = self.stamp(now.wall_us)
        pong = replies.Pong(
            timestamp=time,
            server_time=time,
            latency_ms=round(latency_ms, 3),
            client_time=body.client_time,
        )
        return (SendText(encode(pong, body.id)),)

    def _subscribe(self, body: commands.SubscribeAggregated, now: MessageTime, _: float) -> Effects:
        start_us = _start_of(body, now)
        key, rejected, unknown_fee, published = stream_key(
            self.directory, body.symbol, body.exchanges, body, self._fees()
        )
        previous = self.subscriptions.get((key.symbol, body.view))
        if previous is None and len(self.subscriptions) >= self.settings.subscriptions_max:
            raise CommandRefused(
                "subscription_limit_exceeded",
                f"A connection may have at most {self.settings.subscriptions_max} subscriptions.",
                symbol=key.symbol,
            )
        self._require_room(key, previous, body.view)
        if self.subscriptions is NONE_SUBSCRIBED:
            self.subscriptions = {}
        self.subscriptions[key.symbol, body.view] = key
        previous_number = self.numbers.get((key.symbol, body.view), 0)
        number = self._number(key, body.view)
        self.forget_play(key.symbol, body.view)
        speed = 1.0 if body.speed is UNSET else body.speed
        if start_us is not None:
            if self.plays is NONE_PLAYED:
                self.plays = {}
            self.plays[key.symbol, body.view] = start_us, speed
        start, stated_speed = self._played(key.symbol, body.view)
        response = replies.SubscriptionResponse(
            symbol=key.symbol,
            exchanges=key.exchanges,
            requested=body.exchanges,
            success=True,
            message=f"Subscribed to {key.symbol} on {_exchanges(len(key.exchanges))}.",
            subscription_id=key.id,
            rejected=rejected,
            options=options_of(key),
            expected_gb_per_30_days=self.directory.expected_gb(key),
            unknown_fee=UNSET if body.fees is None else unknown_fee,
            published_fees=UNSET if published is None else published,
            number=number or UNSET,
            start=start,
            speed=stated_speed,
        )
        reply = encode_masked(response, body.id, body.view)
        opened = OpenView(key, previous, body.view, number, previous_number)
        if start_us is None:
            return (SendText(reply), opened)
        return (PlayView(opened, start_us, speed, reply, body.id),)

    def _played(self, symbol: str, view: str | None) -> tuple[str | UnsetType, float | UnsetType]:
        """Return the start and the speed of a subscription that plays the past."""
        found = self.plays.get((symbol, view))
        return (UNSET, UNSET) if found is None else (self.stamp(found[0]), found[1])

    def _number(self, key: StreamKey, view: str | None) -> int:
        """Return the number of a subscription in its binary updates; 0 if they are JSON.

        It is the least that is free, so that most clients of a stream get the same bytes.
        """
        named = key.symbol, view
        if key.options.encoding != PROTOBUF:
            if named in self.numbers:
                del self.numbers[named]
            return 0
        if self.numbers is NONE_NUMBERED:
            self.numbers = {}
        if named not in self.numbers:
            taken = {*self.numbers.values()}
            self.numbers[named] = next(at for at in count(1) if at not in taken)
        return self.numbers[named]

    def _fees(self) -> TakerFees:
        return NO_FEES if self.key is None else self.key.fees

    def _unsubscribe(
        self, body: commands.UnsubscribeAggregated, _: MessageTime, __: float
    ) -> Effects:
        key = self._subscribed(body.symbol, body.view)
        del self.subscriptions[body.symbol, body.view]
        self.forget_play(body.symbol, body.view)
        number = 0
        if (body.symbol, body.view) in self.numbers:
            number = self.numbers.pop((body.symbol, body.view))
        response = replies.UnsubscribeResponse(
            symbol=body.symbol, success=True, message=f"Unsubscribed from {body.symbol}."
        )
        reply = SendText(with_view(encode(response, body.id), body.view))
        return (CloseView(key, body.view, number), reply)

    def _fetch_book(
        self, body: commands.GetAggregatedOrderbook, _: MessageTime, __: float
    ) -> Effects:
        if self.fetching >= FETCHES_MAX:
            raise CommandRefused(
                "subscription_limit_exceeded",
                f"A connection may have at most {FETCHES_MAX} unanswered book requests.",
                symbol=body.symbol,
            )
        subscribed = self.subscriptions.get((body.symbol, body.view))
        requested = requested_stream(self.directory, body, subscribed, self._fees())
        if body.as_of is UNSET:
            return (FetchBook(requested, body.id, body.view),)
        try:
            at_us = moment_us("as_of", body.as_of)
        except InvalidRequest as error:
            raise CommandRefused("invalid_parameters", error.message) from None
        return (FetchBook(requested, body.id, body.view, at_us),)

    def _resync(self, body: commands.Resync, _: MessageTime, __: float) -> Effects:
        key = self._subscribed(body.symbol, body.view)
        number = self.numbers.get((body.symbol, body.view), 0)
        return (ResendBook(key, body.id, body.view, number),)

    def _get_subscriptions(
        self, body: commands.GetSubscriptions, now: MessageTime, _: float
    ) -> Effects:
        listed: list[replies.Subscription] = []
        for (symbol, view), key in self.subscriptions.items():
            start, speed = self._played(symbol, view)
            listed.append(
                replies.Subscription(
                    symbol=symbol,
                    exchanges=key.exchanges,
                    subscription_id=key.id,
                    options=options_of(key),
                    expected_gb_per_30_days=self.directory.expected_gb(key),
                    view=UNSET if view is None else view,
                    number=self.numbers.get((key.symbol, view), UNSET),
                    start=start,
                    speed=speed,
                )
            )
        reply = replies.SubscriptionsData(
            data=replies.SubscriptionsList(subscriptions=listed, total=len(listed)),
            timestamp=iso_us(now.wall_us),
        )
        return (SendText(encode(reply, body.id)),)

    def _get_exchanges(self, body: commands.GetExchanges, now: MessageTime, _: float) -> Effects:
        data = Raw(self.directory.exchanges_json())
        reply = replies.ExchangesData(data=data, timestamp=self.stamp(now.wall_us))
        return (SendText(encode(reply, body.id)),)

    def _get_pairs(self, body: commands.GetPairs, now: MessageTime, _: float) -> Effects:
        exchange = None if body.exchange is None else self.directory.resolve(body.exchange)
        if exchange is None and body.exchange is not None:
            raise CommandRefused(
                "invalid_exchange",
                no_exchange(body.exchange),
                supported_exchanges=list(self.directory.supported),
            )
        data = Raw(self.directory.pairs_json(exchange))
        reply = replies.PairsData(data=data, timestamp=self.stamp(now.wall_us))
        return (SendText(encode(reply, body.id)),)

    # Subscriptions and views

    def _require_room(self, key: StreamKey, previous: StreamKey | None, view: str | None) -> None:
        assert self.key is not None
        limits = self.tiers.of(self.key.tier)
        if key.options.interval_ms < limits.interval_ms_min:
            raise CommandRefused(
                "invalid_parameters",
                f"interval_ms: must be at least {limits.interval_ms_min:,} with this key's tier.",
            )
        views_max = limits.views_max
        replaced = None if previous is None else (previous, view)
        if not self.views.has_room(self.key.key_id, (key, view), views_max, instead_of=replaced):
            raise CommandRefused(
                "subscription_limit_exceeded",
                f"This key may have at most {views_max:,} different views at a time.",
                symbol=key.symbol,
            )

    def _subscribed(self, symbol: str, view: str | None) -> StreamKey:
        key = self.subscriptions.get((symbol, view))
        if key is None:
            named = "" if view is None else f" with the view {shown(view)}"
            raise CommandRefused(
                "no_subscription",
                f"This connection has no subscription to {shown(symbol)}{named}.",
                symbol=symbol,
            )
        return key


# Shared, never written.
NONE_SUBSCRIBED: Final[dict[tuple[str, str | None], StreamKey]] = {}
NONE_NUMBERED: Final[dict[tuple[str, str | None], int]] = {}
NONE_PLAYED: Final[dict[tuple[str, str | None], tuple[int, float]]] = {}
WELCOME: Final = SendText(
    encode(replies.Welcome(message="Connected to Onebook; authenticate with your API key."))
)

Handler = Callable[[CommandProcessor, Any, MessageTime, float], Effects]

HANDLERS: Final[dict[str, Handler]] = {
    "authenticate": CommandProcessor._authenticate,
    SUBSCRIBE: CommandProcessor._subscribe,
    "unsubscribe_aggregated": CommandProcessor._unsubscribe,
    "get_aggregated_orderbook": CommandProcessor._fetch_book,
    "get_subscriptions": CommandProcessor._get_subscriptions,
    "get_exchanges": CommandProcessor._get_exchanges,
    "get_pairs": CommandProcessor._get_pairs,
    "resync": CommandProcessor._resync,
    "ping": CommandProcessor._ping,
}


def _start_of(body: commands.SubscribeAggregated, now: MessageTime) -> int | None:
    """Return the past moment at which a subscription begins."""
    if body.start is UNSET:
        if body.speed is not UNSET:
            raise CommandRefused("invalid_parameters", "speed: needs start.")
        return None
    try:
        start_us = moment_us("start", body.start)
    except InvalidRequest as error:
        raise CommandRefused("invalid_parameters", error.message) from None
    if start_us > now.wall_us:
        raise CommandRefused("invalid_parameters", "start: must not be in the future.")
    return start_us


_HEAD = msgspec.json.Decoder(commands.Head)
_ID = msgspec.json.Decoder(commands.Identified)
_VIEW = msgspec.json.Decoder(commands.Addressed)


def _head(text: str) -> tuple[commands.Head, CommandRefused | None]:
    """Decode the type and id of a message, or return the error if it has none."""
    try:
        head = _HEAD.decode(text)
    except msgspec.ValidationError as error:
        refusal = CommandRefused("invalid_message", sentence(error, commands.Head))
        return commands.Head(id=_id_alone(text)), refusal
    except (msgspec.DecodeError, RecursionError):
        return commands.Head(), CommandRefused(
            "invalid_message", "A message must be a JSON object."
        )
    if head.type is None and head.action is None:
        return head, CommandRefused("invalid_message", "A message must have a type.")
    return head, None


def _id_alone(text: str) -> Id:
    """Decode the id of a message whose other fields are invalid; None if it has none."""
    try:
        return _ID.decode(text).id
    except (msgspec.DecodeError, RecursionError):  # nested too deeply after the invalid field
        return None


def _view_alone(text: str) -> str | None:
    """Decode the view name of a refused message; None if it has none."""
    try:
        return _VIEW.decode(text).view
    except (msgspec.DecodeError, RecursionError):  # `ValidationError` is a `DecodeError`
        return None


def _exchanges(number: int) -> str:
    return f"{number} exchange" if number == 1 else f"{number} exchanges"


# Repeated `authenticate` messages per connection; they do not count against the key's limit.
AUTHENTICATIONS_PER_MINUTE: Final = 60
RATE_WARNING_SHARE: Final = 0.9  # share of a minute's messages at which a warning is sent
RATE_CALM_SHARE: Final = 0.8  # share below which another warning may follow


class CommandLimits:
    """Rate limits of one connection's commands.

    Args:
        messages: Counts the messages of each key over all its connections.
        limits: Rates of refused messages and subscription changes.
    """

    __slots__ = (
        "_authentications",
        "_changes",
        "_floods",
        "_limits",
        "_messages",
        "_warned",
    )

    def __init__(self, messages: RateLimiter, limits: GatewayLimits = LIMITS) -> None:
        self._messages = messages
        self._limits = limits
        # Each is made at its first use: most connections are idle.
        self._authentications: TokenBucket | None = None
        self._floods: TokenBucket | None = None
        self._changes: TokenBucket | None = None
        self._warned = False

    def count_message(self, key: Key, now: MessageTime) -> Effects:
        """Count a message of a key; returns a warning when most of the minute's messages are used.

        Raises:
            CommandRefused: The limit is exceeded.
        """
        decision = self._messages.take(key.key_id, key.tier, now.s)
        if not decision.allowed:
            raise CommandRefused(
                "rate_limit_exceeded",
                f"This key may send {decision.limit} messages a minute.",
                retry_after=max(1, whole_seconds(decision.retry_after_s)),
                current_limit=decision.limit,
                window=replies.WINDOW,
            )
        used = decision.limit - decision.remaining
        if used < decision.limit * RATE_CALM_SHARE:
            self._warned = False
        if self._warned or used < decision.limit * RATE_WARNING_SHARE:
            return ()
        self._warned = True
        return (SendText(encode(_rate_warning(decision, used, now))),)

    def count_authentication(self, now: MessageTime) -> None:
        """Count a repeated `authenticate`.

        Raises:
            CommandRefused: The limit is exceeded.
        """
        per_minute = AUTHENTICATIONS_PER_MINUTE
        if self._authentications is None:
            self._authentications = TokenBucket.of_minute(per_minute)
        bucket = self._authentications
        if not bucket.grant(1, now.s):
            raise CommandRefused(
                "rate_limit_exceeded",
                f"A connection may authenticate again {per_minute} times a minute.",
                retry_after=max(1, whole_seconds(bucket.until_s(1, now.s))),
                current_limit=per_minute,
                window=replies.WINDOW,
            )

    def flooded(self, now_s: float) -> bool:
        """Count useless input; returns whether it exceeds the flood limit."""
        if self._floods is None:
            limits = self._limits
            self._floods = TokenBucket.of_rate(limits.flood_per_s, limits.flood_burst)
        return self._floods.take(1, now_s) > 0

    def change_wait_s(self, now_s: float) -> float:
        """Count a subscription change; returns the seconds to pause the client's input."""
        if self._changes is None:
            limits = self._limits
            self._changes = TokenBucket.of_rate(limits.changes_per_s, limits.changes_burst)
        return self._changes.take(1, now_s)


def _rate_warning(decision: Decision, used: int, now: MessageTime) -> replies.RateLimitWarning:
    return replies.RateLimitWarning(
        message=f"{used} of {decision.limit} messages of this minute are used.",
        current_rate=used,
        limit=decision.limit,
        reset_time=iso_us(now.wall_us + int(decision.reset_s * 1_000_000)),
    )


NamedView = tuple[StreamKey, str | None]  # a stream and the client's view name


class KeyViews:
    """Counts the distinct views per key across its connections, for the tier limit.

    Each name of a stream counts, because each needs another frame for every update.
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[NamedView, int]] = {}

    def count(self, key_id: str) -> int:
        """Return the number of distinct views of a key."""
        return len(self._counts.get(key_id, ()))

    def has_room(
        self, key_id: str, view: NamedView, views_max: int, *, instead_of: NamedView | None = None
    ) -> bool:
        """Whether a key may subscribe to a view in place of `instead_of`."""
        counts = self._counts.get(key_id, {})
        freed = instead_of is not None and counts.get(instead_of) == 1
        return view in counts or len(counts) - freed < views_max

    def join(self, key_id: str, view: NamedView) -> None:
        """Count a view that a connection of the key subscribes to."""
        counts = self._counts.setdefault(key_id, {})
        counts[view] = counts.get(view, 0) + 1

    def leave(self, key_id: str, view: NamedView) -> None:
        """Stop counting a view that a connection of the key unsubscribes from."""
        counts = self._counts[key_id]
        counts[view] -= 1
        if not counts[view]:
            del counts[view]
            if not counts:
                del self._counts[key_id]

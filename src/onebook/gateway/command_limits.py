"""Rate limits of one connection's commands: messages, authentications, floods, subscriptions.

The limit of messages belongs to the key and is shared by its connections; the others are the
connection's own. No I/O, no clock.
"""

from typing import Final

from onebook.accounts import Decision, Key, RateLimiter
from onebook.config import GatewaySettings
from onebook.gateway import replies
from onebook.gateway.effects import CommandRefused, Effects, MessageTime, SendText, whole_seconds
from onebook.gateway.messages import encode
from onebook.ratelimit import TokenBucket
from onebook.streams import iso_us

RATE_WARNING_SHARE: Final = 0.9  # of a minute's messages
RATE_CALM_SHARE: Final = 0.8  # once usage is below it, the warning is armed again


class CommandLimits:
    """Rate limits of one connection's commands.

    Args:
        settings: Of floods, repeated authentications and changes of subscriptions.
        messages: Counts the messages of each key, over all of its connections.
    """

    __slots__ = (
        "_authentications",
        "_authentications_per_minute",
        "_changes",
        "_floods",
        "_messages",
        "_warned",
    )

    def __init__(self, settings: GatewaySettings, messages: RateLimiter) -> None:
        self._messages = messages
        self._authentications_per_minute = settings.authentications_per_minute
        self._authentications = TokenBucket.of_minute(settings.authentications_per_minute)
        self._floods = TokenBucket.of_rate(settings.flood_per_s, settings.flood_burst)
        self._changes = TokenBucket.of_rate(
            settings.subscription_changes_per_s, settings.subscription_changes_burst
        )
        self._warned = False

    def count_message(self, key: Key, now: MessageTime) -> Effects:
        """Count a message of a key; a warning when most of the minute's messages are used.

        Raises:
            CommandRefused: There were too many.
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
            CommandRefused: There were too many.
        """
        bucket, per_minute = self._authentications, self._authentications_per_minute
        if not bucket.grant(1, now.s):
            raise CommandRefused(
                "rate_limit_exceeded",
                f"A connection may authenticate again {per_minute} times a minute.",
                retry_after=max(1, whole_seconds(bucket.until_s(1, now.s))),
                current_limit=per_minute,
                window=replies.WINDOW,
            )

    def flooded(self, now_s: float) -> bool:
        """Count useless input; whether it exceeds the flood limit."""
        return self._floods.take(1, now_s) > 0

    def change_wait_s(self, now_s: float) -> float:
        """Count a change of subscriptions; seconds for which the client has to wait after it."""
        return self._changes.take(1, now_s)


def _rate_warning(decision: Decision, used: int, now: MessageTime) -> replies.RateLimitWarning:
    return replies.RateLimitWarning(
        message=f"{used} of {decision.limit} messages of this minute are used.",
        current_rate=used,
        limit=decision.limit,
        reset_time=iso_us(now.wall_us + int(decision.reset_s * 1_000_000)),
    )

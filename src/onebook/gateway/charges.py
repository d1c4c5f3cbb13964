"""Metering of connections: delivered bytes go to the meter of the key, once per flush."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from onebook.accounts import Key, UsageReport
from onebook.accounts.usage import Meter, gib
from onebook.clock import Clock
from onebook.gateway import metrics
from onebook.gateway.codes import CloseCode
from onebook.gateway.effects import Effects, SendText, ending
from onebook.gateway.messages import encode
from onebook.gateway.registry import ClientPort, ConnectionRegistry
from onebook.gateway.replies import DataLimitExceeded, DataLimitWarning, WarnedUsage
from onebook.streams import iso_us

# `DataLimitWarning.action_required`
USE_LESS: Final = "Ask for fewer levels or a longer interval_ms, or unsubscribe from some symbols."
USED_UP: Final = "Wait for the next period, or ask the operator for a larger allowance."


class Charges:
    """Charges keys for the bytes delivered to their connections; reports used allowances."""

    def __init__(self, *, meter: Meter, connections: ConnectionRegistry, clock: Clock) -> None:
        self._meter = meter
        self._connections = connections
        self._clock = clock

    def settle(self, connection: ClientPort) -> None:
        """Charge the bytes delivered to one connection since the last call; free without a key."""
        self._charge((connection,))

    def hand_over(self, connection: ClientPort) -> None:
        """Charge everything written to a connection that gets another key, acknowledged or not.

        What its next key pays begins after it; without a key it was free.
        """
        self._add(connection.processor.key, connection.output.take_written())

    def settle_all(self) -> None:
        """Charge the bytes delivered to all connections, in one sum per key."""
        for group in self._connections.by_key.values():
            self._charge(group)

    def standing(self, key_id: str) -> Effects:
        """Messages for a new connection: a warning, or the close where the allowance is used up."""
        if self._meter.over(key_id):
            return self.used_up(key_id)
        report = self._meter.report(key_id, self._clock.wall_us() // 1_000)
        if report.status.warning_threshold:
            return (SendText(self.warning(report)),)
        return ()

    def warning(self, report: UsageReport) -> bytes:
        """The message that most of an allowance is used."""
        usage = report.data_usage
        exceeded_bytes = usage.bytes_used - usage.bytes_limit
        return encode(
            DataLimitWarning(
                message=f"{usage.usage_percentage:g} % of the monthly data allowance is used.",
                data_usage=WarnedUsage(**asdict(usage), exceeded_by_gb=gib(max(0, exceeded_bytes))),
                action_required=USE_LESS if exceeded_bytes < 0 else USED_UP,
                reset_date=report.billing_period.reset_date,
                timestamp=iso_us(self._clock.wall_us()),
            )
        )

    def used_up(self, key_id: str) -> Effects:
        """The last messages to a connection whose key has used its allowance."""
        report = self._meter.report(key_id, self._clock.wall_us() // 1_000)
        limit_gb = report.data_usage.limit_gb
        notice = DataLimitExceeded(
            message=f"The monthly data allowance of {limit_gb:g} GB is used up.",
            data_usage=report.data_usage,
            reset_date=report.billing_period.reset_date,
            timestamp=iso_us(self._clock.wall_us()),
        )
        return ending(CloseCode.DATA_LIMIT, "data limit exceeded", encode(notice))

    def _charge(self, connections: Iterable[ClientPort]) -> None:
        """Charge connections of one key."""
        delivered, key = 0, None
        for connection in connections:
            delivered += connection.output.take_delivered()
            key = connection.processor.key
        self._add(key, delivered)

    def _add(self, key: Key | None, sent_bytes: int) -> None:
        if sent_bytes and key is not None:
            self._meter.add(key.key_id, sent_bytes)
            metrics.SENT_BYTES.labels(key.tier).inc(sent_bytes)

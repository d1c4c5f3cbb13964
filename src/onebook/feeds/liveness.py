"""Liveness of instruments and connections, measured by their usual gaps between data.

Most exchanges send a book only when it changes, so that silence alone proves nothing, and a pong
proves a working socket but not data. What an exchange promises is among its facts
(`heartbeat_max_s`, `quiet_max_s`); beyond that an instrument is compared with its own gaps: one
that was never silent for longer than a second over many gaps is overdue after a few seconds.

No clock and no work per frame: `observe` is called a few times a second with the time of the last
data, which bounds each gap from above to the time between two calls.
"""

from typing import Final

from onebook.config import FeedSettings
from onebook.model import Instrument

NEVER: Final = float("inf")


class Cadence:
    """The longest gap between data of late, and how much evidence there is for it.

    The longest gap is that of the last one to two `window_s`; a longer silence that turned out to
    be healthy is one of them (`learn`), so that a wrong verdict is not repeated. `shared` where the
    data of an instrument is part of the evidence for its connection.
    """

    __slots__ = (
        "_count",
        "_last_at",
        "_longest_s",
        "_observed_s",
        "_older_s",
        "_until",
        "_window",
        "shared",
    )

    def __init__(self, window_s: float) -> None:
        self.shared = False
        self._window = window_s
        self.forget()

    def forget(self) -> None:
        """Drop the evidence; the next data begins another."""
        self._last_at = NEVER  # before the first data
        self._until = NEVER  # when the present window ends; NEVER before the first gap
        self._longest_s = self._older_s = 0.0
        self._count = 0
        self._observed_s = 0.0

    def restart(self, data_at: float) -> None:
        """Count gaps from here: the time before is not a gap of the exchange."""
        self._last_at = data_at

    def observe(self, data_at: float) -> None:
        """Note when data last arrived."""
        if self._last_at == NEVER:
            self.restart(data_at)
        elif data_at > self._last_at:
            self.learn(data_at - self._last_at, data_at)
            self._last_at = data_at

    def learn(self, gap_s: float, now: float) -> None:
        """Count a gap."""
        if now >= self._until:
            # After a pause of whole windows the older gaps do not count.
            stale = now >= self._until + self._window
            self._older_s = 0.0 if stale else self._longest_s
            self._longest_s = 0.0
            self._until = now + self._window
        elif self._until == NEVER:
            self._until = now + self._window
        self._longest_s = max(self._longest_s, gap_s)
        self._count += 1
        self._observed_s += gap_s

    def limit_s(self, settings: FeedSettings, least_s: float) -> float:
        """Return after how much silence it is overdue; `NEVER` while the evidence is thin."""
        if self._count < settings.cadence_gaps_min:
            return NEVER
        if self._observed_s < settings.cadence_evidence_s:
            return NEVER
        return max(least_s, settings.cadence_factor * max(self._longest_s, self._older_s))


class Cadences:
    """The cadences of one feed: they outlive its connections."""

    def __init__(self, settings: FeedSettings) -> None:
        self._settings = settings
        self._of: dict[Instrument, Cadence] = {}
        self.connection = Cadence(settings.cadence_window_s)

    def of(self, instrument: Instrument) -> Cadence:
        """Return the cadence of an instrument, a new one for a new instrument."""
        cadence = self._of.get(instrument)
        if cadence is None:
            cadence = self._of[instrument] = Cadence(self._settings.cadence_window_s)
        return cadence

    def forget(self, instrument: Instrument) -> None:
        """Drop the cadence of an instrument that left the feed."""
        cadence = self._of.pop(instrument, None)
        if cadence is not None:
            self.leave(cadence)

    def leave(self, cadence: Cadence) -> None:
        """Measure the connection anew without an instrument: it may have been the busy one."""
        if cadence.shared:
            cadence.shared = False
            self.connection.forget()

"""The offset between an exchange's clock and this machine's, with its error.

Two measurements bound it. A message cannot arrive before it was sent, so the least difference of
arrival and the exchange's time within a window is at least the offset. A request for the exchange's
time was answered between its sending and its arrival, so the one with the least round trip gives
the offset to half of that. Exchange times are Unix times, ours monotonic seconds, so that a step of
this machine's clock changes nothing. No I/O, no clock.
"""

from collections import deque
from typing import Final, NamedTuple

WINDOW_S: Final = 30.0  # the least difference of the present and of the last window counts
REQUESTS_MAX: Final = 8  # answers of which the one with the least round trip counts


class Offset(NamedTuple):
    """Our clock minus that of the exchange, in seconds; the error is None if it is unknown.

    Without an error it is the offset plus the least delay of a message: an upper bound.
    """

    offset_s: float
    error_s: float | None


class ClockSkew:
    """Measurements of the clock of one exchange, and the offset that follows from them."""

    __slots__ = ("_answers", "_least", "_least_before", "_window_ends")

    def __init__(self) -> None:
        self._window_ends = float("-inf")
        self._least: float | None = None  # arrival minus exchange time in this window
        self._least_before: float | None = None  # and in the one before
        self._answers: deque[tuple[float, float]] = deque(maxlen=REQUESTS_MAX)  # error, offset

    def received(self, at_us: int, received_at: float) -> None:
        """Record a message by the exchange's time and its arrival."""
        difference_s = received_at - at_us / 1_000_000
        if received_at >= self._window_ends:
            is_next = received_at < self._window_ends + WINDOW_S
            self._least_before = self._least if is_next else None
            self._least = difference_s
            self._window_ends = received_at + WINDOW_S
        elif self._least is None or difference_s < self._least:
            self._least = difference_s

    def answered(
        self, at_us: int, sent_at: float, received_at: float, *, resolution_us: int = 1_000
    ) -> None:
        """Record the exchange's answer to a request for its time, which it cut to a resolution."""
        half_s = resolution_us / 2_000_000
        offset_s = (sent_at + received_at) / 2 - at_us / 1_000_000 - half_s
        self._answers.append(((received_at - sent_at) / 2 + half_s, offset_s))

    def offset(self) -> Offset | None:
        """Return the offset of monotonic time; None before the first measurement."""
        known = [each for each in (self._least, self._least_before) if each is not None]
        least = min(known, default=None)
        if not self._answers:
            return None if least is None else Offset(least, None)
        error_s, offset_s = min(self._answers)
        low, high = offset_s - error_s, offset_s + error_s
        if least is None or least >= high:
            return Offset(offset_s, error_s)
        if least < low:  # requests and messages are stamped by different clocks
            return Offset(least, None)
        return Offset((low + least) / 2, (least - low) / 2)

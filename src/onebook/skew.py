"""The offset between an exchange's clock and this machine's, with its error.

Two measurements bound it. A message cannot arrive before it was sent, so the minimum difference of
arrival and exchange time within a window is an upper bound. A request for the exchange's time was
answered between sending and arrival, so it gives the offset to half of its round trip; the shortest
one is the most accurate. Exchange times are Unix times, ours monotonic seconds, so a step of this
machine's clock has no effect. Clocks drift apart by up to `DRIFT`, so measurements widen by that
rate as they age. No I/O, no clock.
"""

from collections import deque
from math import ceil, floor
from typing import Final, NamedTuple

WINDOW_S: Final = 30.0  # the least difference of the present and of the last window counts
REQUESTS_MAX: Final = 16  # answers of which the one with the least error counts
ANSWER_S: Final = 600.0  # age up to which an answer counts
DRIFT: Final = 50e-6  # most by which the rates of two clocks differ


class Offset(NamedTuple):
    """Our clock minus the exchange's, in seconds; the error is None if unknown.

    Without an error, the value is an upper bound: the offset plus the minimum delay of a message.
    """

    offset_s: float
    error_s: float | None


class Least(NamedTuple):
    """The minimum difference of arrival and exchange time in a window, and its arrival time."""

    difference_s: float
    at: float


class TimeAnswer(NamedTuple):
    """The offset from one answer, plus or minus the error, and its arrival time."""

    error_s: float
    offset_s: float
    at: float

    def bounds(self, now: float) -> tuple[float, float]:
        """Return the lower and the upper bound of the offset now."""
        error_s = self.error_s + DRIFT * (now - self.at)
        return self.offset_s - error_s, self.offset_s + error_s


class ClockSkew:
    """Measurements of one exchange's clock, and the offset computed from them."""

    __slots__ = ("_answers", "_least", "_least_before", "_window_ends")

    def __init__(self) -> None:
        self._window_ends = float("-inf")
        self._least: Least | None = None  # in this window
        self._least_before: Least | None = None  # and in the one before
        self._answers: deque[TimeAnswer] = deque(maxlen=REQUESTS_MAX)

    def received(self, at_us: int, received_at: float) -> None:
        """Record a message by the exchange's time and its arrival."""
        least = Least(received_at - at_us / 1_000_000, received_at)
        if received_at >= self._window_ends:
            is_next = received_at < self._window_ends + WINDOW_S
            self._least_before = self._least if is_next else None
            self._least = least
            self._window_ends = received_at + WINDOW_S
        elif self._least is None or least < self._least:
            self._least = least

    def answered(
        self, at_us: int, sent_at: float, received_at: float, *, resolution_us: int = 1_000
    ) -> None:
        """Record the answer to a request for the exchange's time, truncated to its resolution.

        If it contradicts the answers before it, one of the clocks was set: all measurements before
        it are dropped.
        """
        half_s = resolution_us / 2_000_000
        offset_s = (sent_at + received_at) / 2 - at_us / 1_000_000 - half_s
        answer = TimeAnswer((received_at - sent_at) / 2 + half_s, offset_s, received_at)
        low, high = answer.bounds(received_at)
        for each in self._answers:
            least, most = each.bounds(received_at)
            if least > high or most < low:
                self._answers.clear()
                self._least = self._least_before = None
                self._window_ends = float("-inf")
                break
        self._answers.append(answer)

    def reading(self, now: float) -> tuple[int, int] | None:
        """Return the exchange's time in microseconds and its resolution, for another's `answered`.

        The exchange's clock is at or after that time, by at most the resolution; None if the error
        of the offset is unknown.
        """
        offset = self.offset(now)
        if offset is None or offset.error_s is None:
            return None
        at_s = now - offset.offset_s - offset.error_s
        return floor(at_s * 1_000_000), ceil(offset.error_s * 2_000_000) + 1

    def offset(self, now: float) -> Offset | None:
        """Return the offset of monotonic time; None before the first measurement."""
        known = [each for each in (self._least, self._least_before) if each is not None]
        least = min(known, default=None)
        bounds = [each.bounds(now) for each in self._answers if now - each.at <= ANSWER_S]
        if not bounds:
            return None if least is None else Offset(least.difference_s, None)
        low = max(each[0] for each in bounds)
        high = min(each[1] for each in bounds)
        if least is not None:
            # Arrival is never before sending, so messages bound the offset from above.
            most = min(each.difference_s + DRIFT * (now - each.at) for each in known)
            if most < low:  # requests and messages are stamped by different clocks
                return Offset(least.difference_s, None)
            high = min(high, most)
        return Offset((low + high) / 2, (high - low) / 2)

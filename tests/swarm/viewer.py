"""One view of one client: follows the updates, and compares each with the truth."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from swarm.truth import Asked, Truth

EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
# An exponent, or a zero at the end of decimals, in a number of a book.
UNTIDY = re.compile(rb"[:\[,]-?[0-9]+(\.[0-9]*0|(\.[0-9]+)?[eE][+-]?[0-9]+)[,\]}]")


class Broken(AssertionError):
    """A guarantee was violated; the text states which one."""


def microseconds(timestamp: str) -> int:
    """A timestamp of a message, exactly."""
    since = datetime.fromisoformat(timestamp) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


class Viewer:
    """The state of one subscription at a client."""

    def __init__(self, truth: Truth, asked: Asked, view_id: str, opened_us: int) -> None:
        self.asked = asked
        self.id = view_id
        self.opened_us = opened_us
        self.number = 0
        self.moment = 0  # the newest that it has shown
        self.at_us = 0
        self.stale: list[str] = []
        self.states: dict[str, str] = {}  # by exchange: as its last status said
        self._truth = truth
        self._sides: dict[str, dict[Decimal, Any]] = {}

    def take(self, message: dict[str, Any], payload: bytes, *, gaps: bool) -> None:
        """Follow one message of the subscription.

        Args:
            message: Its numbers are decimals.
            payload: Its text.
            gaps: Updates may be missing, because the client did not read all the time.
        """
        data, number = message["data"], int(message["update_number"])
        is_delta = message["type"] == "aggregated_orderbook_delta"
        if is_delta and self.asked.mode != "delta":
            raise Broken("a delta in full mode")
        if is_delta and not (message["previous_update_number"] == self.number == number - 1):
            raise Broken(f"delta {number} comes to one who has {self.number}")
        if number < self.number or (number == self.number and "id" not in message):
            raise Broken(f"update {number} comes to one who has {self.number}")
        if self.number and number > self.number + 1 and not gaps:
            raise Broken(f"update {number} follows {self.number}, and nothing was skipped")
        if is_delta:
            data = data | {side: self._patched(side, data[side]) for side in ("bids", "asks")}
        self.number = number
        self.at_us = microseconds(message["timestamp"])
        self._sides = {side: {_price(row): row for row in data[side]} for side in ("bids", "asks")}
        self.stale = data["stale_exchanges"]
        self.check(data, payload, checksum=message.get("checksum"), with_checksum=is_delta)

    def check(self, data: dict, payload: bytes, *, checksum=None, with_checksum=False) -> None:
        """Compare a view with the books of its time."""
        if found := UNTIDY.search(payload):
            raise Broken(f"the number {found[0]!r}")
        moments = self._truth.at(self.asked.symbol, self.at_us)
        for number in reversed(moments):
            if number < self.moment:
                break
            true = self._truth.view(self.asked, number)
            if _same(data, true) and (not with_checksum or checksum == true["checksum"]):
                self.moment = number
                return
        raise Broken(self._difference(data, moments, checksum))

    def check_fresh(self, now_us: int, slack_us: int) -> None:
        """The view is at most its interval old, and shows no book that ended earlier."""
        if not self.number:
            if now_us - self.opened_us > 3_000_000 + slack_us:
                raise Broken("no first update within 3 s")
            return
        behind_us = self.asked.interval_ms * 1_000 + slack_us
        self.check_newer(self._truth.since(self.asked.symbol, now_us - behind_us))
        self._check_gone(now_us - 100_000)

    def check_newer(self, oldest: int) -> None:
        """The view equals that of its time or a later one.

        Ages and coverage are as of an update, and make none.
        """
        moments = self._truth.moments(self.asked.symbol)
        shown = self._truth.view(self.asked, self.moment)
        names = shown.keys() - {"ages", "coverage"}
        for number in range(max(oldest, self.moment), len(moments)):
            true = self._truth.view(self.asked, number)
            if all(true[name] == shown[name] for name in names):
                return
        raise Broken(f"shows moment {self.moment} of {self.asked}, which ended before {oldest}")

    def check_states(self) -> None:
        """The last status of each exchange matches its book."""
        live = self._truth.moments(self.asked.symbol)[-1].books
        for name, state in self.states.items():
            if (state == "live") != (name in live):
                raise Broken(f"{name} was last told to be {state}, and its book is not")

    def _check_gone(self, at_us: int) -> None:
        """A book that ended at that time and is not back is in no view."""
        symbol = self.asked.symbol
        moments = self._truth.moments(symbol)[self._truth.since(symbol, at_us) :]
        for name in self.asked.exchanges:
            if name not in self.stale and all(name not in each.books for each in moments):
                raise Broken(f"{name} is shown 100 ms after it left")

    def _patched(self, side: str, rows: list) -> list:
        levels = dict(self._sides[side])
        before = [_price(row) for row in rows]
        if before != sorted(set(before), reverse=side == "bids"):
            raise Broken(f"the changes of {side} are not in order")
        for row in rows:
            price, gone = _price(row), not _amount(row)
            if gone and price not in levels:
                raise Broken(f"{side} at {price} goes and was not there")
            if not gone and levels.get(price) == row:
                raise Broken(f"{side} at {price} is told and did not change")
            levels.pop(price, None)
            if not gone:
                levels[price] = row
        return [levels[price] for price in sorted(levels, reverse=side == "bids")]

    def _difference(self, data: dict, moments: range, checksum: object) -> str:
        true = self._truth.view(self.asked, moments[-1])
        lines = [
            f"{name}: got {data.get(name)}, true is {true[name]}"
            for name in true
            if name not in ("ages", "checksum") and data.get(name) != true[name]
        ]
        text = "; ".join(lines) or f"checksum {checksum}, true is {true['checksum']}"
        return f"update {self.number} of {self.asked} is no state of {[*moments]}: {text}"


def _same(data: dict, true: dict) -> bool:
    expected = {name: value for name, value in true.items() if name not in ("ages", "checksum")}
    ages = data.get("ages")
    if (ages is None) != ("ages" not in true):
        return False
    if ages is not None and (
        sorted(ages) != sorted(true["ages"]) or any(each < 0 for each in ages.values())
    ):
        return False
    return {name: value for name, value in data.items() if name != "ages"} == expected


def _price(row):
    return row["price"] if isinstance(row, dict) else row[0]


def _amount(row):
    return row["amount"] if isinstance(row, dict) else row[1]

"""Unique three-letter codes of exchanges, for narrow screens.

The page has the same rule (`web/page/palette.js`).
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from onebook.exchanges import EXCHANGES

LENGTH: Final = 3


class Codes:
    """Assigns codes in the order in which exchanges are added, built-in ones first."""

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}
        self._taken: set[str] = set()
        for name in sorted(EXCHANGES):  # as the service lists them, and so the page
            self.of(name)

    def of(self, exchange: str) -> str:
        """Return the code: three letters of the name, including the first."""
        if exchange not in self._codes:
            name = exchange.upper()
            code = next((each for each in _candidates(name) if each not in self._taken), name)
            self._codes[exchange] = code
            self._taken.add(code)
        return self._codes[exchange]


def _candidates(name: str) -> Iterator[str]:
    yield name[:LENGTH]
    for others in combinations(name[1:], LENGTH - 1):
        yield name[0] + "".join(others)


CODES: Final = Codes()

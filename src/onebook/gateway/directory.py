"""Exchanges and pairs, encoded for the WebSocket replies."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from onebook import exchanges
from onebook.gateway.replies import AllPairs, ExchangePairs, ExchangesList
from onebook.streams import StreamKey

KEPT_S: Final = 5.0  # how long encoded lists are cached: they are long and change hourly
SUGGESTIONS_MAX: Final = 3
SIMILAR_MAX: Final = 12  # candidates checked: not all are traded on the requested exchanges
ACTIVE: Final = "active"

# Base currencies by kind, for `categories` of one exchange's pairs.
CATEGORIES: Final[dict[str, frozenset[str]]] = {
    "major": frozenset(("BTC", "ETH", "BNB", "SOL", "XRP")),
    "altcoins": frozenset(("ADA", "DOT", "LTC", "BCH", "LINK", "XLM", "ETC", "TRX", "TON", "ATOM")),
    "meme": frozenset(("DOGE", "SHIB", "PEPE", "BONK", "FLOKI", "WIF")),
    "defi": frozenset(("UNI", "AAVE", "COMP", "SUSHI", "MKR", "CRV", "LDO", "SNX")),
    "layer1": frozenset(("SOL", "ADA", "AVAX", "DOT", "ATOM", "NEAR", "ICP", "SUI", "APT", "ALGO")),
}

_encode = msgspec.json.encode


class PairCatalogue(Protocol):
    """Symbols that each exchange trades."""

    def exchanges(self, symbol: str) -> list[str]:
        """The exchanges that trade a symbol now."""

    def pairs(self, exchange: str) -> list[str]:
        """The symbols that an exchange trades now."""

    def unread(self) -> set[str]:
        """Exchanges in use whose list of instruments was never read."""

    def suggest(self, symbol: str, n: int = 3) -> list[str]:
        """Symbols like this one."""


class ExchangeStates(Protocol):
    """State of each exchange's feeds."""

    def in_use(self) -> Collection[str]:
        """The exchanges that the settings switch on."""

    def state(self, exchange: str) -> str:
        """One of active, maintenance, offline, limited."""


class Directory:
    """The catalogue as clients see it; long lists are encoded at most once in `KEPT_S`.

    Args:
        catalogue: Which instruments there are.
        supervisor: How feeds do.
        monotonic: The time in seconds.
        via: The exchanges in use without a connector of ours, with the library of each.
        expected_gb: What a stream costs a client in 30 days; None while that is not known.
    """

    def __init__(
        self,
        catalogue: PairCatalogue,
        supervisor: ExchangeStates,
        *,
        monotonic: Callable[[], float],
        via: Mapping[str, str] = MappingProxyType({}),
        expected_gb: Callable[[StreamKey], float | None] = lambda key: None,
    ) -> None:
        self._via = dict(via)
        self.trading = catalogue.exchanges
        self.unread = catalogue.unread
        self.expected_gb = expected_gb
        self._catalogue = catalogue
        self._supervisor = supervisor
        self._monotonic = monotonic
        self._kept: dict[str | None, tuple[float, bytes]] = {}

    @property
    def supported(self) -> Sequence[str]:
        """The exchanges in use, by name."""
        return tuple(sorted({*self._supervisor.in_use(), *self._via}))

    def resolve(self, name: str) -> str | None:
        """Look up an enabled exchange by its name, an alias or a former name."""
        plain = name.strip().lower()
        if plain in self._via:
            return plain
        known = exchanges.resolve(plain)
        return known if known in self._supervisor.in_use() else None

    def suggest(self, symbol: str, wanted: Collection[str]) -> list[str]:
        """Return symbols like a refused one that at least one of these exchanges trades."""
        similar = self._catalogue.suggest(symbol, SIMILAR_MAX)
        found = [
            each
            for each in similar
            if each != symbol and not set(wanted).isdisjoint(self.trading(each))
        ]
        return found[:SUGGESTIONS_MAX]

    def exchanges_json(self) -> bytes:
        """Return the data of `exchanges_data`."""
        states = {name: self._supervisor.state(name) for name in self.supported}
        active = [name for name, state in states.items() if state == ACTIVE]
        return _encode(
            ExchangesList(
                supported_exchanges=list(self.supported),
                active_exchanges=active,
                total_supported=len(self.supported),
                total_active=len(active),
                exchange_status=states,
                via=self._via,
            )
        )

    def pairs_json(self, exchange: str | None) -> bytes:
        """Return the data of `pairs_data`, of one exchange or of all."""
        now = self._monotonic()
        kept_at, data = self._kept.get(exchange, (float("-inf"), b""))
        if now - kept_at > KEPT_S:
            data = _encode(self._one(exchange) if exchange is not None else self._all())
            self._kept[exchange] = now, data
        return data

    def _one(self, exchange: str) -> ExchangePairs:
        pairs = self._catalogue.pairs(exchange)
        sorted_by_kind = {
            kind: [pair for pair in pairs if pair.partition("/")[0] in bases]
            for kind, bases in CATEGORIES.items()
        }
        return ExchangePairs(
            exchange=exchange,
            pairs=pairs,
            total_pairs=len(pairs),
            categories={kind: found for kind, found in sorted_by_kind.items() if found},
        )

    def _all(self) -> AllPairs:
        by_exchange = {name: self._catalogue.pairs(name) for name in self.supported}
        counts: dict[str, int] = {}
        for pairs in by_exchange.values():
            for pair in pairs:
                counts[pair] = counts.get(pair, 0) + 1
        return AllPairs(
            exchanges=by_exchange,
            total_exchanges=len(by_exchange),
            total_pairs=len(counts),
            common_pairs=sorted(pair for pair, number in counts.items() if number > 1),
        )

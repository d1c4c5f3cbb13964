"""Random options and lists of exchanges, and the expected replies."""

from decimal import Decimal
from random import Random
from typing import Any

from swarm.truth import Asked

FORMER = {"gateio": "gate", "huobi": "htx"}
UNKNOWN = ("mtgox", "", "-mtgox")
SIZES = ("0.5", "0.50", "3", "100", "0.000000000000000001", "999999999999999999", "12.345", "1e-1")
GROUPS = ("0.1", "0.5", "1", "10", "0.000000001", "7", "200", "0.30")
EXTREME_GROUPS = ("0.000000000001", "999999999999999999", "000.1", ".5", "5.")
NONSENSE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("unknown_type", {"type": "trade"}),
    ("invalid_message", {"symbol": "BTC/USDT"}),
    ("invalid_message", {"type": 5}),
    ("invalid_parameters", {"type": "subscribe_aggregated"}),
    ("invalid_parameters", {"type": "resync"}),
    ("no_subscription", {"type": "resync", "symbol": "NONE/USDT"}),
    ("invalid_exchange", {"type": "get_pairs", "exchange": "mtgox"}),
)
WRONG: tuple[dict[str, Any], ...] = (
    {"depth": 0},
    {"depth": 501},
    {"depth": "5"},
    {"interval_ms": 9},
    {"interval_ms": 60_001},
    {"mode": "snapshot"},
    {"levels": "list"},
    {"split": 1},
    {"group": "0"},
    {"group": "-1"},
    {"group": "1e3"},
    {"group": 0.5},
    {"group": "0.0000000000001"},
    {"fill": {}},
    {"fill": {"amounts": ["0"]}},
    {"fill": {"amounts": ["1"] * 4 + ["2"], "notionals": ["-1"]}},
    {"fill": {"amounts": [str(n) for n in range(1, 10)]}},
    {"fill": {"amounts": ["0.0000000000000000001"]}},
    {"fill": {"amounts": ["1000000000000000000"]}},
    {"exchanges": []},
    {"exchanges": ["-okx"]},
    {"exchanges": ["okx", "-OKX"]},
    {"exchanges": "okx"},
    {"colour": "red"},
)


class Choices:
    """Random requests of clients."""

    def __init__(self, rng: Random, listed: dict[str, list[str]]) -> None:
        self._rng = rng
        self._names = list(listed)
        self._before: dict[str, list[dict[str, Any]]] = {}  # by symbol

    def again(self, symbol: str) -> dict[str, Any]:
        """The fields of a subscription, often equal to earlier ones: clients share views."""
        before = self._before.setdefault(symbol, [])
        if not before or self._rng.random() < 0.5:
            before.append(self.message(symbol))
        return before[-1]

    def message(self, symbol: str, *, sparse: bool = False) -> dict[str, Any]:
        """The fields of a subscription, or of a one-time request with few of them."""
        rng = self._rng
        message: dict[str, Any] = {"symbol": symbol}
        if rng.random() < (0.3 if sparse else 0.8):
            message["exchanges"] = self._exchanges()
        return message | self.options(0.2 if sparse else 0.5)

    def options(self, share: float = 0.5) -> dict[str, Any]:
        """Some options with valid values."""
        rng = self._rng
        groups = EXTREME_GROUPS if rng.random() < 0.2 else GROUPS
        sizes = rng.sample(SIZES[:-1], 3)
        offered = {
            "depth": rng.choice((1, 2, 5, 25, 26, 100, 500)),
            "interval_ms": rng.choice((10, 10, 50, 100, 2_000, 2_000)),
            "mode": rng.choice(("full", "delta", "delta")),
            "levels": rng.choice(("object", "array")),
            "split": rng.choice((True, False)),
            "group": rng.choice((None, *groups)),
            "ages": rng.choice((True, False)),
            "coverage": rng.choice((True, False)),
            "fill": rng.choice(
                (
                    None,
                    {"amounts": sizes[:2]},
                    {"notionals": sizes},
                    {"amounts": sizes[:1], "notionals": sizes[1:]},
                )
            ),
        }
        return {name: value for name, value in offered.items() if rng.random() < share}

    def nonsense(self) -> tuple[str, dict[str, Any]]:
        """A message that is refused, and the error."""
        rng = self._rng
        if rng.random() < 0.3:
            return rng.choice(NONSENSE)
        kind = rng.choice(("subscribe_aggregated", "get_aggregated_orderbook"))
        return "invalid_parameters", {"type": kind, "symbol": "BTC/USDT", **rng.choice(WRONG)}

    def completed(self, message: dict[str, Any], held: Asked | None) -> dict[str, Any]:
        """The fields of a one-time request, with those of the subscription as defaults."""
        if held is None:
            return message
        kept = held._asdict() | {"exchanges": list(held.exchanges)}
        if held.fill is not None:
            kept["fill"] = {"amounts": held.fill[0], "notionals": held.fill[1]}
        return kept | message

    def outcome(
        self, message: dict[str, Any], market: Any
    ) -> tuple[str | None, Asked | None, list[str]]:
        """The error of a subscription, or its view and the rejected names."""
        asked = message.get("exchanges", "all")
        names = ["all"] if asked == "all" else asked
        plain = {name: name.strip().lower() for name in names}
        known = {name: self._known(each.removeprefix("-")) for name, each in plain.items()}
        wanted = [
            name for name in plain if not plain[name].startswith("-") and plain[name] != "all"
        ]
        unwanted = {known[name] for name in plain if plain[name].startswith("-")}
        everything = "all" in plain.values()
        if not everything:
            if not wanted:
                return "invalid_parameters", None, []
            if not any(known[name] for name in wanted):
                return "exchange_unavailable", None, []
        chosen = set(self._names) if everything else {known[name] for name in wanted} - {None}
        if not chosen - unwanted:
            return "invalid_parameters", None, []
        trading = set(market.exchanges(message["symbol"]))
        accepted = (chosen - unwanted) & trading
        if not accepted:
            return "invalid_symbol", None, []
        rejected = [name for name in plain if plain[name] != "all" and known[name] is None]
        rejected += [name for name in wanted if known[name] and known[name] not in trading]
        options = {name: value for name, value in message.items() if name in Asked._fields}
        options["exchanges"] = tuple(sorted(accepted))
        if options.get("group"):
            options["group"] = _plain(options["group"])
        if options.get("fill"):
            fill = options["fill"]
            options["fill"] = tuple(_sizes(fill.get(each, ())) for each in ("amounts", "notionals"))
        return None, Asked(**options), rejected

    def _known(self, name: str) -> str | None:
        name = FORMER.get(name.strip(), name.strip())
        return name if name in self._names else None

    def _exchanges(self) -> Any:
        rng = self._rng
        some = rng.sample(self._names, rng.randint(1, len(self._names)))
        spelled = [self._spelled(name) for name in some]
        return rng.choice(
            (
                "all",
                ["all"],
                ["ALL", *("-" + name for name in spelled[:2])],
                spelled,
                spelled,
                [*spelled, rng.choice(UNKNOWN)],
                [*spelled, "-" + rng.choice(self._names)],
                ["mtgox"],
            )
        )

    def _spelled(self, name: str) -> str:
        former = [old for old, new in FORMER.items() if new == name]
        return self._rng.choice((name, name, name.upper(), f" {name} ", *former))


def _sizes(texts: Any) -> tuple[str, ...]:
    return tuple(map(_plain, sorted(set(map(Decimal, texts)))))


def _plain(number: Any) -> str:
    text = f"{Decimal(number):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text

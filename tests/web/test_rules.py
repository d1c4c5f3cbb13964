"""When alerts fire: against oracles that see all values at once."""

import random
from typing import Any

import pytest

from web.in_node import needs_node, run

pytestmark = needs_node
MARGIN, QUIET_MS = 0.0005, 5_000

# The numbers of the looks at which a rule fired, and what was said.
WATCH = """
  const watch = new Watch(given.rule);
  const fired = [];
  given.facts.forEach(({ at, ...facts }, look) => {
    const best = () => (facts.best === "unknown" ? undefined : facts.best);
    const said = watch.check({ live: true, left: [], ...facts, best }, at);
    for (const text of said) fired.push([look, text]);
  });
  return fired;
"""


async def fired(rule: dict[str, str], facts: list[dict[str, Any]]) -> list[list[Any]]:
    given = {"rule": {"symbol": "BTC/USDT", **rule}, "facts": facts}
    found: list[list[Any]] = await run("rules.js", "Watch", WATCH, given)
    return found


@pytest.mark.parametrize("seed", range(5))
async def test_a_price_fires_at_the_first_look_on_the_other_side(seed: int) -> None:
    """Relative to the last price that was far enough away, or to the first one."""
    rng = random.Random(seed)
    value, price = 1_000.0, 1_000.3
    facts = []
    for look in range(4_000):
        price = round(price + rng.choice([-1, 1]) * rng.choice([0.05, 0.1, 0.2, 0.4]), 2)
        price += 0.1 * (value - price) if abs(price - value) > 3 else 0
        facts.append({"at": look * 200, "mid": round(price, 2), "live": rng.random() < 0.9})
    seen = [look for look, each in enumerate(facts) if each["live"]]
    prices = [facts[look]["mid"] for look in seen]
    first = next(at for at, each in enumerate(prices) if each != value)
    side = [(each > value) - (each < value) for each in prices]
    anchors = [
        at
        for at, each in enumerate(prices)
        if at == first or (at > first and abs(each - value) >= value * MARGIN)
    ]
    expected = []
    for anchor, following in zip(anchors, [*anchors[1:], len(prices) - 1], strict=True):
        others = (at for at in range(anchor + 1, following + 1) if side[at] != side[anchor])
        if (at := next(others, None)) is not None:
            expected.append(seen[at])
    found = await fired({"kind": "price", "value": "1000"}, facts)
    assert [look for look, _ in found] == expected
    assert 10 < len(expected) < 2_000
    for look, text in found:
        assert ("rose" if facts[look]["mid"] >= value else "fell") in text or (
            facts[look]["mid"] == value
        )


@pytest.mark.parametrize("seed", range(5))
async def test_a_spread_fires_once_until_it_is_clearly_below(seed: int) -> None:
    rng = random.Random(seed)
    spreads = [round(rng.uniform(0.8, 1.15), 3) for _ in range(500)]
    facts = [{"at": at * 200, "spread": each} for at, each in enumerate(spreads)]
    found = await fired({"kind": "spread", "value": "1"}, facts)
    wide = [at for at, each in enumerate(spreads) if each >= 1]
    low = [at for at, each in enumerate(spreads) if each < 0.9]
    expected = []
    for at in wide:
        before = max((each for each in wide if each < at), default=None)
        new = before is None or any(before < each < at for each in low)
        if new and at:  # a spread that is there at the first look has not begun
            expected.append(at)
    assert [look for look, _ in found] == expected
    assert found[0][1] == f"BTC/USDT: the spread is {spreads[expected[0]]:.4f} %"


async def test_a_crossing_fires_after_fees_and_once_while_it_flickers() -> None:
    def pair(profit: float) -> dict[str, Any]:
        return {"buy": "gate", "sell": "okx", "percent": profit / 2}

    looks: list[tuple[int, Any]] = [
        (0, pair(3)),  # there already
        (6_000, None),
        (8_000, pair(3)),  # it was away for 2 s only
        (9_000, None),
        (14_500, None),
        (
            15_000,
            pair(0.2),
        ),  # less than the fees and the threshold ask for: not a crossing of this rule
        (15_200, pair(0.3)),
        (15_400, "unknown"),
        (16_000, None),
        (17_000, pair(0.5)),
        (18_000, None),
        (23_000, pair(-1)),
        (23_200, pair(9)),
    ]
    facts = [{"at": at, "best": best} for at, best in looks]
    found = await fired({"kind": "crossing", "value": "0.1"}, facts)
    text = "BTC/USDT is crossed: buy on gate, sell on okx, {} % after fees"
    assert found == [[6, text.format("0.1500")], [12, text.format("4.5000")]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("value", ["", "okx"])
async def test_a_lost_exchange_fires_again_only_after_it_was_back_for_a_while(
    seed: int, value: str
) -> None:
    rng = random.Random(seed)
    names = ["okx", "kraken", "gate"]
    away = {name: rng.random() < 0.5 for name in names}
    facts: list[dict[str, Any]] = []
    for look in range(400):
        for name in names:
            if rng.random() < 0.08:
                away[name] = not away[name]
        left = [name for name in names if away[name]]
        facts.append({"at": look * 700, "left": left, "live": rng.random() < 0.97})
    found = await fired({"kind": "lost", "value": value}, facts)
    expected: list[list[Any]] = []
    told: dict[str, bool | None] = dict.fromkeys(names)  # whether the last absence was told
    backs: dict[str, int | None] = dict.fromkeys(names)
    for look, each in enumerate(facts):
        if not each["live"]:
            backs = dict.fromkeys(names)
            continue
        lost = []
        for name in names:
            if name in each["left"]:
                if told[name] is False:
                    lost.append(name)
                told[name], backs[name] = True, None
            else:
                if backs[name] is None:
                    backs[name] = each["at"]
                if told[name] is None or each["at"] - backs[name] >= QUIET_MS:
                    told[name] = False
        lost = [name for name in lost if not value or name == value]
        if lost:
            expected.append([look, set(lost)])
    assert [
        [look, set(text.removeprefix("BTC/USDT lost ").split(", "))] for look, text in found
    ] == (expected)
    assert len(expected) > 3


async def test_nothing_fires_on_data_that_is_not_live() -> None:
    facts = [
        {"at": 0, "mid": 90, "spread": 0.1, "best": None, "left": []},
        *(
            {"at": at * 1_000, "live": False, "mid": 110, "spread": 9, "left": ["okx"],
             "best": {"left": 5, "buy": {"exchange": "a", "price": 1},
                      "sell": {"exchange": "b", "price": 6}}}
            for at in range(1, 60)
        ),
        {"at": 60_000, "mid": 90, "spread": 0.1, "best": None, "left": []},
    ]  # fmt: skip
    for kind, value in (("price", "100"), ("spread", "1"), ("crossing", "0"), ("lost", "")):
        assert await fired({"kind": kind, "value": value}, facts) == [], kind
    # What happened meanwhile is told when the data is live again.
    facts[-1] = {"at": 60_000, "mid": 110, "spread": 9, "best": None, "left": ["okx"]}
    assert await fired({"kind": "price", "value": "100"}, facts) == [
        [60, "BTC/USDT rose to 110 (alert at 100)"]
    ]
    assert await fired({"kind": "lost", "value": ""}, facts) == [[60, "BTC/USDT lost okx"]]


async def test_a_rule_is_what_can_be_watched() -> None:
    typed = [
        {"kind": "price", "symbol": "btc/usdt", "value": "97,300.5"},
        {"kind": "price", "symbol": "BTC/USDT", "value": "-5"},
        {"kind": "price", "symbol": "BTC", "value": "5"},
        {"kind": "spread", "symbol": "BTC/USDT", "value": "0.05"},
        {"kind": "spread", "symbol": "BTC/USDT", "value": "0"},
        {"kind": "crossing", "symbol": "BTC/USDT", "value": ""},
        {"kind": "crossing", "symbol": "BTC/USDT", "value": "-0.1"},
        {"kind": "lost", "symbol": "BTC/USDT", "value": "Kraken"},
        {"kind": "lost", "symbol": "BTC/USDT", "value": ""},
        {"kind": "lost", "symbol": "BTC/USDT", "value": "<b>"},
        {"kind": "constructor", "symbol": "BTC/USDT", "value": "1"},
    ]
    script = "return given.map(ruleOf).map((each) => each && (worded(each) ?? 'no words'));"
    assert await run("rules.js", "ruleOf, worded", script, typed) == [
        "BTC/USDT crosses 97,300.5",
        None,
        None,
        "BTC/USDT has a spread of 0.05 % or more",
        None,
        "BTC/USDT is crossed by more than 0 % after fees",
        None,
        "BTC/USDT loses kraken",
        "BTC/USDT loses an exchange",
        None,
        None,
    ]

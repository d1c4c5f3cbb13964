"""The page of the exchanges' quality, narrow and wide."""

import time

import pytest

from onebook.exchanges import NAMES
from web.browser import CHROMIUM, Page, resize
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

HOUR_S = 3_600
COUNTS = ("gaps", "checksum_misses", "silences", "refusals", "crossings", "crossed_s")
KEPT = f"sessionStorage.setItem('onebook.key', '{GOOD_KEY}')"
ROWS = "[...document.querySelectorAll('#rows tr')]"
SAID = "document.querySelector('#said').textContent"


def row(exchange: str, uptime: float | None, **more: object) -> dict:
    ages = {"age_p50_ms": 41.2, "age_p99_ms": 1_250.4}
    return {"exchange": exchange, "uptime": uptime, **dict.fromkeys(COUNTS, 0), **ages,
            "outages": []} | more  # fmt: skip


def scripted(names: tuple[str, ...]) -> dict[str, list[dict]]:
    """A day in which the first exchange failed, and the last one was not observed."""
    start = int(time.time() // HOUR_S - 24) * HOUR_S
    worst = row(names[0], 0.9871234, gaps=12, refusals=3, crossings=4, crossed_s=17, outages=[
        {"reason": "dead_stream", "count": 2, "seconds": 900.0},
        {"reason": "gap", "count": 12, "seconds": 61.5},
        {"reason": "rate_limited", "count": 3, "seconds": 7_200.0},
        {"reason": "subscribing", "count": 3, "seconds": 0.5},
    ])  # fmt: skip
    rest = [row(name, 1.0) for name in names[1:-1]]
    last = row(names[-1], None, age_p50_ms=None, age_p99_ms=None)
    hours = []
    for at in range(24):
        hour = time.strftime("%Y-%m-%dT%H:00:00.000Z", time.gmtime(start + at * HOUR_S))
        for name in names[:-1]:
            uptime = 0.25 if (name, at) == (names[0], 5) else 1.0
            hours.append({"exchange": name, "hour": hour, "uptime": uptime})
    return {"exchange": [*rest, last, worst], "hour": hours}


async def opened(page: Page, address: str, width: int) -> None:
    await page.open("about:blank")
    await resize(page, width, mobile=width < 900)
    await page.go(f"{address}/exchanges")
    await page.run(KEPT)
    await page.go(f"{address}/exchanges?again")


@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_every_exchange_is_shown_the_worst_first(
    page: Page, address: str, market: Market, width: int
) -> None:
    market.quality = scripted(tuple(NAMES))
    await opened(page, address, width)
    await page.until(f"{ROWS}.length === {len(NAMES)}")
    first, last = await page.run(f"[0, -1].map((at) => {ROWS}.at(at).innerText)")
    for text in (
        NAMES[0],
        "98.712 %",
        "12",
        "41 / 1,250",
        "4 in 17 s",
        "dead stream 15.0\u00a0min, gap",
    ):
        assert text in first
    assert last.startswith(NAMES[-1])
    assert "unknown" in last
    bars = f"{ROWS}[0].querySelectorAll('.strip rect').length"
    assert await page.run(bars) == 24 + 1
    label = await page.run(f"{ROWS}[0].querySelector('.strip').ariaLabel")
    assert label.startswith("Uptime of 24 hours; the worst was 20")
    assert label.endswith("UTC with 25.000 %")
    # The page never scrolls sideways; the table of a middle width does, in its own box.
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
    assert not page.complaints
    (*_, asked) = market.quality_asked
    assert set(asked) == {"by", "from", "symbols"}


async def test_the_key_is_entered_and_a_refusal_is_said(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/exchanges")
    await page.until("!document.querySelector('#key-form').hidden")
    await page.run(f"document.querySelector('#key').value = '{GOOD_KEY}'")
    await page.run("document.querySelector('#key-form').requestSubmit()")
    await page.until(f"{SAID} === 'This node has no history.'")
    market.quality = {"exchange": [], "hour": []}
    await page.run("document.querySelector('#choice').requestSubmit()")
    await page.until(f"{SAID} === 'No closed hour was recorded in this time.'")
    market.quality = scripted(("kraken", "okx"))
    await page.run("document.querySelector('#symbol').value = 'btc/usdt'")
    await page.run("document.querySelector('#hours').value = '720'")
    await page.run("document.querySelector('#choice').requestSubmit()")
    await page.until(f"{ROWS}.length === 2")
    assert market.quality_asked[-1]["symbols"] == "BTC/USDT"
    assert market.quality_asked[-1]["by"] == "exchange"
    assert await page.run("sessionStorage.getItem('onebook.key')") == GOOD_KEY


@pytest.mark.parametrize("width", [390, 1280])
async def test_the_link_to_it_leaves_the_header_one_row(
    page: Page, address: str, width: int
) -> None:
    await page.open("about:blank")
    await resize(page, width, mobile=width < 900)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.depth canvas') !== null")
    symbol, settings = [
        await page.run(f"document.querySelector('.top {each}').getBoundingClientRect().top")
        for each in (".symbol", "#settings")
    ]
    assert abs(symbol - settings) < 8
    links = "[...document.querySelectorAll('a[href=\"/exchanges\"]')]"
    shown = await page.run(f"{links}.filter((one) => one.offsetWidth).length")
    assert shown == (2 if width > 900 else 1)

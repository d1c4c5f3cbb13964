"""Only a new book is shown as live: on a slow line, after sleep, with clock steps."""

import time
from datetime import timedelta

import pytest

from web.browser import CHROMIUM, Page
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

LIVE = "document.querySelector('.panel').dataset.live === 'yes'"
OLD = "document.querySelector('.old').checkVisibility()"
SAID = "document.querySelector('.old').textContent"
AGE = "document.querySelector('.age').textContent"
CLOCK = "(() => {{ const before = Date.now; Date.now = () => before() + {} * 1000; }})()"
HOUR_S = 3600
WATCH_LIVE = f"""(() => {{ window.lived = 0;
  new MutationObserver(() => (lived += {LIVE})).observe(document.querySelector('.panel'),
    {{ attributes: true }}); }})()"""
# What the panel showed, at each change. How late an update is includes its time on a busy machine.
BID = "document.querySelector('.best-bid').textContent"
WATCH_SHOWN = f"""(() => {{ window.shown = [];
  new MutationObserver(() => shown.push({{ old: {OLD}, said: {SAID}, age: {AGE},
    bid: {BID} }})).observe(document.querySelector('.panel'),
    {{ subtree: true, childList: true, characterData: true, attributes: true }}); }})()"""
LATE = r"""shown.filter(({ old, said, age }) => old
  && /^Updates arrive (2[4-9]|3\d) s late$/.test(said) && /^(2[4-9]|3\d) s ago$/.test(age))"""
WATCH = f"""(() => {{ window.said = [];
  new MutationObserver(() => said.push({SAID})).observe(document.querySelector('.panel'),
    {{ subtree: true, childList: true, characterData: true }}); }})()"""


async def show(page: Page, address: str) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LIVE)
    await page.until("document.querySelector('#latency').textContent !== '—'")
    await page.until("Number(document.querySelector('.rate').textContent) > 1")


async def test_updates_that_come_late_are_not_live_however_often_they_come(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address)
    await count_drawings(page, market)
    await page.run(WATCH_SHOWN)
    market.late = timedelta(seconds=24.5)  # pings too, so the page closes the connection after 10 s
    while await page.run(f"new Set({LATE}.map(({{ bid }}) => bid)).size") < 2:
        await send(page, market)
    ends = f"[0, -1].map((at) => shown.indexOf({LATE}.at(at)))"
    between = f"shown.slice(...{ends})"
    assert await page.run(f"{between}.every(({{ old }}) => old)")
    await page.run(WATCH_LIVE)
    for socket in list(market.sockets):
        await market.close(socket, 1001, reconnect_in_ms=0)
    await page.until("document.querySelector('#link').dataset.state !== 'live'")
    await page.until("document.querySelector('#link').dataset.state === 'live'")
    assert await page.run("lived") == 0, "another connection makes no book new"
    market.late = timedelta()
    market.frozen = False
    await page.until(f"{LIVE} && !{OLD} && {AGE} === 'now'")
    assert page.complaints == []


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_that_is_set_makes_no_book_old_for_long(
    page: Page, address: str, market: Market, hours: int
) -> None:
    await show(page, address)
    await page.run(WATCH)
    market.clock_ahead = timedelta(hours=hours)
    began_s, heard = time.monotonic(), len(market.heard)
    if hours < 0:
        market.deaf_to_pings = True  # whose answer ends it, perhaps before it is shown
        await page.until("said.some((each) => /^Updates arrive (59|60) min late$/.test(each))")
        market.deaf_to_pings = False
    await page.until(f"{LIVE} && !{OLD}")
    await page.run(CLOCK.format(HOUR_S * hours))
    await page.until(f"{LIVE} && !{OLD} && {AGE} === 'now'")
    pings = [each for each in market.heard[heard:] if each["type"] == "ping"]
    # Five updates a second; a second of silence on a busy machine is checked by a ping too.
    assert len(pings) <= 2 + (time.monotonic() - began_s)


async def test_after_a_sleep_nothing_is_said_to_be_a_few_seconds_old(
    page: Page, address: str, market: Market
) -> None:
    """A sleep is an hour of the clock in which `performance.now()` stands still, as on Linux."""
    market.crossed = True
    await show(page, address)
    await page.until("document.querySelectorAll('.pairs li').length")
    await page.until("document.querySelector('.history-text').textContent.startsWith('now: mid')")
    market.frozen = True
    await page.run(CLOCK.format(HOUR_S))
    await page.until(f"{OLD} && {SAID} === 'No update for 60 min' && {AGE} === '60 min ago'")
    await page.until("document.querySelector('.crossing-text').textContent === '—'")
    await page.until("document.querySelector('.history-text').textContent.startsWith('60 min ago')")
    await page.until("document.querySelector('.members tbody .number').textContent.trim() === '–'")
    market.frozen = False
    await page.until(f"{LIVE} && !{OLD} && {AGE} === 'now'")

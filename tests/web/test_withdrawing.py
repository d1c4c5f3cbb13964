"""Data that the page withdraws when updates end, and content beyond a book's horizon."""

from collections.abc import AsyncIterator

import pytest

from web.browser import CHROMIUM, Page, happened
from web.scripted import GOOD_KEY, Market, make_app, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

LIVE = "document.querySelector('.panel').dataset.live === 'yes'"
LINK = "document.getElementById('link-text').textContent"
BUSY = "Number(document.querySelector('.rate').textContent) > 1"
FIGURES = ".best-bid, .best-ask, .mid, .imbalance, .live-count, .crossing-text, .fill td"
TEXTS = f"""[...document.querySelectorAll('{FIGURES}')]
  .map((each) => each.textContent).filter((text) => text && text !== '—')"""
WITHDRAWN = f"""({TEXTS}).length === 0 && document.querySelector('.pairs').childElementCount === 0
  && document.querySelector('.crossed').hidden
  && document.querySelector('.spread').textContent === 'not live'
  && [...document.querySelectorAll('.members [data-state]')].every(
    (each) => each.dataset.state === 'unknown')"""
SHOWN = f"""{LIVE} && ({TEXTS}).length > 10 && !document.querySelector('.crossed').hidden
  && document.querySelector('.live-count').textContent === '6 of 7'
  && document.querySelector('.members [data-exchange=okx]').dataset.state === 'live'"""
WATCH = """(() => { window.said = [];
  new MutationObserver(() => said.push(document.querySelector('.old').textContent)).observe(
    document.querySelector('.panel'), { subtree: true, childList: true, characterData: true });
  })()"""


async def show(page: Page, address: str, market: Market) -> None:
    market.crossed = True
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(SHOWN)
    await page.until(BUSY)


RULE = (
    "After 1 second without an update the ladder is marked old. After 2 seconds without an update"
    " from a stream that had at least one a second, or without a connection, mid, cost, crossings"
    " and “live” are withdrawn."
)


async def test_the_foot_of_the_page_and_the_documentation_say_the_same(
    page: Page, address: str
) -> None:
    await page.open(address + "/")
    assert RULE in await page.run("document.querySelector('footer').innerText")
    await page.go(f"{address}/docs/explanation/honesty")
    said = await page.run("document.querySelector('main').innerText.replaceAll(/\\s+/g, ' ')")
    assert RULE in said


async def test_a_book_without_updates_is_old_and_then_withdrawn(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address, market)
    await page.run(WATCH)
    market.frozen = True
    await page.until(WITHDRAWN)
    said = await page.run("said")
    assert "No update for 1 s" in said
    assert not {"No update for 3 s", "No update for 4 s"} & set(said), "withdrawn after 2 s"
    assert await page.run(LINK) == "Connected", "its pings are answered"
    assert await page.run("document.querySelector('.bids .price').textContent") != "", "greyed out"
    market.frozen = False
    await page.until(SHOWN)
    assert page.complaints == []


async def test_a_changed_fee_brings_no_withdrawn_figure_back(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address, market)
    market.frozen = True
    await page.until(WITHDRAWN)
    await page.run(
        "(() => { const box = document.getElementById('fee-others'); box.value = '0.5';"
        " box.dispatchEvent(new Event('input', { bubbles: true }));"
        " box.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )
    await page.run(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    assert await page.run(WITHDRAWN)


async def test_a_silent_connection_is_not_said_to_be_connected(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address, market)
    market.deaf = True
    await page.until(f"{LINK}.startsWith('No answer for ') && {WITHDRAWN}")
    market.deaf = False
    await page.until(f"{LINK} === 'Connected' && {SHOWN}")
    assert page.complaints == []


@pytest.fixture
async def calm(market: Market) -> AsyncIterator[str]:
    """The address of a service whose books change every 2.5 s."""
    market.interval_s = 2.5
    async with serving(make_app(market)) as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_calm_market_on_a_connection_that_answers_stays(
    page: Page, calm: str, market: Market
) -> None:
    market.crossed = True
    await page.open(f"{calm}/#key={GOOD_KEY}")
    await page.until(SHOWN)
    await page.run(
        f"(() => {{ window.lost = 0; new MutationObserver(() => (lost += {WITHDRAWN})).observe("
        "document.querySelector('.spread'),"
        " { subtree: true, childList: true, characterData: true }); })()"
    )
    before = market.updates
    await happened(lambda: market.updates >= before + 3)
    await page.until(SHOWN)
    assert await page.run("lost") == 0
    assert sum(message["type"] == "ping" for message in market.heard) >= 2


async def test_amounts_beyond_the_horizon_of_a_book_are_lower_bounds(
    page: Page, address: str, market: Market
) -> None:
    middle = float(market.middle)
    market.horizons = {
        "okx": {"bids": middle - 40, "asks": None},
        "kraken": {"bids": middle - 90, "asks": middle + 1_000_000},
    }
    market.tick *= 40
    market.random.randint = lambda low, _: max(0, low)  # type: ignore[method-assign]  # it stays
    await page.open(f"{address}/#key={GOOD_KEY}&levels=50&step=10")
    rows = (
        "[...document.querySelectorAll('.bids tr')]"
        ".filter((row) => row.cells[0].textContent.trim())"
    )
    await page.until(f"({rows}).length > 3 && {LIVE}")
    bounded = await page.run(
        f"({rows}).map((row) => [Number(row.cells[0].textContent.replaceAll(',', '')),"
        " row.dataset.bounded])"
    )
    assert {state for _, state in bounded} == {"yes", "no"}
    assert all((state == "yes") == (price < middle - 40) for price, state in bounded)
    asks = "[...document.querySelectorAll('.asks tr')]"
    assert await page.run(f"{asks}.every((row) => row.dataset.bounded === 'no')")
    await page.run(f"({rows}).at(-1).click()")
    said = await page.run("document.querySelector('.readout').textContent")
    assert "at least" in said
    assert "okx" in said
    assert page.complaints == []

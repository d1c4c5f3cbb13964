"""Alerts on the page: added, fired once by live data, remembered and removed."""

import json

import pytest

from web.browser import CHROMIUM, Page
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# Every tone that begins, and every notification.
LISTEN = """(() => {
  window.tones = 0;
  window.notified = [];
  const start = OscillatorNode.prototype.start;
  OscillatorNode.prototype.start = function (when) { tones += 1; return start.call(this, when); };
  window.asked = 0;
  window.Notification = class {
    static permission = "default";
    static async requestPermission() { asked += 1; return (this.permission = "granted"); }
    constructor(title, { body }) { notified.push(body); }
    close() {}
  };
})()"""
ITEMS = "[...document.querySelectorAll('.alert-list li')].map((one) => one.firstChild.data)"
FIRED = """[...document.querySelectorAll('.alert-fired li')]
  .map((one) => one.textContent.replace(/^.*?(?=BTC)/, ''))"""


async def opened(page: Page, address: str, market: Market) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.run(LISTEN)
    await page.until("document.querySelector('.bids td')?.textContent.trim()")
    await page.run("document.querySelector('#alerts').open = true")
    await count_drawings(page, market)
    await send(page, market)


async def add(page: Page, kind: str, value: str, symbol: str = "") -> str:
    """Fill in and submit the form; return its message."""
    fields = json.dumps({"kind": kind, "symbol": symbol, "value": value})
    await page.run(f"""(() => {{
      const form = document.querySelector(".alert-form");
      for (const [name, value] of Object.entries({fields})) form.elements[name].value = value;
      form.elements.kind.dispatchEvent(new Event("change"));
      form.requestSubmit();
    }})()""")
    said: str = await page.run("document.querySelector('#alerts [role=status]').textContent")
    return said


async def click(page: Page) -> None:
    """A user's click, after which a page may play sound."""
    for kind in ("mousePressed", "mouseReleased"):
        await page.call(
            "Input.dispatchMouseEvent", type=kind, x=2, y=2, button="left", clickCount=1
        )


async def test_a_lost_exchange_is_told_once_and_with_a_sound(
    page: Page, address: str, market: Market
) -> None:
    await opened(page, address, market)
    assert await add(page, "lost", "") == "Added: BTC/USDT loses an exchange."
    await click(page)
    await send(page, market)
    assert await page.run(FIRED) == []
    market.stale["okx"] = "gap"
    for _ in range(3):
        await send(page, market)
    assert await page.run(FIRED) == ["BTC/USDT lost okx"]
    assert await page.run("document.querySelector('#notice').textContent") == "BTC/USDT lost okx"
    assert await page.run("tones") == 2
    assert await page.run("[notified.length, asked]") == [0, 0]
    assert page.complaints == []


async def test_a_notification_is_asked_for_by_a_click_and_sent_then(
    page: Page, address: str, market: Market
) -> None:
    await opened(page, address, market)
    await add(page, "price", str(float(market.middle) + 1))
    await page.run("document.querySelector('#alerts [name=sound]').click()")
    await page.run("document.querySelector('#alerts [name=notify]').click()")
    await page.until("document.querySelector('#alerts [name=notify]').checked")
    assert await page.run("asked") == 1
    await send(page, market)
    market.middle += 100
    await send(page, market)
    (text,) = await page.run("notified")
    assert text.startswith("BTC/USDT rose to ")
    assert await page.run("tones") == 0
    kept = json.loads(await page.run("localStorage.getItem('onebook.alerts')"))
    assert (kept["sound"], kept["notify"]) == (False, True)


async def test_alerts_are_remembered_and_can_be_removed(
    page: Page, address: str, market: Market
) -> None:
    await opened(page, address, market)
    await add(page, "price", "100,000")
    await add(page, "spread", "0.05", "eth/usdt")
    assert "already" in await add(page, "price", "100000")
    assert "valid price" in await add(page, "price", "-1")
    assert "valid per cent" in await add(page, "crossing", "much")
    both = ["BTC/USDT crosses 100,000", "ETH/USDT has a spread of 0.05 % or more"]
    assert await page.run(ITEMS) == both
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{ITEMS}.length")
    assert await page.run(ITEMS) == both
    await page.until("!document.querySelector('#settings').hidden")
    await page.run("document.querySelector('#settings').click()")
    await page.run("document.querySelector('#alerts').open = true")
    await page.run("document.querySelector('.alert-list button').focus()")
    await page.run("document.querySelector('.alert-list button').click()")
    assert await page.run(ITEMS) == both[1:]
    assert await page.run("document.activeElement.closest('#alerts') !== null")
    await page.run("localStorage.setItem('onebook.alerts', '{\"rules\": [null, {}, 5, \"x\"]}')")
    await page.go("about:blank")
    await page.go(f"{address}/")
    await page.until("document.querySelector('.alert-form')")
    assert await page.run(ITEMS) == []
    assert page.complaints == []


async def test_a_hidden_tab_still_watches(page: Page, address: str, market: Market) -> None:
    """No frame is drawn there, but alerts still check each update."""
    await opened(page, address, market)
    await add(page, "lost", "")
    await page.run("""Object.defineProperty(document, 'hidden', { get: () => true });
      window.requestAnimationFrame = () => 0""")
    (asked, *_) = [each for each in market.heard if each["type"] == "subscribe_aggregated"]
    await market.publish(market.update(asked["symbol"], asked))
    market.stale["kraken"] = "gap"
    await market.publish(market.update(asked["symbol"], asked))
    await page.until(f"{FIRED}.length")
    assert await page.run(FIRED) == ["BTC/USDT lost kraken"]


async def test_what_was_withdrawn_fires_nothing(page: Page, address: str, market: Market) -> None:
    await opened(page, address, market)
    await add(page, "lost", "")
    await send(page, market)
    (socket,) = market.sockets
    await market.close(socket, 4200, reconnect_in_ms=60_000)
    await page.until("document.querySelector('#link').dataset.state === 'waiting'")
    await page.run("dispatchEvent(new Event('themechange'))")
    assert await page.run(FIRED) == []

"""Updates sent one at a time, each after the last was drawn, to count the browser's work."""

from web.browser import Page
from web.scripted import Market

COUNT = """(() => {
  window.drawings = 0;
  new MutationObserver(() => (drawings += 1)).observe(document.querySelector(".book"),
    { subtree: true, childList: true, characterData: true });
})()"""
# The book is drawn in one frame, the other cards and the charts in the two after it.
FRAMES = """new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
  requestAnimationFrame(() => setTimeout(done)))))"""


def subscribed(market: Market) -> list[dict]:
    """The requested subscriptions."""
    return [each for each in market.heard if each["type"] == "subscribe_aggregated"]


async def count_drawings(page: Page, market: Market) -> None:
    """Stop automatic updates, and count drawings from now on."""
    market.frozen = True
    await page.run(COUNT)


async def send(page: Page, market: Market) -> None:
    """Publish one update of the first subscribed symbol; return after it is drawn."""
    asked = subscribed(market)[0]
    before = await page.run("drawings")
    await market.publish(market.update(asked["symbol"], asked))
    await page.until(f"drawings > {before}")
    await page.run(FRAMES)

"""Updates that are sent one by one, each when the one before is drawn, to count their work."""

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
    """The subscriptions that were asked for."""
    return [each for each in market.heard if each["type"] == "subscribe_aggregated"]


async def count_drawings(page: Page, market: Market) -> None:
    """Stop the updates that come by themselves, and count the drawings from now on."""
    market.frozen = True
    await page.run(COUNT)


async def send(page: Page, market: Market) -> None:
    """Publish one update of the first symbol that was subscribed; return after it is drawn."""
    asked = subscribed(market)[0]
    before = await page.run("drawings")
    await market.publish(market.update(asked["symbol"], asked))
    await page.until(f"drawings > {before}")
    await page.run(FRAMES)

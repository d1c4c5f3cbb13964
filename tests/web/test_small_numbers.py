"""Small prices and large amounts: every digit is visible, none overlaps another."""

from decimal import Decimal

import pytest

from web.browser import CHROMIUM, Page, resize
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
# Cells whose text begins before or ends after their own box, where another number is.
OVERFLOWING = """[...document.querySelectorAll(
  ".asks td:not(.total), .bids td:not(.total), .fill td, .figures dd")]
  .filter((cell) => cell.checkVisibility() && cell.firstChild).filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell.firstChild);
    const [text, box] = [range, cell].map((each) => each.getBoundingClientRect());
    return text.width && (text.left < box.left - 1 || text.right > box.right + 1)
      && !cell.classList.contains("who");
  }).map((cell) => cell.className + " " + cell.textContent)"""


async def opened(page: Page, address: str) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.bids .price')?.textContent.trim()")


async def test_the_history_writes_a_spread_that_has_more_decimals_than_the_mid(
    page: Page, address: str
) -> None:
    await opened(page, address)
    said = await page.run("""import("/web/page/history.js").then(({ History }) => {
      const [box, text] = [document.createElement("div"), document.createElement("p")];
      box.className = "history";
      document.body.append(box);
      const history = new History(box, text);
      history.add({ mid_price: 100, spread: 0.02 }, performance.now());
      history.showFigures(performance.now(), true);
      return text.textContent;
    })""")
    assert said == "now: mid 100.00, spread 0.02 (dotted)"


async def test_the_crosshair_of_the_depth_chart_names_a_price_of_ten_decimals(
    page: Page, address: str
) -> None:
    await opened(page, address)
    said = await page.run(
        """import("/web/page/depth.js").then(async ({ Depth }) => {
      const root = document.createElement("section");
      root.innerHTML = ["range", "depth", "depth-text"].map((name) => `<p class="${name}"></p>`)
        .join("");
      document.body.append(root);
      const side = (...prices) => prices.map((price) => (
        { price, amount: "7", exchanges: ["okx"], amounts: ["7"] }));
      const view = { bids: side("0.0000000122", "0.0000000117"),
        asks: side("0.0000000124", "0.0000000129"), marketStats: {}, coverage: {} };
      const depth = new Depth(root, { range: "5", view: { subscribe: () => view },
        received: () => {}, awaited: () => false });
      depth.follow(0, 1.23e-8, { exchanges: "all" }, {});
      depth.accepted();
      depth.update(view);
      depth.show(1.23e-8, 0);
      const frame = () => new Promise(requestAnimationFrame);
      for (let at = 0; at < 600 && !root.querySelector(".u-over"); at += 1) await frame();
      await frame();
      const pressed = new KeyboardEvent("keydown", { key: "ArrowLeft" });
      root.querySelector(".depth").dispatchEvent(pressed);
      return root.querySelector(".depth-text").textContent;
    })"""
    )
    assert said.startswith("0.0000000122 (−0.813 %): 7 of bids")


async def test_an_amount_that_its_column_would_round_to_nothing_is_not_nothing(
    page: Page, address: str
) -> None:
    await opened(page, address)
    said = await page.run("""import("/web/page/format.js").then(({ rounded }) => [
      rounded(0, 2), rounded(0.004, 2), rounded(0.005, 2), rounded(0.4, 0), rounded(1234.5, 1),
      ].join(" "))""")
    assert said == "0.00 <0.01 0.01 <1 1,234.5"


async def test_tiny_prices_and_amounts_of_billions_stand_beside_each_other(
    page: Page, address: str, market: Market
) -> None:
    market.middle, market.tick, market.lot = Decimal("0.0000000923"), Decimal("1e-10"), 4e9
    await opened(page, address)
    await count_drawings(page, market)
    for width in (1366, 683, 390, 320):
        await resize(page, width)
        for _ in range(3):
            await send(page, market)
        assert await page.run(OVERFLOWING) == [], width

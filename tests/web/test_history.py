"""The history chart: a line where the mid is known, gaps elsewhere."""

import pytest

from web.browser import CHROMIUM, Page
from web.by_hand import FRAMES
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# Whether columns of the canvas, as parts of its width, have ink.
INKED = """(parts) => {
  const canvas = document.querySelector('.history canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const inked = (x) => Array.from({ length: canvas.height }).some(
    (_, y) => data[4 * (y * canvas.width + x) + 3] > 0);
  return parts.map((part) => inked(Math.round(part * (canvas.width - 1))));
}"""


@pytest.mark.parametrize(
    "silence",
    ["history.gap(10_500)", "history.add({ mid_price: null, spread: null }, 10_500)"],
    ids=["no connection", "one side is empty"],
)
async def test_no_line_is_drawn_over_a_time_without_a_mid(
    page: Page, address: str, silence: str
) -> None:
    await page.open(f"{address}/")
    said = await page.run(f"""import("/web/page/history.js").then(({{ History }}) => {{
      const box = document.createElement("div"), text = document.createElement("p");
      box.className = "history";
      box.style.width = "400px";
      document.body.replaceChildren(box, text);
      const history = new History(box, text);
      for (let s = 0; s <= 10; s++) history.add({{ mid_price: 100 + s, spread: 1 }}, s * 1_000);
      {silence};
      {silence};
      history.showFigures(20_000, false);
      const early = text.textContent;
      for (let s = 30; s <= 40; s++) history.add({{ mid_price: 100 + s, spread: 1 }}, s * 1_000);
      history.showFigures(40_000, true);
      return [early, text.textContent];
    }})""")
    assert said == ["10 s ago: mid 110, spread 1 (dotted)", "now: mid 140, spread 1 (dotted)"]
    parts = "[0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9]"
    expected = "[true,true,false,false,false,true,true]"
    await page.until(f"JSON.stringify(({INKED})({parts})) === '{expected}'")


async def test_what_else_draws_a_book_adds_no_point_to_the_history(
    page: Page, address: str, market: Market
) -> None:
    """A fee that is edited without a connection drew the last mid as that of now."""
    await page.open(f"{address}/#key={GOOD_KEY}")
    said = "document.querySelector('.history-text').textContent"
    age = f"Number(({said}.match(/^(\\d+) s ago/) ?? [0, 0])[1])"
    await page.until(f"/^now: mid/.test({said})")
    market.frozen = True
    (socket,) = market.sockets
    await market.close(socket, 4200, reconnect_in_ms=60_000)
    await page.until(f"{age} >= 2")
    await page.run(
        "document.getElementById('fee-others').dispatchEvent(new Event('input', { bubbles: true }))"
    )
    await page.run(FRAMES)
    await page.run("new Promise((done) => setTimeout(done, 600))")  # figures are written in 500 ms
    assert await page.run(age) >= 2


async def test_prices_after_fees_have_as_many_digits_as_in_the_ladder(
    page: Page, address: str, market: Market
) -> None:
    market.fees = {"okx": "0.001", "*": "0.0015"}
    await page.open(f"{address}/#key={GOOD_KEY}&prices=net")
    said = "document.querySelector('.history-text').textContent"
    assert (
        await page.until(f"/^now: mid/.test({said}) && {said}.match(/\\.(\\d+), /)[1].length") == 4
    )

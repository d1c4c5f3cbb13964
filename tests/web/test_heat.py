"""The heat map: its pixels and its text for known books."""

import re
from decimal import Decimal
from typing import Any

import pytest

from web.browser import CHROMIUM, Page, resize
from web.by_hand import count_drawings, send
from web.scripted import COLOURED, GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# A heat map alone, of a width and a height in CSS pixels, and functions that read it.
ALONE = """import("/web/page/heat.js").then(async ({ Heat }) => {
  const [box, text, spoken] = ["div", "p", "p"].map((name) => document.createElement(name));
  const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet" });
  await new Promise((done) => {
    Object.assign(sheet, { onload: done, href: "/web/page/heat.css" });
    document.head.append(sheet);
  });
  box.className = "heat-map";
  box.tabIndex = 0;
  document.body.replaceChildren(box, text, spoken);
  window.box = box, window.said = text, window.spoken = spoken;
  window.size = (width, height) => {
    Object.assign(box.style, { width: `${width}px`, height: `${height}px` });
    return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
  };
  await size(WIDTH, HEIGHT);
  window.heat = new Heat(box, text, spoken);
  heat.name("BTC/USDT");
  await size(WIDTH, HEIGHT);
  window.book = (bids, asks, ends = [null, null]) => {
    const levels = (side) => side.map(([price, amount]) => ({ price, amount }));
    const best = [bids, asks].map((side) => side[0]?.[0] ?? null);
    const [bid, ask] = best;
    const horizon = (price) => (price === null ? [] : [{ exchange: "okx", price }]);
    return {
      bids: levels(bids),
      asks: levels(asks),
      stats: { best_bid: bid, best_ask: ask, crossed: bid !== null && ask !== null && bid >= ask },
      horizons: { bids: horizon(ends[0]), asks: horizon(ends[1]) },
    };
  };
  window.pixel = (column, bin) => {
    const canvas = box.querySelector("canvas");
    const { x, y } = heat.place(column, bin);
    const scale = canvas.width / box.clientWidth;
    const read = canvas.getContext("2d").getImageData(x * scale, y * scale, 1, 1);
    return [...read.data].join(" ");
  };
  window.named = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    box.append(probe);
    const [red, green, blue] = getComputedStyle(probe).color.match(/[0-9.]+/g);
    probe.remove();
    return `${red} ${green} ${blue} 255`;
  };
})"""
# Two sides of levels at whole prices: 8 at 98 and 102, 0.08 at 97 and 103, nothing at 96 and 104.
SIDES = "[[99, 1], [98, 8], [97, 0.08], [95, 8]], [[101, 1], [102, 8], [103, 0.08], [105, 8]]"


async def alone(page: Page, address: str, *, width: int = 420, height: int = 240) -> None:
    await page.open(address + COLOURED)
    await page.run(ALONE.replace("WIDTH", str(width)).replace("HEIGHT", str(height)))


async def scheme(page: Page, name: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": name}
    await page.call("Emulation.setEmulatedMedia", features=[feature])


@pytest.mark.parametrize(
    "ratio", [pytest.param(1, marks=pytest.mark.soak), 1.5, pytest.param(2, marks=pytest.mark.soak)]
)
async def test_a_cell_has_the_colour_of_its_side_and_amount(
    page: Page, address: str, ratio: float
) -> None:
    await page.open("about:blank")
    await page.call(
        "Emulation.setDeviceMetricsOverride",
        width=900,
        height=700,
        deviceScaleFactor=ratio,
        mobile=False,
    )
    await page.go(address + COLOURED)
    await page.run(ALONE.replace("WIDTH", "420").replace("HEIGHT", "240"))
    await page.run(f"for (let s = 0; s < 10; s++) heat.add(book({SIDES}), [], s * 1000)")
    assert await page.run("heat.liquidity.step") == 0.1
    read = """(() => {
      const at = (price) => pixel(5, heat.liquidity.bin(price));
      return [98, 102, 97, 103, 96, 104, 94.8, 105.2].map(at);
    })()"""
    for name in ("light", "dark", "light"):
        await scheme(page, name)
        await page.until("pixel(5, heat.liquidity.bin(98)) === named('--bid')")
        many, sell, few, few_sell, none, none_sell, beyond, above = await page.run(read)
        assert sell == await page.run("named('--ask')"), name
        assert few not in (many, none)
        assert few_sell not in (sell, none_sell, few)
        assert none == none_sell == "0 0 0 0"
        assert beyond == above != none
    # The reader's own colours.
    await page.run("document.documentElement.style.setProperty('--bid', 'rgb(1, 90, 30)')")
    await page.run("dispatchEvent(new Event('themechange'))")
    assert (await page.run(read))[0] == "1 90 30 255"


async def test_columns_stay_in_place_while_the_ring_goes_round(page: Page, address: str) -> None:
    await alone(page, address, width=760)
    # At 98 there is something in every third second only.
    await page.run("""(() => {
      for (let s = 0; s < 1_390; s++) {
        const many = s % 3 ? [] : [[98, 8]];
        heat.add(book([[99, 1], ...many, [95, 8]], [[101, 1], [105, 8]]), [], s * 1_000 + 400);
      }
    })()""")
    assert await page.run("heat.span") == 600
    read = """Array.from({ length: 600 }, (_, at) => 790 + at)
      .map((column) => pixel(column, heat.liquidity.bin(98)) !== "0 0 0 0")"""
    expected = [column % 3 == 0 for column in range(790, 1_390)]
    assert await page.run(read) == expected
    for width, height in ((900, 300), (760, 160)):
        await page.run(f"size({width}, {height})")
        assert await page.run(read) == expected
    assert await page.run("document.querySelectorAll('.heat-map canvas').length") == 1


async def test_the_best_prices_are_drawn_over_it_and_what_happened_below(
    page: Page, address: str
) -> None:
    await alone(page, address)
    await page.run("""(() => {
      for (let s = 0; s < 60; s++) {
        const up = s >= 30 ? 1 : 0;
        const ask = s >= 20 && s < 22 ? 98.5 : 101; // crossed
        const left = s >= 40 ? ["kraken"] : [];
        if (s >= 50 && s < 55) heat.gap(s * 1_000);
        else heat.add(book([[99 + up, 1], [95, 1]], [[ask + up, 1], [105, 1]]), left, s * 1_000);
      }
      heat.advance(59_900);
    })()""")
    line = """([column, price]) => {
      const { x } = heat.place(column, 0), y = heat.place(0, price / heat.liquidity.step - 0.5).y;
      const { data } = box.querySelector("canvas").getContext("2d").getImageData(x, y - 1, 1, 3);
      const ink = named("--ink").split(" ");
      return [0, 4, 8].some((at) => [...data.slice(at, at + 4)].every(
        (each, part) => Math.abs(each - ink[part]) < 100 && data[at + 3] > 100));
    }"""
    drawn = [[10, 99], [10, 101], [45, 100], [45, 102], [57, 100]]
    empty = [[10, 100], [45, 99], [45, 101], [52, 100], [52, 102]]
    assert await page.run(f"{drawn}.map({line})") == [True] * len(drawn)
    assert await page.run(f"{empty}.map({line})") == [False] * len(empty)
    # The columns that have a mark of a colour; nothing else has it.
    lane = """(name) => {
      const context = box.querySelector("canvas").getContext("2d");
      const found = [];
      for (let column = 0; column < 60; column += 1) {
        const { x } = heat.place(column, 0);
        const { data } = context.getImageData(x, 0, 1, 240);
        for (let y = 0; y < 240; y += 1) {
          if ([...data.slice(4 * y, 4 * y + 4)].join(" ") !== named(name)) continue;
          found.push(column);
          break;
        }
      }
      return found;
    }"""
    assert await page.run(f"({lane})('--warn')") == [20, 21]
    marked = await page.run(f"({lane})('--bad')")
    assert set(range(50, 55)) <= set(marked) <= {*range(49, 56), 40}


async def test_pointing_and_keys_read_out_a_cell(page: Page, address: str) -> None:
    await alone(page, address)
    await page.run(
        f"for (let s = 0; s < 90; s++) heat.add(book({SIDES}, [98, null]), [], s * 1000)"
    )
    # 600 columns fit into the ring, two minutes are shown.
    assert await page.run("heat.span") == 120
    point = """((column, price) => {
      const { x, y } = heat.place(column, heat.liquidity.bin(price));
      const { left, top } = box.getBoundingClientRect();
      box.querySelector("canvas").dispatchEvent(new PointerEvent("pointermove",
        { clientX: left + x, clientY: top + y, bubbles: true, pointerType: "mouse" }));
      return said.textContent.replace(/^[^,]*(?=,)/, "when");
    })"""
    assert await page.run(f"{point}(40, 102)") == (
        "when, 102.0 to 102.1: 8.00000 BTC; bid 99, ask 101"
    )
    assert "97.0 to 97.1: at least 0.0800000 BTC" in await page.run(f"{point}(40, 97)")
    assert "not known" in await page.run(f"{point}(40, 94.8)")
    hour = await page.run("new Date(performance.timeOrigin + 40_000).toLocaleTimeString()")
    assert (await page.run("said.textContent")).startswith(f"{hour}, ")
    await page.run("box.focus()")
    for key, part in (
        ("End", "100.0 to 100.1"),
        ("ArrowUp", "100.1 to 100.2"),
        ("ArrowDown", "100.0 to 100.1"),
    ):
        if key == "End":
            await page.run("box.dispatchEvent(new PointerEvent('pointerleave', "
                           "{ pointerType: 'mouse' }))")  # fmt: skip
        await page.run(f"box.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }}))")
        assert part in await page.run("spoken.textContent")
    press = "box.dispatchEvent(new KeyboardEvent('keydown', { key: 'KEY' }))"
    before = await page.run("spoken.textContent")
    await page.run(press.replace("KEY", "ArrowLeft"))
    assert await page.run("spoken.textContent") != before
    await page.run(press.replace("KEY", "+"))
    assert await page.run("[heat.span, spoken.textContent]") == [60, "The last 1 min"]
    await page.run(press.replace("KEY", "Escape"))
    assert (await page.run("said.textContent")).startswith("Amounts within 0.1 USDT; brightest")


async def test_its_text_alternative_says_what_is_seen(page: Page, address: str) -> None:
    await alone(page, address)
    await page.run("""(() => {
      for (let s = 0; s < 60; s++) {
        heat.add(book([[99, 1], [98, 8], [95, 1]], [[s < 6 ? 98.5 : 101, 1], [103, 6], [105, 1]]),
          s >= 30 ? ["kraken"] : [], s * 1_000);
      }
      heat.advance(59_900);
    })()""")
    label = await page.run("box.getAttribute('aria-label')")
    assert "most bids at 98.0, 8.00000 BTC on average" in label
    assert "most asks at 103.0, 6.00000 BTC on average" in label
    assert "between 98.8 and 100.0" in label or "between 98.7 and 100.0" in label
    assert "crossed in 6 of 60 seconds; kraken lost" in label
    assert "Arrow keys" in label


async def test_memory_is_bounded_over_time(page: Page, address: str) -> None:
    """Three times ten minutes with an update a second; one exchange comes and goes."""
    await alone(page, address, width=700)
    ten_minutes = """(async (begin) => {
      for (let s = 0; s < 600; s++) {
        const shift = Math.sin((begin / 1_000 + s) / 50) * 30;
        const level = (sign, at) => [1000 + shift + sign * (1 + at / 4), 1 + (at * s) % 7];
        const side = (sign) => Array.from({ length: 100 }, (_, at) => level(sign, at));
        heat.add(book(side(-1), side(1)), s % 2 ? ["okx"] : [], begin + s * 1_000);
        heat.advance(begin + s * 1_000 + 950);
        if (s % 100 === 0) await new Promise((done) => setTimeout(done));
      }
    })"""
    used = []
    for part in range(3):
        await page.run(f"{ten_minutes}({part * 600_000})")
        await page.call("HeapProfiler.collectGarbage")
        used.append((await page.call("Runtime.getHeapUsage"))["usedSize"])
    assert used[2] - used[0] < 300_000, used
    assert await page.run("heat.liquidity.events.length") <= 200


async def test_the_past_is_filled_without_drawing_and_the_present_is_kept(
    page: Page, address: str
) -> None:
    """A past moment has hundreds of books before it; a quiet one was known until the next."""
    await alone(page, address)
    drawn, filled, known, missing, said, back = await page.run("""(() => {
      const live = book([[99, 1], [95, 1]], [[101, 1], [105, 1]]);
      for (let s = 0; s < 20; s++) heat.add(live, [], s * 1_000);
      let drawn = 0;
      const draw = CanvasRenderingContext2D.prototype.drawImage;
      CanvasRenderingContext2D.prototype.drawImage = function (...words) {
        drawn += 1;
        return draw.apply(this, words);
      };
      const start = Date.parse("2026-11-27T14:00:00Z");
      heat.turn(start);
      for (let s = 0; s < 590; s += 10) {
        const time = heat.since(start + s * 1_000);
        if (s === 300) heat.liquidity.gap(time);
        else heat.fill(book([[50, 8], [40, 1]], [[60, 1], [70, 1]]), [], time, 0);
      }
      heat.until(heat.since(start + 599_500));
      const filled = drawn;
      heat.drawFilled(1e9);
      const columns = Array.from({ length: 600 }, (_, at) => at);
      const known = columns.filter((at) => heat.liquidity.amount(at, heat.liquidity.bin(50)) === 8);
      const missing = columns.filter((at) => !heat.liquidity.has(at));
      const said = box.getAttribute("aria-label");
      heat.turn();
      const { first, last } = heat.liquidity;
      return [drawn, filled, known.length, missing, said, [first, last]];
    })()""")
    assert filled == 0
    assert 1 <= drawn <= 4
    assert known == 591
    assert missing == list(range(301, 310))  # the gap began in the second before
    end = await page.run(
        "new Date('2026-11-27T14:09:59Z').toLocaleTimeString([], { hour12: false })"
    )
    assert f"before {end}: the mid went from 55.0 to 55.0" in said
    assert back == [0, 19]


async def test_columns_of_a_past_hour_show_the_way_of_the_price_and_what_is_missing(
    page: Page, address: str
) -> None:
    """Each is a book, a gap or unread; a drag, and keys, go to another moment."""
    await alone(page, address, width=760)
    await page.run("""(() => {
      heat.chosen = (ms) => (window.went = ms - start);
      heat.zoomed = (further) => (window.further = further);
      heat.range = "0.5";
      window.start = Date.parse("2026-11-27T14:00:00Z");
      heat.turn(start, 30_000);
      window.columns = Array.from({ length: 120 }, (_, at) => {
        if (at >= 40 && at < 50) return at < 45 ? null : undefined;
        const mid = 1_000 + at;
        const stats = { best_bid: mid - 1, best_ask: mid + 1, mid_price: mid, crossed: false };
        const left = at === 70 ? ["okx"] : [];
        const side = (sign) => [[mid + sign, 8], [mid + 4 * sign, 1]];
        return { left, book: { ...book(side(-1), side(1)), stats } };
      });
      heat.replace(columns, start + 3_600_000 - 7_000, 0, "110 of 120 columns read.");
      heat.drawFilled(1e9);
    })()""")
    assert (await page.run("said.textContent")).startswith("110 of 120 columns read. Amounts ")
    # Both ends of the price are in sight, and amounts are where the price was.
    amounts = """[0, 39, 60, 119].map((at) => {
      const bin = heat.liquidity.bin(999 + at);
      return [heat.liquidity.amount(at, bin), pixel(at, bin) !== "0 0 0 0"];
    })"""
    assert await page.run(amounts) == [[8, True]] * 4
    texts = "[39, 42, 47, 70, 119].map((at) => heat.at(at, heat.liquidity.bin(999 + at)))"
    known, gap, unread, lost, newest = await page.run(texts)
    assert "bid 1,038, ask 1,040" in known
    assert gap.endswith("not recorded")
    assert unread.endswith("not read")
    assert lost.endswith("okx lost")
    assert newest.startswith(await page.run(
        "new Date(start + 3_600_000 - 7_000).toLocaleTimeString()"))  # fmt: skip
    label = await page.run("box.getAttribute('aria-label')")
    assert "The 1 h before" in label
    assert "between 1,000 and 1,119" in label
    assert "10 of 120 columns without a book" in label

    press = "box.dispatchEvent(new KeyboardEvent('keydown', { key: 'KEY' }))"
    for key, went in (("PageUp", 3_593_000 - 900_000), ("PageDown", 3_593_000 + 900_000)):
        await page.run(press.replace("KEY", key))
        assert await page.run("went") == went
    for key in ("End", "ArrowLeft", "Enter"):
        await page.run(press.replace("KEY", key))
    assert await page.run("went") == 119 * 30_000
    await page.run(press.replace("KEY", "+"))
    assert await page.run("further") == -1

    # A drag to the right shows what was before, and goes there when it ends.
    x, y, wide = await page.run("""(() => {
      const { left, top } = box.getBoundingClientRect();
      return [left, top, heat.place(1, 0).x - heat.place(0, 0).x];
    })()""")
    mouse = {"button": "left", "clickCount": 1}
    at = {"x": x + 100, "y": y + 50}
    away = {"x": x + 100 + 20 * wide, "y": y + 50}
    call = "Input.dispatchMouseEvent"
    await page.call(call, type="mousePressed", **mouse, **at)
    await page.call(call, type="mouseMoved", buttons=1, **mouse, **away)
    filled = "pixel(COLUMN, heat.liquidity.bin(1099)) !== '0 0 0 0'"
    assert await page.run(filled.replace("COLUMN", "119"))  # where column 99 is drawn now
    await page.call(call, type="mouseReleased", **mouse, **away)
    assert await page.run("went") == 3_593_000 - 20 * 30_000
    # In the present a drag moves the crosshair alone.
    await page.run("heat.turn(), (window.went = null)")
    for kind in ("mousePressed", "mouseReleased"):
        await page.call(call, type=kind, **mouse, **(at if kind == "mousePressed" else away))
    assert await page.run("went") is None


async def test_it_shows_the_books_that_the_page_received(
    page: Page, address: str, market: Market
) -> None:
    """The crosshair shows the sum of the levels there; the cell is coloured if above 0."""
    await page.open("about:blank")
    await resize(page, 1366, 900, mobile=False)
    market.views = False  # no wider book
    await page.go(f"{address}/#key={GOOD_KEY}&levels=25&range=all")
    await page.until("document.querySelector('.bids td')?.textContent.trim()")
    await page.run("document.querySelector('.heat').scrollIntoView()")
    await count_drawings(page, market)
    await send(page, market)
    await page.until("document.querySelector('.heat-map').getAttribute('aria-label').length > 100")
    await send(page, market)
    (whole,) = market.delivered.values()
    levels: list[Any] = [row for side in ("bids", "asks") for row in whole["data"][side]]
    cells = await page.run("""(() => {
      const box = document.querySelector(".heat-map"), canvas = box.querySelector("canvas");
      const text = document.querySelector(".heat-text");
      const scale = canvas.width / box.clientWidth;
      const { left, top } = box.getBoundingClientRect();
      const found = [];
      const { width } = canvas;
      // The newest column ends where the axis begins: the last one that the crosshair can be in.
      let x = box.clientWidth;
      const at = (x, y) => {
        canvas.dispatchEvent(new PointerEvent("pointermove",
          { clientX: left + x, clientY: top + y, bubbles: true, pointerType: "mouse" }));
        return text.textContent;
      };
      while (x > 0 && !/ to .*: /.test(at(x, 60))) x -= 0.5;
      for (let y = 1; y < box.clientHeight - 28; y += 2) {
        const said = at(x, y);
        box.dispatchEvent(new PointerEvent("pointerleave", { pointerType: "mouse" }));
        const { data } = canvas.getContext("2d").getImageData((x - 2) * scale, y * scale, 1, 1);
        found.push([said, data[3] > 0]);
      }
      return found;
    })()""")
    seen = 0
    for said, inked in cells:
        match = re.match(r".*?, ([\d,.]+) to ([\d,.]+): (.+?)(?: BTC)?; bid ([\d,.]+), ask", said)
        assert match is not None, said
        low, high = (Decimal(match[part].replace(",", "")) for part in (1, 2))
        if match[3] == "not known":
            continue
        expected = sum(row[1] for row in levels if low <= Decimal(str(row[0])) < high)
        assert float(match[3].replace(",", "")) == pytest.approx(expected, abs=1e-4), said
        assert not expected or inked, said
        seen += expected > 0
    assert seen > 10

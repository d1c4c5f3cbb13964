"""The documentation in Chromium: search, copy buttons, and no page wider than its screen."""

import json
import os
from base64 import b64decode
from itertools import product
from pathlib import Path

import pytest

from web.browser import CHROMIUM, resize
from web.scripted import Market, make_app, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

PAGES = (
    "/docs", "/docs/tutorial", "/docs/guides/keep-50-gb", "/docs/reference/settings",
    "/docs/reference/messages", "/docs/reference/exchanges", "/docs/guides/operate",
    "/docs/reference/python",
)  # fmt: skip
# A folder for pictures of these pages, to be looked at by people; none are taken without it.
PICTURES = os.environ.get("DOCS_PICTURES")


async def picture(page, name):
    if PICTURES:
        taken = await page.call("Page.captureScreenshot", format="png")
        (Path(PICTURES) / f"{name}.png").write_bytes(b64decode(taken["data"]))


async def test_search_copy_and_width(chromium):
    async with serving(make_app(Market())) as port, chromium.page() as page:
        base = f"http://127.0.0.1:{port}"
        await page.open(f"{base}/docs/tutorial")
        await searched(page)
        await copied(page, base)
        for path in PAGES:
            await page.go(base + path)
            await page.until("document.querySelector('.contents[data-read]') !== null")
            for width, scheme in product((1366, 390), ("light", "dark")):
                await resize(page, width, 900, mobile=width < 500)
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                await page.call("Emulation.setEmulatedMedia", features=media)
                wide = await page.run("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, width)
                await picture(page, f"{path.strip('/').replace('/', '-')}-{width}-{scheme}")
        assert page.complaints == []
        assert [u for u in page.urls if not u.startswith((base, "about:", "data:"))] == []


async def searched(page):
    """From a word to the page that contains it, by keyboard only."""
    await page.until("document.querySelector('.contents[data-read]') !== null")
    await page.run("document.querySelector('.search input').focus()")
    await page.call("Input.insertText", text="checksum deltas")
    await page.until("document.querySelectorAll('#found a').length > 0")
    hits = await page.run("[...document.querySelectorAll('#found a')].map((a) => a.pathname)")
    assert hits[0] == "/docs/guides/follow-deltas"
    await picture(page, "search")
    await page.run("document.querySelector('.search input').value = ''")
    await page.call("Input.insertText", text="zyzzyva")
    await page.until("document.querySelector('.count').textContent.startsWith('No page contains')")
    await page.run("document.querySelector('.search input').value = ''")
    await page.call("Input.insertText", text="data_limit_warning")
    await page.until("document.querySelectorAll('#found a').length > 0")
    for key in ("ArrowDown", "ArrowDown"):
        await page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
    second = "document.querySelectorAll('#found a')[1]"
    assert await page.run(f"document.activeElement === {second}")
    await page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
    assert await page.run("document.querySelector('.found').hidden")


async def copied(page, base):
    await page.call(
        "Browser.grantPermissions", origin=base,
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )  # fmt: skip
    await page.call("Page.bringToFront")
    buttons = "[...document.querySelectorAll('.copy')]"
    button = f"{buttons}.find((b) => b.parentNode.innerText.includes('AsyncOnebook'))"
    await page.run(f"{button}.click()")
    await page.until(f"{button}.textContent === 'Copied'")
    text = await page.run("navigator.clipboard.readText()")
    assert text.startswith("import asyncio, os\nfrom onebook.client import AsyncOnebook\n")
    compile(text, "copied", "exec")


FIRST = {
    "fill": "/docs/reference/python",
    "library": "/docs/guides/library",
    "prometheus": "/docs/reference/metrics",
    "systemd": "/docs/guides/operate",
    "transactions csv": "/docs/guides/year-of-transactions",
    "python client": "/docs/guides/python",
    "BookView": "/docs/reference/python",
    "typescript": "/docs/guides/",
    "arbitrage": "/docs/guides/python",
    "reconnect": "/docs/guides/python",
}


async def test_a_word_finds_first_the_page_that_is_about_it(page, address):
    await page.open(f"{address}/docs/tutorial")
    found = await page.run(f"""Promise.all([
      import("/web/page/docs.js"), fetch("/docs/search.json").then((answer) => answer.json()),
    ]).then(([{{ find }}, index]) =>
      {json.dumps([*FIRST])}.map((word) => [word, find(index, word)[0].url]))""")
    assert len(found) == len(FIRST)
    assert [word for word, url in found if not url.startswith(FIRST[word])] == [], found

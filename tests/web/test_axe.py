"""axe-core finds no violation in any state of the page, narrow and wide, light and dark.

https://github.com/dequelabs/axe-core, a tool for development that `make check` fetches; skipped
where it or Chromium is not installed.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onebook.exchanges import NAMES as ALL
from web.browser import CHROMIUM, Page, happened, resize
from web.scripted import GOOD_KEY, Market
from web.test_exchanges import KEPT, ROWS, SAID, scripted

AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or not AXE.exists(), reason="chromium or axe-core is not installed"
    ),
    pytest.mark.soak,
]

RUN = """axe.run({ resultTypes: ["violations"] }).then(({ passes, violations }) => [
  passes.length,
  violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0].html.slice(0, 120)}`)])"""
RULES_MIN = 15  # that found something to check
PANELS = "document.querySelectorAll('.bids tr:first-child td:first-child')"
LINK = "document.querySelector('#link').dataset.state"


async def states(page: Page, address: str, market: Market) -> AsyncIterator[str]:
    """Show the states of the page one by one."""
    await page.go(f"{address}/")
    yield "start"
    await page.run("document.querySelector('#key').value = 'wrong'")
    await page.run("document.querySelector('#key-form').requestSubmit()")
    await page.until(f"{LINK} === 'stopped'")
    yield "refused"
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{PANELS}[0]?.textContent.trim()")
    await page.until("document.querySelectorAll('.pairs li').length")
    await page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    yield "book"
    await page.run("document.querySelector('.symbol').focus()")
    await page.run("document.querySelector('.symbol').dispatchEvent(new Event('input'))")
    await page.until("document.querySelectorAll('.options li').length")
    yield "symbols"
    await page.run("document.activeElement.blur()")
    await page.run("document.querySelector('#settings').click()")
    for name in ("kraken", "okx"):
        await page.run(f"document.querySelector('.pick[value={name}]').click()")
    yield "settings"
    for symbol in ("BTC/USDT", "ETH/USDT"):
        await page.run(
            f"(() => {{ const form = document.querySelector('.alert-form');"
            f" form.elements.symbol.value = '{symbol}'; form.elements.kind.value = 'lost';"
            " form.requestSubmit(); })()"
        )
    sent = market.updates
    await happened(lambda: market.updates >= sent + 4)  # the alerts have seen okx live
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")
    market.stale["okx"] = "gap"
    await page.until("document.querySelectorAll('.alert-fired li').length")
    del market.stale["okx"]
    yield "alerts"
    await page.run("document.querySelector('#drawer-close').click()")
    await page.run("document.querySelector('.scroller').focus()")
    await page.run("document.querySelector('.asks tr:last-child td').click()")
    yield "a level"
    for side in ("green", "blue"):
        await page.run(
            f"(() => {{ const one = document.querySelector('#sides'); one.value = '{side}';"
            " one.dispatchEvent(new Event('change')); })()"
        )
        yield side
    await page.run("document.querySelector('#add').click()")
    await page.until(f"{PANELS}[1]?.textContent.trim()")
    yield "two symbols"
    market.frozen = True
    for socket in list(market.sockets):
        await market.close(socket, 4200, reconnect_in_ms=60_000)
    await page.until(f"{LINK} === 'waiting'")
    yield "disconnected"
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}&symbol=NO/PE")
    await page.until("!document.querySelector('#notice').hidden")
    yield "error"
    await page.go(f"{address}/docs/tutorial")
    yield "documentation"
    await page.run("sessionStorage.removeItem('onebook.key')")
    await page.go(f"{address}/exchanges")
    yield "quality, without a key"
    market.quality = scripted(tuple(ALL))
    await page.run(KEPT)
    await page.go(f"{address}/exchanges?again")
    await page.until(f"{ROWS}.length === {len(ALL)}")
    yield "quality"
    market.quality = None
    await page.run("document.querySelector('#choice').requestSubmit()")
    await page.until(f"{SAID} === 'This node has no history.'")
    yield "quality, refused"


@pytest.mark.parametrize("width", [390, 683, 1366])
async def test_axe_finds_no_violation(page: Page, address: str, market: Market, width: int) -> None:
    market.names = market.listed = list(ALL)
    market.crossed = True
    await page.open("about:blank")
    await resize(page, width)
    found = {}
    async for state in states(page, address, market):
        await page.run(AXE.read_text())
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            await page.call("Emulation.setEmulatedMedia", features=[feature])
            passed, violations = await page.run(RUN)
            assert passed >= RULES_MIN
            if violations:
                found[f"{state}, {scheme}"] = violations
    assert found == {}

"""Chromium over its DevTools protocol: enough to open and inspect a page.

https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from steady import PATIENCE_S
from web.no_netlink import refuse_netlink

POLL_S = 0.05
BLANK = "about:blank"
FLAGS = (
    "--headless",
    "--kiosk",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    # What is made in advance for the next page of a person costs more than the page of a test.
    "--disable-features=PreloadTopChromeWebUI,SpareRendererForSitePerProcess,BackForwardCache",
    "--remote-debugging-port=0",
)
# Before the scripts of a test's first document: what the test before has stored at this origin.
FORGET = "try { localStorage.clear(); sessionStorage.clear(); } catch { /* storage is off */ }"
# What a script is told if its page was replaced meanwhile: by a reload, or a link.
NAVIGATED = ("Inspected target navigated or closed", "Execution context was destroyed",
             "Cannot find default execution context")  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Navigated(Exception):
    """The page was replaced before a script ended."""


@dataclass
class Page:
    """One tab, with its requests and errors."""

    socket: ClientConnection
    session: str = ""
    targets: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    trace: asyncio.Future[str] = field(default_factory=asyncio.Future)  # where it can be read
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _sent: int = 0
    _has_loaded: bool = False

    async def listen(self) -> None:
        async for frame in self.socket:
            message = json.loads(frame)
            if "id" in message:
                answer = self._answers.pop(message["id"])
                if not answer.done():  # or nobody waits any longer
                    answer.set_result(message)
            else:
                self._heard(message["method"], message["params"])

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.urls.append(params["request"]["url"])
            case "Network.webSocketCreated":
                self.urls.append(params["url"])
            case "Tracing.tracingComplete":
                self.trace.set_result(params["stream"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])

    async def call(self, method: str, **params: Any) -> Any:
        self._sent += 1
        answer = self._answers[self._sent] = asyncio.get_running_loop().create_future()
        message = {"id": self._sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        await self.socket.send(json.dumps(message))
        async with asyncio.timeout(PATIENCE_S):
            found = await answer
        if any(each in found.get("error", {}).get("message", "") for each in NAVIGATED):
            raise Navigated(found)
        assert "error" not in found, found
        return found["result"]

    async def open(self, url: str) -> None:
        """Open a URL: first in the existing tab, then in further ones."""
        self.session = ""
        if self.targets:
            target = await self.call("Target.createTarget", url=BLANK)
        else:
            (target, *_) = (
                each
                for each in (await self.call("Target.getTargets"))["targetInfos"]
                if each["type"] == "page"
            )
        self.targets.append(target["targetId"])
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self.session = attached["sessionId"]
        for domain in ("Network", "Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # as in front
        await self.go(url)

    async def close(self) -> None:
        """Close all tabs except the first, and clear the cookies.

        A new tab for each page would cost as much as the page. What a session has set for its tab
        ends with it.
        """
        self.session = ""
        first, *others = self.targets or [""]
        for target in others:
            await self.call("Target.closeTarget", targetId=target)
        if first:
            attached = await self.call("Target.attachToTarget", targetId=first, flatten=True)
            self.session = attached["sessionId"]
            await self.go(BLANK)
            self.session = ""
        await self.call("Storage.clearCookies")
        await self.call("Browser.resetPermissions")

    async def go(self, url: str) -> None:
        """Load a URL, even if it differs from the current one only in its fragment."""
        here = await self.run("location.href")
        if url == here == BLANK:
            return
        if url.partition("#")[0] == here.partition("#")[0]:
            await self.call("Page.navigate", url=BLANK)
            await self.until(f"location.href === '{BLANK}'")
        if url == BLANK:
            await self.call("Page.navigate", url=url)
        elif self._has_loaded:
            await self._load(url)
        else:
            self._has_loaded = True
            forget = await self.call("Page.addScriptToEvaluateOnNewDocument", source=FORGET)
            await self._load(url)
            await self.call("Page.removeScriptToEvaluateOnNewDocument", **forget)

    async def _load(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href !== '{BLANK}' && document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is truthy; return its value.

        The page may be replaced meanwhile: then the new one is asked.
        """
        value = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not value:
                    with suppress(Navigated):
                        value = await self.run(script)
                    if not value:
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            text = await self.run("document.body.innerText")
            raise AssertionError(f"never true: {script}\n{self.complaints}\n{text}") from None
        return value


async def happened(condition: Callable[[], object]) -> None:
    """Wait for what the page's messages bring about in the service."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(POLL_S)


async def resize(page: Page, width: int, height: int = 740, *, mobile: bool = True) -> None:
    """Give the tab the size of a screen."""
    await page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=2 if mobile else 1,
        mobile=mobile,
    )


@pytest.fixture(scope="session")
def chromium() -> Iterator["Chromium"]:
    """One Chromium for all tests of a worker, started by the first that opens a page."""
    shared = Chromium()
    yield shared
    shared.end()


class Chromium:
    """One process of Chromium, whose tabs share cookies, storage and cache.

    A context for each page would open a window for each, at twice the cost. Tests share the cache:
    pages of one port, which is an origin, are read and compiled once. The storage of an origin is
    cleared when a test first opens it, and cookies at the end.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """One tab or several, closed at the end."""
        async with connect(await self._address(), max_size=None) as socket:
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            try:
                yield page
                await page.close()
            except BaseException:
                self.end()  # nothing is known of its state: the next page gets another process
                raise
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _address(self) -> str:
        """Its port, which it writes into its profile."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        file = Path(self._folder, "DevToolsActivePort")
        async with asyncio.timeout(PATIENCE_S):
            while not file.exists() or len(lines := file.read_text().split()) < 2:
                await asyncio.sleep(POLL_S)
        return f"ws://127.0.0.1:{lines[0]}{lines[1]}"

    def _start(self) -> None:
        assert CHROMIUM is not None
        self.end()
        self._folder = tempfile.mkdtemp(prefix="onebook-chromium-")
        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=refuse_netlink,
        )

    def end(self) -> None:
        """Kill it and remove its profile; a graceful close would take longer."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process = None

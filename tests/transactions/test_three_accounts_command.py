"""Three accounts in one file of `onebook transactions fetch`, with its defaults, for every form.

The accounts are random, of Bybit, Kraken and OKX, with transfers between them; their oracles know
what each gained. The commands are processes of their own, on the machine's clock.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from databases import migrated
from onebook.clock import iso_ms
from onebook.model import DAY_MS
from onebook.store import Store
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from transactions.bybit_support import KEY, MASTER_KEY
from transactions.okx_support import KEY as OKX_KEY
from transactions.oracle.exchange import RandomExchange, listening
from transactions.oracle.kraken.exchange import RandomKrakenExchange
from transactions.oracle.kraken.exchange import listening as kraken_listening
from transactions.oracle.loopback import listening_on_loopback
from transactions.oracle.okx.exchange import RandomOkxExchange
from transactions.test_export_year import FORMS, OPTIONAL, onebook, started, summed
from transactions.test_own_transfers import FAULTLESS, Owner

DAYS = 40
BEFORE_DAYS = DAYS + 1  # by which bills of the random OKX can be older than its other rows
SEED = 4
AT_ONCE = ("rotki",)


@asynccontextmanager
async def okx_listening(exchange: RandomOkxExchange) -> AsyncIterator[str]:
    """Serve an OKX on a free loopback port; yields the URL."""

    async def answer(reader: asyncio.StreamReader) -> bytes | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        request = httpx.Request(method, f"http://okx{target}")
        answered = await exchange.handle_async_request(request)
        phrase = HTTPStatus(answered.status_code).phrase
        head = f"HTTP/1.1 {answered.status_code} {phrase}\r\n"
        head += f"Content-Length: {len(answered.content)}\r\n\r\n"
        return head.encode() + answered.content

    async with listening_on_loopback(answer) as url:
        yield url


class Exchanges:
    """The three exchanges of an owner on loopback ports, in their own thread."""

    def __init__(self, owner: Owner) -> None:
        self.urls: dict[str, str] = {}
        self._owner = owner
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        owner, now = self._owner, {"now_ms": lambda: time.time_ns() // 1_000_000}
        async with AsyncExitStack() as stack:
            for name, served in (
                ("kraken", kraken_listening(RandomKrakenExchange(owner.kraken, FAULTLESS, **now))),
                ("bybit", listening(RandomExchange(owner.bybit, FAULTLESS, **now))),
                ("okx", okx_listening(RandomOkxExchange(owner.okx, FAULTLESS, **now))),
            ):
                self.urls[name] = await stack.enter_async_context(served)
            self._started.set()
            await self._ended.wait()

    def __enter__(self) -> dict[str, str]:
        self._thread.start()
        self._started.wait()
        return self.urls

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()


class Operator(NamedTuple):
    """An operator's host with three accounts; `from_ms` is before their first row."""

    owner: Owner
    environment: dict[str, str]
    from_ms: int


async def store_keys(folder: Path) -> None:
    """Store the credentials of the three accounts."""
    async with Store(await migrated(folder)) as store:
        vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        for name, credentials in (
            ("bybit", Credentials(KEY.api_key, KEY.secret)),
            (
                "kraken",
                Credentials("key", "c2VjcmV0", futures_key="key", futures_secret="c2VjcmV0"),
            ),
            ("okx", Credentials(OKX_KEY.api_key, OKX_KEY.secret, passphrase=OKX_KEY.passphrase)),
        ):
            await vault.put(name, "mainnet", credentials, now_ms=0)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    now_ms = time.time_ns() // 1_000_000
    from_ms = now_ms - DAYS * DAY_MS
    owner = Owner(SEED, from_ms=from_ms, bybit_ms=from_ms, to_ms=now_ms, tokens_to_ms=now_ms)
    folder = tmp_path_factory.mktemp("operator")
    asyncio.run(store_keys(folder))
    overrides = "ONEBOOK_TRANSACTIONS__OVERRIDES__"
    with Exchanges(owner) as urls:
        environment = {
            "ONEBOOK_STORE__URL": f"sqlite+aiosqlite:///{folder}/onebook.db",
            "ONEBOOK_STORE__PEPPER_FILE": str(folder / "pepper"),
            "ONEBOOK_TRANSACTIONS__MASTER_KEY": MASTER_KEY,
            "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": str(folder / "master_key"),
            "ONEBOOK_TRANSACTIONS__EXPORTS_DIR": str(folder / "exports"),
            **{f"{overrides}{name.upper()}__MAINNET_URL": url for name, url in urls.items()},
        }
        yield Operator(owner, environment, from_ms - BEFORE_DAYS * DAY_MS)


def marked(form: str) -> Any:
    """An output format; those that take ten more seconds run in the soak."""
    return pytest.param(form, marks=() if form in AT_ONCE else pytest.mark.soak)


@pytest.mark.parametrize("form", [marked(form) for form in FORMS if form != "parquet"])
def test_a_file_of_all_accounts_adds_up(form: str, operator: Operator, tmp_path: Path) -> None:
    if form in OPTIONAL:
        pytest.importorskip(OPTIONAL[form])
    words = "--exchange", "all", "--from", iso_ms(operator.from_ms), "--format", form
    fetch = "transactions", "fetch", *words, "-o", "file"
    said = onebook(operator.environment, *fetch, cwd=tmp_path)
    assert "Left out" not in said
    assert summed(form, tmp_path / "file", {}) == operator.owner.gained, f"seed {SEED}"


@pytest.mark.soak
def test_a_form_that_cannot_hold_an_amount_says_so(operator: Operator, tmp_path: Path) -> None:
    """Random amounts have too many digits for Parquet; `test_export_year` tests it."""
    pytest.importorskip("pyarrow")
    words = "--exchange", "all", "--from", iso_ms(operator.from_ms), "-o", "file.parquet"
    done = started(operator.environment, "transactions", "fetch", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("which Parquet cannot hold; use csv or jsonl.\n"), done.stderr
    assert [*tmp_path.iterdir()] == []

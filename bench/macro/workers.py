"""What `onebook serve --workers 2` costs a delivered message, beside one process.

    workers.py [--clients 2000] [--interval-ms 100] [--rate 20] [--workers 2] [--seconds 15]

Both serve the same clients one view over simulated exchanges in a process of their own, in turn.
CPU is that of every process of the service, kernel included: parent, feeds node, nats-server,
gateways. A gateway's messages are its published updates times its clients. How many messages a
second a core carries is computed from that, since the clients share the machine.
Needs the compiled sink (`BENCH_SINK`), as `make bench` and `make load` have it.
"""

import argparse
import asyncio
import itertools
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import load
import node as product
from crowd import Exchanges, closing

from nodes import cpu_of
from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import Tier
from onebook.store import AuditedChange, Store
from timing import report

SIX = ["binance", "okx", "bybit", "coinbase", "kraken", "poloniex"]
START_S = 60.0
WARM_S = 4.0
METRIC = re.compile(
    r"^(onebook_ws_published_total|onebook_sockets|onebook_ws_conflated_total) (\S+)$", re.M
)


def settings_file(folder: Path, places: dict[str, list[str]], clients: int) -> Path:
    """The settings of both."""
    lines = [
        "[server]\nport = 0\nmetrics_port = 0",
        f"[store]\nurl = 'sqlite+aiosqlite:///{folder}/onebook.db'",
        f"pepper_file = '{folder}/pepper'",
        f"[transactions]\nmaster_key_file = '{folder}/master_key'",
        "[gateway]\ndrain_s = 0\nclose_timeout_s = 0\nconnects_per_minute = 0",
        f"ping_interval_s = {product.PING_S:.0f}\nconnections_max = {clients + 100}",
        f"[feeds]\nexchanges = {list(places)}",
    ]
    for name, (ws, rest) in places.items():
        lines += [f"[feeds.overrides.{name}]", f"ws_url = '{ws}'\nrest_url = '{rest}'"]
    file = folder / "onebook.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


async def keys_in(file: Path, clients: int) -> list[str]:
    """Keys in a database that is made."""
    settings = config.load(file)
    async with Store(settings.store.url) as store:
        await store.database.upgrade(create=True)
        admin = Admin(store, load_pepper(settings.store.pepper_file))
        change = AuditedChange(time.time_ns() // 1_000_000, "bench", "a benchmark's key")
        await admin.create_account("bench", change)
        count = -(-clients // product.CLIENTS_PER_KEY)
        return [(await admin.create_key("bench", Tier.PREMIUM, change)).text for _ in range(count)]


class Service:
    """A running `onebook serve`: its processes and where its gateways' metrics are."""

    def __init__(self, file: Path, workers: int, log: Path) -> None:
        words = [sys.executable, "-m", "onebook", "serve", "--config", str(file)]
        words += ["--workers", str(workers)] * bool(workers)
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        self._workers = workers
        pattern = (
            r"All gateways listen on port (\d+)" if workers else r"listens on http://[\d.]+:(\d+)"
        )
        self.port = int(self._logged(pattern)[0])
        self.metrics = [int(each) for each in self._logged(r"Metrics are at \S+ port (\d+)")]
        self.pids = {"one process": self.process.pid}
        if workers:
            found = re.findall(r"(\S+) works \(process (\d+)\)", log.read_text())
            names = {name.rpartition('"')[2]: int(pid) for name, pid in found}
            self.pids = {"parent": self.process.pid, **names}
            assert len(names) == workers + 2, names

    def _logged(self, pattern: str) -> list[str]:
        ends = time.monotonic() + START_S
        while not (found := re.findall(pattern, self._log.read_text())):
            if self.process.poll() is not None or time.monotonic() > ends:
                sys.exit(self._log.read_text())
            time.sleep(0.1)
        return found

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each process so far."""
        return {name: cpu_of(pid) for name, pid in self.pids.items()}

    def counted(self) -> list[dict[str, float]]:
        """Updates published, clients and conflated messages of each gateway."""
        found = []
        for port in self.metrics:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                values = {name: float(text) for name, text in METRIC.findall(page.read().decode())}
            found.append(values)
        return found

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(START_S)


@contextmanager
def running(file: Path, workers: int, log: Path) -> Iterator[Service]:
    service = Service(file, workers, log)
    try:
        yield service
    finally:
        service.stop()


def once(file: Path, keys: list[str], words: argparse.Namespace, workers: int) -> dict[str, float]:
    """CPU of each process for a delivered message, and how clients were spread."""
    view = {"symbol": "BTC/USDT", "exchanges": SIX[: words.exchanges], "depth": 15,
            "levels": "array", "interval_ms": words.interval_ms}  # fmt: skip
    hellos = itertools.islice(product.hellos(keys, [[view]]), words.clients)
    with running(file, workers, file.with_name("log")) as service:
        time.sleep(WARM_S)  # for the lists of the exchanges
        with load.Sink(service.port, words.clients, hellos) as sink:
            ends = time.monotonic() + START_S
            while sink.connected < words.clients:
                sink.check()
                assert time.monotonic() < ends, "clients are missing"
                time.sleep(0.1)
            time.sleep(WARM_S)
            before, cpu, received = service.counted(), service.cpu(), sink.received
            began = time.monotonic()
            time.sleep(words.seconds)
            took = time.monotonic() - began
            used = {name: each - cpu[name] for name, each in service.cpu().items()}
            after, received = service.counted(), sink.received - received
            assert sink.connected == words.clients
    published, clients = "onebook_ws_published_total", "onebook_sockets"
    shares = [
        (new[published] - old[published]) * (new[clients] - 1)  # one of them reads the metrics
        for old, new in zip(before, after, strict=True)
    ]
    messages = max(1.0, sum(shares))
    total_us = sum(used.values()) / messages * 1e6
    return {
        "messages/s": messages / took,
        "bytes a message": received / messages,
        "us a message": total_us,
        "messages/s of one core, computed": 1e6 / total_us,
        **{f"{name}, us a message": each / messages * 1e6 for name, each in used.items()},
        **{f"gateway {n}, share of clients": each / messages for n, each in enumerate(shares, 1)},
    }


def measure(words: argparse.Namespace) -> None:
    load.lift_file_limit(2 * words.clients + 1_000)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        exchanges = stack.enter_context(closing(Exchanges(SIX[: words.exchanges], words.rate, 1)))
        file = settings_file(folder, exchanges.urls, words.clients)
        keys = asyncio.run(keys_in(file, words.clients))
        for _ in range(words.runs):
            one = once(file, keys, words, 0)
            many = once(file, keys, words, words.workers)
            row = f"{words.clients} clients, {words.interval_ms} ms"
            report(f"{row}, one process", one, "")
            report(f"{row}, {words.workers} workers", many, "")
            ratio = many["us a message"] / one["us a message"]
            report(f"{row}, CPU of a message", {"ratio": ratio}, "")


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--clients", type=int, default=2_000)
    words.add_argument("--workers", type=int, default=2)
    words.add_argument("--exchanges", type=int, default=len(SIX))
    words.add_argument("--interval-ms", type=int, default=100)
    words.add_argument("--rate", type=float, default=20.0, help="changes a second of each book")
    words.add_argument("--seconds", type=float, default=15.0)
    words.add_argument("--runs", type=int, default=2)
    measure(words.parse_args())


if __name__ == "__main__":
    main()

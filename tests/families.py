"""The exchanges that represent all others in tests over sockets, in `make test`.

What depends on the exchange (its frames, numbers, checksums, lists, limits) is proven of every
exchange by the pure suites: tests/contract, tests/exchanges and tests/simulator/kit/test_faults.
What depends on the socket, the feed and its recovery differs by kind of protocol, and is proven
with one exchange of each kind. A test marked `over_sockets` runs with these; with all others it is
marked `soak`, which `make soak` and the nightly workflow run. The mark may name other exchanges,
where others differ in what a test proves.
"""

from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import pytest

from onebook.exchanges import EXCHANGES

FAMILIES: Final = {
    "binance": "numbered changes that are joined with a snapshot by REST; the exchange pings",
    "bitfinex": "frames counted over the whole connection, and ids in place of names",
    "bitstamp": "whole books in each frame, on streams that are silent while nothing changes",
    "coinbase": "changes without numbers or checksum, so that a lost frame is not seen",
    "htx": "compressed frames, and a snapshot that is requested on the socket",
    "kraken": "a checksum of the best levels, and books cut at a depth",
    "kucoin": "a token by REST before the connection, and numbers from the snapshot of the socket",
    "mexc": "binary frames (protobuf), with pings that the client must send",
    "p2b": "one book a connection, by JSON-RPC",
}

# Tests that mostly wait for processes, sockets and deadlines.
WAITING: Final = tuple(
    f"tests/{name}"
    for name in (
        "alerts/",
        "app/workers/",
        "chaos/",
        "cli/",
        "deploy/",
        "e2e/",
        "feeds/test_with_simulator",
        "http/",
        "nodes/",
        "ops/livecheck/",
        "reference_clients/",
        "security/",
        "store/test_tls",
        "swarm/",
    )
)

# Tests of 8 s and more beside others. They begin first: what begins last is the end of the run.
LONG: Final = tuple(
    f"tests/{name}"
    for name in (
        "e2e/test_crash.py::test_a_crash_loses_at_most_one_second_and_never_counts_twice",
        "feeds/test_with_simulator.py::test_a_live_book_takes_no_budget_that_a_first_one_may_need",
        "nodes/test_key_limits.py::test_requests_and_commands_over_two_gateways_get_the_limit_once",
        "nodes/test_partition.py::test_a_gateway_that_is_cut_off_from_nats_is_stale_in_time_and_right_when_healed",
        "nodes/test_upgrade.py::test_a_release_of_the_same_wire_version_takes_over_and_no_book_is_stale",
        "ops/livecheck/test_run.py::",
        "ops/test_doctor.py::test_nats_and_the_nodes_of_the_cluster_are_examined",
        "web/test_docs_page.py::test_search_copy_and_width",
        "web/test_panels.py::test_ten_updates_a_second_of_100_levels_and_36_exchanges_are_drawn_in_time",
    )
)


def exchange_of(item: pytest.Item) -> str | None:
    """The exchange with which a test is parametrised."""
    call = getattr(item, "callspec", None)
    for value in call.params.values() if call else ():
        name = value[0] if isinstance(value, tuple) else value
        if isinstance(name, str) and name.partition(".")[0] in EXCHANGES:
            return name.partition(".")[0]
    return None


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The order of tests, so that every other worker begins with tests that mostly wait.

    Each worker begins with an equal share of the list. So half of them wait for processes and
    deadlines while the others compute, and neither is left for the end. One has all tests with a
    browser, because there is a browser for each worker that has one. Each begins with the longest
    tests of its share.
    """
    waiting: dict[Path, list[pytest.Item]] = {}
    computing: list[pytest.Item] = []
    browsing = [item for item in items if with_browser(item)]
    for item in items:
        if with_browser(item):
            continue
        is_waiting = item.nodeid.startswith(WAITING)
        (waiting.setdefault(item.path, []) if is_waiting else computing).append(item)
    files, pairs = list(waiting.values()), max(1, workers // 2)
    found: list[pytest.Item] = []
    for pair in range(pairs):
        found += chain.from_iterable(files[pair::pairs])
        found += computing[len(computing) * pair // pairs : len(computing) * (pair + 1) // pairs]
    share = len(items) // workers
    found[share:share] = browsing
    bounds = [len(found) * each // workers for each in range(workers + 1)]
    return [
        item for begin, end in pairwise(bounds) for item in sorted(found[begin:end], key=is_short)
    ]


def is_short(item: pytest.Item) -> bool:
    """Whether a test may start late."""
    return not item.nodeid.startswith(LONG)


def with_browser(item: pytest.Item) -> bool:
    """Whether a test opens a page in Chromium."""
    return "chromium" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Skip exchanges represented by another one of their family, and distribute the rest."""
    for item in items:
        mark = item.get_closest_marker("over_sockets")
        if mark:
            name = exchange_of(item)
            if name is not None and name not in (mark.args[0] if mark.args else FAMILIES):
                item.add_marker(pytest.mark.soak)
    yield
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    items[:] = dealt(items, workers)

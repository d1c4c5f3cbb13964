"""The cost of each test in a file that CI keeps: a plugin of pytest.

Wall seconds and processor seconds (with those of ended child processes) stand apart: a test that
waits costs little beside one that computes. `--costs FILE` names the file: a line for each test,
the most expensive first, with the second of the run in which it began.

Processes that the tests of a worker share end after its last test. What ends there (a browser has
then used up to a minute of processor time) has a line of its own for each worker.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

HEADER = "wall_s\tcpu_s\tworker\tbegan_s\ttest\n"
SHARED = "(shared)"
SHOWN = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--costs FILE`."""
    parser.addoption("--costs", metavar="FILE", help="write what each test cost to FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Sum the costs in the process to which the workers report."""
    if config.getoption("costs") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(Path(config.getoption("costs"))))


def pytest_collection_finish() -> None:
    """Start counting: imports are not charged to the first test."""
    _cpu_s.spent()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(nextitem: pytest.Item | None) -> Iterator[None]:
    """Remember this worker's last test, which ends the shared resources."""
    global _is_last
    _is_last = nextitem is None
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to each report its processor time, worker and start."""
    report = yield
    report.cpu_s = _cpu_s.spent()
    report.worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    report.ends_shared = _is_last and call.when == "teardown"
    return report


class _Cpu:
    """Processor seconds of this process and its ended children."""

    def __init__(self) -> None:
        self._before_s = sum(os.times()[:4])

    def spent(self) -> float:
        """Seconds since the last call."""
        now_s = sum(os.times()[:4])
        spent_s, self._before_s = now_s - self._before_s, now_s
        return spent_s


_cpu_s = _Cpu()
_is_last = False


class Costs:
    """Adds up what setup, call and teardown of each test cost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._of: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._place: dict[str, tuple[str, float]] = {}  # worker, and when it began
        self._began_s = time.time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        worker = getattr(report, "worker", "?")
        name = report.nodeid
        if getattr(report, "ends_shared", False):
            name = f"{SHARED}::{worker}"
        cost = self._of[name]
        cost[0] += report.duration
        cost[1] += getattr(report, "cpu_s", 0.0)
        self._place.setdefault(name, (worker, report.start - self._began_s))

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(self._of.items(), key=lambda each: -max(each[1]))
        self._path.write_text(
            HEADER
            + "".join(
                f"{wall_s:.3f}\t{cpu_s:.3f}\t{worker}\t{began_s:.1f}\t{test}\n"
                for test, (wall_s, cpu_s) in ordered
                for worker, began_s in (self._place[test],)
            )
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sums of the folders, and the most expensive tests."""
        folders: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for test, (wall_s, cpu_s) in self._of.items():
            parts = test.split("::")[0].split("/")
            sums = folders["/".join(parts[:2])]
            sums[0] += wall_s
            sums[1] += cpu_s
            sums[2] += 1
        line = terminalreporter.write_line
        terminalreporter.section("costs: wall seconds, processor seconds, tests")
        by_cpu = sorted(folders.items(), key=lambda each: -each[1][1])
        for folder, (wall_s, cpu_s, count) in by_cpu[:SHOWN]:
            line(f"{wall_s:8.1f} {cpu_s:8.1f} {count:6d}  {folder}")
        total = [sum(each[place] for each in folders.values()) for place in range(3)]
        line(f"{total[0]:8.1f} {total[1]:8.1f} {total[2]:6.0f}  together; each in {self._path}")
        for test, (wall_s, cpu_s) in sorted(self._of.items(), key=lambda x: -max(x[1]))[:SHOWN]:
            line(f"{wall_s:8.1f} {cpu_s:8.1f}  {test}")

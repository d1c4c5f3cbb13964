"""Each source file has tests: those of `test_<file>.py`, and those that `TOGETHER` names."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/onebook"
TESTS = ROOT / "tests"


class Covered(NamedTuple):
    """Source files that are tested in files that are not named after them too, and why."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    why: str


TOGETHER = (
    Covered(
        ("app/upkeep.py",),
        ("alerts/test_firing.py",),
        "What it measures is seen in the alerts that it makes fire.",
    ),
    Covered(
        ("exchanges/*.py", "simulator/*.py"),
        (
            "contract/test_connectors.py",
            "contract/test_lists.py",
            "simulator/test_with_feeds.py",
            "simulator/test_faults.py",
            "simulator/test_server.py",
            "e2e/test_readme.py",
        ),
        "Each connector reads its own simulated exchange in suites that find both by name.",
    ),
    Covered(
        ("livecheck/*.py",),
        ("livecheck/test_run.py", "cli/test_exchanges_live.py"),
        "What is observed, found and reported is seen in the checks of drifting exchanges.",
    ),
    Covered(
        ("simulator/binanceus.py",),
        ("exchanges/test_binanceus.py",),
        "It is that of Binance, with another list.",
    ),
    Covered(
        ("exchanges/join.py",),
        ("exchanges/test_binance.py", "exchanges/test_bitvavo.py"),
        "What is held back until a snapshot is seen in the frames of an exchange.",
    ),
    Covered(
        ("exchanges/quality.py", "cli/exchange_page.py"),
        ("cli/test_exchanges_commands.py", "reference/test_reference.py"),
        "Both say what the reference pages say of an exchange.",
    ),
    Covered(
        ("simulator/front.py", "simulator/listings.py"),
        ("simulator/test_board.py", "simulator/test_market.py"),
        "What every simulated exchange is made of is seen in its frames.",
    ),
    Covered(
        ("simulator/account/serving.py", "simulator/bybit_account/*.py"),
        ("simulator/test_bybit_account.py", "simulator/test_bybit_modes.py"),
        "A generated history is proven by what its endpoints answer.",
    ),
    Covered(
        ("app/*.py", "build.py", "feeder.py"),
        (
            "e2e/test_service.py",
            "e2e/test_process.py",
            "e2e/test_reload.py",
            "e2e/test_crash.py",
            "nodes/test_cluster.py",
        ),
        "Wiring, signals and reloads are tested in whole nodes and processes.",
    ),
    Covered(
        ("backup/*.py", "cli/backup.py"),
        ("test_backup.py",),
        "What is saved is proven by restoring it.",
    ),
    Covered(
        ("doctor/*.py", "cli/doctor.py"),
        ("test_doctor.py",),
        "Each finding is read from the report that an operator sees.",
    ),
    Covered(
        ("config/*.py",),
        ("test_config.py", "test_bounds.py"),
        "A section is data; all settings are tested by their table.",
    ),
    Covered(
        (
            "cli/accounts.py",
            "cli/audit.py",
            "cli/billing.py",
            "cli/db.py",
            "cli/keys.py",
            "cli/operator.py",
            "cli/usage.py",
        ),
        ("cli/test_operator_commands.py",),
        "Operators use these commands one after the other on one database.",
    ),
    Covered(
        ("cli/exchange_facts.py", "cli/exchanges.py"),
        ("cli/test_exchanges_commands.py",),
        "The facts are what `onebook exchanges` prints.",
    ),
    Covered(
        ("cli/commands.py", "cli/common.py", "cli/main.py", "cli/options.py"),
        ("house/test_commands.py", "cli/test_operator_commands.py"),
        "What all commands share is tested with every command.",
    ),
    Covered(("cli/config.py",), ("cli/test_config_commands.py",), "Named after its commands."),
    Covered(
        ("cli/ladder.py",),
        ("cli/test_watch.py", "cli/test_market_lines.py"),
        "The ladder is what `onebook watch` draws.",
    ),
    Covered(
        ("cli/scrape.py", "cli/top_view.py"), ("cli/test_top.py",), "Both are what `top` shows."
    ),
    Covered(("cli/nodes.py",), ("nodes/test_command.py",), "It needs a cluster."),
    Covered(
        ("cli/credentials.py", "cli/transactions.py"),
        ("transactions/test_cli.py",),
        "They need an account.",
    ),
    Covered(
        (
            "transactions/pairs.py",
            "transactions/run.py",
            "transactions/verify.py",
            "transactions/bybit/adapter.py",
            "transactions/bybit/reader.py",
        ),
        ("transactions/test_service.py", "transactions/test_api.py"),
        "Parts of an answer are proven by the answers of a whole account.",
    ),
    Covered(
        ("store/database.py",),
        ("store/test_faults.py", "test_doctor.py", "test_backup.py"),
        "Its faults and revisions are seen by those who ask for them.",
    ),
    Covered(
        ("http/listeners.py", "sockets.py"),
        ("nodes/test_cluster.py",),
        "What many connections need is seen in whole nodes.",
    ),
    Covered(
        ("cli/demo.py", "cli/serve.py"),
        ("e2e/test_process.py", "e2e/test_readme.py"),
        "Both run until a signal, in processes of their own.",
    ),
    Covered(
        ("client/*.py",),
        ("client/test_service.py", "client/test_watch.py"),
        "The SDK is tested by what a program does with it, against a real node.",
    ),
    Covered(
        ("library/*.py",),
        (
            "library/test_live.py",
            "library/test_replay.py",
            "library/test_consumers.py",
            "library/test_process.py",
            "library/test_update.py",
        ),
        "Live and recorded books come by one interface, whose parts are not used alone.",
    ),
    Covered(
        (
            "feeds/actions.py",
            "feeds/connection.py",
            "feeds/dispatch.py",
            "feeds/phases.py",
            "feeds/ports.py",
        ),
        ("feeds/test_session.py", "feeds/test_feed.py", "feeds/test_recovery.py"),
        "Parts of the sans-I/O session, which is tested as one by frames and times.",
    ),
    Covered(
        ("feeds/recovery.py",),
        ("feeds/test_session.py",),
        "Most of it follows frames, which the session receives.",
    ),
    Covered(("feeds/reseeding.py",), ("feeds/test_reseeds.py",), "When, beside what is asked."),
    Covered(
        ("feeds/lists.py",), ("feeds/test_catalogue.py",), "The catalogue is what reads lists."
    ),
    Covered(
        ("feeds/ccxt/*.py",),
        ("feeds/test_ccxt_client.py", "feeds/test_ccxt_numbers.py", "e2e/test_ccxt.py"),
        "The thread around ccxt is tested with ccxt itself.",
    ),
    Covered(
        ("nodes/*.py",),
        (
            "nodes/test_membership.py",
            "nodes/test_cluster.py",
            "nodes/test_keys.py",
            "nodes/test_replica.py",
            "nodes/test_wire.py",
        ),
        "Parts of a protocol between nodes, which is tested between nodes.",
    ),
    Covered(
        ("streams/guard.py", "streams/ports.py", "streams/stream.py"),
        ("streams/test_streams.py",),
        "A stream is tested with its scheduler, by what clients get.",
    ),
    Covered(
        ("gateway/action_replies.py",),
        ("gateway/test_action_runner.py",),
        "The shapes are held to every reply that the runner gives.",
    ),
    Covered(("web/markdown.py",), ("web/test_chapters.py",), "It writes the chapters."),
    Covered(("web/samples.py",), ("web/test_docs.py",), "The samples are run from the page."),
    Covered(("api/transactions.py",), ("transactions/test_api.py",), "It needs an account."),
)


def is_data(path: Path) -> bool:
    """Whether a file is a package's list of names, or a migration, tested by migrating."""
    return path.stem.startswith("__") or "migrations" in path.parts


def sources() -> list[str]:
    files = sorted(each.relative_to(SOURCES) for each in SOURCES.rglob("*.py"))
    # The pure-Python reference is held to the compiled core by every test of `tests/core`.
    return [each.as_posix() for each in files if not is_data(each) and each.parts[0] != "core"]


def own_test(source: str) -> str:
    """The test file of a source file, where it has one of its own."""
    path = Path(source)
    return path.with_name(f"test_{path.name}").as_posix()


def has_tests(test: str) -> bool:
    path = TESTS / test
    found = path.exists() and re.search(r"^ *(async )?def test_", path.read_text(), re.MULTILINE)
    return bool(found)


def rows_of(source: str) -> list[Covered]:
    # `*` does not stand for a folder.
    return [
        row
        for row in TOGETHER
        for each in row.sources
        if fnmatch(source, each) and source.count("/") == each.count("/")
    ]


@pytest.mark.parametrize("source", sources())
def test_each_source_file_has_tests(source: str) -> None:
    assert has_tests(own_test(source)) or rows_of(source), f"write tests/{own_test(source)}"


@pytest.mark.parametrize("row", TOGETHER, ids=lambda row: row.sources[0])
def test_the_table_names_tests_and_files_that_exist(row: Covered) -> None:
    assert row.why.endswith(".")
    assert [each for each in row.tests if not has_tests(each)] == []
    for pattern in row.sources:
        assert any(row in rows_of(each) and fnmatch(each, pattern) for each in sources()), pattern


def test_every_package_of_the_layers_is_looked_at() -> None:
    packages = {each.partition("/")[0] for each in sources()}
    assert len(sources()) > 400
    assert {"accounts", "api", "cli", "exchanges", "feeds", "gateway", "nodes"} <= packages


def test_a_file_without_tests_is_found() -> None:
    assert own_test("gateway/new.py") == "gateway/test_new.py"
    assert not has_tests("gateway/test_new.py")
    assert not rows_of("gateway/new.py")
    assert not has_tests("gateway/rig.py")
    assert not rows_of("client/deeper/new.py")

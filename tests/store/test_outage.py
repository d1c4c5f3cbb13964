"""When an outage of the database begins and ends."""

import pytest

from onebook.store.outage import READS, WRITES, Outage


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level("INFO", "onebook.store")
    return Outage(monotonic=lambda: 0.0)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_an_outage_is_logged_once_and_its_end_once(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        outage.failed(WRITES, "gone", outage.began())
    assert said(caplog) == ["ERROR"]
    outage.succeeded(WRITES, outage.began())
    outage.succeeded(WRITES, outage.began())
    assert said(caplog) == ["ERROR", "INFO"]


def test_what_began_before_a_failure_does_not_end_the_outage(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = outage.began()
    outage.failed(READS, "gone", outage.began())
    outage.succeeded(WRITES, earlier)
    assert said(caplog) == ["ERROR"]
    outage.succeeded(WRITES, outage.began())
    assert said(caplog) == ["ERROR", "INFO"]


def test_reads_do_not_end_an_outage_of_writes(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed(WRITES, "full", outage.began())
    outage.failed(READS, "full", outage.began())
    outage.succeeded(READS, outage.began())
    assert said(caplog) == ["ERROR"]
    outage.succeeded(WRITES, outage.began())
    assert said(caplog) == ["ERROR", "INFO"]


def test_what_began_before_the_end_of_an_outage_begins_no_other(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = outage.began()
    outage.failed(WRITES, "gone", outage.began())
    slower = outage.began()
    outage.succeeded(WRITES, outage.began())
    for each in (slow, slower):
        outage.failed(READS, "no answer", each)
    assert said(caplog) == ["ERROR", "INFO"]
    outage.failed(READS, "gone", outage.began())
    assert said(caplog) == ["ERROR", "INFO", "ERROR"]


def test_what_failed_first_of_all_is_an_outage(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = outage.began()
    outage.succeeded(WRITES, outage.began())
    outage.failed(READS, "no answer", slow)
    assert said(caplog) == ["ERROR"]

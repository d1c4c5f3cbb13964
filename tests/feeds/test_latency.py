"""Latency of an exchange: samples, what is published of them, and what is logged once."""

import pytest
from prometheus_client import REGISTRY

from onebook.feeds.latency import SAMPLES_MAX, Latency

OFFSET_S = 1_000.0  # Unix time is so far ahead of monotonic time


def measured(name, kind, **labels):
    labels["exchange"] = kind
    return REGISTRY.get_sample_value(f"onebook_exchange_{name}", labels) or 0


@pytest.fixture
def latency(request):
    return Latency(request.node.name)


def publish(latency):
    latency.publish(wall_offset_s=OFFSET_S, old_s=5.0)


def test_a_sample_is_the_time_of_arrival_less_the_exchange_s_own(latency, request):
    latency.sample(1_099_750, 100.0)  # arrived at 1,100 s Unix time
    assert latency.newest_s is None
    publish(latency)
    assert latency.newest_s == pytest.approx(0.25)
    assert measured("latency_seconds_count", request.node.name) == 1
    below = [measured("latency_seconds_bucket", request.node.name, le=le) for le in ("0.1", "0.5")]
    assert below == [0, 1]


def test_each_sample_is_published_once(latency, request):
    latency.sample(1_099_750, 100.0)
    publish(latency)
    publish(latency)
    assert measured("latency_seconds_count", request.node.name) == 1


def test_the_age_of_recorded_data_is_not_measured(request, caplog):
    latency = Latency(request.node.name, recorded=True)
    latency.sample(1_000, 100.0)
    publish(latency)
    assert latency.newest_s is None
    assert not caplog.records


def test_a_message_without_a_time_is_no_sample(latency):
    latency.sample(0, 100.0)
    publish(latency)
    assert latency.newest_s is None


def test_old_data_is_counted_each_time_and_logged_once(latency, request, caplog):
    for _ in range(3):
        latency.sample(1_090_000, 100.0)
    latency.sample(1_096_000, 100.0)
    publish(latency)
    assert measured("old_messages_total", request.node.name) == 3
    assert [each.getMessage() for each in caplog.records] == [
        f"{request.node.name} sends data that is 10.0 s old, or this machine's clock is "
        "ahead; check its NTP if all do."
    ]


def test_times_ahead_of_this_clock_are_logged_once_beyond_a_second(latency, caplog):
    latency.sample(1_100_900, 100.0)
    publish(latency)
    assert not caplog.records
    latency.sample(1_103_000, 100.0)
    latency.sample(1_104_000, 100.0)
    publish(latency)
    (line,) = caplog.records
    assert "3.0 s ahead of this machine's clock" in line.getMessage()


def test_samples_are_bounded_and_the_oldest_are_dropped(latency, request):
    for each in range(SAMPLES_MAX + 10):
        latency.sample(1_100_000 - each, 100.0)
    publish(latency)
    assert measured("latency_seconds_count", request.node.name) == SAMPLES_MAX
    assert latency.newest_s == pytest.approx((SAMPLES_MAX + 9) / 1_000)

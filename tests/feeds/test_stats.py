"""Counters and latency of an exchange, and what is exported as metrics."""

import logging

import pytest
from prometheus_client import REGISTRY

from onebook.feeds.stats import ACTIVE, MAINTENANCE, SAMPLES_MAX, ExchangeStats, Latency

OFFSET_S = 1_000.0  # Unix time is so far ahead of monotonic time


def metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"exchange": "stats-test", **labels})


def test_counters_are_brought_to_the_metrics_once():
    stats = ExchangeStats("stats-test")
    stats.publish(wall_offset_s=0.0, old_s=5.0)
    assert metric("onebook_exchange_last_frame_timestamp_seconds") is None
    stats.frames, stats.reconnects, stats.connected, stats.received_at = 5, 2, 1, 10.0
    stats.invalidations["gap"] += 3
    for _ in range(2):
        stats.publish(wall_offset_s=1_000.0, old_s=5.0)
    assert metric("onebook_exchange_up") == 1
    assert metric("onebook_exchange_frames_total") == 5
    assert metric("onebook_exchange_reconnects_total") == 2
    assert metric("onebook_book_invalidations_total", reason="gap") == 3
    assert metric("onebook_exchange_last_frame_timestamp_seconds") == 1_010.0
    stats.frames, stats.connected = 7, 0
    stats.publish(wall_offset_s=1_000.0, old_s=5.0)
    assert metric("onebook_exchange_frames_total") == 7
    assert metric("onebook_exchange_up") == 0


def test_an_exchange_is_active_while_connected_or_without_trouble():
    stats = ExchangeStats("stats-test")
    assert stats.state == ACTIVE
    stats.trouble = MAINTENANCE
    assert stats.state == MAINTENANCE
    stats.connected = 1
    assert stats.state == ACTIVE


def below(bound: str) -> float:
    return metric("onebook_exchange_latency_seconds_bucket", le=bound) or 0.0


def test_latency_is_the_wall_time_of_arrival_minus_the_time_of_the_message(
    caplog: pytest.LogCaptureFixture,
):
    stats = ExchangeStats("stats-test")
    before = {bound: below(bound) for bound in ("-1.0", "0.0", "0.05", "0.1", "5.0", "+Inf")}
    for at_ms in (1_009_930, 0, 1_010_500, 1_013_000, 1_000_000, 1_000_000):
        stats.latency.sample(at_ms, 10.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            stats.publish(wall_offset_s=1_000.0, old_s=5.0)
    assert {bound: below(bound) - count for bound, count in before.items()} == {
        "-1.0": 1, "0.0": 2, "0.05": 2, "0.1": 3, "5.0": 3, "+Inf": 5,
    }  # fmt: skip
    assert metric("onebook_exchange_old_messages_total") == 2
    assert stats.latency.newest_s == 10.0
    assert caplog.messages == [
        "stats-test: timestamps are 3.0 s ahead of this machine's clock; check NTP.",
        "stats-test: data arrives 10.0 s old, or this machine's clock is "
        "ahead; check NTP if all exchanges are affected.",
    ]


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
        f"{request.node.name}: data arrives 10.0 s old, or this machine's clock is "
        "ahead; check NTP if all exchanges are affected."
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

"""Counters of an exchange and what becomes of them in the metrics."""

import logging

import pytest
from prometheus_client import REGISTRY

from onebook.feeds.stats import ACTIVE, MAINTENANCE, ExchangeStats


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
        "stats-test sends times 3.0 s ahead of this machine's clock; check its NTP.",
        "stats-test sends data that is 10.0 s old, or this machine's clock is "
        "ahead; check its NTP if all do.",
    ]

"""Counters of an exchange and what becomes of them in the metrics."""

from prometheus_client import REGISTRY

from onebook.feeds.stats import ACTIVE, MAINTENANCE, ExchangeStats


def metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"exchange": "stats-test", **labels})


def test_counters_are_brought_to_the_metrics_once():
    stats = ExchangeStats("stats-test")
    stats.publish(wall_offset_s=0.0)
    assert metric("onebook_exchange_last_frame_timestamp_seconds") is None
    stats.frames, stats.reconnects, stats.connected, stats.heard_at = 5, 2, 1, 10.0
    stats.invalidations["gap"] += 3
    for _ in range(2):
        stats.publish(wall_offset_s=1_000.0)
    assert metric("onebook_exchange_up") == 1
    assert metric("onebook_exchange_frames_total") == 5
    assert metric("onebook_exchange_reconnects_total") == 2
    assert metric("onebook_book_invalidations_total", reason="gap") == 3
    assert metric("onebook_exchange_last_frame_timestamp_seconds") == 1_010.0
    stats.frames, stats.connected = 7, 0
    stats.publish(wall_offset_s=1_000.0)
    assert metric("onebook_exchange_frames_total") == 7
    assert metric("onebook_exchange_up") == 0


def test_an_exchange_is_active_while_connected_or_without_trouble():
    stats = ExchangeStats("stats-test")
    assert stats.state == ACTIVE
    stats.trouble = MAINTENANCE
    assert stats.state == MAINTENANCE
    stats.connected = 1
    assert stats.state == ACTIVE

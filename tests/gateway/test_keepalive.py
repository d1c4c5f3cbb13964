"""Pings and slow reading of one connection, as a function of times."""

import pytest

from onebook.config import GatewaySettings
from onebook.gateway.keepalive import NEVER, Keepalive

SETTINGS = GatewaySettings(ping_interval_s=20)


@pytest.fixture
def keepalive():
    return Keepalive(SETTINGS)


def test_no_ping_is_due_before_the_connection_is_open(keepalive):
    assert keepalive.due_s == NEVER
    keepalive.opened(100.0)
    assert 100.0 <= keepalive.due_s < 120.0


def test_first_pings_are_spread_over_the_interval():
    due_s = []
    for _ in range(200):
        each = Keepalive(SETTINGS)
        each.opened(0.0)
        due_s.append(each.due_s)
    assert min(due_s) < 5
    assert max(due_s) > 15


def test_a_ping_is_due_an_interval_after_the_last(keepalive):
    keepalive.ping_passed(103.0)
    assert keepalive.due_s == 123.0


def test_latency_is_the_time_from_a_ping_to_its_pong(keepalive):
    payload = keepalive.ping(100.0)
    assert keepalive.pong(payload, 100.25)
    assert (keepalive.latency_ms, keepalive.ping_at) == (250.0, 0.0)


def test_a_pong_with_another_payload_answers_nothing(keepalive):
    old = keepalive.ping(80.0)
    keepalive.ping(100.0)
    assert not keepalive.pong(old, 101.0)
    assert not keepalive.pong(b"", 101.0)
    assert keepalive.ping_at == 100.0


def test_a_pong_counts_once(keepalive):
    payload = keepalive.ping(100.0)
    assert keepalive.pong(payload, 101.0)
    assert not keepalive.pong(payload, 109.0)
    assert keepalive.latency_ms == 1_000.0


def test_a_ping_is_unanswered_after_the_whole_interval(keepalive):
    assert not keepalive.unanswered(100.0)
    keepalive.ping(100.0)
    assert not keepalive.unanswered(119.9)
    assert keepalive.unanswered(120.0)


def test_who_reads_again_need_not_answer_the_ping(keepalive):
    keepalive.ping(100.0)
    keepalive.caught_up()
    assert not keepalive.unanswered(500.0)


def test_a_slow_consumer_that_reads_nothing_has_stalled_in_time(keepalive):
    keepalive.fell_behind(5_000, 100.0)
    assert keepalive.stalled_at_s == 110.0
    assert not keepalive.stalled(5_000, 109.9)
    assert keepalive.stalled(5_000, 110.0)


def test_each_byte_that_is_read_starts_the_time_anew(keepalive):
    keepalive.fell_behind(5_000, 100.0)
    assert not keepalive.stalled(4_999, 109.0)
    assert not keepalive.stalled(4_999, 118.9)
    assert keepalive.stalled(4_999, 119.0)


def test_a_buffer_that_grows_is_no_progress(keepalive):
    keepalive.fell_behind(5_000, 100.0)
    assert keepalive.stalled(6_000, 110.0)

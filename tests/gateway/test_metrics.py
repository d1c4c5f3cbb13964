"""Each count reaches Prometheus once, under labels that exist from the start."""

from types import SimpleNamespace

from onebook.gateway import metrics
from onebook.gateway.gateway import GatewayReport
from onebook.gateway.metrics import GatewayTotals


class Open:
    """Streams, as the report reads them."""

    published_total = 7
    saturated_total = 2
    backlog = 3

    def __len__(self):
        return 4


def value(metric, *labels):
    return (metric.labels(*labels) if labels else metric)._value.get()


def test_counts_are_published_once():
    totals, fanout = GatewayTotals(), SimpleNamespace(conflated_total=5)
    totals.behind.add("a slow consumer")
    report = GatewayReport(streams=Open(), fanout=fanout, totals=totals)
    totals.messages = 11
    names = ("MESSAGES", "PUBLISHED", "CONFLATED", "SATURATED")
    before = {name: value(getattr(metrics, name)) for name in names}
    for _ in range(2):
        report.publish()
    grown = {name: value(getattr(metrics, name)) - before[name] for name in names}
    assert grown == {"MESSAGES": 11, "PUBLISHED": 7, "CONFLATED": 5, "SATURATED": 2}
    assert value(metrics.BEHIND) == 1
    assert (value(metrics.STREAMS), value(metrics.BACKLOG)) == (4, 3)
    totals.messages = 12
    report.publish()
    assert value(metrics.MESSAGES) == before["MESSAGES"] + 12


def test_a_code_of_the_peer_shares_one_label():
    before = value(metrics.CLOSES, metrics.OTHER_CODE), value(metrics.CLOSES, "1001")
    for code in (1001, 3333, 4999):
        metrics.count_close(code)
    after = value(metrics.CLOSES, metrics.OTHER_CODE), value(metrics.CLOSES, "1001")
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


def test_a_connection_moves_from_one_tier_to_another():
    before = value(metrics.CONNECTIONS, metrics.NO_TIER), value(metrics.CONNECTIONS, "basic")
    metrics.move_tier(metrics.NO_TIER, "basic")
    after = value(metrics.CONNECTIONS, metrics.NO_TIER), value(metrics.CONNECTIONS, "basic")
    assert (after[0] - before[0], after[1] - before[1]) == (-1, 1)
    metrics.move_tier("basic", metrics.NO_TIER)

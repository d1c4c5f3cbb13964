"""The simulator accepts the rate that each connector's limits allow."""

import pytest

from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Quotas
from onebook.simulator import DIALECTS
from onebook.simulator.kit.board import Windows

ABREAST = 4  # connections that ask as fast as they may
STEPS = 500  # in the longest window


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in EXCHANGES
        for kind in ("messages", "requests", "connects")
        if getattr(DIALECTS[name].rules, kind)
    ],
)
def test_the_simulated_exchange_takes_whatever_the_limits_let_through(name: str, kind: str) -> None:
    """The simulator states its limits independently and counts in another way."""
    stated = getattr(DIALECTS[name].rules, kind)
    quotas, address = Quotas(EXCHANGES[name].limits), {}
    if kind == "connects":
        lines = [((quotas.connects,), Windows(stated, address))]
    else:
        lines = [(quotas.of_connection(), Windows(stated, address)) for _ in range(ABREAST)]
    window_s = max(each.per_s for each in stated)
    sent = 0
    for step in range(3 * STEPS):
        now = 1_000.0 + step * window_s / STEPS
        for asked, window in lines:
            while all(quota.wait_s(1, now) <= 0 for quota in asked):
                for quota in asked:
                    quota.take(1, now)
                assert window.allow(now), f"{sent} were sent before"
                sent += 1
    assert sent >= 3, "it is not silence that keeps within the limits"

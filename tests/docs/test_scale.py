"""The prices in docs/explanation/scale.md follow from its plan and its measured costs."""

import re
from decimal import Decimal

import pytest

from docs.examples import ROOT

PAGE = (ROOT / "docs/explanation/scale.md").read_text()
MONTH_S = 30 * 24 * 3_600
CLIENTS = 1_000_000
UPDATES_PER_S = 10 * CLIENTS
UPDATE_BYTES = Decimal(1_200)


def rows():
    """The price table: quantity, unit price and monthly price, by part."""
    begin = PAGE.index("| Part | Quantity |")
    table = PAGE[begin : PAGE.index("\n\n", begin)].splitlines()[2:]
    found = {}
    for line in table:
        part, quantity, _unit, price, month = (each.strip() for each in line.strip("|").split("|"))
        found[part] = tuple(Decimal(each.replace(",", "")) for each in (quantity, price, month))
    return found


def test_a_month_is_quantity_times_price():
    for part, (quantity, price, month) in rows().items():
        assert quantity * price == month, part


@pytest.mark.parametrize(("way", "other"), [("flat", "metered"), ("metered", "flat")])
def test_the_whole_is_the_sum_of_its_parts(way, other):
    table = rows()
    parts = [
        month
        for part, (_, _, month) in table.items()
        if not part.startswith("In all") and not (part.startswith("Delivery") and other in part)
    ]
    (total,) = (month for part, (*_, month) in table.items() if re.match(f"In all.*{way}", part))
    assert sum(parts) == total
    (delivery,) = (m for part, (*_, m) in table.items() if re.match(f"Delivery.*{way}", part))
    share = round(100 * delivery / total)
    traffic = {"flat": "flat-rate", "metered": "metered"}[way]
    assert re.search(rf"{share} %( of the cost)? with {traffic} traffic", PAGE)


def test_quantities_follow_from_the_plan():
    table = rows()
    assert "10 updates a second of 1.2 KB" in PAGE
    delivered = UPDATES_PER_S * UPDATE_BYTES
    assert table["Delivery, at a flat rate"][0] == delivered * 8 / 10**9
    assert table["Delivery, metered instead"][0] == delivered * MONTH_S / 10**9
    assert "| one process | 8.0 us |" in PAGE
    assert f"are {UPDATES_PER_S * Decimal('8.0') / 10**6:.0f} cores; 50 hosts of 4 cores" in PAGE
    assert "| nats-server, CPU per frame | 38 us | 8 us | 4 us |" in PAGE
    assert f"at 4 us are {Decimal(400_000 * 4) / 10**6} cores; three servers of 2" in PAGE
    cores = [table[part][0] for part in ("Feeds nodes", "NATS", "Gateways", "PostgreSQL")]
    assert cores == [4 * 2, 3 * 2, 50 * 4, 2 * 8]

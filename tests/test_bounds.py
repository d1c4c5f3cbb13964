"""Every numeric setting has two bounds; a node can be built only within them."""

import math
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook import config
from onebook.accounts.limits import RateLimiter
from onebook.accounts.usage import mark_of
from onebook.config import Settings
from onebook.errors import ConfigError
from onebook.gateway.processor import CommandProcessor, KeyViews
from onebook.gateway.upgrade import AddressLimiter
from onebook.model import Tier

NUMBERS = [
    each
    for each in config.catalogue()
    if isinstance(each.default, int | float) and not isinstance(each.default, bool)
]
# Settings that broke a node before they had bounds.
BROKEN = {
    "gateway.connects_per_minute": 10**12,
    "gateway.forwarded_from": ["not an address"],
    "accounts.allowance_bytes": 0,
    "accounts.tiers.basic": {"requests_per_minute": 10**12, "connections_max": 1},
    "transactions.master_key": "xx",
}


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("ONEBOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def nested(name: str, value: Any) -> dict[str, Any]:
    head, _, rest = name.partition(".")
    return {head: nested(rest, value) if rest else value}


def given_value(name: str, value: Any) -> Settings:
    if ".tiers." in name:
        table, _, leaf = name.rpartition(".")
        limits = {"requests_per_minute": 60, "connections_max": 5, leaf: value}
        return config.load(overrides=nested(table, limits))
    return config.load(overrides=nested(name, value))


def read(settings: Settings, name: str) -> Any:
    found: Any = settings
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda each: each.name)
def test_a_number_is_taken_at_and_within_its_bounds_and_refused_outside(setting):
    least, most = setting.least, setting.most
    assert least is not None, "it has no lower bound"
    assert most is not None, "it has no upper bound"
    assert least <= setting.default <= most
    whole = isinstance(setting.default, int)
    middle = (least + most) // 2 if whole else (least + most) / 2
    for value in (least, middle, most):
        assert read(given_value(setting.name, value), setting.name) == value
    step = 1 if whole else 1e-9
    outside = [least - step, most + max(step, most * 1e-9 if not whole else 1), -math.inf, math.inf]
    for value in [*outside, math.nan, 10**400, "x"]:
        with pytest.raises(ConfigError, match=setting.name.replace(".", r"\.")):
            given_value(setting.name, value)


@pytest.mark.parametrize("name", BROKEN)
def test_what_broke_a_node_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=name) as refused:
        config.load(overrides=nested(name, BROKEN[name]))
    assert "xx" not in refused.value.message


def extreme(pick):
    tables: dict[str, Any] = {}
    for setting in NUMBERS:
        table = tables
        *heads, leaf = setting.name.split(".")
        for head in heads:
            table = table.setdefault(head, {})
        table[leaf] = pick(setting)
    return tables


@given(st.data())
def test_parts_work_with_every_mix_of_extremes(data):
    values = {each.name: data.draw(st.sampled_from((each.least, each.most))) for each in NUMBERS}
    settings = config.load(overrides=extreme(lambda each: values[each.name]))
    limits = RateLimiter(settings.accounts.tiers)
    for tier in Tier:
        for now_s in (0.0, 1e9):
            decision = limits.take(tier.value, tier, now_s)
            assert decision.allowed
            assert 0 <= decision.remaining <= decision.limit
            assert math.isfinite(decision.reset_s)
    assert AddressLimiter(settings.gateway.connects_per_minute).attempt("192.0.2.1", 1e9) == {}
    assert mark_of(0, settings.accounts.allowance_bytes).value == 0
    processor = CommandProcessor(
        settings=settings.gateway,
        tiers=settings.accounts.tiers,
        directory=None,
        limits=limits,
        views=KeyViews(),
    )
    assert not processor.limits.flooded(1e9), "the first control message is no flood"

"""Instrument lists as data: which rows are read, and the resulting instruments."""

import json
from typing import Any

import pytest

from onebook.exchanges.kit.contract import ProtocolError
from onebook.exchanges.kit.listing import NAME, ListReader, step_of
from onebook.model import InstrumentStatus

TRADING, HALTED = InstrumentStatus.TRADING, InstrumentStatus.HALTED
ROW = {"id": "BTC-USD", "base": "BTC", "quote": "USD", "state": "on", "kind": "spot"}


def reader(**options: Any) -> ListReader:
    usual = {"native": "id", "base": "base", "quote": "quote", "trading": {"state": ("on",)}}
    return ListReader("okx", **(usual | options))


def read(some: ListReader, body: object, **options: Any) -> list[tuple[str, ...]]:
    found = some(json.dumps(body).encode(), **options)
    return [(each.symbol, each.native, each.tick, each.lot) for each in found]


def test_a_row_that_lacks_a_member_or_has_another_type_is_left_out() -> None:
    rows = [ROW, {}, ROW | {"base": 7}, ROW | {"state": None}, [ROW], None, ROW | {"quote": ""}]
    assert read(reader(), rows) == [("BTC/USD", "BTC-USD", "", "")]


def test_an_unsound_name_is_counted() -> None:
    found = reader()(json.dumps([ROW, ROW | {"id": "a b"}]).encode())
    assert (len(found), found.refused) == (1, 1)


def test_what_is_traded_is_said_by_all_rules_together() -> None:
    some = reader(trading={"state": ("on", "slow"), "open": (True, None)}, halted={"why": (4, "4")})
    rows = [{}, {"open": True}, {"state": "slow"}, {"why": 3}]
    halted = [{"open": False}, {"state": "off"}, {"why": 4}, {"why": "4"}]
    found = some(json.dumps([ROW | each for each in rows + halted]).encode())
    assert [each.status for each in found] == [TRADING] * 4 + [HALTED] * 4


def test_what_is_not_spot_is_left_out() -> None:
    some = reader(
        spot={"kind": ("spot", None), "may": ("SPOT",)},
        not_spot={"routed": (True,)},
        not_spot_name="_PERP",
    )
    spot = {"may": ["MARGIN", "SPOT"]}
    others = [{"kind": "swap"}, {"may": ["MARGIN"]}, {"routed": True}, {"id": "BTC_PERP"}]
    rows = [ROW | spot, ROW | spot | {"routed": False}]
    assert len(read(some, rows + [ROW | spot | each for each in others])) == 2


def test_members_of_members_are_read_and_may_be_absent_where_they_are_steps() -> None:
    some = reader(tick="rules.price.step", lot_decimals="rules.places")
    rules = [{"price": {"step": "0.0100"}, "places": "3"}, {"price": {}}, None]
    rows = [ROW | {"rules": each} for each in rules]
    steps = [row[2:] for row in read(some, [*rows, ROW])]
    assert steps == [("0.01", "0.001"), ("", ""), ("", ""), ("", "")]


@pytest.mark.parametrize(
    ("value", "step"), [("1e-8", "1e-8"), (1e-8, "0.00000001"), (5, "5"), (0.5, "0.5"), (None, "")]
)
def test_a_step_is_written_without_an_exponent_where_it_is_a_number(
    value: object, step: str
) -> None:
    assert read(reader(tick="step"), [ROW | {"step": value}])[0][2] == step


@pytest.mark.parametrize(("value", "step"), [(2, "0.01"), ("2", "0.01"), ("x", ""), ("999", "")])
def test_a_step_may_be_a_number_of_decimals(value: object, step: str) -> None:
    assert read(reader(lot_decimals="places"), [ROW | {"places": value}])[0][3] == step


def test_a_step_may_be_in_one_of_many_rules() -> None:
    some = reader(tick="rules[kind=PRICE].step", lot="rules[kind=LOT].step")
    rules = [{"kind": "OTHER"}, {"kind": "LOT", "step": "0.1"}, {"kind": "PRICE", "step": "0.2"}]
    rows = [ROW | {"rules": some} for some in (rules, rules[:2], [], None)]
    steps = [("0.2", "0.1"), ("", "0.1"), ("", ""), ("", "")]
    assert [row[2:] for row in read(some, rows)] == steps


def test_a_rule_that_halts_holds_where_all_its_members_say_so() -> None:
    some = reader(halted={"buys": (False,), "sells": (False,)})
    rows = [{"buys": False}, {"buys": False, "sells": True}, {"buys": False, "sells": False}]
    found = some(json.dumps([ROW | each for each in rows]).encode())
    assert [each.status for each in found] == [TRADING, TRADING, HALTED]


def test_codes_may_be_parts_of_the_native_name_that_the_socket_spells_otherwise() -> None:
    some = ListReader("okx", native="id", separator="-", quote_first=True, spell=str.lower)
    assert read(some, [{"id": "USD-BTC"}]) == [("BTC/USD", "usd-btc", "", "")]


def test_rows_may_be_members_of_an_object_that_names_them() -> None:
    some = ListReader("okx", native=NAME, base="base", quote="quote")
    assert read(some, {"BTCUSD": ROW}) == [("BTC/USD", "BTCUSD", "", "")]
    with pytest.raises(ProtocolError, match=r"no spot pair: \['error'\]"):
        read(some, {"error": {"code": 7}})


def test_rows_may_be_the_members_of_an_object_in_the_answer() -> None:
    assert len(read(reader(rows="found.rows"), {"found": {"rows": {"a": ROW, "b": ROW}}})) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"code": "7", "data": [ROW]}, "the instruments are refused: code is 7"),
        ({"code": 7}, "the instruments are refused: code is 7"),
        ({"data": [ROW]}, "the instruments cannot be read: .*code"),
        ({"code": "0"}, "the instruments cannot be read: data is missing"),
        ({"code": "0", "data": 5}, "the instruments cannot be read"),
        ([ROW], "the instruments cannot be read"),
    ],
)
def test_an_answer_that_is_no_list_is_an_error_of_the_exchange(body: object, words: str) -> None:
    some = reader(rows="data", answered={"code": ("0",)})
    assert len(read(some, {"code": "0", "data": [ROW]})) == 1
    with pytest.raises(ProtocolError, match=words):
        read(some, body)


def test_a_list_that_is_too_long_is_refused() -> None:
    assert len(read(reader(), [ROW] * 3, rows_max=3)) == 3
    with pytest.raises(ProtocolError, match="the list has 3 rows, more than 2"):
        read(reader(), [ROW] * 3, rows_max=2)


def test_another_exchange_has_the_same_list_and_codes_of_its_own() -> None:
    some = reader()
    other = some.of("okxus")
    assert {each.exchange for each in other(json.dumps([ROW]).encode())} == {"okxus"}
    assert {each.exchange for each in some(json.dumps([ROW]).encode())} == {"okx"}


@pytest.mark.parametrize(
    ("decimals", "step"),
    [(0, "1"), (1, "0.1"), (8, "0.00000001"), (18, "0.000000000000000001"), (19, ""), (-1, "")],
)
def test_a_step_has_as_many_decimals_as_were_named(decimals: int, step: str) -> None:
    assert step_of(decimals) == step
    assert step_of(str(decimals)) == step
    assert step_of(None) == ""


@pytest.mark.parametrize("decimals", ["", "x", "1.0", "007", "9" * 5_000])
def test_decimals_that_are_no_small_number_make_no_step(decimals: str) -> None:
    assert step_of(decimals) == ""


@pytest.mark.parametrize("unusable", [None, "", "1e3", "-1", "about 5", True, {"min": "1"}, [5]])
def test_an_unusable_least_amount_costs_no_instrument(unusable: object) -> None:
    some = reader(least_amount="least", least_notional="value")
    (found,) = some(json.dumps([ROW | {"least": unusable, "value": "5.00"}]).encode())
    assert (found.least_amount, found.least_notional) == ("", "5")


@pytest.mark.parametrize("least", ["0.001", 0.001])
def test_a_least_amount_is_text_or_a_number(least: object) -> None:
    (found,) = reader(least_amount="least")(json.dumps([ROW | {"least": least}]).encode())
    assert (found.least_amount, found.least_notional) == ("0.001", "")

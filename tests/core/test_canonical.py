"""Canonical numbers, times, texts and ids: compared with `decimal` and `datetime`."""

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.both import COMPILED, EACH, needs_compiled
from onebook.core import reference
from onebook.core.reference.canonical import record_id, show
from onebook.core.types import CHARS_MAX, EXPONENT_MAX, NumberError

CANONICAL = re.compile(r"(?!-0$)-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999

# Whatever an exchange could send where a number belongs, and then some.
numbers = st.one_of(
    st.text(max_size=12),
    st.text("0123456789.-+eE", max_size=12),
    st.from_regex(CANONICAL, fullmatch=True),
    st.text("0123456789", min_size=CHARS_MAX - 2, max_size=CHARS_MAX + 2),
    st.text("\u0660\u0669\uff10\uff19\xb2\xb9019.", max_size=6),  # digits of other scripts
    st.decimals(allow_nan=True, allow_infinity=True),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.none(),
    st.binary(max_size=3),
)


def said(function: Any, *values: Any) -> Any:
    """The result of a function, or its exception."""
    try:
        return function(*values)
    except ValueError as error:
        return type(error), str(error)


class TestNumbers:
    @pytest.mark.parametrize("core", EACH)
    @pytest.mark.parametrize(
        ("given_text", "expected"),
        [
            ("1", "1"),
            ("0", "0"),
            ("-0", "0"),
            ("-", NumberError),
            (".", NumberError),
            ("-.5", "-0.5"),
            ("0.000000000000000000", "0"),
            ("-0.0", "0"),
            ("1.50", "1.5"),
            ("100", "100"),
            ("007", "7"),
            ("1E-7", "0.0000001"),
            ("1e3", "1000"),
            ("1e5", "100000"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+1", "1"),
            ("-12.3400", "-12.34"),
            ("1.2.3", NumberError),
            (7, "7"),
            (-7, "-7"),
            (Decimal("0.10"), "0.1"),
            ("", None),
            (None, None),
            ("9" * CHARS_MAX, NumberError),
            ("0." + "1" * (CHARS_MAX - 2), "0." + "1" * (CHARS_MAX - 2)),
            ("0." + "1" * (CHARS_MAX - 1), NumberError),
        ],
    )
    def test_canonical_form(self, core: Any, given_text: Any, expected: Any) -> None:
        if given_text == "9" * CHARS_MAX:
            expected = given_text  # long, and canonical already
        found = said(core.canonical, given_text)
        assert (found[0] if type(found) is tuple else found) == expected

    @pytest.mark.parametrize("core", EACH)
    @pytest.mark.parametrize(
        "text",
        ["x", "1_000", "NaN", "Infinity", "--1", "1,5", " 1", "1\n", "٣", "1e9999", "9" * 300,
         True, 1.5, b"1"],
    )  # fmt: skip
    def test_what_is_no_number_is_refused(self, core: Any, text: object) -> None:
        with pytest.raises(NumberError) as refused:
            core.canonical(text)
        assert len(str(refused.value)) < CHARS_MAX + 60

    @pytest.mark.parametrize("core", EACH)
    @given(value=st.decimals(-(10**20), 10**20, allow_nan=False, allow_infinity=False))
    def test_it_keeps_the_value_and_is_a_fixed_point(self, core: Any, value: Decimal) -> None:
        if value and abs(value.adjusted()) > EXPONENT_MAX:
            return
        text = core.canonical(str(value))
        assert CANONICAL.fullmatch(text)
        assert Decimal(text) == value
        assert json.loads(text, parse_int=Decimal, parse_float=Decimal) == value
        assert core.canonical(text) == text
        assert show(value) == text

    @pytest.mark.parametrize("capitals", [0, 1])
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("1E+3", "1000"),
            ("-1.50E+1", "-15"),
            ("1E-9", "0.000000001"),
            ("0E-9", "0"),
            ("-0", "0"),
        ],
    )
    def test_an_exponent_is_written_out_in_every_context(
        self, value: str, text: str, capitals: int
    ) -> None:
        with localcontext(Context(capitals=capitals)):
            assert show(Decimal(value)) == text

    @needs_compiled
    @given(value=numbers)
    @example("-")
    @example("-0.")
    @example("0.10")
    def test_both_say_the_same(self, value: Any) -> None:
        assert said(COMPILED.canonical, value) == said(reference.canonical, value)

    @needs_compiled
    @given(values=st.lists(numbers, max_size=5))
    def test_both_say_the_same_of_several(self, values: list[Any]) -> None:
        assert said(COMPILED.canonicals, *values) == said(reference.canonicals, *values)

    @needs_compiled
    @given(value=st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{0,40}0{0,22})?", fullmatch=True))
    @example("0." + "0" * 58 + "10")
    @example("0." + "0" * 70 + "10")
    @example("-0.000")
    @example("10.0")
    def test_both_cut_the_same_zeros_off(self, value: str) -> None:
        assert said(COMPILED.canonical, value) == said(reference.canonical, value)

    @pytest.mark.parametrize("core", EACH)
    def test_several_at_once(self, core: Any) -> None:
        assert core.canonicals("1.0", None, 5, "", "-3") == ["1", None, "5", None, "-3"]
        assert core.canonicals() == []


class TestTimes:
    @pytest.mark.parametrize("core", EACH)
    @given(at_ms=st.integers(FIRST_MS, LAST_MS))
    @example(FIRST_MS)
    @example(LAST_MS)
    @example(0)
    @example(-1)
    @example(951_782_400_000)  # 29 February 2000
    def test_a_time_is_what_datetime_says(self, core: Any, at_ms: int) -> None:
        at = EPOCH + timedelta(milliseconds=at_ms)
        text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert core.iso(at_ms) == text

    @pytest.mark.parametrize("core", EACH)
    @pytest.mark.parametrize(
        "at_ms", [FIRST_MS - 1, LAST_MS + 1, 2**63 - 1, -(2**63), 2**63, 10**30, -(10**30)]
    )
    def test_what_has_no_year_of_four_digits_is_refused(self, core: Any, at_ms: int) -> None:
        with pytest.raises(ValueError, match="years 1 to 9999"):
            core.iso(at_ms)


class TestTexts:
    @pytest.mark.parametrize("core", EACH)
    def test_absent_and_empty_are_none_and_numbers_are_texts(self, core: Any) -> None:
        row = {"a": "x", "b": "", "c": None, "d": 0, "e": Decimal("1.50"), "f": []}
        found = core.texts(row, "a", "b", "c", "d", "e", "f", "g")
        assert found == ["x", None, None, "0", "1.50", "[]", None]

    @pytest.mark.parametrize("core", EACH)
    @pytest.mark.parametrize("row", [None, [], "text", 5])
    def test_only_a_row_has_texts(self, core: Any, row: Any) -> None:
        with pytest.raises((TypeError, AttributeError)):
            core.texts(row, "a")


class TestIds:
    def test_ids_differ_by_every_part_and_never_move(self) -> None:
        ids = {
            record_id(*parts)
            for parts in (
                ("bybit", "mainnet", "deposit", "1"),
                ("bybit", "testnet", "deposit", "1"),
                ("bybit", "mainnet", "withdrawal", "1"),
                ("okx", "mainnet", "deposit", "1"),
                ("bybit", "mainnet", "deposit", "2"),
            )
        }
        assert len(ids) == 5
        # Pinned: a change here would make every client import everything twice.
        assert record_id("bybit", "mainnet", "deposit", "1") == (
            "0x06ea6e9023ec004eb0f039b4809e427093803072"
        )

    def test_parts_are_texts(self) -> None:
        with pytest.raises(TypeError):
            record_id("a", 5)
        with pytest.raises(UnicodeEncodeError):
            record_id("\ud800")

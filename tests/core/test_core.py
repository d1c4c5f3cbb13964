"""`onebook.core` is one of the two implementations, and names the expected shapes."""

import importlib
import inspect
import sys
from typing import Any

import pytest

import onebook.core
from core.both import COMPILED, EACH, needs_compiled
from onebook.core import reference, types


@needs_compiled
def test_the_compiled_core_is_taken_where_it_is_built() -> None:
    assert onebook.core.COMPILED is True
    assert onebook.core.Book is COMPILED.Book
    assert onebook.core.View is COMPILED.View


def test_the_reference_is_used_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = dict(vars(onebook.core))
    monkeypatch.setitem(sys.modules, "onebook.core._core", None)
    monkeypatch.delattr(onebook.core, "_core", raising=False)
    try:
        importlib.reload(onebook.core)
        assert onebook.core.COMPILED is False
        assert onebook.core.Book is reference.Book
        assert onebook.core.View is reference.View
    finally:
        vars(onebook.core).update(kept)


@pytest.mark.parametrize("core", EACH)
def test_both_have_the_whole_interface(core: Any) -> None:
    for cls, names in (
        (
            core.Book,
            "price_scale amount_scale bid_count ask_count crossed nbytes replace apply clear best "
            "top ladder crc",
        ),
        (core.View, "merge full delta checksum levels"),
    ):
        thing = cls() if cls is core.Book else cls(["a"], depth=1)
        for name in names.split():
            assert hasattr(thing, name)
            member = inspect.getattr_static(cls, name, None)
            if callable(member):
                assert member.__doc__


def test_a_level_error_is_a_value_error() -> None:
    assert issubclass(types.LevelError, ValueError)

"""Onebook: every exchange in one order book; every account in one ledger.

`order_book`, `order_books`, `replay`, `history` and `bars` are the library (`onebook.library`),
which is imported when one of them is first used; `__init__.pyi` has their types. `sync` has them
without asyncio.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_LIBRARY = frozenset(("BookUpdate", "bars", "history", "order_book", "order_books", "replay"))


def __getattr__(name: str) -> Any:
    if name == "sync":
        return import_module("onebook.sync")
    if name not in _LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("onebook.library"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LIBRARY, "sync"})

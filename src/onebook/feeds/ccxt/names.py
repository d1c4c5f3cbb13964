"""Validates the operator's list of exchanges to connect through ccxt."""

from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from onebook.config import FeedSettings
from onebook.errors import ConfigError
from onebook.exchanges import resolve
from onebook.exchanges.kit import Exchange
from onebook.exchanges.kit.through_ccxt import exchange_of

SETTING: Final = "feeds.ccxt.exchanges"
MODULE: Final = "ccxt.pro"


def installed() -> bool:
    """Return whether ccxt can be imported; it is not imported for that."""
    return find_spec("ccxt") is not None


def library() -> Any:
    """Import ccxt.pro: seconds the first time, and about 100 MB; only where it is used."""
    return import_module(MODULE)


def faults(names: Collection[str]) -> Iterator[str]:
    """One sentence for each error in the operator's list."""
    if not names:
        return
    if not installed():
        yield f'{SETTING}: ccxt is not installed; install it with pip install "onebook[ccxt]".'
        return
    for name in sorted(set(names)):
        if fault := _fault(name):
            yield f"{SETTING}: {fault}"


def _fault(name: str) -> str:
    native = resolve(name)
    if native is not None:
        return f"{name!r} has a connector of Onebook ({native}), which is used instead; remove it."
    known = library().exchanges
    if name not in known:
        usable = ", ".join(each for each in known if resolve(each) is None)
        return f"ccxt.pro has no exchange {name!r}; it has {usable}."
    able = getattr(library(), name)().has
    if not able.get("watchOrderBook"):
        return f"ccxt.pro cannot watch the order books of {name!r} (watchOrderBook)."
    if able.get("spot") is False:
        return f"{name!r} trades no spot pairs, and derivatives are not merged with spot."
    return ""


def enabled(settings: FeedSettings) -> dict[str, Exchange]:
    """Return the facts of the exchanges that the operator configured through ccxt, by name.

    Raises:
        ConfigError: One of them cannot be had so; each fault is a line.
    """
    found = [*faults(settings.ccxt.exchanges)]
    if found:
        raise ConfigError("\n".join(found))
    return {
        name: exchange_of(name, str(getattr(library(), name)().name or name), settings.ccxt)
        for name in dict.fromkeys(settings.ccxt.exchanges)
    }

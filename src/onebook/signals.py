"""Signals: callbacks that any number of subscribers may have, called in order of subscription."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """An event that others subscribe to; calling it calls every subscriber."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[P, object], ...] = ()

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> None:
        """The event happened."""
        for subscriber in self._subscribers:
            subscriber(*arguments, **named)

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Call this too, from now on."""
        self._subscribers = (*self._subscribers, subscriber)

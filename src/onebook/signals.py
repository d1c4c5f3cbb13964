"""Signals: events with any number of callbacks, called in order of subscription."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """An event that others subscribe to; calling it calls every subscriber."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[P, object], ...] = ()

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Call every subscriber."""
        for subscriber in self._subscribers:
            subscriber(*arguments, **named)

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Add a callback."""
        self._subscribers = (*self._subscribers, subscriber)

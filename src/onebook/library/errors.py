"""Exceptions of the library; each is an `OnebookError` whose message says what to do."""

from onebook.errors import InvalidExchange, InvalidRequest, OnebookError, ServiceUnavailable


class UnknownExchange(InvalidExchange):
    """Unknown exchange; the message lists similar names and all known ones."""


class UnknownSymbol(InvalidRequest):
    """None of the chosen exchanges lists the symbol; the message lists similar ones."""

    code = "invalid_symbol"


class NoLiveBook(ServiceUnavailable):
    """No book became live within `timeout_s`, or none can; the message has the reasons."""

    code = "no_live_book"


class BookClosed(OnebookError):
    """An order book was used outside of its `async with` block."""

    code = "book_closed"

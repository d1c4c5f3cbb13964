"""Exceptions of the library; each is an `OnebookError` whose message says what to do."""

from onebook.errors import InvalidExchange, InvalidRequest, OnebookError, ServiceUnavailable


class UnknownExchange(InvalidExchange):
    """No exchange has this name; the message lists near ones and all that are known."""


class UnknownSymbol(InvalidRequest):
    """None of the chosen exchanges lists the symbol; the message lists near ones."""

    code = "invalid_symbol"


class NoLiveBook(ServiceUnavailable):
    """No book became live within `timeout_s`, or none can; the message says why, by exchange."""

    code = "no_live_book"


class BookClosed(OnebookError):
    """An order book was used outside of its `async with` block."""

    code = "book_closed"

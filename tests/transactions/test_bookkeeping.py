"""How an exchange names what it books."""

from onebook.transactions.bookkeeping import (
    Bookkeeping,
    EventType,
)
from onebook.transactions.bybit.books import BOOKS


def test_names_stand_for_the_types_of_the_exchange() -> None:
    assert BOOKS.types_of(EventType.TRADES) == {"spot_orders"}
    assert BOOKS.types_of(EventType.FUTURES) == {"futures_linear", "futures_inverse"}
    assert BOOKS.types_of(EventType.LEDGER) == {"ledger"}


def test_an_exchange_without_them_has_no_types() -> None:
    plain = Bookkeeping()
    assert [
        plain.types_of(name) for name in (EventType.TRADES, EventType.FUTURES, EventType.TOKENS)
    ] == [set()] * 3
    assert plain.types_of(EventType.DEPOSITS) == {"deposits"}


def test_a_category_of_markets_has_a_type() -> None:
    assert BOOKS.type_of("spot") == "spot_orders"
    assert BOOKS.type_of("linear") == "futures_linear"
    assert BOOKS.type_of("option") == ""


def test_words_are_what_clients_ask_for() -> None:
    assert BOOKS.word(EventType.TRADES) == "spot_orders"
    assert BOOKS.word(EventType.FUTURES) == "futures"

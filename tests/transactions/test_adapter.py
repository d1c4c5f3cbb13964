"""The facts that an adapter states about its exchange."""

from msgspec.structs import replace

from onebook.transactions.adapter import (
    KEY_FIELD,
    PASSPHRASE_FIELD,
    SECRET_FIELD,
    Bookkeeping,
    EventType,
    FailureReason,
    Source,
    SourceFailed,
)
from onebook.transactions.bybit import ENTRY
from onebook.transactions.bybit.endpoints import BOOKKEEPING


def test_an_entry_requires_a_passphrase_where_one_of_its_fields_is_it() -> None:
    assert not ENTRY.requires_passphrase
    assert replace(ENTRY, fields=(KEY_FIELD, SECRET_FIELD, PASSPHRASE_FIELD)).requires_passphrase


def test_the_default_words_are_among_the_accepted() -> None:
    assert set(ENTRY.default) <= set(ENTRY.sources_by_type)
    assert set(ENTRY.types) <= set(ENTRY.sources_by_type)


def test_a_source_pages_newest_first_by_times_unless_it_says_otherwise() -> None:
    plain = Source(name="s", type="t", window_ms=1)
    assert (plain.oldest_first, plain.ranged, plain.cursor_lasts) == (False, True, False)


def test_a_failure_prints_its_sentence_alone() -> None:
    failure = SourceFailed(FailureReason.RATE_LIMITED, "Too many.", exchange_code=7)
    assert str(failure) == failure.message == "Too many."
    assert (failure.retryable, failure.fatal, failure.retry_after_s) == (False, False, None)


def test_codes_for_machines_are_stable() -> None:
    assert {reason.value for reason in FailureReason} == {
        "authentication_failed", "permission_denied", "rate_limited", "exchange_unreachable",
        "exchange_error", "unreadable_answer", "retry_budget_spent", "circuit_open",
        "no_credentials", "not_offered", "product_not_opened", "location_refused",
        "not_collected", "collection_unreadable",
        "export_pending", "export_failed", "export_directory_full",
    }  # fmt: skip


def test_names_stand_for_the_types_of_the_exchange() -> None:
    assert BOOKKEEPING.types_of(EventType.TRADES) == {"spot_orders"}
    assert BOOKKEEPING.types_of(EventType.FUTURES) == {"futures_linear", "futures_inverse"}
    assert BOOKKEEPING.types_of(EventType.LEDGER) == {"ledger"}


def test_an_exchange_without_them_has_no_types() -> None:
    plain = Bookkeeping()
    assert [
        plain.types_of(name) for name in (EventType.TRADES, EventType.FUTURES, EventType.TOKENS)
    ] == [set()] * 3
    assert plain.types_of(EventType.DEPOSITS) == {"deposits"}


def test_a_category_of_markets_has_a_type() -> None:
    assert BOOKKEEPING.type_of("spot") == "spot_orders"
    assert BOOKKEEPING.type_of("linear") == "futures_linear"
    assert BOOKKEEPING.type_of("option") == ""


def test_words_are_what_clients_ask_for() -> None:
    assert BOOKKEEPING.word(EventType.TRADES) == "spot_orders"
    assert BOOKKEEPING.word(EventType.FUTURES) == "futures"

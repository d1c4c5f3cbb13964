"""What an adapter says of its exchange."""

from msgspec.structs import replace

from onebook.transactions.adapter import KEY_FIELD, PASSPHRASE_FIELD, SECRET_FIELD, Source
from onebook.transactions.bybit import ENTRY


def test_an_entry_requires_a_passphrase_where_one_of_its_fields_is_it() -> None:
    assert not ENTRY.requires_passphrase
    assert replace(ENTRY, fields=(KEY_FIELD, SECRET_FIELD, PASSPHRASE_FIELD)).requires_passphrase


def test_the_default_words_are_among_the_accepted() -> None:
    assert set(ENTRY.default) <= set(ENTRY.words)
    assert set(ENTRY.types) <= set(ENTRY.words)


def test_a_source_pages_newest_first_by_times_unless_it_says_otherwise() -> None:
    plain = Source(name="s", type="t", window_ms=1)
    assert (plain.oldest_first, plain.ranged, plain.cursor_lasts) == (False, True, False)

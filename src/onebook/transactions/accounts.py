"""Named accounts: several of one exchange, such as `kraken` and `kraken:treasury`.

An exchange's first account has the name of the exchange. Others add a colon and a label, and have
their own credentials. Their records name the account, and the label is part of the record ids: a
transfer between two accounts of a user is one event in each, under the same id of the exchange.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from onebook.core import record_id
from onebook.errors import InvalidRequest
from onebook.transactions.adapter import (
    BranchingReader,
    EventRow,
    JoiningReader,
    Page,
    PageReader,
    Source,
    Window,
)
from onebook.transactions.mapping import PATTERNS_MAX
from onebook.transactions.record import Holder, Record

ALL: Final = "all"  # every account with credentials
ACCOUNTS_MAX: Final = 32  # per request
LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class AccountName(NamedTuple):
    """The name of an account: its exchange and its label ("" for the first account)."""

    exchange: str
    label: str

    def __str__(self) -> str:
        return f"{self.exchange}:{self.label}" if self.label else self.exchange


def account_name(text: str) -> AccountName:
    """Read the name of an account, such as `kraken:treasury`.

    Raises:
        InvalidRequest: The label is not a plain word.
    """
    exchange, colon, label = text.partition(":")
    if colon and not LABEL.fullmatch(label):
        raise InvalidRequest(
            f"Account {text[:80]!r}: the label must be up to 32 lower-case letters, "
            "digits, - and _."
        )
    return AccountName(exchange, label)


class NamingReader:
    """A reader whose records name their account."""

    def __init__(self, reader: PageReader, account: AccountName) -> None:
        self._reader = reader
        self._account = account

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fetch one page; see `PageReader`."""
        return self._named(await self._reader.page(source, window, cursor))

    async def join(self, source: Source, groups: list[list[EventRow]]) -> Page:
        """Join rows; see `JoiningReader`."""
        assert isinstance(self._reader, JoiningReader)
        return self._named(await self._reader.join(source, groups))

    async def branches(self, source: Source) -> list[str]:
        """Find branches; see `BranchingReader`."""
        assert isinstance(self._reader, BranchingReader)
        return await self._reader.branches(source)

    def _named(self, page: Page) -> Page:
        if not page.records:  # `SKIPPED_PAGE` is recognised by identity
            return page
        return replace(page, records=[named(each, self._account) for each in page.records])


def named(record: Record, account: AccountName) -> Record:
    """Return a record that names its account; a label becomes a part of its ids."""
    holder = _holder(record.account, account)
    if not account.label:
        return replace(record, account=holder)
    name, environment = str(account), record.environment
    return replace(
        record,
        account=holder,
        transactionId=record_id(name, environment, "account", record.transactionId),
        related=tuple([record_id(name, environment, "account", each) for each in record.related]),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _holder(holder: Holder | None, account: AccountName) -> Holder:
    wallet, uid = (holder.wallet, holder.uid) if holder else (None, None)
    return Holder(wallet, uid, str(account))

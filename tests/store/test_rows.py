"""The row types of the store: their fields are columns, and none shows a secret."""

from typing import Any

import pytest
from msgspec import Struct
from sqlalchemy import Table

from onebook.store import AccountRow, CredentialsRow, KeyRow, SessionRow, UsageCell
from onebook.store.tables import accounts, credentials, keys, sessions, usage

OF_ACCOUNT = {"username", "account_status"}


def members(row: Any) -> set[str]:
    return set(row.__struct_fields__ if issubclass(row, Struct) else row._fields)


@pytest.mark.parametrize(
    ("row", "table", "elsewhere"),
    [
        (AccountRow, accounts, set()),
        (KeyRow, keys, OF_ACCOUNT),
        (CredentialsRow, credentials, set()),
        (UsageCell, usage, set()),
        (SessionRow, sessions, set()),
    ],
)
def test_every_member_is_a_column(row: Any, table: Table, elsewhere: set[str]) -> None:
    assert members(row) - elsewhere <= set(table.columns.keys())


@pytest.mark.parametrize("row", [AccountRow, KeyRow, SessionRow])
def test_digests_stay_in_the_database(row: Any) -> None:
    assert "digest" not in members(row)

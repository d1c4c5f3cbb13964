"""Encrypted credentials, on both databases."""

from msgspec.structs import replace

from onebook.store import CredentialsRow, Store
from onebook.store.rows import AuditedChange


async def test_credentials_are_kept_one_per_exchange_environment(store: Store) -> None:
    main = CredentialsRow("bybit", "mainnet", "kek-1", b"\x00secret", b"nonce", 1)
    test = replace(main, environment="testnet", ciphertext=b"other")
    await store.credentials.put_credentials(test)
    await store.credentials.put_credentials(main)
    assert await store.credentials.credentials("bybit", "mainnet") == main
    assert await store.credentials.credentials("okx", "mainnet") is None
    assert await store.credentials.list_credentials() == [main, test]
    newer = replace(main, ciphertext=b"newer", created_at_ms=2)
    await store.credentials.put_credentials(newer)
    assert await store.credentials.credentials("bybit", "mainnet") == newer
    assert await store.credentials.delete_credentials("bybit", "mainnet")
    assert not await store.credentials.delete_credentials("bybit", "mainnet")
    assert await store.credentials.list_credentials() == [test]


async def test_credentials_are_rewrapped_only_if_unchanged(store: Store) -> None:
    old = CredentialsRow("bybit", "mainnet", "kek-1", b"under one", b"nonce", 1)
    new = replace(old, kek_id="kek-2", ciphertext=b"under two", nonce=b"another")
    await store.credentials.put_credentials(old)
    assert await store.credentials.rewrap_credentials(old, new)
    assert await store.credentials.credentials("bybit", "mainnet") == new
    assert not await store.credentials.rewrap_credentials(old, new)


async def test_what_an_operator_changes_is_in_the_audit_trail_with_it(store: Store) -> None:
    row = CredentialsRow("bybit", "testnet", "kek-1", b"secret", b"nonce", 1)
    await store.credentials.put_credentials(row, AuditedChange(1, "root", ""))
    assert await store.credentials.delete_credentials(
        "bybit", "testnet", AuditedChange(2, "root", "")
    )
    assert not await store.credentials.delete_credentials(
        "bybit", "testnet", AuditedChange(3, "root", "")
    )
    trail = await store.audit.changes(None, since_ms=0, until_ms=10, rows_max=10)
    assert [(one.changed_at_ms, one.action, one.subject) for one in trail] == [
        (2, "remove_credentials", "bybit/testnet"),
        (1, "set_credentials", "bybit/testnet"),
    ]

"""Encrypted credentials, on both databases."""

from msgspec.structs import replace

from onebook.store import CredentialsRow, Store


async def test_credentials_are_kept_one_per_exchange_environment(store: Store) -> None:
    main = CredentialsRow("bybit", "mainnet", "kek-1", b"\x00secret", b"nonce", 1)
    test = replace(main, environment="testnet", ciphertext=b"other")
    await store.put_credentials(test)
    await store.put_credentials(main)
    assert await store.credentials("bybit", "mainnet") == main
    assert await store.credentials("okx", "mainnet") is None
    assert await store.list_credentials() == [main, test]
    newer = replace(main, ciphertext=b"newer", created_at_ms=2)
    await store.put_credentials(newer)
    assert await store.credentials("bybit", "mainnet") == newer
    assert await store.delete_credentials("bybit", "mainnet")
    assert not await store.delete_credentials("bybit", "mainnet")
    assert await store.list_credentials() == [test]


async def test_credentials_are_rewrapped_only_if_unchanged(store: Store) -> None:
    old = CredentialsRow("bybit", "mainnet", "kek-1", b"under one", b"nonce", 1)
    new = replace(old, kek_id="kek-2", ciphertext=b"under two", nonce=b"another")
    await store.put_credentials(old)
    assert await store.rewrap_credentials(old, new)
    assert await store.credentials("bybit", "mainnet") == new
    assert not await store.rewrap_credentials(old, new)

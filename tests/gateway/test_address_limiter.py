"""Who may connect, and whose address it is."""

import pytest

from onebook.gateway.address_limiter import AddressLimiter


def test_60_attempts_a_minute_from_one_address_and_others_are_not_affected():
    address_limiter = AddressLimiter(60)
    assert [address_limiter.attempt("192.0.2.1", 0.0) for _ in range(60)] == [0.0] * 60
    assert address_limiter.attempt("192.0.2.1", 0.0) == 1.0
    assert address_limiter.attempt("192.0.2.2", 0.0) == 0.0
    assert address_limiter.attempt("192.0.2.1", 1.0) == 0.0


def test_ipv6_counts_by_64():
    address_limiter = AddressLimiter(1)
    assert address_limiter.attempt("2001:db8::1", 0.0) == 0.0
    assert address_limiter.attempt("2001:db8::2", 0.0) > 0
    assert address_limiter.attempt("2001:db8:0:1::1", 0.0) == 0.0


def test_zero_does_not_count():
    assert [AddressLimiter(0).attempt("192.0.2.1", 0.0) for _ in range(1_000)] == [0.0] * 1_000


@pytest.mark.parametrize(
    ("peer", "forwarded", "whose"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("10.0.0.5", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("::1", "198.51.100.7", "198.51.100.7"),
        ("", "198.51.100.7", "unknown"),
        ("socket", "198.51.100.7", "socket"),
    ],
)
def test_only_a_proxy_that_we_believe_names_another_address(peer, forwarded, whose):
    assert AddressLimiter(60, ("10.0.0.0/8", "::1")).address(peer, forwarded) == whose

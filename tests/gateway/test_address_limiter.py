"""Limits of connection attempts and sockets by address, behind proxies too."""

import pytest

from onebook.gateway.address_limiter import AddressLimiter


def test_60_attempts_a_minute_from_one_address_and_others_are_not_affected():
    address_limiter = AddressLimiter(60)
    assert not any(address_limiter.attempt("192.0.2.1", 0.0) for _ in range(60))
    assert address_limiter.attempt("192.0.2.1", 0.0)["Retry-After"] == "1"
    assert address_limiter.attempt("192.0.2.2", 0.0) == {}
    assert address_limiter.attempt("192.0.2.1", 1.0) == {}


def test_ipv6_counts_by_64():
    address_limiter = AddressLimiter(1)
    assert address_limiter.attempt("2001:db8::1", 0.0) == {}
    assert address_limiter.attempt("2001:db8::2", 0.0)
    assert address_limiter.attempt("2001:db8:0:1::1", 0.0) == {}


def test_zero_does_not_count():
    assert not any(AddressLimiter(0).attempt("192.0.2.1", 0.0) for _ in range(1_000))


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
def test_only_a_trusted_proxy_names_another_address(peer, forwarded, whose):
    assert AddressLimiter(60, ("10.0.0.0/8", "::1")).address(peer, forwarded) == whose


def test_an_address_has_so_many_sockets_until_one_is_closed():
    limiter = AddressLimiter(0, sockets_per_address_max=2)
    first, second = limiter.enter("2001:db8::1"), limiter.enter("2001:db8::2")
    assert first is not None
    assert second is not None
    assert limiter.enter("2001:db8::3") is None
    assert limiter.enter("192.0.2.1") is not None
    first.leave()
    first.leave()  # uncounted once
    assert limiter.enter("2001:db8::3") is not None
    assert limiter.enter("2001:db8::4") is None


def test_a_refusal_says_when_to_return_in_every_header_that_says_it():
    limiter = AddressLimiter(2, sockets_per_address_max=5)
    assert not any(limiter.attempt("192.0.2.1", 0.0) for _ in range(2))
    assert limiter.attempt("192.0.2.1", 10.5) == {
        "RateLimit-Policy": '"connects";q=2;w=60',
        "RateLimit": '"connects";r=0;t=20',
        "X-RateLimit-Limit": "2",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "20",
        "Retry-After": "20",
    }
    assert limiter.attempt("192.0.2.1", 30.5) == {}
    assert limiter.socket_headers(3) == {
        "RateLimit-Policy": '"sockets";q=5',
        "RateLimit": '"sockets";r=0;t=3',
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "3",
        "Retry-After": "3",
    }


def test_limits_that_change_keep_what_was_counted():
    limiter = AddressLimiter(1, sockets_per_address_max=1)
    assert limiter.attempt("192.0.2.1", 0.0) == {}
    held = limiter.enter("192.0.2.1")
    assert held is not None
    limiter.limit(1, 2)
    assert limiter.attempt("192.0.2.1", 0.0)
    assert limiter.enter("192.0.2.1") is not None
    assert limiter.enter("192.0.2.1") is None
    limiter.limit(0, 0)
    assert limiter.attempt("192.0.2.1", 0.0) == {}
    assert limiter.enter("192.0.2.1") is not None


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("192.0.2.1", False),
        ("", False),
        ("socket", False),
    ],
)
def test_this_machine_and_proxies_are_trusted(peer, trusted):
    assert AddressLimiter(60, ("10.0.0.0/8",)).trusts(peer) is trusted

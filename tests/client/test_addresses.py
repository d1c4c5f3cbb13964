"""The REST and WebSocket addresses that a service URL stands for."""

import pytest

from onebook.client.addresses import addresses_of, websocket_of
from onebook.client.failures import Refused


@pytest.mark.parametrize(
    ("url", "rest", "websocket"),
    [
        ("http://h:8000", "http://h:8000/api/v1", "ws://h:8000/api/v1/ws"),
        ("https://h", "https://h/api/v1", "wss://h/api/v1/ws"),
        ("ws://h:1/", "http://h:1/api/v1", "ws://h:1/api/v1/ws"),
        ("wss://h/api/v1/ws", "https://h/api/v1", "wss://h/api/v1/ws"),
        ("https://h/api/v1/", "https://h/api/v1", "wss://h/api/v1/ws"),
        ("https://h/books", "https://h/books/api/v1", "wss://h/books/api/v1/ws"),
        ("https://h/books/api/v1/ws", "https://h/books/api/v1", "wss://h/books/api/v1/ws"),
        ("http://[::1]:8000", "http://[::1]:8000/api/v1", "ws://[::1]:8000/api/v1/ws"),
        ("h:8000", "http://h:8000/api/v1", "ws://h:8000/api/v1/ws"),
        ("localhost:8000/", "http://localhost:8000/api/v1", "ws://localhost:8000/api/v1/ws"),
        ("books.example", "https://books.example/api/v1", "wss://books.example/api/v1/ws"),
        ("[::1]:8000", "http://[::1]:8000/api/v1", "ws://[::1]:8000/api/v1/ws"),
        ("[::1]", "https://[::1]/api/v1", "wss://[::1]/api/v1/ws"),
    ],
)
def test_rest_and_websocket_have_the_same_place_and_the_same_security(url, rest, websocket):
    addresses = addresses_of(url)
    assert (addresses.rest, addresses.websocket) == (rest, websocket)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:0",
        "h:port",
        ":8000",
        "ftp://h",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://[::1",
        "http://a..b",
        f"http://{'a' * 64}.example",
        "http://a\x00b",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(url):
    with pytest.raises(Refused, match=r"for example http://127\.0\.0\.1:8000\.") as refused:
        addresses_of(url)
    assert refused.value.code == "invalid_url"


@pytest.mark.parametrize(
    ("url", "websocket"),
    [
        ("http://h:8000", "ws://h:8000/api/v1/ws"),
        ("h:8000", "ws://h:8000/api/v1/ws"),
        ("https://h/books", "wss://h/books/api/v1/ws"),
        ("ws://h:8000", "ws://h:8000/api/v1/ws"),
        ("wss://h/", "wss://h/api/v1/ws"),
        ("ws://h:8000/api/v1/ws", "ws://h:8000/api/v1/ws"),
        ("wss://h/stream?of=mine", "wss://h/stream?of=mine"),
    ],
)
def test_a_websocket_address_with_a_path_of_its_own_stays(url, websocket):
    assert websocket_of(url) == websocket

"""Requests as the application sees them: target in origin-form, upgrades of HTTP/1.1 only."""

import h11
import pytest

from onebook.http.connection import RequestParser

from .rig import BIG, peer_of, served


def parsed(data):
    parser = RequestParser(h11.SERVER)
    parser.receive_data(data)
    return parser.next_event()


@pytest.mark.parametrize(
    ("sent", "target", "host"),
    [
        (b"http://books.example/a/b?c=http://d/e", b"/a/b?c=http://d/e", b"books.example"),
        (b"HTTPS://books.example:8443/a", b"/a", b"books.example:8443"),
        (b"http://books.example", b"/", b"books.example"),
        (b"http://books.example?a=1", b"/?a=1", b"books.example"),
        (b"http:///a", b"http:///a", b"other.example"),
        (b"ftp://books.example/a", b"ftp://books.example/a", b"other.example"),
        (b"/a?b=http://c/d", b"/a?b=http://c/d", b"other.example"),
        (b"//books.example/a", b"//books.example/a", b"other.example"),
        (b"*", b"*", b"other.example"),
    ],
)
def test_a_target_in_absolute_form_gives_its_path_and_its_host(sent, target, host):
    request = parsed(b"GET " + sent + b" HTTP/1.1\r\nHost: other.example\r\nX: y\r\n\r\n")
    assert request.target == target
    assert dict(request.headers) == {b"host": host, b"x": b"y"}


@pytest.mark.parametrize(("version", "kept"), [(b"1.0", False), (b"1.1", True)])
def test_upgrade_is_ignored_in_http_1_0(version, kept):
    request = parsed(b"GET / HTTP/" + version + b"\r\nHost: x\r\nUpgrade: websocket\r\n\r\n")
    assert (b"upgrade" in dict(request.headers)) is kept
    assert request.http_version == version


async def test_a_server_answers_a_target_in_absolute_form():
    async with served() as port, peer_of(port) as peer:
        await peer.send(b"HEAD http://x/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"content-length: %d\r\n" % len(BIG) in await peer.rest()


async def test_an_upgrade_over_http_1_0_is_answered_as_a_request():
    async with served() as port, peer_of(port) as peer:
        head = b"GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        await peer.send(head)
        assert (await peer.rest()).startswith(b"HTTP/1.1 200 OK\r\n")

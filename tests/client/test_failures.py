"""Reasons why there is no live view: codes, sentences, and final failures."""

import errno
import socket
import ssl

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import (
    ConnectionClosedError,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.frames import Close
from websockets.http11 import Response

from onebook.client.failures import (
    BACKOFF_MAX_S,
    NO_CLOSE_FRAME,
    RETRY_AFTER_MAX_S,
    BookProblem,
    Refused,
    closed,
    connect_failed,
    pause_s,
)

URL = "wss://user:ob_live_secret@h/api/v1/ws?api_key=ob_live_secret"


def status(number, **headers):
    fields = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return InvalidStatus(Response(number, "", fields, b""))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), "timeout"),
        (socket.gaierror(-2, "unknown"), "unknown_host"),
        (ConnectionRefusedError(), "unreachable"),
        (OSError(errno.EHOSTUNREACH, ""), "unreachable"),
        (InvalidMessage("no answer"), "no_handshake"),
        (status(503), "http_503"),
        (status(429), "http_429"),
    ],
)
def test_what_may_pass_is_a_code_and_a_sentence(error, code):
    got, sentence, wait_s = connect_failed(URL, error)
    assert (got, wait_s) == (code, None)
    assert sentence.endswith(".")
    assert "secret" not in sentence


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ssl.SSLCertVerificationError(), "untrusted_certificate"),
        (InvalidURI(URL, "odd"), "invalid_url"),
        (InvalidHandshake("odd"), "not_websocket"),
        (status(404), "http_404"),
        (status(401), "http_401"),
    ],
)
def test_what_cannot_pass_is_refused(error, code):
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = "self-signed certificate"
    with pytest.raises(Refused) as refused:
        connect_failed(URL, error)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("field", "wait_s"), [("7", 7.0), ("-1", 0.0), ("999999", RETRY_AFTER_MAX_S), ("soon", None)]
)
def test_retry_after_is_bounded_and_may_be_senseless(field, wait_s):
    assert connect_failed(URL, status(503, Retry_After=field))[2] == wait_s


def ended(number, reason=""):
    return ConnectionClosedError(Close(number, reason), None, None)


def test_a_final_close_code_is_refused_with_the_error_before_it():
    cause = BookProblem("data_limit_exceeded", "The allowance is used.")
    with pytest.raises(Refused, match=r"The allowance is used\.") as refused:
        closed(ended(4003), cause)
    assert refused.value.code == "data_limit_exceeded"
    with pytest.raises(Refused, match=r"code 4001\."):
        closed(ended(4001), None)


def test_other_closes_can_be_retried():
    assert closed(ended(4108, "nothing was read"), None) == ("4108", "nothing was read", 4108)
    broken = ConnectionClosedError(None, None, None)
    assert closed(broken, None) == ("1006", "The connection was lost.", NO_CLOSE_FRAME)


def test_pauses_grow_to_a_ceiling():
    pauses = [pause_s(NO_CLOSE_FRAME, attempt, draw=lambda: 1.0) for attempt in range(10)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *[BACKOFF_MAX_S] * 3]
    assert pause_s(NO_CLOSE_FRAME, 10**9, draw=lambda: 1.0) == BACKOFF_MAX_S
    assert pause_s(NO_CLOSE_FRAME, 5, draw=lambda: 0.0) == 0.0


def test_a_busy_service_is_left_alone_for_at_least_half_the_pause():
    assert pause_s(4108, 0, draw=lambda: 0.0) == 0.5
    assert pause_s(4108, 3, draw=lambda: 1.0) == 8.0


def test_a_draining_service_says_when_to_return():
    assert pause_s(4200, 9, 1.5, draw=lambda: 1.0) == 1.5
    assert pause_s(4200, 0, draw=lambda: 1.0) == 0.25


def test_retry_after_is_the_least_pause():
    assert pause_s(NO_CLOSE_FRAME, 0, 7.0, draw=lambda: 1.0) == 7.0

"""Forms and examples of frames: their kind, and no private data in them."""

import getpass
import socket
from pathlib import Path

import pytest

from onebook.ops.livecheck.forms import (
    EXAMPLE_CHARACTERS,
    FORM_BYTES_MAX,
    FORM_CHARACTERS,
    Redactor,
    form_of,
)


@pytest.mark.parametrize(
    ("frame", "form"),
    [
        (b'{"type":"welcome","pingInterval":18000}', '{pingInterval:number,type:"welcome"}'),
        (b'{"b":[["1.5","2"]],"a":[],"ok":true,"no":null}', "{a:[],b:[[text]],no:null,ok:true}"),
        (b'{"topic":"ticker.BTC-USDT","BTC-USDT":1}', '{*:number,topic:"ticker.*"}'),
        (b'{"id":"e8e46556"}', "{id:text}"),
        (b'{"userName":"alice","status":"ok"}', '{status:"ok",userName:private}'),
        (b"pong", '"pong"'),
        (b"1", "number"),
        (b"\x0a\x2f\x00\xff", "binary"),
        (b"[" * 20 + b"]" * 20, "[[[[[[...]]]]]]"),
        (b"", "text"),
    ],
)
def test_a_form_has_members_kinds_and_words(frame: bytes, form: str) -> None:
    assert form_of(frame, ("BTC-USDT",)) == form


def test_a_renamed_member_is_another_form() -> None:
    assert form_of(b'{"bids":[1]}') != form_of(b'{"bidz":[1]}')


def test_forms_are_bounded() -> None:
    wide = "{" + ",".join(f'"member{at}":{{"a":1,"b":2}}' for at in range(1_000)) + "}"
    assert len(form_of(wide.encode())) == FORM_CHARACTERS
    assert form_of(b" " * (FORM_BYTES_MAX + 1)) == f"a frame of more than {FORM_BYTES_MAX:,} bytes"
    assert form_of(b"[" * 50_000)


@pytest.mark.parametrize(
    "private",
    [
        "203.0.113.7",
        "203.0.113.7:8443",
        "2001:db8:85a3:0:0:8a2e:370:7334",
        "relay.example",
        "relay.example:9443",
        str(Path.home() / "onebook" / "keys.toml"),
        "/home/alice/onebook.toml",
        socket.gethostname(),
        "2neAiuYvAU61ZDXANAGAsiL4-iAExhsBXZxftpOeh_55i3Ysy2q2LEsEWU64mdzU",
        "9b2f8a31-77c1-4b52-9e0d-6f2f4a9b8c11",
    ],
)
def test_private_texts_are_removed(private: str) -> None:
    shown = Redactor(["relay.example"]).text(f"before {private} after")
    assert private not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_the_user_s_name_is_removed() -> None:
    user = getpass.getuser()
    if len(user) >= 2:
        assert user not in Redactor().text(f"of {user}.").replace("<own>", "")


@pytest.mark.parametrize(
    "member",
    ['"token":"abc"', '"clientIp":"x"', '"userId":12345', '"api_key" : "short"', '"connId":"5f2c"'],
)
def test_private_members_are_removed(member: str) -> None:
    shown = Redactor().text(f'{{"event":"login",{member},"ok":true}}')
    value = member.partition(":")[2].strip(' "')
    assert value not in shown
    assert '"event":"login"' in shown
    assert '"ok":true}' in shown


@pytest.mark.parametrize(
    "text",
    [
        '{"topic":"orderbookupdate@SPOT_BTC_USDT@50","ts":1618826337580}',
        '{"ch":"spot@public.aggre.depth.v3.api.pb@100ms@BTCUSDT"}',
        '{"description":"Wrong URL or channel:books,instId:ETH-USDT doesn\'t exist."}',
        '{"p":"0.00000152","q":"12345.678901234567"}',
    ],
)
def test_what_the_exchange_says_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_examples_are_one_line_and_cut() -> None:
    shown = Redactor().frame(b'{"a":"\n' + b"x y " * 1_000)
    assert len(shown) == EXAMPLE_CHARACTERS
    assert "\n" not in shown
    assert Redactor().frame(b"\x0a\x03\xff\xfe") == "0x0a03fffe (4 bytes)"
    assert Redactor().frame(("é" * 5_000).encode()).startswith("é")

"""Effects are values that show no secret, and the connection knows what to do for each."""

import json
from typing import get_args

import pytest

from onebook.gateway.commands import CommandRefused
from onebook.gateway.connection import EFFECTS
from onebook.gateway.effects import (
    Effect,
    EndConnection,
    MessageTime,
    SendText,
    VerifyKey,
    attempts_limit,
    authentication_timeout,
    connection_limit,
    key_refused,
    keys_unavailable,
)
from onebook.gateway.messages import encode_refusal


def test_every_effect_is_executed():
    assert set(EFFECTS) == set(get_args(Effect))


def test_a_key_is_not_in_the_repr():
    assert "secret" not in repr(VerifyKey("secret"))
    assert "secret" not in f"{[VerifyKey('secret')]}"


def test_a_refusal_has_a_code_a_sentence_and_fields():
    refusal = CommandRefused("invalid_symbol", "No such symbol.", symbol="NO/PAIR")
    assert (refusal.error, str(refusal)) == ("invalid_symbol", "No such symbol.")
    assert refusal.extra == {"symbol": "NO/PAIR"}


NOW = MessageTime(100.0, 1_763_632_800_000_000)


def shown(effects):
    return [json.loads(each.payload) if isinstance(each, SendText) else each for each in effects]


@pytest.mark.parametrize("code", ["invalid_api_key", "api_key_disabled"])
def test_failure_is_authentication_error_with_code_4001_then_close_4002(code):
    outputs = shown(key_refused(code, "No.", now=NOW, message_id="x"))
    refusal, end = outputs
    assert refusal == {
        "type": "authentication_error",
        "error": code,
        "message": "No.",
        "timestamp": "2025-11-20T10:00:00.000000Z",
        "code": 4001,
        "id": "x",
    }
    assert end == EndConnection(4002, code)


def test_not_authenticated_in_time_closes_4001():
    refusal, end = shown(authentication_timeout(now=NOW))
    assert (refusal["error"], refusal["code"]) == ("authentication_required", 4001)
    assert "10 seconds" in refusal["message"]
    assert end.code == 4001


def test_over_the_tiers_connections_closes_4004():
    refusal, end = shown(connection_limit(5, now=NOW, message_id=2))
    assert (refusal["error"], refusal["code"]) == ("connection_limit_exceeded", 4004)
    assert (refusal["id"], end.code) == (2, 4004)


def test_a_store_that_does_not_answer_sends_the_client_away_to_come_back():
    refusal, end = shown(keys_unavailable(now=NOW))
    assert (refusal["error"], end.code) == ("service_unavailable", 4129)


def test_an_address_with_too_many_wrong_keys_is_sent_away():
    outputs = shown(attempts_limit("Too many.", 11.2, now=NOW))
    assert outputs[0]["retry_after"] == 12
    assert (outputs[0]["error"], outputs[1].code) == ("rate_limit_exceeded", 4113)


def test_an_error_repeats_no_key():
    key = "ob_live_" + "S3cr3t" * 9
    refusal = CommandRefused("invalid_symbol", f"None of these exchanges trades {key}.", symbol=key)
    assert key.encode() not in encode_refusal(refusal, key, NOW.wall_us).replace(
        b'"id":"' + key.encode(), b""
    )

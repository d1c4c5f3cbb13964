"""Log lines, and what never stands in them."""

import io
import json
import logging
import sys

import pytest

from onebook import logs

KEY = "ob_live_" + "A" * 49


@pytest.fixture
def written():
    before = {name: logging.getLogger(name).handlers for name in (None, "onebook", "uvicorn")}
    stream = io.StringIO()
    yield stream
    for name, handlers in before.items():
        logging.getLogger(name).handlers = handlers
        logging.getLogger(name).propagate = True
    logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)


def test_json_lines_hold_time_level_part_and_message(written):
    logs.configure("info", "auto", written)
    logging.getLogger("onebook.feeds").warning("okx is back after %d s", 3)
    line = json.loads(written.getvalue())
    assert line["message"] == "okx is back after 3 s"
    assert (line["level"], line["part"]) == ("warning", "onebook.feeds")
    assert line["time"].endswith("Z")


def test_what_libraries_log_takes_the_same_form_and_is_redacted(written):
    logs.configure("info", "json", written)
    logging.getLogger("websockets").error("a frame with %s", KEY)
    line = json.loads(written.getvalue())
    assert (line["part"], KEY in line["message"]) == ("websockets", False)


def test_text_lines_are_for_people(written):
    logs.configure("info", "text", written)
    logging.getLogger("onebook.feeds").info("okx is live")
    assert written.getvalue().endswith("info    feeds: okx is live\n")


@pytest.mark.parametrize("style", ["json", "text"])
def test_keys_and_tokens_never_reach_the_log(written, style):
    logs.configure("info", style, written)
    try:
        raise ValueError(f"bad key {KEY}")
    except ValueError:
        logging.getLogger("onebook").error("token obs_%s", "B" * 43, exc_info=sys.exc_info())
    assert KEY not in written.getvalue()
    assert "BBBB" not in written.getvalue()
    assert "ob_live_..." in written.getvalue()


def test_what_an_exchange_says_cannot_forge_lines_or_steer_a_terminal(written):
    logs.configure("info", "text", written)
    hostile = "off\n12:00:00 error onebook: fake \x1b[2J\x00\u202etxt\u2028\x9b"
    try:
        raise ValueError(hostile)
    except ValueError:
        logging.getLogger("onebook.feeds").warning("okx says %s", hostile, exc_info=True)
    text = written.getvalue()
    assert "okx says off\\n12:00:00 error onebook: fake \\x1b[2J\\x00\\u202etxt\\u2028" in text
    assert all(char == "\n" or char.isprintable() for char in text)
    assert not any(line.startswith("\x1b") for line in text.splitlines())


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_line_may_have_fields_of_its_own(written, style):
    logs.configure("info", style, written)
    extra = logs.fields(status=200, key_id="key_1", client_address="", close_code=None, key=KEY)
    logging.getLogger(logs.ACCESS).info("answered", extra=extra)
    text = written.getvalue()
    assert KEY not in text
    if style == "json":
        line = json.loads(text)
        assert (line["status"], line["key_id"], line["message"]) == (200, "key_1", "answered")
        assert not {"client_address", "close_code"} & line.keys()
    else:
        assert text.endswith("access: answered status=200 key_id=key_1 key=ob_live_...\n")


def test_the_access_log_can_be_switched_off(written):
    logs.configure("info", "json", written, access=False)
    logging.getLogger(logs.ACCESS).info("answered")
    assert written.getvalue() == ""
    logs.configure("info", "json", written)
    logging.getLogger(logs.ACCESS).info("answered")
    assert json.loads(written.getvalue())["part"] == "onebook.access"

"""Log lines, and secrets that must never be in them."""

import io
import json
import logging
import os
import sys
import threading

import pytest
from prometheus_client import REGISTRY

from onebook import logs
from steady import PATIENCE_S

KEY = "ob_live_" + "A" * 49


class Written(io.StringIO):
    """A stream that returns the log so far."""

    def getvalue(self):
        assert logs.flush()
        return super().getvalue()


@pytest.fixture
def written():
    before = {name: logging.getLogger(name).handlers for name in (None, "onebook", "uvicorn")}
    stream = Written()
    yield stream
    logs.flush()
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


def read_all(descriptor, lines):
    with open(descriptor, "rb") as end:
        lines.extend(end)


def test_a_stream_that_is_not_written_holds_nobody_who_logs(written):
    """A full pipe: lines are dropped at the bound, counted, and the count is logged."""
    reading, writing = os.pipe()
    with open(writing, "w") as pipe:
        logs.configure("info", "json", pipe)
        before = logs.DROPPED.count
        for number in range(50_000):
            logging.getLogger("onebook").info("%d %s", number, "x" * 200)
        dropped = logs.DROPPED.count - before
        assert 0 < dropped < 50_000
        writer = logging.getLogger("onebook").handlers[0].writer
        assert not writer.flush(0.1)
        metric = REGISTRY.get_sample_value("onebook_log_records_dropped_total")
        assert metric == logs.DROPPED.count
        lines = []
        reader = threading.Thread(target=read_all, args=(reading, lines), daemon=True)
        reader.start()
        assert writer.flush(PATIENCE_S)
        logs.configure("info", "json", written)  # the writer of the pipe ends
    reader.join(PATIENCE_S)
    messages = [json.loads(line)["message"] for line in lines]
    assert f"{dropped} log records dropped." in messages
    numbers = [int(each.split()[0]) for each in messages if each.endswith("x")]
    assert numbers == list(range(50_000 - dropped))


def test_a_disk_that_is_full_is_counted_and_what_follows_is_written(written, tmp_path):
    class Full(io.StringIO):
        full = True

        def write(self, text):
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    stream = Full()
    logs.configure("info", "text", stream)
    logging.getLogger("onebook").info("lost")
    assert logs.flush()
    stream.full = False
    logging.getLogger("onebook").info("kept")
    assert logs.flush()
    first, second = stream.getvalue().splitlines()
    assert first.endswith(": kept")
    assert second.endswith("onebook: 1 log records dropped.")


def test_lines_of_several_processes_stay_whole(written):
    """A write contains whole lines, at most as many as a pipe writes atomically."""
    sizes = []

    class Sized(io.StringIO):
        def write(self, text):
            sizes.append(len(text))
            assert text.endswith("\n")
            return super().write(text)

    stream = Sized()
    logs.configure("info", "text", stream)
    for number in range(2_000):
        logging.getLogger("onebook").info("%d", number)
    logging.getLogger("onebook").info("x" * 10_000)
    assert logs.flush()
    assert sorted(sizes)[-2] <= logs.WRITE_BYTES < max(sizes)
    assert len(sizes) < 2_001
    assert [line.split()[-1] for line in stream.getvalue().splitlines()[:-1]] == [
        str(number) for number in range(2_000)
    ]


def test_a_record_that_cannot_be_formatted_is_one_line(written, capsys):
    logs.configure("info", "json", written)
    logging.getLogger("onebook.feeds").info("%d", "no number")
    line = json.loads(written.getvalue())
    assert line["message"].startswith("A log record of test_logs.py line ")
    assert capsys.readouterr().err == ""


def test_a_finalizer_that_logs_while_a_line_is_queued_does_not_hang(written):
    class Last:
        def __str__(self):
            logging.getLogger("onebook").info("inner")
            return "outer"

    logs.configure("info", "json", written)
    logging.getLogger("onebook").info("%s", Last())
    assert [json.loads(line)["message"] for line in written.getvalue().splitlines()] == [
        "inner",
        "outer",
    ]


def test_sighup_keeps_the_writer_and_a_new_stream_ends_the_one_before(written):
    logs.configure("info", "json", written)
    writer = logging.getLogger("onebook").handlers[0].writer
    logs.configure("debug", "text", written)
    assert logging.getLogger("onebook").handlers[0].writer is writer
    logging.getLogger("onebook").info("one")
    logs.configure("info", "json", io.StringIO())
    writer.thread.join(PATIENCE_S)
    assert io.StringIO.getvalue(written).endswith("onebook: one\n")

"""The forms that Bybit's cursors take."""

from base64 import b64decode, b64encode
from typing import Final
from urllib.parse import quote

from msgspec import json

from onebook.simulator.accounts.tables import CursorCodec, Entry


def _write_pairs(first: Entry, last: Entry) -> str:
    return quote(f"{first.at_ms}:{first.seq},{last.at_ms}:{last.seq}", safe="")


def _read_pairs(text: str) -> tuple[int, int]:
    at, _, seq = text.rpartition(",")[2].partition(":")
    return int(at), int(seq)


def _write_ids(first: Entry, last: Entry) -> str:
    return b64encode(json.encode({"minID": last.seq, "maxID": first.seq})).decode()


def _read_ids(text: str) -> tuple[int, int]:
    return -1, int(json.decode(b64decode(text, validate=True))["minID"])


def _write_number(first: Entry, last: Entry) -> str:
    return b64encode(str(last.seq).encode()).decode()


def _read_number(text: str) -> tuple[int, int]:
    return -1, int(b64decode(text, validate=True))


def _write_token(first: Entry, last: Entry) -> str:
    return quote(f"page_token={last.at_ms}-{last.seq}&", safe="")


def _write_cursor_id(first: Entry, last: Entry) -> str:
    return quote(f"cursor_id={last.at_ms}-{last.seq}&", safe="")


def _read_token(text: str) -> tuple[int, int]:
    at, _, seq = text.partition("=")[2].rstrip("&").partition("-")
    return int(at), int(seq)


TOKEN: Final = CursorCodec(_write_token, _read_token)
CURSOR_ID: Final = CursorCodec(_write_cursor_id, _read_token)
PAIRS: Final = CursorCodec(_write_pairs, _read_pairs)
IDS: Final = CursorCodec(_write_ids, _read_ids)
NUMBER: Final = CursorCodec(_write_number, _read_number)

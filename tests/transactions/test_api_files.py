"""Endpoint 10 as files: complete by default, metered; incomplete ones say so."""

import tempfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from msgspec import json

from onebook.transactions import service
from onebook.transactions.export import FORMS, writer
from onebook.transactions.record import Record, encode
from transactions.bybit_support import KEY
from transactions.conftest import PATH, Node
from transactions.exporting import needed

MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
    "rotki": "application/zip",
}
FILES = [form for form in FORMS if form != "jsonl"]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def lines_of(client: httpx.AsyncClient) -> list[bytes]:
    answer = await client.post(PATH, json={"exchange": "bybit", "format": "jsonl"})
    return answer.content.splitlines()


@pytest.mark.parametrize(
    "form",
    [pytest.param(each, marks=() if each in MEDIA else pytest.mark.soak) for each in FILES],
)
async def test_a_file_has_every_record_that_moves_money(
    form: str, client: httpx.AsyncClient, node: Node, tmp_path: Path, temporary: Path
) -> None:
    needed(form)
    *lines, summary = await lines_of(client)
    assert {entry["transaction_type"] for entry in json.decode(summary)["coverage"]} >= {"ledger"}
    file = writer(form, tmp_path / "expected", exchange="Bybit")
    file.write([json.decode(line, type=Record) for line in lines])
    file.close()
    before = node.accounts.meter.pending_bytes()
    answer = await client.post(PATH, json={"exchange": "bybit", "format": form})
    assert answer.status_code == 200, answer.text
    assert node.accounts.meter.pending_bytes() - before == len(answer.content)
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["onebook-complete"] == "true"
    assert answer.headers["onebook-rows"] == str(file.rows)
    assert answer.headers["content-type"] == MEDIA.get(form, MEDIA["csv"])
    name = answer.headers["content-disposition"]
    assert name.startswith(f'attachment; filename="bybit-{form}-20')
    assert name.endswith(f'{FORMS[form].ending}"')
    assert "incomplete" not in name
    if form == "xlsx":  # holds the time when it was written
        assert answer.content.startswith(b"PK")
    else:
        assert answer.content == (tmp_path / "expected").read_bytes()
    assert list(temporary.iterdir()) == []


async def test_lines_hold_what_records_are(client: httpx.AsyncClient) -> None:
    """The client writes the same file from its decoded records as the service does."""
    *lines, _ = await lines_of(client)
    assert len(lines) > 300
    for line in lines:
        assert encode(json.decode(line, type=Record)) == line


@pytest.mark.parametrize(
    ("accept", "starts"),
    [
        ("text/csv", b"transaction_id,"),
        ("text/csv;q=0.5, application/json;q=0.4", b"transaction_id,"),
        ("text/csv;q=0.4, application/json;q=0.5", b'{"success":true'),
        ("*/*", b'{"success":true'),
        ("text/html", b'{"success":true'),
        ("text/csv;q=0", b'{"success":true'),
        (MEDIA["parquet"], b"PAR1"),
        (MEDIA["xlsx"], b"PK"),
    ],
)
async def test_accept_names_a_form(client: httpx.AsyncClient, accept: str, starts: bytes) -> None:
    needed("parquet")
    needed("xlsx")
    answer = await client.post(PATH, json={"exchange": "bybit"}, headers={"Accept": accept})
    assert answer.content.startswith(starts)
    assert answer.headers["vary"] == "Accept"


async def test_the_format_wins_over_accept(client: httpx.AsyncClient) -> None:
    body = {"exchange": "bybit", "transaction_types": ["deposits"]}
    plain = (await client.post(PATH, json=body)).json()
    answer = await client.post(PATH, json=body | {"format": "json"}, headers={"Accept": "text/csv"})
    assert answer.json()["transactions"] == plain["transactions"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"format": "ods"}, "format must be one of json, jsonl, csv"),
        ({"format": "csv", "verify": True}, "verify"),
        ({"format": "csv", "limit": 5}, "limit"),
        ({"format": "csv", "cursor": "x"}, "cursor"),
        ({"format": "xlsx", "include_raw": True}, "include_raw"),
        ({"format": 5}, "format"),
        ({"format": "rotki", "transaction_types": ["holdings"]}, "holdings have no rows"),
    ],
)
async def test_what_a_file_cannot_have_is_refused(
    client: httpx.AsyncClient, node: Node, fields: dict[str, object], says: str
) -> None:
    answer = await client.post(PATH, json={"exchange": "bybit"} | fields)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert says in answer.json()["message"]
    assert node.transport.requests == 0


async def test_a_file_that_lacks_a_type_says_so(client: httpx.AsyncClient, node: Node) -> None:
    node.exchange._keys[KEY.api_key] = replace(KEY, permissions={"Spot": ("SpotTrade",)})
    body = {"exchange": "bybit", "format": "csv", "transaction_types": ["trades", "deposits"]}
    answer = await client.post(PATH, json=body)
    assert answer.headers["onebook-complete"] == "false"
    assert answer.headers["content-disposition"].endswith('-incomplete.csv"')


async def test_a_file_that_grows_too_large_is_refused(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setattr(service, "EXPORT_RECORDS_MAX", 10)
    answer = await client.post(PATH, json={"exchange": "bybit", "format": "csv"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "shorter range" in answer.json()["message"]
    assert list(temporary.iterdir()) == []

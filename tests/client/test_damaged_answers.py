"""REST responses with a missing or mistyped field, in both clients."""

import asyncio
import json
import ssl
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import httpx
import pytest

from client.place import place
from client.recorded import damaged
from client.test_js import needs_node, run
from client.test_watch import HOST
from onebook.client import AsyncOnebook, ServiceError
from steady import PATIENCE_S

ASKED = {"exchange": "bybit", "transaction_types": ["deposits", "transfers"], "limit": 2}
IN_JAVASCRIPT = """
import { Onebook, ServiceError } from "MODULE";
const found = [];
for (const [number, kind] of JSON.parse(process.env.KINDS).entries()) {
  const client = new Onebook(`${process.env.ONEBOOK_URL}/${number}`, "the key", { attemptsMax: 1 });
  try {
    if (kind === "usage") {
      const { username, tier, active, usedBytes, limitBytes, resetsAt } = await client.usage();
      found.push([username, tier, active, usedBytes, limitBytes, resetsAt.getTime()]);
      continue;
    }
    const page = (await client.transactionPages("bybit", ["deposits"]).next()).value;
    const { records, coverage, errors, partial, nextCursor } = page;
    found.push([records.length, coverage.length, errors.length, partial, nextCursor]);
  } catch (error) {
    found.push(error instanceof ServiceError ? error.code : error.stack);
  }
}
console.log(JSON.stringify(found));
"""


class DamagingRest:
    """An HTTP server whose path /<number> serves one response with that damage."""

    def __init__(self, answers):
        self.answers = answers
        self.cases = [
            (kind, f"{kind}: {done}", wrong)
            for kind, answer in answers.items()
            for done, wrong in damaged(answer)
        ]

    async def __call__(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        _, path, _ = head.split(b" ", 2)
        number, kind = int(path.split(b"/")[1]), KINDS[path.split(b"/")[4].decode()]
        length = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
        damaged_kind, _, wrong = self.cases[number]
        body = json.dumps(wrong if kind == damaged_kind else self.answers[kind]).encode()
        status = HTTPStatus.UNAUTHORIZED if self.wants_error(number, kind) else HTTPStatus.OK
        if status is HTTPStatus.UNAUTHORIZED:
            body = json.dumps(wrong).encode()
        writer.write(
            b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (status, len(body), body)
        )
        writer.close()

    def wants_error(self, number, kind):
        return self.cases[number][0] == "error" and kind == "page"


KINDS = {"authenticate": "session", "transactions": "page", "data-usage": "usage"}


@pytest.fixture
async def service(tmp_path):
    async with asyncio.timeout(PATIENCE_S), place(tmp_path) as rig, httpx.AsyncClient() as http:
        base = rig.url + "/api/v1"
        session = (await http.post(f"{base}/authenticate", json={"api_key": rig.key})).json()
        headers = {"Authorization": f"Bearer {session['session_token']}"}
        start = int((datetime.now(UTC) - timedelta(days=20)).timestamp() * 1000)
        rig.bybit.faults.queue("/v5/asset/transfer/query-inter-transfer-list", *["404"] * 9)
        page = await http.post(
            f"{base}/transactions", json={**ASKED, "start_time": start}, headers=headers
        )
        usage = await http.get(f"{base}/data-usage/{rig.key}")
        error = await http.get(f"{base}/data-usage/unknown")
    answers = {"session": session, "page": page.json(), "usage": usage.json()}
    assert answers["page"]["transactions"]
    assert answers["page"]["errors"]
    script = DamagingRest(answers | {"error": error.json()})
    server = await asyncio.start_server(script, HOST, 0)
    script.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield script


def judge(found, service):
    """Each result is right, or a documented error."""
    page, usage = service.answers["page"], service.answers["usage"]
    reset = datetime.fromisoformat(usage["billing_period"]["reset_date"])
    right = [
        [len(page["transactions"]), len(page["coverage"]), len(page["errors"]), page["partial"],
         page["next_cursor"]],
        [usage["username"], usage["billing_tier"], usage["api_key_active"],
         usage["data_usage"]["bytes_used"], usage["data_usage"]["bytes_limit"],
         int(reset.timestamp() * 1000)],
    ]  # fmt: skip
    codes = ("not_onebook", "protocol_error", "http_401", service.answers["error"]["error"])
    wrong = {
        service.cases[number][1]: answer
        for number, answer in enumerate(found)
        if answer not in right and answer not in codes
    }
    assert len(found) == len(service.cases) > 200
    assert wrong == {}


async def test_the_python_client_reads_what_is_right_and_says_what_is_not(service):
    trusted = ssl.create_default_context()  # 20 ms of parsing that each client would repeat

    async def question(number, kind):
        base = f"{service.url}/{number}"
        async with AsyncOnebook(base, "the key", attempts_max=1, ssl_context=trusted) as client:
            try:
                if kind == "usage":
                    read = await client.usage()
                    reset = int(read.resets_at.timestamp() * 1000)
                    used = [read.used_bytes, read.limit_bytes]
                    return [read.username, read.tier, read.active, *used, reset]
                page = await anext(client.transaction_pages("bybit", "deposits"))
                counts = [len(page.records), len(page.coverage), len(page.errors)]
                assert isinstance(page.missing, list)
                return [*counts, page.partial, page.next_cursor]
            except ServiceError as error:
                return error.code
            except Exception as error:
                return repr(error)

    async with asyncio.timeout(PATIENCE_S):
        found = [await question(number, kind) for number, (kind, _, _) in enumerate(service.cases)]
    judge(found, service)


@needs_node
async def test_so_does_the_javascript_client(service):
    kinds = json.dumps([kind for kind, _, _ in service.cases])
    judge(await run(IN_JAVASCRIPT, ONEBOOK_URL=service.url, KINDS=kinds), service)

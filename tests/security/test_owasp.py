"""The OWASP API Security Top 10 (2023), one class each, against a node over real sockets.

https://owasp.org/API-Security/editions/2023/en/0x11-t10/
"""

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from e2e.service import client_of, ws_url
from onebook.app.node import web_application
from onebook.clock import Clock
from onebook.errors import ExchangeFailed
from onebook.gateway.upgrade import PATH
from onebook.model import Tier
from onebook.rest import Rest
from security.rig import AUTHENTICATE, STATUS, TRANSACTIONS, USAGE, VALIDATE, Rig, running

QUERY = {"exchange": "bybit", "transaction_types": ["trades"], "limit": 5}
UNSAFE = ("PUT", "PATCH", "DELETE", "TRACE", "PROPFIND")
FOREIGN = "https://evil.example"
BASIC_PER_MINUTE = 20
SLOW_BASIC = {"tiers": {"basic": {"requests_per_minute": BASIC_PER_MINUTE, "connections_max": 5}}}
# Beside the documented interface: documents, pages, and what an operator's machines ask.
BESIDE = {"/openapi.json", "/asyncapi.json", "/onebook.proto", "/livez", "/readyz", "/metrics"}
PAGES = {"/", "/docs", "/docs/{path}", "/docs/search.json", "/exchanges", "/web/{name}"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as rig:
        yield rig


def paths_of(routes: Iterable[Any]) -> Iterator[str]:
    """The paths of all routes, those of included routers too."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from paths_of(route.original_router.routes)
        elif hasattr(route, "path"):
            yield route.path.replace(":path}", "}")


async def document(rig: Rig) -> dict[str, Any]:
    return (await rig.http.get("/openapi.json")).json()


class TestApi1BrokenObjectLevelAuthorization:
    async def test_no_session_reaches_what_belongs_to_another_key(self, rig: Rig) -> None:
        alice, bob = await rig.key("alice"), await rig.key("bob")
        hers, his = await rig.session(alice), await rig.session(bob)
        one = (await rig.http.get(STATUS, headers=hers)).json()
        other = (await rig.http.get(STATUS, headers=his)).json()
        assert one["user_id"] != other["user_id"]
        for name in (one["user_id"], "alice", alice[:-1], alice[:16]):
            for headers in (his, {}):
                answer = await rig.http.get(USAGE + name, headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (404, "api_key_not_found")
        page = (await rig.http.post(TRANSACTIONS, json=QUERY, headers=hers)).json()
        stolen = QUERY | {"cursor": page["next_cursor"]}
        answer = await rig.http.post(TRANSACTIONS, json=stolen, headers=his)
        assert answer.status_code == 400
        assert "another API key" in answer.json()["message"]
        assert (await rig.http.post(TRANSACTIONS, json=stolen, headers=hers)).status_code == 200

    async def test_what_one_key_uses_is_on_no_other_bill(self, rig: Rig) -> None:
        alice, bob = await rig.key("alice"), await rig.key("bob")
        hers = await rig.session(alice)
        assert (await rig.http.post(TRANSACTIONS, json=QUERY, headers=hers)).status_code == 200
        used = {
            key: (await rig.http.get(USAGE + key)).json()["data_usage"]["bytes_used"]
            for key in (alice, bob)
        }
        assert used[alice] > 0
        assert used[bob] == 0


class TestApi2BrokenAuthentication:
    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "Bearer",
            "Bearer obs_" + "0" * 43,
            "Basic b2JzXzAwMDA6",
            "bearer null",
            "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.",
        ],
    )
    async def test_no_protected_route_answers_without_a_session(
        self, rig: Rig, header: str | None
    ) -> None:
        headers = {} if header is None else {"Authorization": header}
        protected = set()
        for path, operations in (await document(rig))["paths"].items():
            for method, operation in operations.items():
                if "security" in operation:
                    protected.add(path)
                    answer = await rig.http.request(method, path, json=QUERY, headers=headers)
                    assert answer.status_code == 401, path
                    assert answer.headers["www-authenticate"].startswith("Bearer")
        assert {STATUS, TRANSACTIONS, VALIDATE} <= protected

    async def test_a_key_is_no_session_and_a_session_is_no_key(self, rig: Rig) -> None:
        key = await rig.key("alice")
        bearer = await rig.session(key)
        answer = await rig.http.get(STATUS, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 401
        token = bearer["Authorization"].removeprefix("Bearer ")
        answer = await rig.http.post(AUTHENTICATE, json={"api_key": token})
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_api_key")

    async def test_guessing_is_stopped_after_ten_verdicts_on_both_ways_in(self, rig: Rig) -> None:
        wrong = {"api_key": "ob_live_" + "x" * 49}
        codes = [(await rig.http.post(AUTHENTICATE, json=wrong)).status_code for _ in range(12)]
        assert codes == [401] * 10 + [429] * 2
        async with connect(ws_url(rig.node), compression=None) as client:
            await client.recv()
            await client.send(json.dumps({"type": "authenticate", **wrong}))
            answer = json.loads(await client.recv())
        assert answer["type"] in ("authentication_error", "error")
        assert "rate_limit" in json.dumps(answer)


class TestApi3BrokenObjectPropertyLevelAuthorization:
    async def test_no_field_of_a_request_sets_what_the_operator_sets(self, rig: Rig) -> None:
        key = await rig.key("alice", Tier.BASIC)
        body = {
            "api_key": key,
            "user_tier": "enterprise",
            "user_id": "admin",
            "expires_at": "2999-01-01T00:00:00Z",
            "is_admin": True,
        }
        answer = (await rig.http.post(AUTHENTICATE, json=body)).json()
        assert answer["user_tier"] == "basic"
        assert answer["user_id"] != "admin"
        assert answer["expires_at"] < (time.time() + 2 * 86_400) * 1_000

    @pytest.mark.parametrize("path", [TRANSACTIONS, VALIDATE])
    async def test_fields_that_are_not_documented_are_refused_by_name(
        self, rig: Rig, path: str
    ) -> None:
        bearer = await rig.session(await rig.key("alice"))
        for field in ("key_id", "account_id", "api_secret", "url", "__proto__"):
            body = {"exchange": "bybit", field: "x"}
            answer = await rig.http.post(path, json=body, headers=bearer)
            assert answer.status_code == 400, field
            assert field in answer.json()["message"]

    async def test_answers_show_the_documented_fields_and_no_others(self, rig: Rig) -> None:
        key = await rig.key("alice")
        bearer = await rig.session(key)
        schemas = (await document(rig))["components"]["schemas"]
        shown = {
            "SessionStatus": await rig.http.get(STATUS, headers=bearer),
            "UsageReport": await rig.http.get(USAGE + key),
            "Authenticated": await rig.http.post(AUTHENTICATE, json={"api_key": key}),
        }
        for name, answer in shown.items():
            assert set(answer.json()) <= set(schemas[name]["properties"]), name


class TestApi4UnrestrictedResourceConsumption:
    async def test_bodies_paths_and_pages_have_limits(self, rig: Rig) -> None:
        bearer = await rig.session(await rig.key("alice"))
        huge = await rig.http.post(AUTHENTICATE, content=b" " * 65_537)
        assert huge.status_code == 413
        for limit in (0, -1, 10**9, 1e99):
            answer = await rig.http.post(
                TRANSACTIONS, json=QUERY | {"limit": limit}, headers=bearer
            )
            assert answer.status_code == 400, limit
        deep = await rig.http.post(AUTHENTICATE, content=b"[" * 60_000)
        assert deep.status_code == 400
        assert (await rig.http.get("/livez")).status_code == 200

    async def test_an_address_has_a_rate_and_is_reported_when_to_return(
        self, tmp_path: Path
    ) -> None:
        async with running(tmp_path, accounts=SLOW_BASIC) as rig:
            answers = [await rig.http.get("/api/v1/exchanges") for _ in range(BASIC_PER_MINUTE + 5)]
        assert answers[0].headers["ratelimit-policy"]
        refused = [each for each in answers if each.status_code == 429]
        assert len(refused) >= 3, "at most a token or two came back meanwhile"
        assert all(int(each.headers["retry-after"]) >= 1 for each in refused)


class TestApi5BrokenFunctionLevelAuthorization:
    async def test_no_operators_verb_is_reachable_over_http(self, rig: Rig) -> None:
        bearer = await rig.session(await rig.key("alice", Tier.ENTERPRISE))
        documented = (await document(rig))["paths"]
        for path in documented:
            for method in UNSAFE:
                if (method, path) == ("PUT", "/api/v1/fees"):
                    continue  # a user's own: the fees of the session's key
                answer = await rig.http.request(method, path, headers=bearer)
                assert answer.status_code == 405, (method, path)
        for path in ("admin", "keys", "accounts", "credentials", "users", "debug", "config"):
            for prefix in ("/", "/api/v1/"):
                for method in ("GET", "POST"):
                    answer = await rig.http.request(method, prefix + path, headers=bearer)
                    assert answer.status_code == 404, prefix + path

    async def test_no_header_turns_a_request_into_another(self, rig: Rig) -> None:
        bearer = await rig.session(await rig.key("alice"))
        for name in ("X-HTTP-Method-Override", "X-Method-Override", "X-Original-URL", "X-Role"):
            answer = await rig.http.get(STATUS, headers=bearer | {name: "DELETE"})
            assert (answer.status_code, answer.json()["authenticated"]) == (200, True)

    async def test_no_message_of_a_client_is_an_operators(self, rig: Rig) -> None:
        async with client_of(rig.node, await rig.key("alice", Tier.ENTERPRISE)) as client:
            for kind in ("create_key", "suspend", "admin", "shutdown", "set_tier"):
                await client.say(type=kind)
                answer = await client.kind("error")
                assert "unknown" in json.dumps(answer, default=str).lower()


class TestApi6UnrestrictedAccessToSensitiveBusinessFlows:
    async def test_many_sessions_lift_no_rate(self, tmp_path: Path) -> None:
        async with running(tmp_path, accounts=SLOW_BASIC) as rig:
            key = await rig.key("alice", Tier.BASIC)
            sessions = [await rig.session(key) for _ in range(3)]
            codes = [
                (await rig.http.get(STATUS, headers=sessions[turn % 3])).status_code
                for turn in range(BASIC_PER_MINUTE + 5)
            ]
        assert codes[:BASIC_PER_MINUTE] == [200] * BASIC_PER_MINUTE
        assert codes.count(429) >= 3

    async def test_no_way_in_passes_the_allowance(self, tmp_path: Path) -> None:
        async with running(tmp_path, accounts={"allowance_bytes": 1_000}) as rig:
            key = await rig.key("alice")
            bearer = await rig.session(key)
            codes = []
            for _ in range(4):
                answer = await rig.http.post(TRANSACTIONS, json=QUERY, headers=bearer)
                codes.append(answer.status_code)
            assert codes[-1] == 429
            assert (await rig.http.get(USAGE + key)).json()["status"]["limit_exceeded"]
            another = await rig.session(key)
            answer = await rig.http.post(TRANSACTIONS, json=QUERY, headers=another)
            assert answer.json()["error"] == "data_limit_exceeded"


class TestApi7ServerSideRequestForgery:
    async def test_no_address_that_a_client_gives_is_ever_fetched(self, rig: Rig) -> None:
        bearer = await rig.session(await rig.key("alice"))
        asked = asyncio.Event()
        trap = await asyncio.start_server(lambda *_: asked.set(), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/"
        headers = bearer | {
            "X-Forwarded-Host": url,
            "X-Forwarded-For": url,
            "Forwarded": f"host={url}",
            "Referer": url,
            "Origin": url,
            "X-Callback": url,
        }
        async with trap:
            for path in (TRANSACTIONS, VALIDATE, AUTHENTICATE):
                for field in ("exchange", "url", "webhook", "callback", "cursor", "api_key"):
                    body = {"exchange": "bybit", field: url}
                    answer = await rig.http.post(path, json=body, headers=headers)
                    assert 400 <= answer.status_code < 500, (path, field)
            await rig.http.get(f"{USAGE}{url}", headers=headers)
            await rig.http.get(f"/docs?url={url}", headers=headers)
            await asyncio.sleep(0.1)
        assert not asked.is_set()


class TestApi8SecurityMisconfiguration:
    @pytest.mark.parametrize(
        "path", ["/", "/docs", "/openapi.json", "/api/v1/health", "/metrics", "/nothing", STATUS]
    )
    async def test_every_answer_has_the_headers_and_says_nothing_of_its_server(
        self, rig: Rig, path: str
    ) -> None:
        answer = await rig.http.get(path, headers={"Origin": FOREIGN})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
        assert not {"server", "x-powered-by", "via"} & set(answer.headers)

    async def test_a_preflight_from_elsewhere_is_not_answered_with_leave(self, rig: Rig) -> None:
        headers = {"Origin": FOREIGN, "Access-Control-Request-Method": "POST"}
        answer = await rig.http.options(TRANSACTIONS, headers=headers)
        assert answer.status_code >= 400
        assert not [name for name in answer.headers if name.startswith("access-control-")]

    async def test_errors_name_no_file_module_or_statement(self, rig: Rig) -> None:
        bearer = await rig.session(await rig.key("alice"))
        for content in (b"{", b"\xff\xfe", b'{"exchange": {"$ne": 1}}', b'{"limit": "1 OR 1=1"}'):
            answer = await rig.http.post(TRANSACTIONS, content=content, headers=bearer)
            assert answer.status_code == 400
            assert not re.search(r"Traceback|\.py|sqlite|pydantic|site-packages", answer.text)
            assert answer.headers["content-type"].startswith("application/json")

    async def test_the_documentation_loads_nothing_from_elsewhere(self, rig: Rig) -> None:
        for path in ("/", "/docs"):
            page = (await rig.http.get(path)).text
            loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"([^\"]+)\"", page)
            assert loaded
            assert not [each for each in loaded if re.match(r"[a-z]+:|//", each)]


class TestApi9ImproperInventoryManagement:
    async def test_every_route_of_the_node_is_documented_or_known(self, rig: Rig) -> None:
        application = web_application(rig.node, Clock())
        paths = set(paths_of(application.routes))
        documented = set((await document(rig))["paths"])
        assert paths - documented == BESIDE | PAGES | {PATH, "/api/v1"}
        assert documented <= paths

    async def test_there_is_one_version_and_no_forgotten_one(self, rig: Rig) -> None:
        for path in ("/api/v0/health", "/api/v2/health", "/v1/health", "/api/health", "/redoc"):
            assert (await rig.http.get(path)).status_code == 404, path
        health = (await rig.http.get("/api/v1/health")).json()
        assert health["version"] == (await document(rig))["info"]["version"]


class TestApi10UnsafeConsumptionOfApis:
    @staticmethod
    async def serve(answer: bytes) -> asyncio.Server:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                if not answer:
                    await reader.read()
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        return await asyncio.start_server(handle, "127.0.0.1", 0, family=socket.AF_INET)

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            pytest.param(
                b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                "redirects; redirects are not followed",
                id="redirect",
            ),
            pytest.param(
                b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000,
                "more than 1000 bytes",
                id="too-large",
            ),
            pytest.param(b"", "", id="silent"),
            pytest.param(b"HTTP/1.1 200 OK\r\n\r\x00\r\n\r\n", "", id="malformed"),
        ],
    )
    async def test_an_exchange_is_not_trusted(self, answer: bytes, says: str) -> None:
        server = await self.serve(answer)
        port = server.sockets[0].getsockname()[1]
        started = asyncio.get_running_loop().time()
        async with server, Rest() as rest:
            with pytest.raises(ExchangeFailed) as failed:
                await rest.get(f"http://127.0.0.1:{port}/list", bytes_max=1_000, total_s=1.0)
        assert says in failed.value.message
        assert asyncio.get_running_loop().time() - started < 5

    async def test_what_an_exchange_answers_reaches_no_client(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bearer = await rig.session(await rig.key("alice"))
        hostile = httpx.Response(200, text="<script>alert(1)</script>")

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": hostile.content})

        monkeypatch.setattr(type(rig.bybit), "__call__", lambda _, *asgi: answer(*asgi))
        reply = await rig.http.post(TRANSACTIONS, json=QUERY, headers=bearer)
        assert reply.status_code == 500
        assert "script" not in reply.text

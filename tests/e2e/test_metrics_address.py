"""`/metrics` at an address of its own, over real sockets."""

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from e2e.service import client_of, key_of, settings_in
from onebook import app
from onebook.ops import preflight


async def test_metrics_are_at_their_own_port_and_nothing_else_is(tmp_path):
    settings = settings_in(tmp_path, server={"metrics_port": 0})
    async with app.running(settings, overrides={}) as node:
        assert node.metrics_address[0] == "127.0.0.1"
        private = f"http://127.0.0.1:{node.metrics_address[1]}"
        async with httpx.AsyncClient() as http:
            page = await http.get(f"{private}/metrics")
            assert page.status_code == 200
            assert "onebook_build_info{" in page.text
            for url in (f"{node.url}/metrics", f"{node.url}/metrics/"):
                refused = await http.get(url)
                assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
            assert (await http.get(f"{node.url}/livez")).status_code == 200
            for path in ("/livez", "/docs", "/api/v1/health", "/api/v1/ws"):
                refused = await http.get(private + path)
                assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
        with pytest.raises(InvalidStatus, match="404"):
            async with connect(private.replace("http", "ws", 1) + "/api/v1/ws"):
                pass
        async with client_of(node, await key_of(node)) as client:
            await client.say(type="ping")
            assert (await client.next())["type"] == "pong"


async def test_without_a_port_of_their_own_they_are_at_the_public_one(tmp_path):
    async with app.running(settings_in(tmp_path), overrides={}) as node:
        assert node.metrics_address is None
        async with httpx.AsyncClient(base_url=node.url) as http:
            assert (await http.get("/metrics")).status_code == 200


# What a proxy on this machine adds, whether or not the node trusts it.
PROXIED = [
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-For": "203.0.113.9"},
    {"Forwarded": "for=127.0.0.1"},
    {"Via": "1.1 proxy"},
    {"X-Real-IP": "127.0.0.1"},
]


@pytest.mark.parametrize("trusted", [[], ["127.0.0.1"]], ids=["untrusted", "trusted"])
@pytest.mark.parametrize("headers", PROXIED, ids=str)
async def test_what_comes_by_a_proxy_of_this_machine_gets_no_metrics(tmp_path, headers, trusted):
    settings = settings_in(tmp_path, gateway={"forwarded_from": trusted})
    async with (
        app.running(settings, overrides={}) as node,
        httpx.AsyncClient(base_url=node.url, headers=headers) as http,
    ):
        refused = await http.get("/metrics")
    assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    assert "server.metrics_token" in refused.json()["message"]


async def test_with_a_token_other_machines_get_metrics_and_only_with_it(tmp_path):
    token = "t" * 40
    settings = settings_in(tmp_path, server={"metrics_token": token})
    proxied = {"X-Forwarded-For": "203.0.113.9"}
    async with (
        app.running(settings, overrides={}) as node,
        httpx.AsyncClient(base_url=node.url) as http,
    ):
        assert (await http.get("/metrics")).status_code == 200
        for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": token}):
            refused = await http.get("/metrics", headers=proxied | wrong)
            assert refused.status_code == 401
            assert refused.json()["error"] == "missing_authorization"
            assert token not in refused.text
        right = proxied | {"Authorization": f"Bearer {token}"}
        assert "onebook_build_info{" in (await http.get("/metrics", headers=right)).text


def test_one_port_for_both_is_refused(tmp_path):
    settings = settings_in(tmp_path, server={"port": 8000, "metrics_port": 8000})
    assert preflight.faults(settings) == [
        "Command line: server.metrics_port must differ from server.port."
    ]

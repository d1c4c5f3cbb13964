"""`/metrics` at an address of its own, over real sockets."""

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from e2e.service import client_of, key_of, settings_in
from onebook import app, preflight


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


def test_one_port_for_both_is_refused(tmp_path):
    settings = settings_in(tmp_path, server={"port": 8000, "metrics_port": 8000})
    assert preflight.faults(settings) == [
        "Command line: server.metrics_port must be another port than server.port."
    ]

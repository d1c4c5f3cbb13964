"""The access log of a running node: client, request and outcome, and no secret."""

import json
import signal

import httpx
from websockets.asyncio.client import connect

from .test_process import ended, listening, process
from .test_reload import onebook


async def test_requests_and_connections_are_logged_with_key_and_address(tmp_path):
    environment = {
        "XDG_DATA_HOME": str(tmp_path),
        "ONEBOOK_FEEDS__EXCHANGES": '["okx"]',
        "ONEBOOK_FEEDS__OVERRIDES": '{"okx": {"rest_url": "http://127.0.0.1:1"}}',
        "ONEBOOK_GATEWAY__DRAIN_S": "0",
        "ONEBOOK_LOG__FORMAT": "json",
    }
    await onebook("accounts", "create", "alice", **environment)
    made = json.loads(await onebook("keys", "create", "alice", "--json", **environment))
    key, key_id = made["api_key"], made["key_id"]
    async with process("serve", "--port", "0", **environment) as serve:
        port = await listening(serve)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1") as http:
            session = (await http.post("/authenticate", json={"api_key": key})).json()
            token = session["session_token"]
            bearer = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "203.0.113.9"}
            await http.get("/session-status", headers=bearer)
            await http.get(f"/data-usage/{key}")
            await http.get("/nowhere")
        url = f"ws://127.0.0.1:{port}/api/v1/ws?api_key={key}"
        async with connect(url, compression=None) as client:
            while json.loads(await client.recv()).get("user_tier") is None:
                pass
        serve.send_signal(signal.SIGTERM)
        status, _, errors = await ended(serve)
    assert status == 0
    assert key not in errors
    assert token not in errors
    lines = [json.loads(line) for line in errors.splitlines()]
    lines = [line for line in lines if line["part"] == "onebook.access"]
    requests = [
        (line["method"], line["route"], line["status"], line["client_address"], line.get("key_id"))
        for line in lines
        if "route" in line
    ]
    assert requests == [
        ("POST", "/api/v1/authenticate", 200, "127.0.0.1", key_id),
        ("GET", "/api/v1/session-status", 200, "203.0.113.9", key_id),
        ("GET", "/api/v1/data-usage/{api_key}", 200, "127.0.0.1", None),
        ("GET", "unmatched", 404, "127.0.0.1", None),
    ]
    assert all(line["sent_bytes"] > 0 and line["duration_ms"] >= 0 for line in lines)
    (ending,) = [line for line in lines if "close_code" in line]
    found = (ending["client_address"], ending["key_id"], ending["close_code"])
    assert found == ("127.0.0.1", key_id, 1000)

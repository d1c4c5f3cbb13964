"""`onebook nodes` lists the live nodes and the books they serve."""

import asyncio
import json

from typer.testing import CliRunner

from e2e.service import pointed_at, settings_in
from nodes.servers import nats_server
from onebook.app import feeder
from onebook.cli.commands import app
from onebook.nodes import wire
from onebook.nodes.interest import Interest, encode_interest
from onebook.nodes.membership import NodeHeartbeat, NodeRole, encode_heartbeat
from onebook.simulator import SimulatedExchanges
from steady import PATIENCE_S


def run(port, *words):
    environment = {
        "ONEBOOK_NATS__SERVERS": f'["nats://127.0.0.1:{port}"]',
        "COLUMNS": "200",
    }
    return CliRunner().invoke(app, ["nodes", *words], env=environment)


async def test_it_names_nodes_states_and_books(tmp_path):
    with nats_server() as port:
        nats = {"servers": (f"nats://127.0.0.1:{port}",)}
        settings = settings_in(
            tmp_path,
            nats=nats,
            node={"role": "feeds", "name": "tokyo-1", "heartbeat_timeout_s": 60.0},
        )
        async with (
            SimulatedExchanges(["okx"], rate_hz=0) as simulated,
            feeder.running(settings, overrides=pointed_at(simulated.urls)) as feeds,
        ):
            subjects = feeds.node.presence.subjects
            wants = Interest(gateway=9, seq=1, added=["okx BTC/USDT"], whole=True)
            gateway = NodeHeartbeat(
                node=9, name="g", role=NodeRole.GATEWAY, wants_seq=1, wire=wire.VERSION
            )
            feeds.bus.subscribe(
                subjects.request(9, "wants"),
                lambda payload, reply: feeds.bus.publish(reply, encode_interest(wants)),
            )
            stranger = NodeHeartbeat(node=8, name="old-one", role=NodeRole.FEEDS, wire=99)
            async with asyncio.timeout(PATIENCE_S):
                while not list(feeds.books.live()):
                    feeds.bus.publish(subjects.heartbeats, encode_heartbeat(gateway))
                    await asyncio.sleep(0.05)
            looked = asyncio.create_task(asyncio.to_thread(run, port, "--books"))
            while not looked.done():
                feeds.bus.publish(subjects.heartbeats, encode_heartbeat(stranger))
                await asyncio.sleep(0.05)
            shown = (await looked).output
            looked = asyncio.create_task(asyncio.to_thread(run, port, "--books", "--json"))
            while not looked.done():
                feeds.bus.publish(subjects.heartbeats, encode_heartbeat(stranger))
                await asyncio.sleep(0.05)
            documents = {each["node"]: each for each in json.loads((await looked).stdout)}
    assert "tokyo-1" in shown
    assert "incompatible" in shown
    assert (documents["old-one"]["state"], documents["old-one"]["open_books"]) == (
        "incompatible",
        None,
    )
    feeds_node = documents["tokyo-1"]
    assert list(feeds_node)[:-1] == shown.splitlines()[0].split()
    assert (feeds_node["role"], feeds_node["books"], feeds_node["exchanges"]) == ("feeds", 1, 1)
    assert feeds_node["open_books"] == [
        {"exchange": "okx", "symbol": "BTC/USDT", "health": "live", "reason": ""}
    ]
    assert any(
        line.split()[:4] == ["tokyo-1", "okx", "BTC/USDT", "live"] for line in shown.splitlines()
    )


def test_without_nats_it_is_one_clear_line():
    with nats_server() as port:
        pass  # it was there, and is not any more
    shown = run(port)
    assert shown.exit_code == 2
    assert f"NATS does not answer at 127.0.0.1:{port}" in " ".join(shown.output.split())


def test_an_empty_cluster_is_said_to_be_empty():
    with nats_server() as port:
        shown = run(port)
        listed = run(port, "--json")
    assert shown.exit_code == 0
    assert "No live node in the cluster onebook." in shown.output
    assert json.loads(listed.stdout) == []

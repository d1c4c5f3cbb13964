"""A node killed at any moment loses at most what was not flushed, and never counts twice."""

import multiprocessing
import random

from delivering import MESSAGE_BYTES, MESSAGES_PER_FLUSH, deliver
from onebook.accounts.keys import Key, key_of
from onebook.accounts.usage import stored_usage

from .conftest import House

POINTS = 20
SEED = 20_260_131
# So that a node starts in milliseconds: the server that forks it has imported what it needs.
PRELOADED = ["onebook.accounts", "sqlalchemy.ext.asyncio", "aiosqlite"]


def killed_node(url: str, key: Key, after_messages: int) -> int:
    """Run a node, kill it once its client has some messages; return how many the client got."""
    context = multiprocessing.get_context("forkserver")
    client, server = context.Pipe(duplex=False)
    node = context.Process(target=deliver, args=(url, key, server, 1_000_000))
    node.start()
    server.close()
    received = 0
    with client:
        while received < after_messages:
            client.recv_bytes()
            received += 1
        node.kill()
        try:
            while True:
                client.recv_bytes()
                received += 1
        except EOFError:
            pass
    node.join()
    node.close()
    return received


async def test_a_crash_loses_at_most_one_flush_and_never_counts_twice(house: House) -> None:
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    row = await house.store.key(house.key_id)
    assert row is not None
    key, url = key_of(row), str(house.store._engine.url)
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    received_bytes = lost_bytes = 0
    for _ in range(POINTS):
        before = await stored_usage(house.store, key, house.clock())
        received = killed_node(url, key, chance.randrange(1, 200)) * MESSAGE_BYTES
        metered = await stored_usage(house.store, key, house.clock()) - before
        assert received - MESSAGES_PER_FLUSH * MESSAGE_BYTES <= metered <= received
        received_bytes += received
        lost_bytes += received - metered
    assert received_bytes > lost_bytes > 0, "the node was killed in the middle of its work"

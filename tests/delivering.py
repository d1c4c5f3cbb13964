"""A node that delivers and meters until it is killed; run in a process of its own."""

import asyncio
from multiprocessing.connection import Connection

from onebook.accounts import Meter
from onebook.accounts.keys import Key
from onebook.store import Store

MESSAGE_BYTES = 1_000
MESSAGES_PER_FLUSH = 50


def deliver(url: str, key: Key, client: Connection, messages: int) -> None:
    """Hand messages to a counting client, metering each, with a flush now and then."""

    async def work() -> None:
        async with Store(url) as store:
            meter = Meter(store, lambda: key.created_at_ms)
            await meter.open(key)
            for number in range(1, messages + 1):
                client.send_bytes(b".")
                meter.add(key.key_id, MESSAGE_BYTES)
                if number % MESSAGES_PER_FLUSH == 0:
                    await meter.flush()
            await meter.close()

    asyncio.run(work())
    client.close()

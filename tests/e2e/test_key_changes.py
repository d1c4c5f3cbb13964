"""A key's tier and allowance change while its connection is open."""

import time

from e2e.service import client_of, key_of, settings_in
from onebook import app
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import Tier
from onebook.store import AuditedChange

FEW = {"requests_per_minute": 10, "connections_max": 1}
ANSWERS = ("exchanges_data", "error")


async def test_an_open_connection_gets_the_new_tier_and_allowance(tmp_path):
    settings = settings_in(tmp_path, accounts={"tiers": {"basic": FEW}})
    async with app.running(settings, overrides={}) as node:
        text = await key_of(node, tier=Tier.BASIC)
        async with client_of(node, text) as client:
            await client.say(type="get_exchanges")
            await client.kind("exchanges_data")
            now_ms = time.time_ns() // 1_000_000
            admin = Admin(node.store, load_pepper(node.settings.store.pepper_file))
            change = AuditedChange(now_ms, "tests", "")
            await admin.change_key(text, change, tier=Tier.PREMIUM, allowance_bytes=1 << 40)
            await node.accounts.poll(now_ms)  # as the watch does each second
            for _ in range(3 * FEW["requests_per_minute"]):
                await client.say(type="get_exchanges")
                answer = await client.until(lambda each: each["type"] in ANSWERS)
                assert answer["type"] == "exchanges_data", answer
            key_id = (await admin.key(text, now_ms)).key_id
            report = node.accounts.meter.report(key_id, now_ms)
            assert (report.billing_tier, report.data_usage.bytes_limit) == ("premium", 1 << 40)

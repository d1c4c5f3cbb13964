"""Live transactions of an exchange without a stream: its lists are read at intervals."""

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx
from onebook.simulator.accounts.serving import serving
from onebook.transactions.okx import OKX
from transactions.following import Following, now_ms
from transactions.okx_support import KEY

FIELDS = {"api_key": KEY.api_key, "secret": KEY.secret, "passphrase": KEY.passphrase}


async def test_what_happens_is_found_by_reading():
    now = now_ms()
    account = OkxAccount(OkxHistory(now - 20 * DAY_MS, now, rows=200))
    okx = SimulatedOkx(account, [KEY], limited=False)
    async with (
        serving(okx) as url,
        Following(OKX, {"mainnet_url": url}, FIELDS, poll_s=0.5) as node,
    ):
        fields = {"transaction_types": ["trades", "deposits"], "start_time": now_ms() - 2 * DAY_MS}
        follower = await node.follow(**fields)
        for kind in ("order", "deposit", "order"):
            account.happen(kind, now_ms())
        await follower.until_equal(3)
        assert {part.source for part in follower.statuses[-1].types} == {"polling"}
        assert follower.statuses[-1].reason is None

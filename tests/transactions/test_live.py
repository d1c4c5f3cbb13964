"""Following an account: several nodes, other credentials, slow subscribers, late records."""

import asyncio
from contextlib import asynccontextmanager

from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.bybit.trading import FUNDING_MS
from onebook.simulator.accounts.serving import serving
from onebook.transactions.bybit import BYBIT
from onebook.transactions.live import DeliveredRecords, content_of
from transactions.bybit_support import KEY
from transactions.following import Following, Subscriber, by_id, now_ms, waited
from transactions.test_record import record

OTHER = SimulatedKey("otherkey000000000000", "othersecret0000000000000000000000000")
TYPES = ["deposits", "withdrawals", "spot_orders", "futures", "transfers", "ledger"]
FIELDS = {"api_key": KEY.api_key, "secret": KEY.secret}


def account_of_days():
    """An account of three days, with the same events at each time of the day."""
    to_ms = now_ms() // FUNDING_MS * FUNDING_MS
    return Account(History(to_ms - 3 * DAY_MS, to_ms, executions=40))


@asynccontextmanager
async def served():
    bybit = SimulatedBybit(account_of_days(), [KEY, OTHER], limited=False)
    async with serving(bybit) as url:
        yield bybit, {"mainnet_url": url}


async def test_two_nodes_push_the_same():
    async with (
        served() as (bybit, urls),
        Following(BYBIT, urls, FIELDS) as one,
        Following(BYBIT, urls, FIELDS, store=one.store) as two,
    ):
        fields = {"transaction_types": TYPES, "start_time": now_ms() - DAY_MS}
        followers = [await node.follow(**fields) for node in (one, two)]
        for kind in ("spot", "linear", "deposit", "transfer"):
            bybit.act(kind)
        for each in followers:
            await each.until_equal(4)
        one, two = followers
        assert by_id(one.records) == by_id(two.records)


async def test_other_credentials_are_used_from_the_next_read_on():
    async with served() as (bybit, urls), Following(BYBIT, urls, FIELDS) as node:
        follower = await node.follow(transaction_types=["trades"], start_time=now_ms() - DAY_MS)
        await waited(lambda: follower.streamed)
        (first,) = bybit.streams.connections
        await node.set({"api_key": OTHER.api_key, "secret": OTHER.secret})
        await waited(
            lambda: [each.owner for each in bybit.streams.connections if each.topics] == [OTHER]
        )
        assert first.owner is KEY
        bybit.act("spot")
        await follower.until_equal(1)
        await node.vault.remove("bybit", "mainnet")
        await waited(lambda: follower.statuses[-1].state == "interrupted")
        await node.set(FIELDS)
        await waited(lambda: follower.statuses[-1].state == "live")


async def test_a_slow_subscriber_delays_no_other_and_gets_what_it_missed():
    async with served() as (bybit, urls), Following(BYBIT, urls, FIELDS) as node:
        fields = {"transaction_types": ["trades"], "start_time": now_ms() - DAY_MS}
        slow, quick = await node.follow(**fields), await node.follow(**fields)
        slow.slow = True
        for _ in range(3):
            bybit.act("spot")
        await quick.until_equal(3)
        assert not slow.pushed
        slow.slow = False
        await slow.until_equal(3)
        slow.leave()
        quick.leave()
        await waited(lambda: not bybit.streams.connections)


async def test_a_record_that_is_booked_late_comes_with_the_next_sweep():
    async with (
        served() as (bybit, urls),
        Following(BYBIT, urls, FIELDS, sweep_s=0.5, sweep_share=1.0) as node,
    ):
        follower = await node.follow(transaction_types=["trades"], start_time=now_ms() - DAY_MS)
        await waited(lambda: follower.streamed)
        bybit.account.insert_execution("spot", now_ms() - DAY_MS // 2)
        await follower.until_equal(1)


def test_what_was_delivered_is_known_as_long_as_it_is_read_again():
    delivered = DeliveredRecords(0, ids_max=10)
    made = [record(transactionId=str(n), timestamp=n) for n in range(12)]
    assert [delivered.note(each, content_of(each)) for each in made] == [False] * 12
    assert [delivered.note(each, content_of(each)) for each in made] == [None] * 12
    changed = replace(made[3], amount="7")
    assert delivered.note(changed, content_of(changed)) is True
    delivered.forget(0)  # more than may be remembered
    assert delivered.from_ms == 7
    assert delivered.note(made[11], content_of(made[11])) is None
    delivered.forget(9)
    assert (len(delivered), delivered.from_ms) == (3, 9)


def test_a_time_that_is_only_that_of_the_read_changes_nothing():
    pending = record(timestamp=1, incomplete=("timestamp",))
    assert content_of(pending) == content_of(replace(pending, timestamp=2, datetime="later"))
    timed = record(timestamp=1)
    assert content_of(timed) != content_of(replace(timed, timestamp=2))


async def test_a_key_replaced_before_its_account_is_known_ends_the_subscription():
    """Its history may belong to another account than the first read."""
    async with served() as (bybit, urls), Following(BYBIT, urls, FIELDS) as node:
        follower = Subscriber(node, {"transaction_types": ["trades"]})
        node.service.live.follow, follow = lambda subscription: None, node.service.live.follow
        await follower.begin()
        await node.set({"api_key": OTHER.api_key, "secret": OTHER.secret})
        follow(*follower.subscriptions)
        await waited(lambda: follower.statuses and follower.statuses[-1].state == "ended")
        assert follower.statuses[-1].reason == (
            "The credentials of bybit were replaced before their account was known; "
            "subscribe again."
        )
        bybit.act("spot")
        assert not follower.pushed


class Paused:
    """An exchange that answers requests only while `open`; its streams are not delayed."""

    def __init__(self, exchange):
        self.exchange = exchange
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            await self.open.wait()
        await self.exchange(scope, receive, send)


async def test_a_subscription_is_live_after_its_first_read():
    """Not when the stream opens: what happened since the history is not pushed yet."""
    bybit = SimulatedBybit(account_of_days(), [KEY], limited=False)
    slow = Paused(bybit)
    async with (
        serving(slow) as url,
        Following(BYBIT, {"mainnet_url": url}, FIELDS) as node,
    ):
        live, fields = node.service.live, {"transaction_types": ["trades"]}
        first = await node.follow(**fields)
        await waited(lambda: first.streamed)
        second = Subscriber(node, fields)
        follow, live.follow = live.follow, lambda subscription: None
        await second.begin()
        live.follow = follow
        slow.open.clear()
        bybit.act("spot")
        live.follow(*second.subscriptions)
        before = len(first.statuses)
        bybit.streams.drop()
        await waited(lambda: len(first.statuses) >= before + 2)  # the stream is lost, and open
        early = list(second.statuses)
        slow.open.set()
        await waited(lambda: second.statuses)
        assert early == []
        assert second.statuses[0].state == "live"
        fetched = await second.fetched()
        pushed = [each["transactionId"] for each in second.pushed]
        assert sorted(pushed) == sorted(fetched.keys() - second.history.keys())
        assert pushed


async def test_what_the_next_page_of_the_history_has_is_not_pushed():
    """A limit can end the history between records of one time."""
    async with served() as (bybit, urls), Following(BYBIT, urls, FIELDS) as node:
        at_ms = now_ms()
        for _ in range(3):
            bybit.account.insert_execution("spot", at_ms)
        fields = {"transaction_types": ["trades"], "limit": 2}
        follower = await node.follow(**fields)
        whole = await follower.fetched(limit=10)
        assert sum(each["timestamp"] == at_ms for each in whole.values()) == 3
        await waited(lambda: follower.statuses)
        assert follower.pushed == []

"""One seed, one swarm: clients of several keys act at a node over loopback.

The node is a whole gateway with real accounts, books, streams and sockets; time is virtual and
moves only between acts. Every message of every client is held against the truth; at the end
everything that was opened must be gone, and each key charged for what its sockets received.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace

from databases import migrated
from gateway.rig import Node, settled
from onebook.config import GatewaySettings
from onebook.gateway import GatewayLimits
from onebook.gateway.processor import FETCHES_MAX
from onebook.model import Tier
from onebook.store import Store
from proofs.clock import world_clock
from steady import PATIENCE_S
from swarm.choices import Choices
from swarm.market import Market
from swarm.member import Member
from swarm.sockets import LibraryPeer, RawPeer, narrow
from swarm.truth import Truth
from swarm.viewer import Broken

NAMES = ("binance", "okx", "kraken", "gate", "htx")
SYMBOLS = ("BTC/USDT", "ETH/USDT", "XRP/USDT")
RARE = "NEW/USDT"  # comes and goes
MANY = tuple(f"S{number}/USDT" for number in range(130))
LISTED = {
    "binance": [*SYMBOLS, RARE, *MANY],
    "okx": [*SYMBOLS, RARE],
    "kraken": [*SYMBOLS],
    "gate": [*SYMBOLS[:2], RARE],
    "htx": [*SYMBOLS[:1]],
}
SUBSCRIPTIONS_MAX = 128
SETTINGS = GatewaySettings(connects_per_minute=0)
WIDE = GatewayLimits(offence_pause_s=0.0)
NARROW = replace(WIDE, unsent_bytes_max=4_096, write_buffer_bytes_max=2_048)
KEYS = 3
CLIENTS = 6
SLEEP_MAX_US = 6_000_000  # shorter than what closes a slow client
SLACK_US = 20_000  # of the pace: a merge that changed nothing delays the next by 10 ms
STEP_S = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 1.2)


class Swarm:
    """A node, its exchanges and its clients, from one seed."""

    def __init__(self, seed: int, folder: Path, *, acts: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.clock = world_clock()
        self.truth = Truth()
        self.members: list[Member] = []
        self.gone: list[Member] = []  # closed cleanly: what they received is charged exactly
        self.done: list[str] = []
        self.choices = Choices(self.rng, LISTED)
        self._folder = folder
        self._acts = acts
        self._ids: dict = {}
        self._slept_at: dict[Member, int] = {}
        self._keys: dict[str, str] = {}  # id: text
        self._inexact: set[str] = set()  # keys that a socket without a clean close used
        self._made = 0

    async def run(self) -> int:
        """Run all actions and the end; return the number of verified updates."""
        before = len(asyncio.all_tasks()), open_files()
        try:
            async with AsyncExitStack() as stack:
                store = await stack.enter_async_context(Store(await migrated(self._folder)))
                make = partial(Market, truth=self.truth, clock=self.clock, seed=self.seed)
                node = Node(
                    store,
                    settings=SETTINGS,
                    listed=LISTED,
                    limits=NARROW if self.seed % 2 else WIDE,
                    clock=self.clock,
                    make_market=make,
                )
                await stack.enter_async_context(node.listening())
                self.node, self.market = node, node.market
                for number in range(KEYS):
                    text = await node.key(Tier.ENTERPRISE, name=f"user {number}")
                    key = await node.accounts.verify_key(text, self.clock.wall_ms())
                    self._keys[key.key_id] = text
                await self._live()
        except Exception as error:
            last = "\n  ".join(self.done[-30:])
            raise AssertionError(f"seed {self.seed}: {error!r}\n  {last}") from error
        finally:
            for member in self.members:
                await member.peer.vanish()
        await settled(lambda: len(asyncio.all_tasks()) <= before[0])
        await settled(lambda: open_files() <= before[1])
        return sum(each.updates for each in self.gone)

    async def _live(self) -> None:
        for _ in range(CLIENTS):
            await self._arrive()
        for _ in range(self._acts):
            act = self.rng.choice(ACTS)
            member = self.rng.choice(self.members)
            self.done.append(f"{self.clock.now_s:.4f} {act.__name__} {member.name}")
            await act(self, member)
            if self.rng.random() < 0.3:  # commands come between a change and its updates
                await asyncio.sleep(0.001)
            else:
                self._advance(self.rng.choice(STEP_S))
            if self.rng.random() < 0.15:
                await self._agree()
            await self._wake_the_sleepy()
        await self._end()

    def _advance(self, seconds: float) -> None:
        self.clock.move_to(self.clock.now_s + seconds)
        self.node.gateway.scheduler.tick()

    async def _arrive(self) -> None:
        self._made += 1
        rng, packed = self.rng, self.rng.random() < 0.5
        kind = rng.choice((RawPeer, LibraryPeer))
        name = f"{kind.__name__}{self._made}{'packed' if packed else 'plain'}"
        peer = kind(narrow(self.node.port), packed=packed)
        fanout = self.node.gateway.fanout
        member = Member(name, peer, self.truth, self.clock, self._ids)
        member.gaps = lambda: fanout.conflated_total > 0
        await peer.open()
        peer.begin(member.take)
        self.members.append(member)
        key = rng.choice(list(self._keys))
        await member.authenticate(self._keys[key], key)
        self.done.append(f"{self.clock.now_s:.4f} {name} arrives")
        for _ in range(rng.randint(0, 3)):
            await self._subscribe(member)

    # Agreement

    async def _replied(self, member: Member) -> None:
        """Wait until a client has received everything sent so far."""
        pong = await member.say(member.is_type("pong"), type="ping")
        rounds = 0
        async with asyncio.timeout(PATIENCE_S):
            while pong in member.expected:
                self._raise(member)
                await asyncio.sleep(0 if rounds % 10 else 0.001)
                rounds += 1
                if rounds % 500 == 0:  # its input is paused, because it changed much
                    self._advance(0.05)

    async def _agree(self) -> None:
        """Every reading client has the expected state."""
        self._advance(0.0)
        now_us = -1
        while now_us != self.clock.wall_us():  # waiting for one client may take time
            now_us = self.clock.wall_us()
            for member in self.members:
                if member.awake:
                    await self._replied(member)
        for member in self.members:
            if member.awake:
                for viewer in member.viewers.values():
                    viewer.check_fresh(now_us, SLACK_US)
                    if not member.gaps():
                        viewer.check_states()

    def _raise(self, member: Member) -> None:
        failure = member.peer.failure()
        if failure is not None:
            raise failure
        if member.peer.has_ended:
            raise Broken(f"{member.name} was closed with {member.peer.close_code}")

    async def _wake_the_sleepy(self) -> None:
        now_us = self.clock.wall_us()
        for member, at_us in list(self._slept_at.items()):
            if now_us - at_us > SLEEP_MAX_US:
                await self._read_again(member)

    # Acts

    async def _change(self, _: Member) -> None:
        for _ in range(self.rng.choice((1, 1, 3, 10))):
            live = self.market.open(live=True)
            if live:
                self.market.change(self.rng.choice(live))
            if self.rng.random() < 0.3:
                self._advance(self.rng.choice(STEP_S[:4]))

    async def _flood_with_changes(self, _: Member) -> None:
        """Publish enough updates that a client that does not read falls behind."""
        for _ in range(30):
            for instrument in self.market.open(live=True):
                if instrument.symbol in SYMBOLS:
                    self.market.change(instrument)
            self._advance(0.011)
            await asyncio.sleep(0)

    async def _fall_behind(self, member: Member) -> None:
        """Stop reading during many changes, and continue later."""
        if member.awake and member.asked:
            await self._replied(member)
            await self._stop_reading(member)
            await self._flood_with_changes(member)

    async def _lose(self, _: Member) -> None:
        live = [each for each in self.market.open(live=True) if each.symbol not in MANY]
        if not live:
            return
        lost = self.rng.choice(live)
        self.market.change(lost)
        self._advance(self.rng.choice((0.0, 0.02)))
        self.market.lose(lost)
        if self.rng.random() < 0.5:
            self._advance(0.101)
            await self._agree()

    async def _fill(self, _: Member) -> None:
        found = self.market.open(live=self.rng.random() < 0.2)
        if found:
            self.market.fill(self.rng.choice(found))

    async def _subscribe(self, member: Member) -> None:
        if not member.awake:
            return
        symbol = self.rng.choice((*SYMBOLS, RARE, "NONE/USDT"))
        message = self.choices.again(symbol)
        error, asked, rejected = self.choices.outcome(message, self.market)
        if error is None and symbol not in member.asked and len(member.asked) >= SUBSCRIPTIONS_MAX:
            error = "subscription_limit_exceeded"
        if error is not None:
            await member.say(member.refused(error), type="subscribe_aggregated", **message)
        else:
            await member.subscribe(asked, rejected, **message)

    async def _unsubscribe(self, member: Member) -> None:
        if member.awake:
            await member.unsubscribe(self._symbol(member))

    async def _look(self, member: Member) -> None:
        if not member.awake:
            return
        symbol = self._symbol(member)
        message = self.choices.message(symbol, sparse=True)
        whole = self.choices.completed(message, member.asked.get(symbol))
        error, asked, _ = self.choices.outcome(whole, self.market)
        if error is not None:
            if len(member.expected) < FETCHES_MAX:
                await member.say(member.refused(error), type="get_aggregated_orderbook", **message)
            return
        await member.look(asked, FETCHES_MAX, **message)

    def _symbol(self, member: Member) -> str:
        """A symbol, most often one that the client subscribes to."""
        held = [symbol for symbol in member.asked if symbol not in MANY]
        return self.rng.choice((*SYMBOLS, RARE, *held * 4))

    async def _resync(self, member: Member) -> None:
        if member.awake:
            symbol = self._symbol(member)
            for instrument in self.market.open(live=True):
                if instrument.symbol == symbol:
                    self.market.change(instrument)
            await member.resync(symbol, self.clock.wall_us())

    async def _list(self, member: Member) -> None:
        if member.awake:
            await member.list_subscriptions()

    async def _authenticate(self, member: Member) -> None:
        """Connect again, with the same key or with another."""
        if not member.awake:
            return
        await self._replied(member)
        key = self.rng.choice(list(self._keys))
        await member.authenticate(self._keys[key], key)
        await self._replied(member)

    async def _many(self, member: Member) -> None:
        """Subscribe to more than permitted, or end all subscriptions."""
        if not member.awake:
            return
        if any(symbol in member.asked for symbol in MANY):
            for symbol in [each for each in member.asked if each in MANY]:
                await member.unsubscribe(symbol)
            return
        options = self.choices.options()
        for symbol in MANY:
            message = {"symbol": symbol, "exchanges": ["binance"], **options}
            _, asked, _ = self.choices.outcome(message, self.market)
            if len(member.asked) < SUBSCRIPTIONS_MAX:
                await member.subscribe(asked, [], **message)
            else:
                refused = member.refused("subscription_limit_exceeded")
                await member.say(refused, type="subscribe_aggregated", **message)

    async def _stop_reading(self, member: Member) -> None:
        if member.awake and len(self._slept_at) < len(self.members) - 2:
            member.peer.reading.clear()
            self._slept_at[member] = self.clock.wall_us()

    async def _read_again(self, member: Member) -> None:
        if self._slept_at.pop(member, None) is not None:
            member.peer.reading.set()
            await self._replied(member)

    async def _nonsense(self, member: Member) -> None:
        if member.awake:
            error, message = self.choices.nonsense()
            await member.say(member.refused(error), **message)

    async def _change_lists(self, _: Member) -> None:
        """Add or remove a symbol on an exchange, while no command is in flight."""
        for member in self.members:
            await self._read_again(member)
            await self._replied(member)
        name = self.rng.choice(("binance", "okx", "gate"))
        if self.market.instrument(name, RARE) is not None:
            self.market.delist(name, RARE)
        else:
            self.market.trade(name, RARE)
            self.market.relist_all()

    async def _vanish(self, member: Member) -> None:
        """Drop a client without a close, and connect another."""
        if len(self.members) > 3 and self.rng.random() < 0.3:
            self._inexact |= {member.key, *member.received_bytes}
            self.members.remove(member)
            self._slept_at.pop(member, None)
            await member.peer.vanish()
            await self._arrive()

    async def _leave(self, member: Member) -> None:
        if self.rng.random() < 0.3:
            await self._read_again(member)
            await self._close(member)
            await self._arrive()

    async def _close(self, member: Member) -> None:
        await self._replied(member)
        await member.peer.close()
        self._slept_at.pop(member, None)
        failure = member.peer.failure()
        if failure is not None:
            raise failure
        self.members.remove(member)
        self.gone.append(member)

    # The end

    async def _end(self) -> None:
        self.done.append("the end")
        for member in self.members:
            await self._read_again(member)
        for instrument in self.market.open(live=False):
            self.market.fill(instrument)
        for _ in range(5):
            self._advance(1.0)
            await self._agree()
        for member in list(self.members):
            await self._replied(member)
            if member.expected:
                raise Broken(f"{member.name}: no reply to {[*member.expected.values()]}")
            for viewer in member.viewers.values():
                viewer.check_fresh(self.clock.wall_us(), SLACK_US)
        for member, symbol in zip(list(self.members), MANY[::-1], strict=False):
            whole = self.choices.completed({"symbol": symbol}, member.asked.get(symbol))
            asked = self.choices.outcome(whole, self.market)[1]
            await member.look(asked, 1, symbol=symbol)  # nothing may be left of it either
            await self._close(member)
        gateway = self.node.gateway
        await settled(lambda: not len(gateway.connections))
        self._check_bytes()
        self._check_nothing_left()

    def _check_bytes(self) -> None:
        received: dict[str, int] = {}
        for member in self.gone:
            for key, count in member.received_bytes.items():
                received[key] = received.get(key, 0) + count
        for key in self._keys.keys() - self._inexact:
            used = self.node.accounts.meter.used(key, self.clock.wall_ms())
            if used != received.get(key, 0):
                raise Broken(f"{received.get(key, 0)} bytes received, {used} charged")

    def _check_nothing_left(self) -> None:
        gateway = self.node.gateway
        streams, fanout = gateway.streams, gateway.fanout
        left = {
            "streams": len(streams),
            "books with streams": len(streams._of) + len(streams._clean),
            "requests": len(streams._requests) + streams._requests_open,
            "fanout": len(fanout._subscribers) + len(fanout._missed) + len(fanout._touched),
            "views": len(gateway.views._counts),
            "turns": len(gateway.turns),
            "timers": len(gateway.scheduler),
            "keys": len(gateway.connections.by_key),
            "wanted": len(self.market.wanted),
            "tasks": len(gateway.authenticator.tasks),
        }
        if any(left.values()):
            raise Broken(f"left: {left}")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


Act = Callable[[Swarm, Member], object]
ACTS: tuple[Act, ...] = (
    *(Swarm._change,) * 8,
    *(Swarm._subscribe,) * 6,
    Swarm._flood_with_changes,
    Swarm._fall_behind,
    *(Swarm._lose,) * 3,
    *(Swarm._fill,) * 4,
    *(Swarm._unsubscribe,) * 2,
    *(Swarm._look,) * 3,
    *(Swarm._resync,) * 2,
    Swarm._list,
    Swarm._authenticate,
    Swarm._many,
    *(Swarm._stop_reading,) * 2,
    *(Swarm._read_again,) * 2,
    *(Swarm._nonsense,) * 2,
    Swarm._change_lists,
    Swarm._vanish,
    Swarm._leave,
)

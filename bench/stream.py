"""The one deterministic stream of level changes that every benchmark feeds to every contender.

Most changes happen near the touch: 80 % within its 20 best levels, three in ten remove a level,
about as many add one, and the touch itself walks. Prices are whole ticks of 0.01, amounts whole
lots of 0.00001. Frames are printed as the exchanges print them.
"""

import random
import struct
from bisect import insort
from collections.abc import Sequence
from itertools import accumulate

TICKS = 100
LOTS = 100_000
NEAR = 20
Level = tuple[int, int]
Side = Sequence[Level]


class Stream:
    """One exchange's book and its changes.

    Args:
        depth: Levels a side to begin with; the far end is cut at five quarters of it.
        seed: The same seed gives the same stream.
        mid: The first mid price in ticks.
    """

    def __init__(self, depth: int, seed: int = 1, mid: int = 6_712_345) -> None:
        self.random = random.Random(seed)
        self.depth = depth
        # A bid's key is its price, an ask's is minus its price: both ascend towards the touch.
        self.keys = [
            sorted(mid - distance for distance in self._distances()),
            sorted(-mid - distance for distance in self._distances()),
        ]

    def _distances(self) -> list[int]:
        return list(accumulate(self.random.choice((1, 1, 2, 3, 7)) for _ in range(self.depth)))

    def _amount(self) -> int:
        return self.random.randrange(1, 10 ** self.random.choice((3, 4, 5, 6)))

    def snapshot(self) -> tuple[list[Level], list[Level]]:
        """The whole book, best first: bids and asks as (ticks, lots)."""
        bids, asks = ([(abs(key), self._amount()) for key in reversed(keys)] for keys in self.keys)
        return bids, asks

    def frame(self, count: int) -> tuple[list[Level], list[Level]]:
        """So many changed levels, each price at most once; amount 0 removes."""
        changes: dict[int, int] = {}
        while len(changes) < count:
            key, amount = self._change()
            changes[key] = amount
        bids = [(key, amount) for key, amount in changes.items() if key > 0]
        asks = [(-key, amount) for key, amount in changes.items() if key < 0]
        return bids, asks

    def _change(self) -> tuple[int, int]:
        """One change as (key, amount); bid keys are positive, ask keys negative prices."""
        rand = self.random
        side = rand.randrange(2)
        keys = self.keys[side]
        near = rand.random() < 0.8
        rank = rand.randrange(NEAR) if near else rand.randrange(NEAR, max(NEAR + 1, len(keys)))
        at = len(keys) - 1 - min(rank, len(keys) - 1)
        kind = rand.random()
        if kind < 0.3 and len(keys) > self.depth * 3 // 4:
            return keys.pop(at), 0
        if kind < 0.62:
            return self._insert(keys, at, self.keys[1 - side])
        return keys[at], self._amount()

    def _insert(self, keys: list[int], at: int, others: list[int]) -> tuple[int, int]:
        spread = -others[-1] - keys[-1]
        if self.random.random() < 0.15 and spread > 1:
            key = keys[-1] + self.random.randrange(1, spread)
        else:
            key, at = keys[at] - 1, at - 1
            while at >= 0 and keys[at] == key:
                key, at = key - 1, at - 1
        insort(keys, key)
        if len(keys) > self.depth * 5 // 4:
            return keys.pop(0), 0
        return key, self._amount()


def price(ticks: int, decimals: int = 2) -> str:
    """Ticks as an exchange prints them."""
    return f"{ticks // TICKS}.{ticks % TICKS:02d}".ljust(
        len(str(ticks // TICKS)) + 1 + decimals, "0"
    )


def amount(lots: int, decimals: int = 5) -> str:
    """Lots as an exchange prints them."""
    return f"{lots // LOTS}.{lots % LOTS:05d}".ljust(len(str(lots // LOTS)) + 1 + decimals, "0")


def _pairs(side: Side, decimals: tuple[int, int], tail: str = "") -> str:
    return ",".join(
        f'["{price(p, decimals[0])}","{amount(q, decimals[1])}"{tail}]' for p, q in side
    )


def binance(bids: Side, asks: Side, number: int) -> bytes:
    """A combined-stream depthUpdate."""
    return (
        '{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","E":1633998512068,"s":"BTCUSDT",'
        f'"U":{number},"u":{number},"b":[{_pairs(bids, (8, 8))}],"a":[{_pairs(asks, (8, 8))}]}}}}'
    ).encode()


def binance_sbe(bids: Side, asks: Side, number: int) -> bytes:
    """A DepthDiff event in Simple Binary Encoding; ticks and lots are its mantissas at 10^-8."""
    groups = b"".join(
        struct.pack("<HH", 16, len(side))
        + b"".join(struct.pack("<qq", p * 10**8 // TICKS, q * 10**8 // LOTS) for p, q in side)
        for side in (bids, asks)
    )
    block = struct.pack("<qqqbb", 1_633_998_512_068_000, number, number, -8, -8)
    return struct.pack("<HHHH", len(block), 10_003, 1, 0) + block + groups + b"\x07BTCUSDT"


def binance_snapshot(bids: Side, asks: Side) -> bytes:
    """The REST depth."""
    return (
        f'{{"lastUpdateId":0,"bids":[{_pairs(bids, (8, 8))}],"asks":[{_pairs(asks, (8, 8))}]}}'
    ).encode()


def okx(bids: Side, asks: Side, number: int, action: str = "update") -> bytes:
    """A frame of the books channel, with the zero checksum of 2026."""
    tail = ',"0","3"'
    previous = number - 1 if action == "update" else -1
    return (
        f'{{"arg":{{"channel":"books","instId":"BTC-USDT"}},"action":"{action}","data":[{{"asks":'
        f'[{_pairs(asks, (2, 5), tail)}],"bids":[{_pairs(bids, (2, 5), tail)}],"ts":"1652459225604"'
        f',"checksum":0,"prevSeqId":{previous},"seqId":{number}}}]}}'
    ).encode()


def kraken(bids: Side, asks: Side, checksum: int, kind: str = "update") -> bytes:
    """A frame of the v2 book channel."""

    def levels(side: Side) -> str:
        return ",".join(f'{{"price":{price(p)},"qty":{amount(q, 8)}}}' for p, q in side)

    return (
        f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"BTC/USDT","bids":[{levels(bids)}],'
        f'"asks":[{levels(asks)}],"checksum":{checksum},"timestamp":"2023-10-06T17:35:55.440295Z"}}]}}'
    ).encode()


def coinbase(bids: Side, asks: Side) -> bytes:
    """An l2update of the Exchange feed."""
    changes = [("buy", p, q) for p, q in bids] + [("sell", p, q) for p, q in asks]
    levels = ",".join(f'["{side}","{price(p)}","{amount(q, 8)}"]' for side, p, q in changes)
    return (
        f'{{"type":"l2update","product_id":"BTC-USDT","changes":[{levels}],'
        '"time":"2021-04-17T16:43:37.123456Z"}'
    ).encode()


def coinbase_snapshot(bids: Side, asks: Side) -> bytes:
    """The first frame of the Exchange feed."""
    return (
        f'{{"type":"snapshot","product_id":"BTC-USDT","asks":[{_pairs(asks, (2, 8))}],'
        f'"bids":[{_pairs(bids, (2, 8))}]}}'
    ).encode()


def coinbase_advanced(bids: Side, asks: Side, number: int, kind: str = "update") -> bytes:
    """The same changes on Coinbase's other feed, which cryptofeed reads."""
    at = "2023-02-09T20:32:50.714964855Z"
    changes = [("bid", p, q) for p, q in bids] + [("offer", p, q) for p, q in asks]
    levels = ",".join(
        f'{{"side":"{side}","event_time":"{at}","price_level":"{price(p)}",'
        f'"new_quantity":"{amount(q)}"}}'
        for side, p, q in changes
    )
    return (
        f'{{"channel":"l2_data","client_id":"","timestamp":"{at}","sequence_num":{number},"events":'
        f'[{{"type":"{kind}","product_id":"BTC-USDT","updates":[{levels}]}}]}}'
    ).encode()

"""What is run, and what is to be reached: every row of the result in one table each.

The rows of goal 13 are those that `micro/every.py` finds in the registry of exchanges, and the
frames of best prices of goal 14 those of `micro/tops.py`.
"""

from collections.abc import Iterable
from typing import NamedTuple

AT_LEAST = "at least"
AT_MOST = "at most"

Point = tuple[str, str]  # a row and a contender, as the benchmarks report them


class Job(NamedTuple):
    """Contenders that are measured together: each in its own process, one after the other.

    `once` means that the script itself interleaves its contenders and takes medians.
    """

    name: str
    commands: tuple[str, ...]
    once: bool = False


class Goal(NamedTuple):
    """A row of the result: a ratio of two points, or one point as it is, against a limit.

    With `at least` the ratio says how many times cheaper ours is; with `at most` it is our part
    of theirs. With `less` the row is the difference, ours less theirs: what ours adds to a floor.
    """

    number: int
    what: str
    ours: Point
    theirs: Point | None
    kind: str
    limit: float
    scale: float = 1.0  # from the reported unit to the one shown, for points as they are
    unit: str = "x"
    less: bool = False


# Exchanges with fused best prices, beside Binance: `macro/ages.py`.
FUSED = {
    "okx": "OKX", "bybit": "Bybit", "htx": "HTX", "gate": "Gate", "whitebit": "WhiteBIT",
    "bitget": "Bitget", "deribit": "Deribit", "hyperliquid": "Hyperliquid",
    "binanceus": "Binance US", "okxus": "OKX US", "gemini": "Gemini",
}  # fmt: skip
CRYPTOFEED = ("okx", "bybit", "binanceus", "okxus", "gemini")  # of which cryptofeed has the channel
AT_ONCE = ("gemini",)  # whose channel of the peers sends every change at once

JOBS = (
    Job("ingest", ("micro/ingest.py",), once=True),
    Job("every", ("micro/every.py",), once=True),
    Job("depth", ("micro/depth.py",), once=True),
    Job("replay", ("micro/replay.py",), once=True),
    Job("tops", ("micro/tops.py",), once=True),
    Job("publish", ("micro/publish.py",), once=True),
    Job("history", ("micro/history_bytes.py", "micro/past.py"), once=True),
    Job("recorder", ("macro/recorder.py",), once=True),
    Job("latency", ("micro/latency.py", "micro/latency.py reference")),
    Job("memory", ("micro/memory.py",)),
    Job("deflate", ("micro/deflate.py",), once=True),
    Job("forms", ("micro/encode.py", "micro/decode.py"), once=True),
    Job("records", ("micro/records.py",), once=True),
    Job("ledgers", ("micro/ledgers.py",), once=True),
    Job("scale", ("macro/scale.py",), once=True),
    Job(
        "fanout",
        (
            "macro/others.py floor 1000 1",
            "macro/fanout.py --size 1 --hub",
            "macro/others.py uvicorn 1000 1",
            "macro/others.py websockets 1000 1",
            "macro/others.py floor 1000 12",
            "macro/fanout.py --size 12 --hub",
            "macro/fanout.py --size 12 --packed",
            "macro/fanout.py --size 12 --form protobuf",
            "macro/fanout.py --size 12 --form json protobuf",
            "macro/others.py uvicorn 1000 12",
            "macro/others.py websockets 1000 12",
            "macro/others.py floor 1000 1 5",
            "macro/fanout.py --size 1 --streams 5",
        ),
    ),
    Job("rest", ("macro/fanout.py --clients 500 --size 1 --rest",)),
    Job(
        "crowd",
        (
            "macro/others.py floor 100 1",
            "macro/fanout.py --clients 100 --size 1",
            "macro/others.py floor 5000 1",
            "macro/fanout.py --clients 5000 --size 1",
        ),
    ),
    Job(
        "idle",
        ("macro/idle.py --subscribed 4000", "macro/idle.py --bare --subscribed 4000"),
        once=True,
    ),
    Job(
        "receive",
        (
            "macro/receive.py bare",
            "macro/receive.py onebook",
            "macro/receive.py book",
            "macro/receive.py websockets",
        ),
    ),
    Job("sustained", ("macro/sustained.py",)),
    Job(
        "library",
        (
            "macro/library.py callback",
            "macro/library.py iterator",
            "macro/library.py whole",
            "macro/library.py cryptofeed",
            "macro/library.py ccxt",
        ),
    ),
    Job(
        "ages",
        (
            "macro/ages.py onebook",
            "macro/ages.py ccxt",
            "macro/ages.py ccxt_best",
            "macro/ages.py cryptofeed",
            "macro/ages.py cryptofeed_ticker",
        ),
    ),
    Job(
        "ages-each",
        tuple(
            f"macro/ages.py {kind} {name}"
            for name in FUSED
            for kind in ("onebook", "ccxt", *(("cryptofeed",) if name in CRYPTOFEED else ()))
        ),
        once=True,
    ),
)


def frame(exchange: str) -> str:
    return f"frame of 20 levels, {exchange}"


def fanout_row(size: int, clients: int = 1_000, streams: int = 1) -> str:
    return f"fan-out {size} KB to {clients} clients, {streams} a tick"


def mapped(kind: str, exchange: str = "bybit") -> str:
    return f"{exchange} row to record, {kind}"


LEVEL = "changed level, "
ENCODED = "update of 20 levels a side to its frame"
DECODED = "update to a book in "
# A binary delta as a part of a JSON delta: of levels as objects, as arrays. Where JavaScript reads
# every level, making its levels is the floor. Arrays name no exchanges.
FORM_LIMITS = (
    ("made by the service", ENCODED, 0.9, 1.2),
    ("best prices read in Python", f"{DECODED}Python, best prices read", 0.25, 0.25),
    ("every level read in Python", f"{DECODED}Python, every level read", 0.25, 0.25),
    ("best prices read in JavaScript", f"{DECODED}JavaScript, best prices read", 0.15, 0.25),
    ("every level read in JavaScript", f"{DECODED}JavaScript, every level read", 0.2, 0.33),
)
DEEP = (
    "a block of 130 new prices", "checksum of a deep book", "merge of a deep book",
    "fill of a deep book",
)  # fmt: skip
DEEPEST = "snapshot of 45500 levels a side"
REPLAYED = "replayed frame of 20 levels"
BEST = "frame of 20 levels and best price read, binance"
READY = "frame in to update ready, 8 exchanges"
ONE, TWELVE, FIVE = fanout_row(1), fanout_row(12), fanout_row(1, streams=5)
FEW, MANY = fanout_row(1, 100), fanout_row(1, 5_000)
RECEIVE = "receive a frame on 30 feeds"
# Channels with few levels in a frame, so that its envelope decides: at least so many times cheaper.
LEVEL_LIMITS = {
    "coinbase-advanced": 7, "bitfinex": 6.5, "whitebit": 7, "cryptocom": 6.5, "deribit": 7,
}  # fmt: skip
OURS = "onebook"
IDLE = "idle authenticated client"
SUBSCRIBED = "update of a subscribed client"
FLOOR = "C send()"
LIBRARY = "frame to the caller's function, 20 books"
ASLEEP = "the same with 7 ms of sleep between rounds"
LIBRARY_LATENCY = "frame sent to the caller's function, 20 books"
AGES = "age of the best price at the caller, "
AGE = AGES + "Binance"
WRONG = "time with a wrong best price, Binance"
TOP = "top frame, "
SCALE = "frame of one exchange among others"
HISTORY_CPU = "history of a frame of 20 levels"
HISTORY_BYTES = "bytes of the history, 20 levels"
KINDS = (
    "spot fills", "futures fills", "ledger lines", "orders", "deposits", "withdrawals", "transfers",
)  # fmt: skip
# A transfer has so few fields that the record itself, with its ids, is half of the cost. Making and
# keeping the records of deposits and withdrawals waits for memory, more on some machines than on
# others: "Honest limits" in README.md.
KIND_LIMITS = {"deposits": 2, "withdrawals": 2, "transfers": 2.3}

# Where one event has several rows, more is made than by ccxt (1.5 to 1.9 records of a row, with
# their ids): the limit is what this work allows, see "Long ledgers" in README.md.
LEDGERS = (
    ("okx", "trading bills", 2.2), ("okx", "funding bills", 2.2), ("okx", "deposits", 2.5),
    ("okx", "withdrawals", 2.5), ("kraken", "ledger", 1.9),
)  # fmt: skip


def against(row: str, peer: str) -> tuple[Point, Point]:
    return (row, OURS), (row, peer)


GOALS = (
    Goal(1, "binance frame, cryptofeed", *against(frame("binance"), "cryptofeed"), AT_LEAST, 10),
    Goal(1, "binance frame, ccxt", *against(frame("binance"), "ccxt"), AT_LEAST, 11),
    Goal(1, "binance frame, tardis-dev", *against(frame("binance"), "tardis-dev"), AT_LEAST, 4.5),
    Goal(1, "okx frame, cryptofeed", *against(frame("okx"), "cryptofeed"), AT_LEAST, 9),
    Goal(1, "okx frame, ccxt", *against(frame("okx"), "ccxt"), AT_LEAST, 9),
    Goal(1, "kraken frame, ccxt", *against(frame("kraken"), "ccxt"), AT_LEAST, 11),
    Goal(1, "coinbase frame, cryptofeed", *against(frame("coinbase"), "cryptofeed"), AT_LEAST, 10),
    Goal(2, "best price read after each frame", *against(BEST, "cryptofeed"), AT_LEAST, 100),
    Goal(
        3, "depth 5,000 against 1,000", ("depth", "depth 5000"), ("depth", "depth 1000"),
        AT_MOST, 1.25,
    ),
    Goal(
        3, "depth 50,000 against 1,000", ("depth", "depth 50000"), ("depth", "depth 1000"),
        AT_MOST, 1.25,
    ),
    Goal(
        3, "depth 50,000, ccxt", ("depth", "depth 50000"), ("depth", "ccxt, depth 50000"),
        AT_LEAST, 11,
    ),
    *(
        Goal(
            3, f"{what}, 50,000 against 1,000", (what, "depth 50000"), (what, "depth 1000"),
            AT_MOST, 1.25,
        )
        for what in DEEP
    ),
    Goal(
        3, "snapshot of 45,500 levels a side", (DEEPEST, OURS), None, AT_MOST, 25, scale=1e-6,
        unit="ms",
    ),
    Goal(3, "the same, ccxt", *against(DEEPEST, "ccxt"), AT_LEAST, 11),
    Goal(
        3, "replayed frame, of session and book alone", (REPLAYED, "played"),
        (REPLAYED, "session alone"), AT_MOST, 1.15,
    ),
    Goal(
        4, "publish 8 exchanges, of orjson alone",
        *against("publish 8 exchanges", "orjson.dumps of the ready dict"), AT_MOST, 0.40,
    ),
    Goal(
        4, "publish 25 exchanges, of orjson alone",
        *against("publish 25 exchanges", "orjson.dumps of the ready dict"), AT_MOST, 0.55,
    ),
    Goal(
        5, "frame in to update ready, p50", (READY, "compiled p50"), None, AT_MOST, 20,
        scale=1e-3, unit="us",
    ),
    Goal(
        5, "the same against the reference, p50", (READY, "compiled p50"), (READY, "reference p50"),
        AT_LEAST, 8,
    ),
    # With cheap system calls, Python for each client is a fifth of what 1 KB costs.
    Goal(6, "1 KB to 1,000, share of the floor", *against(ONE, FLOOR), AT_LEAST, 0.75),
    Goal(6, "12 KB to 1,000, share of the floor", *against(TWELVE, FLOOR), AT_LEAST, 0.85),
    Goal(6, "1 KB, uvicorn + websockets", *against(ONE, "uvicorn + websockets"), AT_LEAST, 2),
    Goal(6, "12 KB, uvicorn + websockets", *against(TWELVE, "uvicorn + websockets"), AT_LEAST, 2),
    Goal(6, "1 KB, websockets broadcast()", *against(ONE, "websockets broadcast()"), AT_LEAST, 1),
    Goal(
        6, "12 KB, websockets broadcast()", *against(TWELVE, "websockets broadcast()"), AT_LEAST, 1
    ),
    Goal(
        6, "REST answered beside it", ("REST beside the fan-out", "answered"), None, AT_LEAST, 30,
        unit="requests",
    ),
    Goal(7, "5 streams a tick joined", (FIVE, OURS), (ONE, OURS), AT_LEAST, 3),
    Goal(7, "the same, share of the floor joined", *against(FIVE, FLOOR), AT_LEAST, 0.5),
    Goal(
        8, "one compressed frame for all", ("compressed frame", "onebook, once for all clients"),
        None, AT_MOST, 25, scale=1e-3, unit="us",
    ),
    Goal(
        8, "compressed against plain client", (TWELVE, "onebook, compressed"), (TWELVE, OURS),
        AT_MOST, 1.3,
    ),
    Goal(
        8, "a binary client among JSON clients", (TWELVE, "onebook, both forms"), (TWELVE, OURS),
        AT_MOST, 1.15,
    ),
    *(
        Goal(8, f"binary update {what}, {theirs}", (row, "protobuf"), (row, name), AT_MOST, limit)
        for what, row, *limits in FORM_LIMITS
        for name, theirs, limit in zip(
            ("json", "array") if row == ENCODED else ("object", "array"),
            ("JSON", "JSON arrays"), limits, strict=True,
        )
    ),
    Goal(
        9, "a level at depth 1,000", ("memory at depth 1000", OURS), None, AT_MOST, 35,
        unit="bytes",
    ),
    Goal(
        9, "a level at depth 5,000", ("memory at depth 5000", OURS), None, AT_MOST, 35,
        unit="bytes",
    ),
    *(
        Goal(
            9, f"a level at depth 50,000{when}", (f"memory at depth 50000{when}", OURS), None,
            AT_MOST, 20, unit="bytes",
        )
        for when in ("", ", changed")
    ),
    Goal(
        9, "an idle authenticated client", (IDLE, "KiB"), None, AT_MOST, 4, unit="KiB",
    ),
    Goal(
        9, "the same, CPU with a ping every 20 s", (IDLE, "us of CPU a second"), None, AT_MOST, 2,
        unit="us a second",
    ),
    Goal(
        9, "the same, bare uvloop", (IDLE, "us of CPU a second"),
        (IDLE, "bare uvloop protocol, us of CPU a second"), AT_MOST, 2,
    ),
    *(
        Goal(
            9, f"longest turn {what}", (row, f"longest turn{name}, ms of CPU"), None, AT_MOST, 20,
            unit="ms",
        )
        for what, row, name in (
            ("with idle clients", IDLE, ""),
            ("while clients connect", IDLE, " while connecting"),
            ("of a drain", "drain of all", ""),
            ("while all return", "all clients return", ""),
        )
    ),
    # uvloop reads the ends of all connections in one turn; the floor does nothing else.
    Goal(
        9, "longest turn while all vanish, bare uvloop",
        ("all clients vanish", "longest turn, ms of CPU"),
        ("all clients vanish", "bare uvloop protocol, longest turn, ms of CPU"), AT_MOST, 1.3,
    ),
    # The floor sends to 20 clients at a time, as a view with 20 clients does; it neither merges nor
    # charges.
    Goal(
        9, "an update a second to 4,000 of them, share of the floor",
        (SUBSCRIBED, "onebook, us a message"), (SUBSCRIBED, "bare uvloop protocol, us a message"),
        AT_LEAST, 0.65,
    ),
    *(
        Goal(
            9, f"longest turn with 200 views{what}",
            (SUBSCRIBED, f"onebook{name}, longest turn, ms of CPU"), None, AT_MOST, 20, unit="ms",
        )
        for what, name in (("", ""), (", all due at once", ", all at once"))
    ),
    Goal(
        9, "longest wait of a client that returns",
        ("all clients return", "longest wait of one, s"), None, AT_MOST, 2, unit="s",
    ),
    # Each frame is a read of its own: the bare protocol itself is 2.1 times cheaper than
    # websockets, and the listener's checks of RFC 6455 and its call of the session take 0.7 us.
    Goal(10, "30 feeds, bare uvloop", *against(RECEIVE, "bare uvloop protocol"), AT_MOST, 1.45),
    Goal(10, "30 feeds, websockets", *against(RECEIVE, "websockets"), AT_LEAST, 1.5),
    Goal(11, "a client of 5,000 against one of 100", (MANY, OURS), (FEW, OURS), AT_MOST, 1.5),
    Goal(
        11, "an exchange of 25 against one of 2", (SCALE, "25 exchanges"), (SCALE, "2 exchanges"),
        AT_MOST, 1.15,
    ),
    Goal(
        11, "the same, merged and published", (SCALE, "25 exchanges, published"),
        (SCALE, "2 exchanges, published"), AT_MOST, 1.15,
    ),
    Goal(
        11, "1,000 streams on 8,000 clients", ("1000 streams on 8000 clients", "updates a second"),
        None, AT_LEAST, 9.5, unit="a second",
    ),
    *(
        Goal(
            12, f"{kind} to records, ccxt", *against(mapped(kind), "ccxt"), AT_LEAST,
            KIND_LIMITS.get(kind, 2.5),
        )
        for kind in KINDS
    ),
    *(
        Goal(
            12, f"{kind} to records, of decoding, numbers and ids alone",
            *against(mapped(kind), "floor"), AT_MOST, 3,
        )
        for kind in ("deposits", "withdrawals")
    ),
    *(
        Goal(
            12, f"{exchange} {kind} to records, ccxt", *against(mapped(kind, exchange), "ccxt"),
            AT_LEAST, limit,
        )
        for exchange, kind, limit in LEDGERS
    ),
    Goal(13, "frame to a callback, cryptofeed", *against(LIBRARY, "cryptofeed"), AT_LEAST, 5),
    Goal(13, "frame to a callback, ccxt", *against(LIBRARY, "ccxt"), AT_LEAST, 5),
    Goal(13, "the same asleep in between, cryptofeed", *against(ASLEEP, "cryptofeed"), AT_LEAST, 5),
    Goal(13, "the same asleep in between, ccxt", *against(ASLEEP, "ccxt"), AT_LEAST, 3),
    Goal(
        13, "latency to a callback, p50, cryptofeed", (LIBRARY_LATENCY, "onebook p50"),
        (LIBRARY_LATENCY, "cryptofeed p50"), AT_LEAST, 2,
    ),
    Goal(
        13, "latency to a callback, p50, ccxt", (LIBRARY_LATENCY, "onebook p50"),
        (LIBRARY_LATENCY, "ccxt p50"), AT_LEAST, 2,
    ),
    Goal(14, "age of the best price, p50", (AGE, "onebook p50"), None, AT_MOST, 15, unit="ms"),
    Goal(
        14, "time with a wrong best price, less a bare reader's", *against(WRONG, "bare reader"),
        AT_MOST, 1, unit="%", less=True,
    ),
    *(
        Goal(14, f"age, p50, {peer}", (AGE, "onebook p50"), (AGE, f"{peer} p50"), AT_MOST, limit)
        for peer, limit in (
            ("ccxt watchOrderBook", 0.333),
            ("cryptofeed L2_BOOK", 0.333),
            ("ccxt watchBidsAsks", 1.5),
            ("cryptofeed TICKER", 1.5),
        )
    ),
    *(
        Goal(14, f"age, p50, {name}", (AGES + name, "onebook p50"), None, AT_MOST, 15, unit="ms")
        for name in FUSED.values()
    ),
    *(
        Goal(
            14, f"age, p50, {FUSED[name]}, {peer}", (AGES + FUSED[name], "onebook p50"),
            (AGES + FUSED[name], f"{peer} p50"), AT_MOST, 1.5 if name in AT_ONCE else 0.333,
        )
        for peer, names in (
            ("ccxt watchOrderBook", FUSED),
            ("cryptofeed L2_BOOK", CRYPTOFEED),
        )
        for name in names
    ),
    Goal(
        15, "CPU of recording, share of the feeds", (HISTORY_CPU, "recording"),
        (HISTORY_CPU, "feeds"), AT_MOST, 0.15,
    ),
    # Closing runs at the lowest priority; half of it is Parquet.
    Goal(
        15, "CPU of recording and closing, pyarrow alone", (HISTORY_CPU, "recording and closing"),
        (HISTORY_CPU, "floor"), AT_MOST, 3.5,
    ),
    # xz of the changed levels alone, without times or keyframes, is itself half of gzip.
    Goal(15, "a recorded hour, gzip of its frames", (HISTORY_BYTES, "history"),
         (HISTORY_BYTES, "gzip"), AT_MOST, 0.8),
    Goal(15, "the same, rows of cryptostore", (HISTORY_BYTES, "history"), (HISTORY_BYTES, "rows"),
         AT_MOST, 0.65),
    Goal(15, "the same, xz of its changed levels alone", (HISTORY_BYTES, "history"),
         (HISTORY_BYTES, "floor"), AT_MOST, 1.6),
    Goal(
        15, "a past second of 35 exchanges, slowest of 40",
        ("past, 20 levels over 35 exchanges", "slowest"), None, AT_MOST, 200, unit="ms",
    ),
    Goal(
        15, "replayed into books and a merged view",
        ("history replayed into books and a view", "changes"), None, AT_LEAST, 300_000,
        unit="changes a second",
    ),
)  # fmt: skip


def found(points: Iterable[Point]) -> list[Goal]:
    """The goals of the book channels that were measured, in the order of the run."""
    levels = [row for row, name in points if row.startswith(LEVEL) and name == "ccxt"]
    tops = [row for row, name in points if row.startswith(TOP)]
    return [
        *(
            Goal(
                13,
                f"{name} level, ccxt",
                *against(f"{LEVEL}{name}", "ccxt"),
                AT_LEAST,
                LEVEL_LIMITS.get(name, 8),
            )
            for name in (row.removeprefix(LEVEL) for row in levels)
        ),
        *(
            Goal(
                14,
                f"frame of best prices, {row.removeprefix(TOP)}",
                (row, OURS),
                None,
                AT_MOST,
                3,
                scale=1e-3,
                unit="us",
            )
            for row in tops
        ),
    ]

"""Binary updates of streams, read by the client, beside the JSON updates of the same books."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from zlib import crc32

import pytest

import onebook.core
from client.test_js import MODULE, NODE, camel, needs_node
from core.both import EACH
from onebook.client.failures import Unavailable
from onebook.client.packed import PackedBook, decode
from onebook.client.shapes import exact
from onebook.client.view import BookView
from onebook.exchanges.kit import Snapshot
from onebook.fees import TakerFees
from onebook.health import Health
from onebook.orderbook import EXACT
from onebook.streams.fill import fill_sizes
from onebook.streams.packed import with_skipped, with_subscription, with_view
from onebook.transfers import CoinTransfer, NetworkTransfer
from onebook.updates import SCHEMA_FILE, Update, decimals, figures

from . import test_basket
from .test_streams import BOOK, SYMBOL, Rig, key, levels, parse

PROTOBUFJS = Path(sys.prefix) / "axe/node_modules/protobufjs/index.js"
NAMES = ("binance", "kraken", "okx")
SEEDS = 60
SCALES = (0, 1, 2, 8, 9, 10, 15, 16, 40)
# Frames of each world that the fuzz tests damage; `make soak-fuzz` damages the most.
MUTATED = min(4_000, int(os.environ.get("ONEBOOK_FUZZ_INPUTS", "500")))
FEES = TakerFees(binance="0.1", kraken="0.075", okx="-0.02")
SIZES = fill_sizes(["0.5", "1000"], ["12.34567", "999999"])
CROSSING = ([("103", "1")], [("104", "4")])  # its bid is above the others' best ask
NETWORK = NetworkTransfer("BTC", True, None, Decimal("0.00002"))
TRANSFERS = {
    ("kraken", "BTC"): CoinTransfer("ccxt", 7, True, None, (NETWORK,)),
    ("okx", "BTC"): CoinTransfer("ccxt", 8, None, False),
}
OPTIONS = (
    {},
    {"split": True},
    {"ages": True, "coverage": True, "times": True},
    {"group": "0.5"},
    {"fees": FEES, "net": True, "split": True},
    {"fill": SIZES},
    {"fill": SIZES, "fees": FEES},
    {"fees": FEES, "crossings": "0"},
)


class Sent(list):
    """A publisher that keeps streams and bytes."""

    def publish(self, stream, payload, full):
        self.append((stream, payload))

    def status(self, stream, payload):
        pass

    def flush(self, ends_at):
        pass


def rig_of(**books):
    """Real books, all of them live; `BOOK` unless given."""
    rig = Rig(exchanges=NAMES, transfers=lambda *coin: TRANSFERS.get(coin))
    rig.heard = rig.streams.publisher = Sent()
    for name in NAMES:
        rig.books.open(rig.feeds.instrument(name, SYMBOL))
        rig.snapshot(name, *books.get(name, BOOK))
    return rig


class Both:
    """The updates of two streams of the same books, as clients of each form see them."""

    def __init__(self, rig, options):
        self.rig = rig
        self.in_json = rig.opened(key(*NAMES, mode="delta", **options))
        self.in_packed = rig.streams.open(key(*NAMES, mode="delta", encoding="protobuf", **options))
        rig.time.run(0.2)
        self.reader = PackedBook(NAMES)
        self.json, self.packed = BookView(SYMBOL), BookView(SYMBOL)
        self.read = 0

    def catch_up(self):
        heard = self.rig.heard[self.read :]
        self.read = len(self.rig.heard)
        for stream, payload in heard:
            if stream is self.in_json:
                assert self.json.apply(exact(payload))
            else:
                assert self.packed.apply_packed(decode(payload), self.reader)


def shown(view):
    gross = [getattr(level, "gross", None) for level in (*view.bids, *view.asks)]
    return (
        list(view.bids), list(view.asks), gross, view.stale_exchanges, view.ages, view.coverage,
        view.fills, view.crossings, view.times,
    )  # fmt: skip


def world(rng, options, compare=lambda both: None):
    """Books that change and are lost at random; every change is an update of each stream."""
    books = {"kraken": CROSSING} if "crossings" in options else {}
    rig = rig_of(**books)
    both = Both(rig, options)
    for _ in range(rng.randint(1, 12)):
        name, price = rng.choice(NAMES), rng.randint(960, 1040)
        shift = 30 if name in books else 0
        row = [(f"{(price + shift) / 10}", str(rng.choice([0, 1, 2.5, 0.125])))]
        if rng.random() < 0.1:
            rig.lose(name)
        elif rig.books.get(rig.feeds.instrument(name, SYMBOL)).health is not Health.LIVE:
            rig.snapshot(name, *books.get(name, BOOK))
        elif price < 1000:
            rig.delta(name, row, [])
        else:
            rig.delta(name, [], row)
        rig.time.run(0.2)
        compare(both)
    return both


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_update_gives_the_book_of_json(options):
    def compare(both):
        both.catch_up()
        assert shown(both.packed) == shown(both.json)
        assert both.packed.market_stats == both.json.market_stats
        assert both.packed.timestamp == both.json.timestamp
        assert both.packed.update_number == both.json.update_number

    for seed in range(SEEDS):
        print("seed", seed)
        world(random.Random(f"{seed}"), options, compare)


APPLY = """
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { PackedReader, View, parseExact, updateOf } from "MODULE";
const { table, worlds } = JSON.parse(readFileSync(process.argv[1], "utf8"));
const members = ["live", "bids", "asks", "marketStats", "staleExchanges", "ages", "coverage"];
members.push("fill", "crossings", "times");
const shown = (view) => [...members, "updateNumber", "timestamp"].map((name) => view[name]);
let compared = 0;
for (const updates of worlds) {
  const [json, packed] = [new View("BTC/USDT"), new View("BTC/USDT")];
  const reader = new PackedReader(table, {});
  for (const [text, hex] of updates) {
    const { buffer } = Uint8Array.from(Buffer.from(hex, "hex"));
    assert.ok(json.apply(parseExact(text)));
    assert.ok(packed.apply(reader.message(updateOf(buffer))));
    const best = [packed.bestBid, packed.bestAsk];
    assert.deepEqual(best, [json.bestBid, json.bestAsk]);
    assert.deepEqual(shown(packed), shown(json));
    assert.ok(best[0] === (packed.bids[0] ?? null) && best[1] === (packed.asks[0] ?? null));
    compared += 1;
  }
}
console.log(compared);
"""


NUMBERS = """
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { PackedReader, View, updateOf } from "MODULE";
const { table, worlds } = JSON.parse(readFileSync(process.argv[1], "utf8"));
const levels = (side) => side.map(({ price, amount, exchanges }) => [price, amount, exchanges]);
let compared = 0;
for (const updates of worlds) {
  const [view, reader] = [new View("BTC/USDT"), new PackedReader(table, {})];
  const copies = updates.map(([, hex]) => {
    const { buffer } = Uint8Array.from(Buffer.from(hex, "hex"));
    assert.ok(view.apply(reader.message(updateOf(buffer))), "the checksum");
    return view.copy();
  });
  for (const [at, copy] of copies.entries()) { // none was read before the last update
    const { bids, asks, stats } = updates[at][0];
    const best = [copy.bestBid, copy.bestAsk].filter(Boolean);
    assert.deepEqual(levels(best), [...bids.slice(0, 1), ...asks.slice(0, 1)]);
    assert.deepEqual([levels(copy.bids), levels(copy.asks), copy.marketStats], [bids, asks, stats]);
    compared += 1;
  }
}
console.log(compared);
"""


JUDGE = """
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import protobuf from "PROTOBUFJS";
import { updateOf } from "MODULE";
const [, worlds, schema] = process.argv.map((path, at) => at && readFileSync(path, "utf8"));
const Update = protobuf.parse(schema, { keepCase: true }).root.lookupType("onebook.Update");
const judged = new Set();
function judge(type, theirs, ours) {
  for (const { name, resolvedType, repeated, options } of type.fieldsArray) {
    const [found, read] = [theirs[name], ours[name]];
    if (found !== undefined) judged.add(`${type.name}.${name}`);
    if (resolvedType instanceof protobuf.Type) {
      const [all, own] = repeated ? [found ?? [], read] : [[found], [read]];
      assert.equal(all.length, own.length, name);
      for (const [at, each] of all.entries()) {
        if (each === undefined) assert.equal(own[at], null, name);
        else judge(resolvedType, each, own[at]);
      }
    } else if (repeated) {
      assert.deepEqual((found ?? []).map(String), read.map(String), name);
    } else if (found === undefined) {
      assert.ok(options?.proto3_optional ? read === null : !read, name);
    } else {
      const text = found instanceof Uint8Array ? new TextDecoder().decode(found) : String(found);
      assert.equal(text, String(read), name);
    }
  }
}
for (const updates of JSON.parse(worlds).worlds) {
  for (const [, hex] of updates) {
    const bytes = Buffer.from(hex, "hex");
    const theirs = Update.toObject(Update.decode(bytes), { longs: String });
    judge(Update, theirs, updateOf(Uint8Array.from(bytes).buffer));
  }
}
console.log(JSON.stringify([...judged]));
"""


@needs_node
def test_javascript_reads_the_books_of_json(tmp_path):
    worlds = []
    for options in OPTIONS:
        for seed in range(10):
            both = world(random.Random(f"{seed}"), options)
            in_json, packed = (
                [payload for stream, payload in both.rig.heard if stream is each]
                for each in (both.in_json, both.in_packed)
            )
            rows = zip(in_json, packed, strict=True)
            worlds.append([(text.decode(), packed.hex()) for text, packed in rows])
    assert compared(tmp_path, APPLY, worlds) == sum(map(len, worlds)) > 100
    if not PROTOBUFJS.exists():
        pytest.skip("protobufjs is not installed")
    rows = [
        answer(),
        with_skipped(with_subscription(answer(), 3), 7),
        beyond_64_bits(),
        basket(),
        bounded(),
    ]
    worlds.append([("", payload.hex()) for payload in rows])
    judged = {tuple(each.split(".")) for each in compared(tmp_path, JUDGE, worlds)}
    fields = {
        (message.name, field.name)
        for message in Update.DESCRIPTOR.file.message_types_by_name.values()
        for field in message.fields
    }
    assert judged == fields


def any_number(rng):
    """An integer of 64 bits around a limit of JavaScript's numbers, or of any other size."""
    limit = (1 << rng.choice((31, 32, 53, 64))) + rng.randint(-3, 3)
    number = rng.choice((limit, rng.getrandbits(rng.randint(1, 64)), 10 ** rng.randint(0, 19)))
    return min(max(number, 1), (1 << 64) - 1)


def any_book(rng, count):
    """Updates of random numbers, each with the book after it as texts."""
    view, packed_book = BookView(SYMBOL), PackedBook(NAMES)
    for number in range(1, count + 1):
        if number == 1 or rng.random() < 0.1:
            update = Update(update_number=number, time_us=7)
            sides, scales = {"bids": {}, "asks": {}}, rng.choices(SCALES, k=2)
            update.price_scale, update.amount_scale = scales
        else:
            update = Update(update_number=number, elapsed_us=7)
        for name, levels_of in sides.items():
            rows = [(any_number(rng), rng.randint(1, 7)) for _ in range(20)]
            changes = {any_number(rng): row for row in rows[: rng.choice((0, 9))]}
            for price in rng.sample(list(levels_of), k=len(levels_of) // rng.randint(1, 4)):
                changes[price] = rng.choice(((0,), *rows[: rng.choice((0, 1, 9))]))
            before = 0
            for price in sorted(changes, reverse=name == "bids"):
                getattr(update, name).extend((abs(price - before), *changes[price]))
                before = price
            rows = sorted((levels_of | changes).items(), reverse=name == "bids")
            sides[name] = {price: row for price, row in rows if row != (0,)}
        texts = {name: as_texts(levels_of, *scales) for name, levels_of in sides.items()}
        best = [f"{price}:{amount}" for side in texts.values() for price, amount, _ in side[:25]]
        update.checksum = crc32(":".join(best).encode())
        assert view.apply_packed(update, packed_book)
        stats = {
            camel(name): value if value is None or name == "crossed" else f"{Decimal(value):f}"
            for name, value in view.market_stats.items()
        }
        yield {**texts, "stats": stats}, update.SerializeToString().hex()


def as_texts(side, price_scale, amount_scale):
    """The levels of a side as JavaScript shows them."""
    return [
        [
            plain(price, price_scale),
            plain(amount, amount_scale),
            [name for at, name in enumerate(NAMES) if bits >> at & 1],
        ]
        for price, (amount, bits) in side.items()
    ]


def plain(number, scale):
    """An integer at a scale as decimal text without trailing zeros."""
    return f"{Decimal(number).scaleb(-scale, EXACT).normalize(EXACT):f}"


@needs_node
def test_numbers_of_any_size_are_exact_and_a_book_stays_as_it_was(tmp_path):
    worlds = []
    for seed in range(SEEDS):
        print("seed", seed)
        worlds.append([*any_book(random.Random(f"{seed}"), 20)])
    assert compared(tmp_path, NUMBERS, worlds) == 20 * SEEDS


def answer(message_id="q1"):
    """The reply to a one-time request, with the client's id and view."""
    answers = []
    rig = rig_of()
    options = {"encoding": "protobuf", "fill": SIZES, "times": True}
    rig.streams.fetch(key(*NAMES, **options), answers.append, message_id=message_id)
    rig.time.run(0.2)
    return with_view(answers[0], "mine")


def beyond_64_bits():
    """A whole book with a number too large for the fields of protobuf."""
    rig = rig_of(
        okx=([("99999999999999999", "1")], []), kraken=([("0.000000000000000001", "1")], [])
    )
    both = Both(rig, {})
    return [payload for stream, payload in rig.heard if stream is both.in_packed][-1]


def basket():
    """A whole book of several quotes, one of them with a stale conversion."""
    rig = test_basket.rig_of(test_basket.LISTED)
    rig.heard = rig.streams.publisher = Sent()
    key_of_basket = test_basket.key_of(*test_basket.MEMBERS, encoding="protobuf")
    stream = test_basket.opened(rig, key_of_basket, **test_basket.BOOKS)
    rig.lose("kraken", symbol="USDC/USDT")
    rig.time.run(1)
    return stream.full()


def bounded():
    """A whole book with a horizon and the times of its exchange."""
    rig = rig_of()
    rig.heard = rig.streams.publisher = Sent()
    instrument = rig.feeds.instrument("okx", SYMBOL)
    sides = [levels([(price, "1")]) for price in ("100", "101")]
    at_us = rig.time.wall_us() - 20_000
    rig.books.fill(Snapshot(instrument, *sides, levels_asked=1, at=at_us), rig.time.now_s)
    rig.books.get(instrument).skew.answered(at_us, rig.time.now_s - 0.01, rig.time.now_s)
    stream = rig.opened(key("okx", encoding="protobuf", fill=SIZES, times=True))
    rig.time.run(0.2)
    return stream.full()


def compared(tmp_path, program, worlds):
    """Run a program over the updates of random worlds; return its output."""
    source = tmp_path / "worlds.json"
    source.write_text(json.dumps({"table": NAMES, "worlds": worlds}))
    program = program.replace("MODULE", MODULE.as_uri()).replace("PROTOBUFJS", PROTOBUFJS.as_uri())
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", program, str(source), str(SCHEMA_FILE)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_delta_is_a_fraction_of_its_json():
    rig = rig_of()
    both = Both(rig, {})
    rig.delta("okx", [("99.5", "3")], [])
    rig.time.run(0.2)
    sizes = {stream: len(payload) for stream, payload in rig.heard}
    assert sizes[both.in_packed] * 10 < sizes[both.in_json]


def test_finer_prices_are_sent_with_a_whole_book():
    rig = rig_of()
    both = Both(rig, {})
    both.catch_up()
    rig.delta("okx", [("99.875", "3")], [])
    rig.time.run(0.2)
    last = [payload for stream, payload in rig.heard if stream is both.in_packed][-1]
    assert not decode(last).HasField("elapsed_us")
    both.catch_up()
    assert both.packed.bids[1].price == Decimal("99.875")


def test_numbers_beyond_64_bits_are_sent_as_json():
    message = parse(decode(beyond_64_bits()).json)
    assert message["type"] == "aggregated_orderbook_update"
    assert next(level["price"] for level in message["data"]["bids"]) == 99999999999999999


@pytest.mark.parametrize("message_id", ["q1", 7, 1.5, None])
def test_an_answer_names_its_table_id_and_view(message_id):
    update = decode(answer(message_id))
    assert tuple(update.exchanges) == NAMES
    assert (update.symbol, update.view) == (SYMBOL, "mine")
    assert update.id == ("" if message_id is None else json.dumps(message_id))
    view = BookView(SYMBOL)
    assert view.apply_packed(update, PackedBook(update.exchanges))
    assert view.bids[0].price == 100


def test_a_client_finds_its_number_and_what_it_missed():
    rig = rig_of()
    both = Both(rig, {})
    update = decode(with_skipped(with_subscription(both.in_packed.full(), 3), 7))
    assert (update.subscription, update.skipped, update.update_number) == (3, 7, 1)


def mutated(rng, frames):
    """Damaged frames: bits, bytes, cuts, repetitions, joined frames, huge lengths and numbers."""
    for _ in range(MUTATED):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(frame) + 1)
            match rng.randrange(6):
                case 0 if at < len(frame):
                    frame[at] ^= 1 << rng.randrange(8)
                case 1 if at < len(frame):
                    frame[at] = rng.randrange(256)
                case 2:
                    del frame[at:]
                case 3:
                    frame[at:at] = frame[at : at + rng.randint(1, 9)]
                case 4:
                    frame += rng.choice(frames)
                case _:
                    frame[at:at] = rng.randbytes(rng.randint(1, 4)) + b"\xff" * rng.randint(0, 9)
        yield bytes(frame)


def originals():
    """Updates with everything that can be requested."""
    rng = random.Random(3)
    for options in OPTIONS:
        both = world(rng, options)
        yield [payload for stream, payload in both.rig.heard if stream is both.in_packed]


@pytest.mark.parametrize("core", EACH)
def test_a_damaged_update_is_refused_or_fails_its_checksum(core, monkeypatch):
    monkeypatch.setattr(onebook.core, "PackedLevels", core.PackedLevels)
    rng = random.Random(7)
    codes, accepted = Counter(), 0
    for frames in originals():
        began = time.process_time()
        for damaged in mutated(rng, frames):
            view, book = BookView(SYMBOL), PackedBook(NAMES)
            view.apply_packed(decode(frames[0]), book)
            try:
                valid = view.apply_packed(decode(damaged), book)
            except Unavailable as error:
                codes[error.code] += 1
                continue
            accepted += valid
            everything = shown(view), view.market_stats, view.timestamp
            assert everything
            keys = [level.price for level in view.bids], [level.price for level in view.asks]
            assert keys == (sorted(keys[0], reverse=True), sorted(keys[1]))
            if valid and decode(damaged).HasField("checksum"):
                assert view.checksum() == decode(damaged).checksum
        assert time.process_time() - began < 60
    assert codes.keys() == {"protocol_error"}
    assert codes.total() > MUTATED
    assert accepted


FUZZ = """
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { PackedReader, ServiceError, View, compareDecimals, updateOf } from "MODULE";
const { table, worlds } = JSON.parse(readFileSync(process.argv[1], "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex")).buffer;
let compared = 0;
for (const [first, ...damaged] of worlds) {
  for (const hex of damaged) {
    const [view, reader] = [new View("BTC/USDT"), new PackedReader(table, {})];
    view.apply(reader.message(updateOf(bytes(first))));
    try {
      const update = updateOf(bytes(hex));
      const valid = view.apply(reader.message(update));
      JSON.stringify(view);
      for (const [side, sign] of [[view.bids, -1], [view.asks, 1]]) {
        for (let at = 1; at < side.length; at += 1) {
          assert.ok(sign * compareDecimals(side[at - 1].price, side[at].price) < 0);
        }
      }
      if (valid && update.checksum !== null && update.elapsed_us === null) {
        assert.equal(view.checksum(), update.checksum);
      }
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      assert.equal(error.code, "protocol_error");
    }
    compared += 1;
  }
}
console.log(compared);
"""


@needs_node
def test_a_damaged_update_never_breaks_javascript(tmp_path):
    rng = random.Random(8)
    worlds = [[each.hex() for each in (frames[0], *mutated(rng, frames))] for frames in originals()]
    assert compared(tmp_path, FUZZ, worlds) == MUTATED * len(OPTIONS)


STRANGE = """
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { PackedReader, View, updateOf } from "MODULE";
const { table, worlds } = JSON.parse(readFileSync(process.argv[1], "utf8"));
console.log(JSON.stringify(worlds.map((hex) => {
  const [view, reader] = [new View("BTC/USDT"), new PackedReader(table, {})];
  try {
    const { buffer } = Uint8Array.from(Buffer.from(hex, "hex"));
    return view.apply(reader.message(updateOf(buffer))) && view.marketStats.spreadPercent;
  } catch (error) {
    return error.message;
  }
})));
"""


@needs_node
def test_strange_levels_are_refused_in_javascript_with_their_fault(tmp_path):
    level = (1, 7)
    cases = {
        "0": {"bids": (0, *level), "asks": (0, *level)},
        "a price occurs twice": {"bids": (5, *level, 0, *level)},
        "a price is negative": {"bids": (5, *level, 6, *level)},
        "a level is cut off": {"asks": (5, 1)},
        "an exchange is not in the table": {"asks": (5, 1, 8)},
        "its numbers have too many decimals": {"price_scale": 41},
    }
    frames = [Update(**fields).SerializeToString().hex() for fields in cases.values()]
    expected = [f"The service sent an invalid binary update: {fault}." for fault in cases]
    expected[0] = "0"
    assert compared(tmp_path, STRANGE, frames) == expected


@pytest.mark.parametrize(
    "number",
    ["0", "-0.02", "1E+3", "18446744073709551616", "-123456789012345678901.000000000000000001"],
)
def test_figures_are_exact(number):
    assert [*decimals(figures([None, Decimal(number)]))] == [None, Decimal(number)]


def test_a_figure_of_more_than_128_bits_is_not_written():
    with pytest.raises(OverflowError):
        figures([Decimal(1 << 128)])

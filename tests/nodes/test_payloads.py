"""Every number and every size between nodes has a limit, found by reflection over all messages."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from datetime import date
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct, inspect, msgpack

import onebook.nodes
from onebook.cli import nodes as command
from onebook.core.types import PAIRS, LevelShape
from onebook.exchanges.kit import Snapshot
from onebook.model import Health, Instrument, InstrumentStatus
from onebook.nodes import interest, key_sharing, lists, membership, payloads, wire
from onebook.nodes.payloads import PayloadReader, RefusalCause, WireError
from onebook.nodes.refusals import AGAIN_S, KINDS_MAX, FirstSightings

MODULES = [
    importlib.import_module(f"onebook.nodes.{each.name}")
    for each in pkgutil.iter_modules(onebook.nodes.__path__)
] + [command]
READERS = [
    value for each in MODULES for value in vars(each).values() if isinstance(value, PayloadReader)
]
BTC = Instrument("okx", "BTC/USDT", "BTC-USDT")
SHAPE = LevelShape.rows(price_scale=2, amount_scale=3, count=4)

# One of each type that is decoded, with a value in each number.
SAMPLES: list[Any] = [
    membership.NodeHeartbeat(
        node=1,
        name="f",
        role=membership.NodeRole.FEEDS,
        wire=2,
        started_ms=3,
        sent_us=4,
        wants_seq=5,
        wanted=6,
        books=7,
        live=8,
        clocks={9: 10},
        exchange_clocks={"okx": (11, 12)},
    ),
    key_sharing.KeyTally(gateway=1, taken={"k": 0.5}, connections={"k": 2}),
    interest.Interest(gateway=1, seq=2, added=["okx BTC/USDT"], pages=3),
    lists.ListRequest("okx", 1),
    lists.ListPage(
        digest="d",
        rows=[
            lists.Row(
                "A/B", "AB", "0.1", "1", InstrumentStatus.TRADING, "A/B", "", (1, 2), "0.5", "10"
            ),
        ],
        pages=1,
        depth=2,
        levels_max=3,
        read_on=date(2026, 11, 27),
        transfers={
            "A": lists.TransferRow("ccxt", 4, True, None, [lists.NetworkRow("n", True, False, "1")])
        },
    ),
    wire.BookState(Health.STALE, "gap", "why"),
    SHAPE,
    payloads.ClaimedSender(node=1, gateway=2),
    ["okx BTC/USDT"],
    [("okx", "BTC/USDT", "live", "")],
]


def unlimited(info: inspect.Type, path: str = "$") -> Iterator[str]:
    """The numbers within a type that have no range."""
    seen = []

    def walk(found: inspect.Type, path: str) -> Iterator[str]:
        if isinstance(found, (inspect.IntType, inspect.FloatType)):
            if (found.ge is None and found.gt is None) or (found.le is None and found.lt is None):
                yield path
        elif isinstance(found, inspect.StructType):
            if found.cls not in seen:
                seen.append(found.cls)
                for each in found.fields:
                    yield from walk(each.type, f"{path}.{each.name}")
        elif isinstance(found, inspect.DictType):
            yield from walk(found.key_type, f"{path}{{key}}")
            yield from walk(found.value_type, f"{path}{{}}")
        elif isinstance(found, inspect.UnionType):
            for one in found.types:
                yield from walk(one, path)
        elif isinstance(found, inspect.TupleType):
            for number, one in enumerate(found.item_types):
                yield from walk(one, f"{path}[{number}]")
        elif isinstance(found, (inspect.ListType, inspect.VarTupleType)):
            yield from walk(found.item_type, f"{path}[]")
        elif isinstance(found, (inspect.AnyType, inspect.RawType)):
            if path != "$.body":  # of a NodeMessage: bytes, decoded by their kind
                yield path
        else:
            plain = (
                *(inspect.StrType, inspect.BoolType, inspect.NoneType, inspect.EnumType),
                inspect.DateType,  # of the years 1 to 9999
            )
            assert isinstance(found, plain), (path, found)

    return walk(info, path)


def structs() -> list[type[Struct]]:
    """The structs of all modules of nodes."""
    return [
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Struct)
        and value.__module__.startswith("onebook.nodes.")
    ]


@pytest.mark.parametrize("each", dict.fromkeys(structs()), ids=lambda each: each.__name__)
def test_every_number_of_every_struct_has_a_range(each):
    assert [*unlimited(inspect.type_info(each))] == []


@pytest.mark.parametrize("each", READERS, ids=lambda each: str(each.type))
def test_every_number_that_is_decoded_has_a_range_and_its_payload_a_size(each):
    assert [*unlimited(inspect.type_info(each.type))] == []
    with pytest.raises(WireError) as refused:
        each.read(bytes(each.bytes_max + 1))
    assert refused.value.cause is RefusalCause.TOO_LONG


def test_a_number_without_a_range_is_found():
    class Planted(Struct):
        inner: dict[str, list[tuple[int, float]]]
        known: payloads.Count

    assert [*unlimited(inspect.type_info(Planted))] == ["$.inner{}[][0]", "$.inner{}[][1]"]


def test_only_the_reader_with_a_limit_decodes():
    """No other call decodes MessagePack in the modules of nodes."""
    found = []
    for module in MODULES:
        if module is not payloads:
            for each in ast.walk(ast.parse(Path(module.__file__).read_text())):
                if isinstance(each, ast.Attribute) and each.attr in ("Decoder", "decode"):
                    owner = ast.unparse(each.value)
                    if owner in ("msgpack", "msgspec.msgpack", "json", "msgspec.json"):
                        found.append((module.__name__, each.lineno))
    assert found == []


BAD_NUMBERS = (-1, -(2**63), 2**63, 2**64 - 1, -0.5, nan, inf, -inf, 1e308, True, "1", [1], {})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """The containers within a value that hold a number, with their paths."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for where, inner in [*items]:
        if isinstance(inner, (dict, list)):
            yield from places(inner)
        elif isinstance(inner, (int, float)) and not isinstance(inner, bool):
            yield value, where


def damaged(sample: Any) -> Iterator[bytes]:
    """A message, once for each of its numbers with each invalid value."""
    plain = msgpack.decode(msgpack.encode(sample))
    for holder, where in [*places(plain)] if isinstance(plain, (dict, list)) else ():
        right = holder[where]
        for bad in BAD_NUMBERS:
            holder[where] = bad
            yield msgpack.encode(plain)
        holder[where] = right


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: type(each).__name__)
def test_a_number_that_is_out_of_range_is_refused_and_never_raises_anything_else(sample):
    (reader,) = (
        each for each in READERS if each.type is type(sample) or _is_list_of(each.type, sample)
    )
    assert reader.read(msgpack.encode(sample)) == sample
    for payload in damaged(sample):
        # A number of a shape may be the name of a member, so that text is in range there.
        if isinstance(sample, LevelShape) and "1" in msgpack.decode(payload).values():
            continue
        with pytest.raises(WireError):
            reader.read(payload)


def _is_list_of(type_: Any, sample: Any) -> bool:
    try:
        return isinstance(sample, list) and msgspec.convert(sample, type_) == sample
    except msgspec.ValidationError:
        return False


def test_every_type_that_is_decoded_has_a_sample():
    assert len(READERS) == len(SAMPLES)


def test_a_clock_that_is_sent_back_stays_in_the_range_of_its_receivers():
    """One node's time of 2**64 - 1 us stopped the heartbeats of all other nodes."""
    view = membership.Members(1, timeout_s=1.0, tick_s=0.05)
    view.received(
        membership.NodeHeartbeat(
            node=2,
            name="g",
            role=membership.NodeRole.GATEWAY,
            sent_us=payloads.TIME_MAX,
            wire=wire.VERSION,
        ),
        10.0,
    )
    back = membership.NodeHeartbeat(
        node=1,
        name="f",
        role=membership.NodeRole.FEEDS,
        clocks=view.clocks(10.0 + membership.CLOCKS_KEPT_S - 1),
    )
    assert membership.heartbeat_of(membership.encode_heartbeat(back)) == back
    assert back.clocks[2] > payloads.TIME_MAX


def test_a_shape_inside_itself_is_refused():
    nested = b"\x81\xa4asks" * 9_000 + b"\xc0"
    for shape in (nested, nested[: wire.SHAPE_BYTES_MAX]):
        head = wire.HEAD.pack(wire.VERSION, wire.Kind.DELTA, 1, 1, 1)
        frame = wire.frame_of(head + wire.DELTA_HEAD.pack(0, 0, len(shape), 0) + shape)
        with pytest.raises(WireError):
            wire.delta_of(frame, BTC)


@pytest.mark.parametrize(
    "head",
    [
        (wire.Kind.MARK, 2**63, 1, 1),
        (wire.Kind.MARK, 1, 1, 2**53 + 1),
        (wire.Kind.DELTA | wire.DEFLATED, 1, 1, 1),
        (wire.Kind.MARK | wire.DEFLATED, 1, 1, 1),
    ],
)
def test_the_head_of_a_message_about_a_book_has_ranges(head):
    with pytest.raises(WireError) as refused:
        wire.frame_of(wire.HEAD.pack(wire.VERSION, *head))
    assert refused.value.cause is RefusalCause.INVALID


def test_a_message_about_a_book_has_a_size_as_sent_and_inflated():
    with pytest.raises(WireError, match="limit"):
        wire.frame_of(bytes(wire.FRAME_BYTES_MAX + 1))
    levels = Snapshot(BTC, b"[" + b" " * wire.FRAME_BYTES_MAX + b"]", b"[]", PAIRS)
    frame = wire.frame_of(wire.snapshot_frame(1, 2, 3, levels))
    assert len(frame.body) < 1_000_000
    with pytest.raises(WireError, match="longer than"):
        wire.snapshot_of(frame, BTC)
    head = wire.SNAPSHOT_HEAD.pack(0, 2**32 - 1, 0, 0, 0, 0)
    with pytest.raises(WireError, match="a snapshot with a limit of"):
        wire.snapshot_of(
            wire.frame_of(wire.HEAD.pack(wire.VERSION, wire.Kind.SNAPSHOT, 1, 1, 1) + head), BTC
        )


def test_names_that_are_made_up_get_a_bounded_number_of_lines():
    sightings = FirstSightings()
    assert sum(sightings.first(("late", node), 0.0) for node in range(1_000)) == KINDS_MAX
    assert not any(sightings.first(("late", 1), 1.0) for _ in range(100))
    assert sum(sightings.first(("late", node), AGAIN_S) for node in range(1_000)) == KINDS_MAX

"""Frames in: what the compiled reader returns is what msgspec returns, or no book takes it."""

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Raw, Struct, field

from core.both import COMPILED, EACH, OBJECTS, needs_compiled
from onebook.core import twin
from onebook.core.types import PAIRS, LevelError

Number = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class Item(Struct):
    """A book or a change of it."""

    symbol: str
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")
    number: Number
    checksum: Annotated[int, Meta(ge=-5, le=5)] = 0


class Listed(Struct):
    """A frame with items in a list."""

    channel: str
    data: tuple[Item, ...]


class Tagged(Struct, tag_field="e", tag="update"):
    """A frame that its tag tells from others."""

    item: Item


class Other(Struct, tag_field="e", tag="other"):
    """Another tag."""

    symbol: str


class Brief(Struct):
    """A frame that may end with its shortest name."""

    levels: Raw
    a: int = 0


EITHER: Any = Tagged | Other
KINDS: list[Any] = [Listed, EITHER, Brief]

ITEM = (
    b'{"symbol":"BTC-USD","b":[["1.5","2","0","3"],["1.25","0"]],"t":1.5e3,"a":[["2","1"]],'
    b'"number":17,"checksum":-3}'
)
BARE = b'{"symbol":"X","a":[],"b":[{"price":1.5,"qty":2},{"qty":0,"price":1}],"number":-1}'
FRAMES = [
    b'{"channel":"books","data":[%b],"ts":"2026-01-01T00:00:00Z"}' % ITEM,
    b'{"data":[%b,%b],"more":{"a":[1,null,{"b":[]}]},"channel":"books"}' % (ITEM, BARE),
    b'{"channel":"books","data":[]}',
    b'{"e":"update","time":1672515782136,"item":%b}' % ITEM,
    b'{"item":%b,"live":true,"e":"update"}' % BARE,
    b'{"symbol":"X","e":"other"}',
    b' { "e" : "update" , "item" : %b } ' % ITEM.replace(b",", b" , ").replace(b"[", b"[ "),
    b'{"levels":[],"a":1}',
]
ODD = {
    "nothing": b"",
    "no object": b"[]}",
    "half of it": FRAMES[0][:-30] + b"}",
    "a name twice": FRAMES[3].replace(b'"t":1.5e3', b'"number":18'),
    "a name that ends the frame": b'{"e":"update","item":{"symbol"}',
    "an escaped name": FRAMES[3].replace(b'"symbol"', b'"s\\u0079mbol"'),
    "an escape in a text": FRAMES[3].replace(b"BTC", b"B\\u0054C"),
    "an escape in a level": FRAMES[3].replace(b'"0","3"]', b'"\\"]]","3"]'),
    "brackets in a string": FRAMES[3].replace(b'"0","3"]', b'"]],","3"]'),
    "brackets and a colon in a string": FRAMES[3].replace(b'"0","3"]', b'"]]:","3"]'),
    "brackets and a brace in a string": FRAMES[3].replace(b'"0","3"]', b'"]]}","3"]'),
    "a text that is not ASCII": FRAMES[3].replace(b"BTC", "币".encode()),
    "a text that is a number": FRAMES[3].replace(b'"BTC-USD"', b"5"),
    "a number that is text": FRAMES[3].replace(b"17", b'"17"'),
    "a number with a fraction": FRAMES[3].replace(b"17", b"17.0"),
    "a number with an exponent": FRAMES[3].replace(b"17", b"17e1"),
    "a number that begins with 0": FRAMES[3].replace(b"17", b"017"),
    "minus zero": FRAMES[3].replace(b"17", b"-0"),
    "18 digits": FRAMES[3].replace(b"17", b"9" * 18),
    "19 digits": FRAMES[3].replace(b"17", b"9" * 19),
    "a number below its bounds": FRAMES[3].replace(b"17", b"-2"),
    "a number above its bounds": FRAMES[3].replace(b"-3", b"6"),
    "no number": FRAMES[3].replace(b'"number":17,', b""),
    "levels that are null": FRAMES[3].replace(b'[["2","1"]]', b"null"),
    "levels that nest in the middle": FRAMES[3].replace(b'"0","3"]', b'[[4]],"3"]'),
    "levels that nest at the end": FRAMES[3].replace(b'["2","1"]', b'["2","1",[[3]]]'),
    "objects that nest": FRAMES[4].replace(b'"qty":2', b'"x":[{"y":1}],"qty":2'),
    "levels without an end": FRAMES[3].replace(b"]", b""),
    "a list of something else": FRAMES[0].replace(b"[{", b"[5,{"),
    "a list without an end": FRAMES[0].replace(b"}]", b"}"),
    "another tag": FRAMES[3].replace(b"update", b"delete"),
    "a tag without text": FRAMES[3].replace(b'"update"', b"7"),
    "no tag": FRAMES[3].replace(b'"e":"update",', b""),
    "junk behind": FRAMES[3] + b"}",
    "a comma behind": FRAMES[3][:-1] + b",}",
    "NaN beside": FRAMES[3].replace(b"1.5e3", b"NaN"),
    "deep beside": FRAMES[3].replace(b"1.5e3", b"[" * 20 + b"]" * 20),
    "levels where an item should be": FRAMES[3].replace(ITEM, b"[]"),
}  # fmt: skip


def plain(value: Any) -> Any:
    """Return a value in which level text is bytes, whoever read it."""
    if isinstance(value, Struct):
        return type(value), [plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, Raw) else value


def outcome(read: Any, frame: bytes) -> Any:
    try:
        return plain(read(frame))
    except (ValueError, RecursionError) as error:
        return str(error)


def level_texts(value: Any) -> list[bytes]:
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, list | tuple):
        return [text for each in value for text in level_texts(each)]
    return []


def taken(texts: list[bytes]) -> bool:
    """Tell whether a book takes all of these level texts in some shape."""
    try:
        for text in texts:
            twin.Book().apply(text, b"", OBJECTS if text[1:2] == b"{" else PAIRS)
    except LevelError:
        return False
    return True


@pytest.mark.parametrize("core", EACH)
def test_frames_become_structs(core: Any) -> None:
    one, two = plain(core.Reader(Listed).read(FRAMES[1]))[1][1]
    bids = b'[["1.5","2","0","3"],["1.25","0"]]'
    assert one == (Item, ["BTC-USD", bids, b'[["2","1"]]', 17, -3])
    assert two == (Item, ["X", b'[{"price":1.5,"qty":2},{"qty":0,"price":1}]', b"[]", -1, 0])
    assert core.Reader(EITHER).read(FRAMES[5]) == Other("X")
    assert core.Reader(EITHER).read(FRAMES[4]).item.number == -1


@pytest.mark.parametrize("core", EACH)
def test_what_is_no_frame_is_refused_as_msgspec_does(core: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str`.*data\[0\]"):
        core.Reader(Listed).read(FRAMES[0].replace(b"17", b'"17"'))
    with pytest.raises(msgspec.DecodeError):
        core.Reader(Listed).read(b"{")


@needs_compiled
@pytest.mark.parametrize("frame", FRAMES[:5])
def test_plain_frames_take_the_fast_way(frame: bytes) -> None:
    message = COMPILED.Reader(EITHER if b'"e"' in frame else Listed).read(frame)
    items = message.data if isinstance(message, Listed) else [message.item]
    assert all(type(item.bids) is type(item.asks) is bytes for item in items)


@needs_compiled
@pytest.mark.parametrize("name", ODD)
def test_in_doubt_msgspec_decides(name: str) -> None:
    for kind in KINDS:
        assert outcome(COMPILED.Reader(kind).read, ODD[name]) == outcome(
            twin.Reader(kind).read, ODD[name]
        )


SPLINTERS = [
    *(b'"', b"[", b"]", b"{", b"}", b",", b":", b"\\", b"]]", b"}]", b"]],", b'"]],"', b"[[", b" "),
    *(b"-", b".", b"e5", b"0", b"9" * 20, b"null", b"true", b"NaN", b"\xff", b"\x00", b"[" * 40),
    *(b'"e":"update",', b'"number":5,', b'"b":[],', b'"\\u0062":', b',"x":{"y":[1]}', b"\n"),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from([*FRAMES, *ODD.values()]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 6)))
        text = text[:at] + draw(st.sampled_from([b"", *SPLINTERS])) + text[end:]
    return text


@needs_compiled
@settings(max_examples=max(2_000, settings.default.max_examples))
@given(text=mutated())
def test_any_frame_is_read_as_msgspec_reads_it_or_no_book_takes_its_levels(text: bytes) -> None:
    for kind in KINDS:
        fast, sure = (outcome(core.Reader(kind).read, text) for core in (COMPILED, twin))
        assert fast == sure or not taken(level_texts(fast)), text


@needs_compiled
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500])
def test_any_number_of_items_is_read(count: int) -> None:
    frame = b'{"channel":"books","data":[%b]}' % b",".join([BARE] * count)
    assert plain(COMPILED.Reader(Listed).read(frame)) == plain(twin.Reader(Listed).read(frame))
    assert len(COMPILED.Reader(Listed).read(frame).data) == count


@needs_compiled
def test_other_bytes_than_bytes_are_for_msgspec() -> None:
    reader = COMPILED.Reader(Listed)
    assert plain(reader.read(bytearray(FRAMES[0]))) == plain(reader.read(FRAMES[0]))


@needs_compiled
def test_a_struct_that_cannot_be_read_so_is_refused_at_once() -> None:
    class Strange(Struct):
        data: dict[str, int]

    wide = msgspec.defstruct("Wide", [(f"f{n}", str) for n in range(16)])
    for kind in (Strange, wide):
        with pytest.raises(TypeError, match=r"Wide has|data cannot"):
            COMPILED.Reader(kind)

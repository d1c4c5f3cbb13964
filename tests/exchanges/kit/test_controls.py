"""Control frames: what is null or of another type counts as absent."""

from typing import Any

import pytest
from msgspec import Struct, field

from onebook.exchanges.kit.channel import Accepted
from onebook.exchanges.kit.controls import accepted_of, control_reader
from onebook.exchanges.kit.frames import UNREADABLE, ErrorBody


class Frame(Struct):
    """A frame with a member of each kind."""

    id: int | str | None = None
    code: int = 0
    ok: bool | None = None
    words: str = "none"
    name: str = field(name="T", default="")
    error: ErrorBody | None = None
    data: Any = None


read = control_reader(Frame)


def test_members_are_read_by_their_names_on_the_wire() -> None:
    frame = b'{"id":"1","code":3,"ok":true,"words":"a","T":"b","data":[1],"more":{"x":[]}}'
    assert read(frame) == Frame("1", 3, True, "a", "b", None, [1])
    assert read(b"{}") == Frame()


@pytest.mark.parametrize("member", ["id", "code", "ok", "words", "T", "error"])
@pytest.mark.parametrize("value", ["null", "[]", "{}", '""'])
def test_a_strange_member_is_absent_and_the_others_are_read(member: str, value: str) -> None:
    found = read(f'{{"{member}":{value},"data":7}}'.encode())
    empty = {("id", '""'): Frame("", data=7), ("words", '""'): Frame(words="", data=7)}
    if (member, value) == ("error", "{}"):
        assert found.error == ErrorBody()
    else:
        assert found == empty.get((member, value), Frame(data=7))


def test_a_number_and_its_text_count_as_each_other() -> None:
    assert read(b'{"code":"40","words":17,"T":1.50}') == Frame(code=40, words="17", name="1.50")
    assert read(b'{"ok":"true"}').ok is True
    assert read(b'{"words":true,"code":"x"}') == Frame()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('{"code":7,"message":null}', ErrorBody(code=7)),
        ('{"code":[],"message":"bad"}', ErrorBody(message="bad")),
        ('"bad"', ErrorBody(message="bad")),
        ("7", ErrorBody(code=7)),
        ("true", ErrorBody()),
        ('["bad"]', ErrorBody()),
        ("0", None),
        ("false", None),
    ],
)
def test_an_error_of_another_type_stays_an_error(error: str, expected: ErrorBody | None) -> None:
    assert read(f'{{"error":{error}}}'.encode()).error == expected


@pytest.mark.parametrize("frame", [b"", b"[]", b"7", b'"x"', b"null", b'{"id":', b'{"id":NaN}'])
def test_what_is_no_json_object_is_refused(frame: bytes) -> None:
    with pytest.raises(UNREADABLE):
        read(frame)


@pytest.mark.parametrize("items", [None, "A", {"A": 1}, ["A", None]])
def test_an_answer_that_is_no_list_of_names_refuses_none(items: Any) -> None:
    assert not accepted_of(items, 1).lists_all
    assert accepted_of(["A"], 1) == Accepted(["A"], 1, lists_all=True)

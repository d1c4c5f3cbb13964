"""Schemas as rows and as examples, over the shapes that pydantic and msgspec write."""

from typing import Any

import pytest

from onebook.web.schema import Field, Schemas

DOCUMENT = {
    "parts": {
        "Inner": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        "Outer": {
            "type": "object",
            "properties": {
                "one": {"$ref": "#/parts/Inner", "description": "The one."},
                "many": {"type": "array", "items": {"$ref": "#/parts/Inner"}},
                "named": {"type": "object", "additionalProperties": {"$ref": "#/parts/Inner"}},
                "either": {"anyOf": [{"$ref": "#/parts/Inner"}, {"type": "null"}]},
                "word": {"type": "string", "default": "abc", "maxLength": 3},
            },
            "required": ["one", "word"],
        },
        "Endless": {"type": "object", "properties": {"next": {"$ref": "#/parts/Endless"}}},
    }
}


@pytest.fixture
def schemas() -> Schemas:
    return Schemas(DOCUMENT)


def test_fields_of_nested_objects_have_dotted_names(schemas: Schemas) -> None:
    assert list(schemas.fields({"$ref": "#/parts/Outer"})) == [
        Field("one", "object", True, "The one."),
        Field("one.x", "integer", True, ""),
        Field("many", "array of object", False, ""),
        Field("many[].x", "integer", True, ""),
        Field("named", "object", False, ""),
        Field("named.*.x", "integer", True, ""),
        Field("either", "object | null", False, ""),
        Field("either.x", "integer", True, ""),
        Field("word", "string", True, "At most 3 characters. Default `abc`."),
    ]


def test_a_schema_that_holds_itself_ends(schemas: Schemas) -> None:
    assert len(list(schemas.fields({"$ref": "#/parts/Endless"}))) < 10


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"const": "a"}, '"a"'),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"type": "array"}, "array"),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer", "minimum": 1}]}, "integer"),
        ({}, "any"),
        (
            {"allOf": [{"$ref": "#/parts/Inner"}, {"properties": {"type": {"const": "t"}}}]},
            "object",
        ),
    ],
)
def test_kind(schemas: Schemas, schema: dict[str, Any], kind: str) -> None:
    assert schemas.kind(schema) == kind


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"const": "a", "examples": ["b"]}, "a"),
        ({"type": "integer", "examples": [7], "default": 3}, 7),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "integer", "default": 3}, 3),
        ({"type": "boolean", "default": False}, False),
        ({"type": "string"}, "text"),
        ({"type": "number"}, 1.5),
        ({"type": "null"}, None),
        ({"type": "array"}, []),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"type": "object"}, {}),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, True),
        ({"$ref": "#/parts/Outer"}, {"one": {"x": 1}, "word": "abc"}),
        (
            {"allOf": [{"$ref": "#/parts/Inner"}, {"properties": {"type": {"const": "t"}}}]},
            {"x": 1},
        ),
    ],
)
def test_example(schemas: Schemas, schema: dict[str, Any], example: Any) -> None:
    assert schemas.example(schema) == example


def test_a_whole_example_has_the_optional_fields_too(schemas: Schemas) -> None:
    whole = schemas.example({"$ref": "#/parts/Outer"}, whole=True)
    assert set(whole) == {"one", "many", "named", "either", "word"}


@pytest.mark.parametrize(
    ("schema", "meaning"),
    [
        (
            {"description": "Levels.", "minimum": 1, "maximum": 500, "default": 20},
            "Levels. At least 1. At most 500. Default `20`.",
        ),
        ({"minLength": 1, "maxItems": 2}, "At least 1 characters. At most 2 entries."),
        ({"minimum": 1.0, "maximum": 2.5}, "At least 1. At most 2.5."),
        (
            {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 3}},
            "At most 2 entries. Each: at most 3 characters.",
        ),
    ],
)
def test_meaning_names_limits_and_default(
    schemas: Schemas, schema: dict[str, Any], meaning: str
) -> None:
    assert schemas.meaning(schema) == meaning


def test_a_limit_within_a_union_is_named_once(schemas: Schemas) -> None:
    """A field that may be null has its limits beside the null, not at the top."""
    list_of = {"type": "array", "maxItems": 64, "items": {"$ref": "#/parts/Name"}}
    limited = Schemas({"parts": {"Name": {"type": "string", "maxLength": 9}}})
    either = {"anyOf": [list_of, {"$ref": "#/parts/Name"}, {"maxLength": 9}, {"type": "null"}]}
    assert limited.meaning(either | {"default": []}) == (
        "At most 64 entries. Each: at most 9 characters. At most 9 characters. Default `[]`."
    )

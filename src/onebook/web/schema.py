"""Renders JSON Schemas as documentation rows and as examples.

Supports the subset of JSON Schema that pydantic and msgspec generate; `$ref` is resolved within its
document.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

Schema = dict[str, Any]

DEPTH_MAX = 5  # levels of nesting that are shown
_LIMITS = {
    "minimum": "At least {}.",
    "maximum": "At most {}.",
    "minLength": "At least {} characters.",
    "maxLength": "At most {} characters.",
    "maxItems": "At most {} entries.",
}
_SAMPLES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


class Field(NamedTuple):
    """One field: dotted name, type as text, and meaning."""

    name: str
    kind: str
    required: bool
    meaning: str


class Schemas:
    """Schemas within one document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def resolve(self, schema: Schema) -> Schema:
        """Resolve references, keeping members beside them, and merge the parts of allOf."""
        if "$ref" in schema:
            return self.resolve(self._at(schema["$ref"])) | {
                name: value for name, value in schema.items() if name != "$ref"
            }
        if "allOf" in schema:
            return self._joined(schema)
        return schema

    def _at(self, reference: str) -> Schema:
        found: Any = self._document
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        assert isinstance(found, dict)
        return found

    def _joined(self, schema: Schema) -> Schema:
        joined: Schema = {}
        for part in map(self.resolve, schema["allOf"]):
            properties = joined.get("properties", {}) | part.get("properties", {})
            joined = joined | part | {"properties": properties}
        return joined | {name: value for name, value in schema.items() if name != "allOf"}

    def fields(self, schema: Schema, prefix: str = "", depth: int = 0) -> Iterator[Field]:
        """All fields of an object, nested ones under dotted names."""
        schema = self.resolve(schema)
        required = schema.get("required", [])
        for name, value in schema.get("properties", {}).items():
            value = self.resolve(value)
            yield Field(prefix + name, self.kind(value), name in required, self.meaning(value))
            if depth < DEPTH_MAX:
                for inner, mark in self._inner(value):
                    yield from self.fields(inner, f"{prefix}{name}{mark}.", depth + 1)

    def _inner(self, schema: Schema) -> Iterator[tuple[Schema, str]]:
        """The nested objects of a field, with the prefix of their names."""
        choices = [self.resolve(choice) for choice in schema.get("anyOf", [schema])]
        for choice in choices:
            items = self.resolve(choice.get("items") or {})
            values = choice.get("additionalProperties")
            if "properties" in choice:
                yield choice, ""
            elif "properties" in items:
                yield items, "[]"
            elif isinstance(values, dict) and "properties" in self.resolve(values):
                yield self.resolve(values), ".*"

    def kind(self, schema: Schema) -> str:
        """Return the type of a field as text."""
        schema = self.resolve(schema)
        if "const" in schema:
            return f'"{schema["const"]}"'
        if "enum" in schema:
            return " | ".join(f'"{value}"' for value in schema["enum"])
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self.kind(choice) for choice in schema["anyOf"]))
        if schema.get("type") == "array" and schema.get("items"):
            return f"array of {self.kind(schema['items'])}"
        return str(schema.get("type", "any"))

    def meaning(self, schema: Schema) -> str:
        """The description of a field, with its limits and its default."""
        parts = [str(schema.get("description", "")).partition("\n\n")[0].strip()]
        parts += dict.fromkeys(self._limits(schema))
        if schema.get("default") not in (None, ""):
            parts.append(f"Default `{str(schema['default']).lower()}`.")
        return " ".join(part for part in parts if part)

    def _limits(self, schema: Schema) -> Iterator[str]:
        """The limits of a value, of its alternatives, and of the entries of a list."""
        schema = self.resolve(schema)
        yield from (_limit(name, schema[name]) for name in _LIMITS if name in schema)
        for choice in schema.get("anyOf", ()):
            yield from self._limits(choice)
        for limit in self._limits(schema["items"]) if schema.get("items") else ():
            yield f"Each: {limit[0].lower()}{limit[1:]}"

    def example(self, schema: Schema, *, whole: bool = False) -> Any:
        """A valid value, preferably its own example; optional fields only if `whole`."""
        schema = self.resolve(schema)
        for found in ([schema["const"]] if "const" in schema else [], *_own_examples(schema)):
            if found:
                return found[0]
        if "anyOf" in schema:
            return self.example(schema["anyOf"][0], whole=whole)
        if "properties" in schema:
            wanted = schema["properties"] if whole else schema.get("required", [])
            return {n: self.example(schema["properties"][n], whole=whole) for n in wanted}
        if schema.get("type") == "array":
            return [self.example(schema["items"], whole=whole)] if schema.get("items") else []
        if schema.get("type") == "object":
            return {}
        return _SAMPLES.get(schema.get("type", "string"))


def _limit(name: str, value: float) -> str:
    # pydantic writes a bound of a whole number as 1.0.
    return _LIMITS[name].format(int(value) if value == int(value) else value)


def _own_examples(schema: Schema) -> tuple[list[Any], ...]:
    default = [schema["default"]] if schema.get("default") is not None else []
    return schema.get("examples", []), schema.get("enum", []), default

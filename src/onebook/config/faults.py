"""Messages for values of settings and flags that pydantic rejected."""

from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final[Mapping[str, str]] = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text in quotes",
    "string_pattern_mismatch": "must match {pattern}",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list in square brackets",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
    "missing": "is missing",
}


def in_words(fault: Any) -> str | None:
    """The predicate of a sentence about the value; None if pydantic's own text should be used."""
    words = _WORDS.get(fault["type"])
    return None if words is None else words.format(**fault.get("ctx", {}))

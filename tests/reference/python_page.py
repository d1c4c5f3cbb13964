"""Reference page of the Python client, from the code: every public class, field and argument."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Unpack, get_args, get_origin, is_typeddict

from onebook import client
from reference.code_pages import page, table

SECTION = re.compile(r"^(Args|Returns|Yields|Raises):\n", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\*{0,2}[\w.]+(?:, [\w.]+)*): ", re.MULTILINE)
HOME = re.compile(
    r"\b(?:onebook|typing|collections\.abc|decimal|datetime|pathlib|ssl)(?:\.\w+)*\.(?=\w)"
)


def python_client() -> str:
    """Write the page: functions first, then classes, each group by name."""
    public = {name: getattr(client, name) for name in client.__all__}
    functions = [name for name, each in public.items() if inspect.isfunction(each)]
    classes = [name for name, each in public.items() if inspect.isclass(each)]
    return page(
        "Python client: `onebook.client`",
        "the package `onebook.client`",
        "Every public class and function of the Python client: its fields, arguments and errors.",
        "Begin with [the guide](../guides/python.md). The limits of the options of a subscription "
        "are those of [subscribe_aggregated](messages.md#subscribe_aggregated).",
        *(part for name in sorted(functions) for part in function(f"## {name}", public[name])),
        *(part for name in sorted(classes) for part in described(name, public[name])),
    )


class Documented(NamedTuple):
    """A docstring in parts."""

    text: str
    arguments: Mapping[str, str]
    sections: list[str]


def documented(subject: Any) -> Documented:
    """Split a docstring into its text, the meaning of each argument, and its other sections."""
    first, *rest = SECTION.split(inspect.getdoc(subject) or "")
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    others = [f"{name}:\n\n{listed(text)}" for name, text in sections.items() if name != "Args"]
    return Documented(markdown(first), entries(sections.get("Args", "")), others)


def entries(text: str) -> dict[str, str]:
    """Meanings by name, as a section of a docstring lists them."""
    found = ENTRY.split(text)[1:]
    return {
        name.strip("*"): escaped(" ".join(meaning.split()))
        for names, meaning in zip(found[::2], found[1::2], strict=True)
        for name in names.split(", ")
    }


def listed(text: str) -> str:
    """A section of a docstring as a list of its entries, or as prose."""
    named = entries(text)
    return "\n".join(f"- `{name}`: {meaning}" for name, meaning in named.items()) or " ".join(
        text.split()
    )


def escaped(text: str) -> str:
    """Prose with HTML escaped."""
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def markdown(text: str) -> str:
    """Unchanged prose, with indented programs as Python blocks."""
    parts = []
    for part in re.split(r"\n\n(?=\S)", text.strip()):
        prose, _, program = part.partition("\n\n    ")
        parts.append(escaped(prose))
        if program:
            parts.append(f"```python\n{textwrap.dedent('    ' + program).rstrip()}\n```")
    return "\n\n".join(parts)


def function(heading: str, subject: Any, *, bound: bool = False) -> Iterator[str]:
    """Heading, text, arguments, results and errors of a function or method."""
    said = documented(subject)
    found = list(inspect.signature(subject).parameters.values())[bound:]
    yield heading
    yield said.text
    if found:
        yield arguments(found, said.arguments)
    yield from said.sections


def arguments(found: list[inspect.Parameter], meanings: Mapping[str, str]) -> str:
    """A table of the parameters of a function."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    rows = []
    for each in found:
        required = each.default is inspect.Parameter.empty
        default = "" if each.kind in stars else "required" if required else f"`{each.default!r}`"
        name = f"`{stars.get(each.kind, '')}{each.name}`"
        rows.append((name, kind(each.annotation), default, meanings.get(each.name, "")))
    columns = 4 if any(row[-1] for row in rows) else 3
    return table(("Argument", "Type", "Default", "Meaning")[:columns], [r[:columns] for r in rows])


def kind(annotation: Any) -> str:
    """A type as a reader writes it, without the modules of its names."""
    if annotation is inspect.Parameter.empty:
        return ""
    if get_origin(annotation) is Unpack:
        (annotation,) = get_args(annotation)
        return f"`{annotation.__name__}`"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return f"`{HOME.sub('', text)}`"


def described(name: str, subject: type) -> Iterator[str]:
    """Heading, text, constructor, fields and methods of a class."""
    said = documented(subject)
    yield f"## {name}"
    yield said.text
    named = fields(subject)
    if said.arguments:
        yield arguments(list(inspect.signature(subject).parameters.values()), said.arguments)
    if named:
        yield table(("Field", "Type", "Meaning"), named)
    yield from said.sections
    for method, each in members(subject):
        if inspect.isroutine(each):
            yield from function(f"### {name}.{method}", each, bound=True)


def fields(subject: type) -> list[tuple[str, str, str]]:
    """Fields of a dataclass, a named tuple or a dictionary, and properties of any class."""
    named: dict[str, Any] = {}
    if dataclasses.is_dataclass(subject):
        named = {each.name: each.type for each in dataclasses.fields(subject)}
    elif is_typeddict(subject) or hasattr(subject, "_fields"):
        named = dict(inspect.get_annotations(subject))
    comments = remarks(subject)
    rows = [
        (f"`{name}`", kind(value), comments.get(name, ""))
        for name, value in named.items()
        if not name.startswith("_")
    ]
    for name, each in members(subject):
        if isinstance(each, property):
            answer = inspect.get_annotations(each.fget).get("return", inspect.Parameter.empty)
            rows.append((f"`{name}`", kind(answer), " ".join(documented(each).text.split())))
    return rows


def remarks(subject: type) -> dict[str, str]:
    """The comments beside the fields of a class."""
    source = textwrap.dedent(inspect.getsource(subject))
    lines = source.splitlines()
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    return {
        each.target.id: lines[each.lineno - 1].partition("  # ")[2]
        for each in tree.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def members(subject: type) -> list[tuple[str, Any]]:
    """Public methods and properties, inherited ones included, in the order of the code."""
    found: dict[str, Any] = {}
    for base in reversed(subject.__mro__):
        if base.__module__.startswith("onebook."):
            for name, each in vars(base).items():
                member = each.__func__ if isinstance(each, classmethod | staticmethod) else each
                if not name.startswith("_") and (
                    inspect.isfunction(member) or isinstance(member, property)
                ):
                    found[name] = member
    return list(found.items())

"""HTML generation: everything is escaped unless it is an `Html`."""

import re
from html import escape

_CODE = re.compile(r"`([^`]+)`")


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


Content = str | None  # an `Html` is used unchanged, other text is escaped, None is omitted


def tag(name: str, *content: Content, **attributes: str) -> Html:
    """An element. `class_` is written `class`; other names with `_` get `-`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: Content) -> Html:
    """Concatenate pieces of markup."""
    return Html("".join(_written(piece) for piece in content if piece is not None))


def _written(piece: str) -> str:
    return piece if isinstance(piece, Html) else escape(piece)


def prose(text: str) -> Html:
    """Paragraphs with `code`: the part of Markdown used by our docstrings."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    return join(*(tag("p", inline(paragraph)) for paragraph in paragraphs))


def inline(text: str) -> Html:
    """One line of text with `code` in it."""
    return Html(_CODE.sub(r"<code>\1</code>", escape(text, quote=False)))


def table(head: tuple[str, ...], rows: list[tuple[Content, ...]]) -> Html:
    """A table that scrolls horizontally on narrow pages."""
    cells = [tag("th", name, scope="col") if name else tag("td") for name in head]
    lines = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    body = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *lines))
    return tag("div", body, class_="wide")

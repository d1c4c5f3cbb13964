"""Renders one page of `docs/` to HTML: CommonMark with tables, heading anchors as on GitHub.

Comments and other HTML in a page are dropped: only Markdown is rendered.
https://spec.commonmark.org/0.31.2/
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from onebook.web.markup import Html
from onebook.web.samples import PLACEHOLDER_URL, PLACEHOLDER_WS_URL

REPOSITORY: Final = "https://github.com/onebook/onebook/blob/main"
FOLDER: Final = "docs"  # of the pages, in the repository
_ADDRESS: Final = re.compile(r"^<!-- address: http(\S+) -->$", re.MULTILINE)
_FOREIGN: Final = re.compile(r"[a-z]+:", re.IGNORECASE)
_INDEX: Final = "README"
TITLE_TEXTS: Final = ("text", "code_inline")


class Heading(NamedTuple):
    """A heading of a page."""

    level: int
    title: str
    anchor: str


class Rendered(NamedTuple):
    """A rendered page: title, headings and HTML."""

    title: str
    headings: Sequence[Heading]
    html: Html


def url_of(path: str) -> str:
    """The URL of a page or image of `docs/`, by its path."""
    page, suffix = posixpath.splitext(path)
    if suffix != ".md":
        return f"/docs/{path}"
    folder, _, name = page.rpartition("/")
    return f"/docs/{folder if name == _INDEX else page}".rstrip("/")


def render(text: str, path: str) -> Rendered:
    """Render a page.

    Args:
        text: The Markdown.
        path: Its path within `docs/`, to which its links are relative.
    """
    tokens = _PARSER.parse(served_here(text))
    headings = list(_anchored(tokens))
    for token in tokens:
        for child in token.children or ():
            _relocate(child, path)
    html = _PARSER.renderer.render(tokens, _PARSER.options, {})
    title = next((each.title for each in headings if each.level == 1), path)
    return Rendered(title, [each for each in headings if each.level > 1], Html(html))


def served_here(text: str) -> str:
    """Replace the address in a page by the address of the node that serves it."""
    if (stated := _ADDRESS.search(text)) is None:
        return text
    text = text.replace(f"ws{stated[1]}", PLACEHOLDER_WS_URL)
    return text.replace(f"http{stated[1]}", PLACEHOLDER_URL)


def anchor_of(title: str, taken: set[str]) -> str:
    """The anchor of a heading; repeated titles are numbered."""
    base = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    anchor, number = base, 0
    while anchor in taken:
        number += 1
        anchor = f"{base}-{number}"
    taken.add(anchor)
    return anchor


def link_of(href: str, path: str) -> str:
    """The served form of a link; links outside `docs/` point to the repository."""
    if _FOREIGN.match(href) or href.startswith(("#", "/")):
        return href
    target, mark, anchor = href.partition("#")
    found = posixpath.normpath(posixpath.join(FOLDER, posixpath.dirname(path), target))
    inside = found.removeprefix(f"{FOLDER}/")
    return (f"{REPOSITORY}/{found}" if inside == found else url_of(inside)) + mark + anchor


def _anchored(tokens: Sequence[Token]) -> Iterator[Heading]:
    """Give each heading its anchor."""
    taken: set[str] = set()
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            texts = [each for each in content.children or () if each.type in TITLE_TEXTS]
            title = "".join(each.content for each in texts)
            anchor = anchor_of(title, taken)
            opening.attrSet("id", anchor)
            yield Heading(int(opening.tag[1:]), title, anchor)


def _relocate(token: Token, path: str) -> None:
    name = {"link_open": "href", "image": "src"}.get(token.type)
    if name is not None:
        token.attrSet(name, link_of(str(token.attrGet(name)), path))


def _dropped(*_: Any) -> str:
    """Drop HTML in a page."""
    return ""


def _code(renderer: Any, tokens: Sequence[Token], at: int, *_: Any) -> str:
    """A code block that can be focused and scrolled by keyboard."""
    return f'<pre tabindex="0"><code>{escape(tokens[at].content)}</code></pre>\n'


def _heading(renderer: Any, tokens: Sequence[Token], at: int, *_: Any) -> str:
    """A cell of a table head; an empty one is not a header."""
    opens = tokens[at].nesting == 1
    name = "th" if tokens[at + 1 if opens else at - 1].content else "td"
    return f'<{name} scope="col">' if opens and name == "th" else f"<{'' if opens else '/'}{name}>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    for name in ("html_block", "html_inline"):
        parser.add_render_rule(name, _dropped)
    for name in ("fence", "code_block"):
        parser.add_render_rule(name, _code)
    for name in ("th_open", "th_close"):
        parser.add_render_rule(name, _heading)
    parser.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


_PARSER: Final = _parser()

"""HTML template of documentation pages: head, header with search, contents."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from onebook.web.markup import Content, Html, tag


class ContentsEntry(NamedTuple):
    """An entry of a table of contents, with its sub-entries."""

    title: str
    href: str
    inner: Sequence["ContentsEntry"] = ()


HEAD = Html(
    '<meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<link rel="icon" href="/web/page/icon.svg" type="image/svg+xml">'
    '<link rel="stylesheet" href="/web/page/base.css">'
    '<link rel="stylesheet" href="/web/page/docs.css">'
    '<script src="/web/page/theme.js"></script>'
    '<script src="/web/page/docs.js" type="module"></script>'
)
# Hidden by its style if there are no scripts, where the browser's own search remains; showing it by
# script would shift the page.
SEARCH = Html(
    '<form class="search" role="search">'
    '<input type="search" aria-label="Search the documentation" placeholder="Search" '
    'autocomplete="off" maxlength="100" aria-controls="found">'
    '<div class="found" hidden><p class="count" role="status"></p><ul id="found"></ul></div>'
    "</form>"
)


def document(title: str, *, contents: Sequence[ContentsEntry], main: Sequence[Content]) -> str:
    """Render an entire page."""
    head = tag("head", HEAD, tag("title", f"{title} - Onebook"))
    columns = tag(
        "div", _contents(contents), tag("main", *main, id="text", tabindex="-1"), class_="columns"
    )
    skip = tag("a", "Skip to the text", href="#text", class_="skip")
    body = tag("body", skip, _header(), columns)
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _header() -> Html:
    icon = Html('<img src="/web/page/icon.svg" alt="" width="26" height="26">')
    label = "Auto: change the colours"
    theme = tag("button", "Auto", type="button", id="theme", class_="quiet", aria_label=label)
    links = (
        ("Tutorial", "/docs/tutorial"),
        ("API", "/docs"),
        ("Reference", "/docs/reference"),
        ("OpenAPI", "/openapi.json"),
        ("AsyncAPI", "/asyncapi.json"),
    )
    nav = tag("nav", *(tag("a", text, href=href) for text, href in links), theme, aria_label="Site")
    brand = tag("a", icon, " Onebook", class_="brand", href="/")
    return tag("header", brand, SEARCH, nav, class_="top")


def _contents(entries: Iterable[ContentsEntry]) -> Html:
    summary = tag("summary", "Contents")
    nav = tag("nav", _list(entries), aria_label="Contents")
    return Html(f'<details class="contents" open>{summary}{nav}</details>')


def _list(entries: Iterable[ContentsEntry]) -> Html:
    items = [
        tag("li", tag("a", each.title, href=each.href), _list(each.inner) if each.inner else None)
        for each in entries
    ]
    return tag("ul", *items)

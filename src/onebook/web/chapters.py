"""Serves the pages of `docs/`: table of contents, rendered pages, search index.

The pages are package data (`content`, in the repository a link to `docs/`) and read once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from onebook.web.frame import ContentsEntry, document
from onebook.web.markdown import Rendered, anchor_of, render, url_of

CONTENT: Final = Path(__file__).parent / "content"
IMAGES: Final = {".webp": "image/webp", ".svg": "image/svg+xml"}
RENDERED_MAX: Final = 256  # pages cached as HTML
SECTION_CHARACTERS_MAX: Final = 1_500  # per section in the search index
_HEADING: Final = re.compile(r"^(#{1,6}) (.+)$")
_MARKS: Final = re.compile(r"<!--.*?-->|\]\([^)]*\)|[`*\[\]|]|-{3,}", re.DOTALL)
# Groups of the table of contents: a title, and the pages by path prefix.
GROUPS: Final = (
    ("Tutorial", ("tutorial.md",)),
    ("Guides", ("guides/",)),
    ("Reference", ("reference/",)),
    ("Explanation", ("explanation/", "performance.md")),
)


class Hit(Struct, frozen=True):
    """A section in the search index."""

    url: str
    page: str
    heading: str
    text: str


class Chapters:
    """All pages, by file path and by URL.

    Args:
        folder: The folder with the pages.
    """

    def __init__(self, folder: Path = CONTENT) -> None:
        files = sorted(folder.rglob("*.md"))
        self.texts: Mapping[str, str] = {
            each.relative_to(folder).as_posix(): each.read_text(encoding="utf-8") for each in files
        }
        self.paths: Mapping[str, str] = {url_of(path): path for path in self.texts}
        self.images: Mapping[str, bytes] = {
            url_of(each.relative_to(folder).as_posix()): each.read_bytes()
            for each in folder.rglob("*")
            if each.suffix in IMAGES
        }
        self._titles = {path: _title(text) for path, text in self.texts.items()}
        self.rendered = lru_cache(RENDERED_MAX)(self._rendered)
        self.page = lru_cache(RENDERED_MAX)(self._page)

    def contents(self) -> Iterator[ContentsEntry]:
        """The table of contents by group, without the pages of single exchanges and decisions."""
        for title, begins in GROUPS:
            found = [path for path in self.texts if path.startswith(begins) and _listed(path)]
            own = [ContentsEntry(self._titles[path], url_of(path)) for path in found]
            # The index of a group comes first, and the title of the group links to it.
            inner = [each for each, path in zip(own, found, strict=True) if not is_index(path)]
            if own:
                yield ContentsEntry(title, own[0].href, inner if len(own) > 1 else ())

    def search_index(self, openapi: Mapping[str, Any]) -> Sequence[Hit]:
        """Search entries for every section of every page and every REST operation."""
        return [*_operations(openapi), *(hit for path in self.texts for hit in self._hits(path))]

    def _rendered(self, path: str) -> Rendered:
        return render(self.texts[path], path)

    def _page(self, path: str) -> str:
        """The page rendered from a file."""
        page = self.rendered(path)
        here = [
            ContentsEntry(each.title, f"#{each.anchor}")
            for each in page.headings
            if each.level == 2
        ]
        groups = [ContentsEntry("On this page", "#", here)] if here else []
        groups += [*self.contents(), ContentsEntry("REST and WebSocket", "/docs")]
        return document(page.title, contents=groups, main=[page.html])

    def _hits(self, path: str) -> Iterator[Hit]:
        """The sections of a page, found by line, because parsing every page would take a second."""
        url, title = url_of(path), self._titles[path]
        taken: set[str] = set()
        heading, anchor, lines, fenced = title, "", list[str](), False
        for line in self.texts[path].splitlines():
            fenced ^= line.startswith("```")
            found = None if fenced else _HEADING.match(line)
            if found is None:
                lines.append(line)
                continue
            if lines and anchor:
                yield Hit(f"{url}#{anchor}", title, heading, _plain(lines))
            heading = _MARKS.sub("", found[2])
            anchor, lines = anchor_of(heading, taken), []
        yield Hit(f"{url}#{anchor}", title, heading, _plain(lines))


def is_index(path: str) -> bool:
    """Return whether a page is the index of a group."""
    return path.count("/") == 1 and path.endswith("/README.md")


def _listed(path: str) -> bool:
    return not path.startswith("reference/exchanges/") or path.endswith("README.md")


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert found is not None, "every page begins with a title"
    return found[1]


def _plain(lines: Sequence[str]) -> str:
    return " ".join(_MARKS.sub(" ", "\n".join(lines)).split())[:SECTION_CHARACTERS_MAX]


def _operations(openapi: Mapping[str, Any]) -> Iterator[Hit]:
    for path, item in openapi["paths"].items():
        for method, operation in item.items():
            text = f"{method.upper()} {path} {operation.get('description', '')}"
            yield Hit(f"/docs#{operation['operationId']}", "REST", operation["summary"], text)

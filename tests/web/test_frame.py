"""The frame of a documentation page: title, contents, search and links, all text escaped."""

from html.parser import HTMLParser

from onebook.web.frame import ContentsEntry, document
from onebook.web.markup import tag

VOID = {"meta", "link", "img", "input"}


class Tags(HTMLParser):
    """Records links, and checks that every element is closed in the right place."""

    def __init__(self, page):
        super().__init__()
        self.open, self.links, self.attributes = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, name, attributes):
        self.attributes.append((name, dict(attributes)))
        if name == "a":
            self.links.append(dict(attributes)["href"])
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name


def page_of(title="Guide", contents=(), main=()):
    return document(title, contents=contents, main=main)


def test_a_page_is_whole():
    page = page_of(main=[tag("p", "text")])
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert Tags(page).open == []
    assert '<main id="text" tabindex="-1"><p>text</p></main>' in page
    assert "<title>Guide - Onebook</title>" in page


def test_contents_are_nested_and_escaped():
    inner = (ContentsEntry("a < b", "#a"),)
    page = page_of(contents=[ContentsEntry("First", "#first", inner), ContentsEntry("Last", "#z")])
    assert Tags(page).links[-3:] == ["#first", "#a", "#z"]
    assert "a &lt; b" in page
    assert "<ul><li><a" in page


def test_a_title_cannot_bring_markup():
    page = page_of("<script>alert(1)</script>")
    assert "<script>alert" not in page


def test_search_and_contents_have_names_for_screen_readers():
    tags = Tags(page_of()).attributes
    named = {each.get("aria-label") for _, each in tags}
    assert {"Search the documentation", "Contents", "Site"} <= named
    (icon,) = [each for name, each in tags if name == "img"]
    assert icon["alt"] == ""

"""Markup: text is escaped, markup is unchanged, and nothing is escaped twice."""

from hypothesis import given
from hypothesis import strategies as st

from onebook.web.markup import Html, inline, join, prose, table, tag


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "a < b", tag("b", "&")) == "<p>a &lt; b<b>&amp;</b></p>"


def test_attributes_are_escaped_and_named() -> None:
    assert tag("a", class_="x", aria_label='"') == '<a class="x" aria-label="&quot;"></a>'


def test_nothing_writes_nothing() -> None:
    assert join(None, "", None) == ""


def test_prose_knows_paragraphs_and_code() -> None:
    assert prose("One\nline.\n\n  `x < 1`") == "<p>One line.</p><p><code>x &lt; 1</code></p>"


def test_table() -> None:
    assert table(("A",), [("<",), (Html("<i></i>"),)]) == (
        '<div class="wide"><table><thead><tr><th scope="col">A</th></tr></thead>'
        "<tbody><tr><td>&lt;</td></tr><tr><td><i></i></td></tr></tbody></table></div>"
    )


@given(st.text())
def test_no_text_becomes_an_element(text: str) -> None:
    for written in (join(text), inline(text), prose(text)):
        for element in ("<p>", "</p>", "<code>", "</code>"):
            written = Html(written.replace(element, ""))
        assert "<" not in written

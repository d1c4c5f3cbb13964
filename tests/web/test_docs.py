"""The documentation page has all content of the documents, and every link works."""

import html
import re

import pytest

from onebook.app.node import section_of
from onebook.errors import OnebookError
from onebook.gateway import codes, messages
from onebook.transactions.registry import EXCHANGES
from onebook.web.chapters import Chapters
from onebook.web.docs import DocumentedLimit, render
from onebook.web.samples import JAVASCRIPT, PYTHON
from web.scripted import site


@pytest.fixture(scope="module")
def page() -> str:
    given = site()
    return render(
        given.openapi(),
        given.asyncapi(),
        exchanges=[section_of(each.entry) for each in EXCHANGES.values()],
        limits=[
            DocumentedLimit(
                "server.drain_s", "30", "Seconds over which `clients` are sent away <b>."
            )
        ],
    )


def section(page: str, anchor: str) -> str:
    found = re.search(rf'<(section|article) id="{re.escape(anchor)}">.*?</\1>', page, re.S)
    assert found, anchor
    return found[0]


def test_every_operation_has_its_article(page: str) -> None:
    for path, item in site().openapi()["paths"].items():
        for method, operation in item.items():
            article = section(page, operation["operationId"])
            assert f"{method.upper()}</b> <code>{html.escape(path)}</code>" in article
            for status in operation["responses"]:
                assert f">{status}</b>" in article


@pytest.mark.parametrize("name", EXCHANGES)
def test_documentation_url_leads_to_the_section_of_the_exchange(page: str, name: str) -> None:
    entry = EXCHANGES[name].entry
    article = html.unescape(section(page, entry.body()["documentation_url"].partition("#")[2]))
    assert entry.display in article
    assert entry.advice in article
    for kind in entry.types:
        assert f"<code>{kind}</code>" in article
    for environment, hosts in entry.hosts.items():
        assert f"<td>{environment}</td>" in article
        assert all(f"<code>{url}</code>" in article for url in hosts.values())
    for sentence in entry.omitted.values():
        assert sentence in article
    for _, unproven in entry.bookkeeping.unproven:
        assert unproven.why in article
    links = re.findall(r'href="(/docs/reference/[^"]+)"', article)
    assert len(links) == 1
    assert links[0] in Chapters().paths


@pytest.mark.parametrize("message", messages.MESSAGES, ids=lambda message: message.body.__name__)
def test_every_message_is_described_with_its_fields(page: str, message: messages.Described) -> None:
    anchors = [f"ws-{message.name}.{message.body.__name__}", f"ws-{message.name}"]
    article = section(page, next(a for a in anchors if f'id="{a}"' in page))
    for field in message.body.__struct_fields__:
        assert f"<code>{field}</code>" in article
    assert f"<h3><code>{message.name}</code></h3>" in article


def test_nested_fields_have_dotted_names(page: str) -> None:
    article = section(page, "ws-aggregated_orderbook_update")
    assert "<code>data.market_stats.best_bid</code>" in article


def test_a_client_message_is_shown_with_all_its_options(page: str) -> None:
    article = html.unescape(section(page, "ws-subscribe_aggregated"))
    for option in ("depth", "interval_ms", "mode", "levels", "split", "group"):
        assert f'"{option}": ' in article


def test_every_error_code_and_every_close_code_is_listed(page: str) -> None:
    errors = section(page, "errors")
    for kind in OnebookError.__subclasses__():
        if kind.__module__ == OnebookError.__module__ and kind.code != "invalid_config":
            assert f"<code>{kind.code}</code>" in errors
    for code in codes.ERRORS:
        assert f"<code>{code}</code>" in errors
    for close in codes.CLOSE_CODES:
        assert f"<code>{close}</code>" in section(page, "close-codes")


def test_limits_are_listed_and_escaped(page: str) -> None:
    limits = section(page, "limits")
    assert "<code>server.drain_s</code>" in limits
    assert "<code>clients</code> are sent away &lt;b&gt;." in limits


def test_anchors_are_unique_and_every_link_leads_to_one(page: str) -> None:
    anchors = re.findall(r'\sid="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    links = re.findall(r'href="#([^"]+)"', page)
    assert set(links) <= set(anchors)
    assert len(links) > 50


def test_nothing_inline_and_nothing_foreign(page: str) -> None:
    assert re.findall(r"<script[^>]*>", page) == [
        '<script src="/web/page/theme.js">',
        '<script src="/web/page/docs.js" type="module">',
    ]
    assert not re.search(r'\son[a-z]+="|\sstyle="', page)
    assert all(url.startswith("/") for url in re.findall(r'(?:src|href)="(?!#)([^"]+)"', page))


def test_a_tag_without_operations_makes_no_part() -> None:
    given = site()
    openapi = given.openapi() | {"tags": [{"name": "empty", "description": "Nothing."}]}
    page = render(openapi, given.asyncapi(), exchanges=[], limits=[])
    assert "REST: empty" not in page


def test_the_python_sample_compiles() -> None:
    compile(PYTHON, "sample", "exec")
    assert JAVASCRIPT.count("{") == JAVASCRIPT.count("}")

"""The pages of `docs/` as served by a node: links, anchors, search, addresses."""

import json
import re
from functools import cache
from html import unescape

import httpx
import pytest
from fastapi import FastAPI

from onebook.web import pages
from onebook.web.chapters import CONTENT, Chapters
from onebook.web.markdown import REPOSITORY, anchor_of, link_of, render, served_here, url_of
from onebook.web.routes import load_assets
from onebook.web.samples import PLACEHOLDER_URL, PLACEHOLDER_WS_URL
from web.scripted import site

ROOT = CONTENT.resolve().parent
CHAPTERS = Chapters()
ASSETS = load_assets()


@pytest.fixture
def client():
    app = FastAPI(openapi_url=None)
    app.include_router(pages(site()))
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="https://here.example:8443")


def links(page: str) -> list[str]:
    return [unescape(each) for each in re.findall(r'(?:src|href)="([^"]+)"', page)]


def anchors(page: str) -> list[str]:
    return re.findall(r'\sid="([^"]+)"', page)


@cache
def anchors_of(path: str) -> list[str]:
    """The anchors of a page of `docs/`, to which many pages link."""
    return anchors(CHAPTERS.page(path))


def test_the_pages_are_those_of_the_repository():
    found = {each.relative_to(ROOT / "docs").as_posix() for each in (ROOT / "docs").rglob("*.md")}
    assert set(CHAPTERS.texts) == found
    assert {"tutorial.md", "reference/README.md", "guides/follow-deltas.md"} <= found
    assert len(CHAPTERS.paths) == len(CHAPTERS.texts), "no two pages have one address"


@pytest.mark.parametrize("path", CHAPTERS.texts)
def test_every_link_of_a_page_leads_somewhere(path):
    page = CHAPTERS.page(path)
    own = anchors(page)
    assert len(own) == len(set(own))
    for link in links(page):
        target, _, anchor = link.partition("#")
        if link.startswith("/web/"):
            assert link.removeprefix("/web/") in ASSETS, link
        elif target in CHAPTERS.paths:
            assert not anchor or anchor in anchors_of(CHAPTERS.paths[target]), link
        elif target.startswith(REPOSITORY):
            assert (ROOT / target.removeprefix(f"{REPOSITORY}/")).exists(), link
        elif not target:
            assert not anchor or anchor in own, link
        else:
            known = {"/", "/docs", "/openapi.json", "/asyncapi.json", *CHAPTERS.images}
            assert target in known or target.startswith("https://"), link


@pytest.mark.parametrize("path", CHAPTERS.texts)
def test_a_page_loads_nothing_foreign_and_holds_no_html_of_its_own(path):
    page = CHAPTERS.page(path)
    assert all(url.startswith("/") for url in re.findall(r'src="([^"]+)"', page))
    assert not re.search(r"<script(?! src=)|\son[a-z]+=\"|\sstyle=\"", page)
    outside_code = re.sub(r"```.*?```|`[^`]+`|<!--.*?-->|^    .*?$", "", CHAPTERS.texts[path],
                          flags=re.DOTALL | re.MULTILINE)  # fmt: skip
    assert not re.search(r"<[a-z/]", outside_code), "it would not be shown"


def test_the_contents_have_every_page_but_single_exchanges_and_decisions():
    listed = {each.href for group in CHAPTERS.contents() for each in (group, *group.inner)}
    left_out = {path for path in CHAPTERS.texts if url_of(path) not in listed}
    assert all(path.startswith(("adr/", "reference/exchanges/")) for path in left_out), left_out
    assert "/docs/reference/exchanges" in listed


def test_every_hit_of_the_search_leads_to_its_section():
    index = CHAPTERS.search_index(site().openapi())
    assert {hit.url.partition("#")[0] for hit in index} == {*CHAPTERS.paths, "/docs"}
    for hit in index:
        url, _, anchor = hit.url.partition("#")
        if url in CHAPTERS.paths:
            assert anchor in anchors(CHAPTERS.page(CHAPTERS.paths[url])), hit
    (found,) = [hit for hit in index if hit.url == "/docs/guides/follow-deltas#the-checksum"]
    assert (found.page, found.heading) == ("Follow deltas safely", "The checksum")
    assert "CRC-32" in found.text


async def test_examples_name_the_address_of_the_request(client):
    async with client:
        page = (await client.get("/docs/tutorial")).text
        assert "ONEBOOK_URL=https://here.example:8443\n" in page
        assert "--url https://here.example:8443 " in page
        settings = (await client.get("/docs/reference/settings")).text
        operate = (await client.get("/docs/guides/operate")).text
    assert "127.0.0.1:8000" not in page
    assert "here.example:8443" not in settings
    assert operate == CHAPTERS.page("guides/operate.md"), "an operator's addresses stay"


def test_both_schemes_of_an_address_become_those_of_the_node():
    page = "see http://127.0.0.1:8000/docs and ws://127.0.0.1:8000/api/v1/ws"
    served = f"see {PLACEHOLDER_URL}/docs and {PLACEHOLDER_WS_URL}/api/v1/ws"
    assert served_here(f"<!-- address: http://127.0.0.1:8000 -->\n{page}").endswith(served)
    assert served_here(page) == page, "a page that states no address keeps what it says"


@pytest.mark.parametrize("path", CHAPTERS.texts)
def test_no_example_is_bound_to_one_port_of_this_machine(path):
    text = CHAPTERS.texts[path]
    assert "localhost:8000" not in text
    if path.startswith(("tutorial", "guides/")) and re.search(r"\w+://127\.0\.0\.1:8000", text):
        assert "<!-- address: http://127.0.0.1:8000 -->" in text, "state that it is this node's"


async def test_pages_images_and_the_index_are_answered(client):
    async with client:
        for path, kind in {
            "/docs/reference": "text/html; charset=utf-8",
            "/docs/reference/exchanges/okx": "text/html; charset=utf-8",
            "/docs/images/page.webp": "image/webp",
            "/docs/search.json": "application/json",
        }.items():
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, kind), path
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            again = await client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
        hits = json.loads((await client.get("/docs/search.json")).content)
        assert {"url", "page", "heading", "text"} == set(hits[0])
        for path in (
            "/docs/none",
            "/docs/reference/none",
            "/docs/../routes.py",
            "/docs/tutorial.md",
        ):
            assert (await client.get(path)).status_code == 404, path


def test_anchors_are_those_of_github():
    taken: set[str] = set()
    titles = ["1. Start the demo", "`/metrics`, and what_is in it", "A & B", "A & B"]
    assert [anchor_of(each, taken) for each in titles] == [
        "1-start-the-demo", "metrics-and-what_is-in-it", "a--b", "a--b-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("limits.md", "/docs/reference/limits"),
        ("README.md#top", "/docs/reference#top"),
        ("../tutorial.md", "/docs/tutorial"),
        ("../images/page.webp", "/docs/images/page.webp"),
        ("../../CONTRIBUTING.md", f"{REPOSITORY}/CONTRIBUTING.md"),
        ("#here", "#here"),
        ("https://example.com/a", "https://example.com/a"),
    ],
)
def test_links_are_relocated(href, expected):
    assert link_of(href, "reference/errors.md") == expected


def test_html_of_a_page_is_dropped_and_code_is_escaped():
    page = render("# T\n\n<script>x</script>\n\na <b>b</b>\n\n```\n<i>&\n```\n", "x.md")
    assert page.title == "T"
    assert "<script" not in page.html
    assert "<b>" not in page.html
    assert "<code>&lt;i&gt;&amp;\n</code>" in page.html


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_link_of_the_files_beside_docs_leads_to_a_file(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert link.startswith("https://") or (ROOT / link).exists(), link

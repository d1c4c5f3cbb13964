"""The served pages: files from one table, a strict policy, no third-party content."""

import posixpath
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from onebook.web import pages
from onebook.web.routes import HERE, POLICY, load_assets
from web.scripted import site


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI(openapi_url=None)
    app.include_router(pages(site()))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://books.example") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/exchanges", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/web/page/app.js", "text/javascript; charset=utf-8"),
        ("/web/page/book.css", "text/css; charset=utf-8"),
        ("/web/page/icon.svg", "image/svg+xml"),
        ("/web/vendor/uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8"),
        ("/web/vendor/uplot/LICENSE", "text/plain; charset=utf-8"),
    ],
)
async def test_a_file_comes_with_its_type_its_tag_and_the_policy(
    client: httpx.AsyncClient, path: str, media_type: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cache-control"] == "no-cache"
    again = await client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == answer.headers["etag"]


async def test_a_file_is_packed_for_who_accepts_it(client: httpx.AsyncClient) -> None:
    path = "/web/page/app.js"
    plain, packed, refused = [
        await client.get(path, headers={"Accept-Encoding": accepted})
        for accepted in ("identity", "br, GZIP;q=0.5", "gzip; q=0.0, br")
    ]
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert not [each for each in (plain, refused) if "content-encoding" in each.headers]
    assert plain.content == packed.content == refused.content == (HERE / "page/app.js").read_bytes()
    assert {each.headers["vary"] for each in (plain, packed, refused)} == {"Accept-Encoding"}
    assert packed.headers["etag"] != plain.headers["etag"] == refused.headers["etag"]
    again = await client.get(
        path, headers={"Accept-Encoding": "gzip", "If-None-Match": packed.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    assert "content-encoding" not in again.headers


@pytest.mark.parametrize(
    "path",
    [
        "/web/",
        "/web/page",
        "/web/routes.py",
        "/web/page/../routes.py",
        "/web/page/%2e%2e/routes.py",
        "/web//etc/passwd",
        "/web/page/none.js",
    ],
)
async def test_what_is_not_in_the_table_is_not_served(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


def test_the_policy_allows_nothing_inline_and_nothing_foreign() -> None:
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


OURS = [name for name in load_assets() if name.startswith("page/")]


@pytest.mark.parametrize("name", OURS)
def test_no_file_of_ours_names_a_foreign_host_or_needs_inline_code(name: str) -> None:
    text = (HERE / name).read_text()
    hosts = set(re.findall(r"(?:https?:)?//([a-z0-9-]+\.[a-z0-9.]+)", text))
    assert hosts <= {"www.w3.org"}  # the namespace of SVG
    if name.endswith(".html"):
        assert not re.search(r"<script(?![^>]*\ssrc=)", text)
        assert not re.search(r"\son[a-z]+=|\sstyle=|javascript:", text)


def test_every_module_that_a_page_loads_is_there() -> None:
    assets = load_assets()
    for name in OURS:
        text = (HERE / name).read_text()
        for found in re.findall(r'(?:src|href)="/web/([^"]+)"', text):
            assert found in assets, (name, found)
        for found in re.findall(r'from "\./([^"]+)"', text):
            assert f"page/{found}" in assets, (name, found)


def test_the_first_page_asks_for_every_module_at_once() -> None:
    """Without the links the browser learns of a module from the one that imports it."""
    imported, unread = set[str](), ["/web/page/app.js"]
    while unread:
        path = unread.pop()
        text = HERE.joinpath(path.removeprefix("/web/")).read_text()
        for found in re.findall(r'^(?:import|export)\b[^;]*?"(\.[^"]+)";', text, re.MULTILINE):
            module = posixpath.normpath(posixpath.join(posixpath.dirname(path), found))
            if module not in imported:
                imported.add(module)
                unread.append(module)
    page = HERE.joinpath("page/index.html").read_text()
    assert re.findall(r'<link rel="modulepreload" href="([^"]+)">', page) == sorted(imported)

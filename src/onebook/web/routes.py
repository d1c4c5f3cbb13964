"""Routes of the pages, and their Content-Security-Policy.

The policy allows scripts and styles only from our own files: nothing inline, nothing from other
hosts. https://www.w3.org/TR/CSP3/ ('self' also covers the WebSocket of the same host.)
"""

import gzip
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import APIRouter, HTTPException, Request, Response
from msgspec import json

from onebook.web.chapters import IMAGES, Chapters
from onebook.web.docs import DocumentedLimit, TransactionSection, render
from onebook.web.samples import PLACEHOLDER_URL, PLACEHOLDER_WS_URL

HERE = Path(__file__).parent
FOLDERS = ("page", "vendor", "client")
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # licences of vendored files
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Asset(NamedTuple):
    """A static file, ready to be served."""

    content: bytes
    media_type: str
    etag: str
    packed: bytes | None = None  # the content as gzip, if prepared


@dataclass(frozen=True, kw_only=True)
class Site:
    """Data of the service shown on the pages.

    Args:
        openapi: Returns the OpenAPI document.
        asyncapi: Returns the AsyncAPI document.
        exchanges: The exchanges of the transaction interface.
        limits: Every limit and setting.
        base_url: Returns the URL at which a request reached this service.
    """

    openapi: Callable[[], dict[str, Any]]
    asyncapi: Callable[[], dict[str, Any]]
    exchanges: Sequence[TransactionSection] = ()
    limits: Sequence[DocumentedLimit] = ()
    base_url: Callable[[Request], str] = lambda request: str(request.base_url).rstrip("/")


def pages(site: Site) -> APIRouter:
    """Create the routes of the pages."""
    router = APIRouter(include_in_schema=False)
    assets = load_assets()
    chapters = Chapters()
    images = {
        url: Asset(content, IMAGES[Path(url).suffix], tag_of(content))
        for url, content in chapters.images.items()
    }

    @cache
    def written() -> str:
        return render(
            site.openapi(),
            site.asyncapi(),
            exchanges=site.exchanges,
            limits=site.limits,
            guides=chapters.contents(),
        )

    @cache
    def search_index() -> Asset:
        return asset_of(json.encode(chapters.search_index(site.openapi())), ".json")

    def addressed(page: str, url: str) -> Asset:
        # Cached without the host, because clients could fill the cache with arbitrary Host values.
        page = page.replace(PLACEHOLDER_URL, escape(url))
        page = page.replace(PLACEHOLDER_WS_URL, escape("ws" + url.removeprefix("http")))
        return asset_of(page.encode(), ".html")

    @router.get("/")
    async def first_page(request: Request) -> Response:
        return answer(request, assets["page/index.html"])

    @router.get("/exchanges")
    async def quality_page(request: Request) -> Response:
        return answer(request, assets["page/exchanges.html"])

    # Not `async`, so it runs in a thread: the first request for a page renders it.
    @router.get("/docs")
    def docs(request: Request) -> Response:
        return answer(request, addressed(written(), site.base_url(request)))

    @router.get("/docs/search.json")
    def search(request: Request) -> Response:
        return answer(request, search_index())

    @router.get("/docs/{path:path}")
    def chapter(request: Request, path: str) -> Response:
        url = f"/docs/{path}"
        if url in images:
            return answer(request, images[url])
        if url not in chapters.paths:
            raise HTTPException(404)
        page = chapters.page(chapters.paths[url])
        return answer(request, addressed(page, site.base_url(request)))

    @router.get("/web/{name:path}")
    async def static(request: Request, name: str) -> Response:
        if name not in assets:
            raise HTTPException(404)
        return answer(request, assets[name])

    return router


def load_assets() -> dict[str, Asset]:
    """Read all static files once; no other files are served."""
    files = [path for folder in FOLDERS for path in (HERE / folder).rglob("*") if path.is_file()]
    return {
        path.relative_to(HERE).as_posix(): packed(asset_of(path.read_bytes(), path.suffix))
        for path in files
    }


def packed(asset: Asset) -> Asset:
    """The file with its gzip form; the same bytes on every node."""
    return asset._replace(packed=gzip.compress(asset.content, mtime=0))


def asset_of(content: bytes, suffix: str) -> Asset:
    """A file with its media type and its entity tag."""
    return Asset(content, MEDIA_TYPES[suffix], tag_of(content))


def tag_of(content: bytes) -> str:
    """The entity tag of a file."""
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


def answer(request: Request, asset: Asset) -> Response:
    """Send a file, or 304 if it has not changed (RFC 9110 section 13.1.2)."""
    headers = {
        "ETag": asset.etag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": POLICY,
    }
    content = asset.content
    if asset.packed is not None:
        headers["Vary"] = "Accept-Encoding"
        if accepts_gzip(request):
            content = asset.packed
            headers |= {"Content-Encoding": "gzip", "ETag": f'{asset.etag[:-1]}-gzip"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        headers.pop("Content-Encoding", None)
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=asset.media_type, headers=headers)


def accepts_gzip(request: Request) -> bool:
    """Whether a request accepts gzip (RFC 9110 section 12.5.3)."""
    for part in request.headers.get("accept-encoding", "").split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() == "gzip":
            return re.fullmatch(r"\s*q=0(\.0{0,3})?\s*", weight) is None
    return False

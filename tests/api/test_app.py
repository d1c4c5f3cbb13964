"""The application: its routes, and the CORS rules for pages of other sites."""

import httpx
from fastapi import FastAPI

from api.conftest import World, client_of
from onebook.api import create_app
from onebook.api.app import RATE_HEADERS
from onebook.config import ApiSettings

SITE = "https://site.example"
ASKS = {"Origin": SITE, "Access-Control-Request-Method": "GET"}


def with_site(world: World) -> FastAPI:
    return create_app(world.services(settings=ApiSettings(cors_origins=(SITE,))))


async def test_without_settings_no_other_site_is_answered(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/exchanges", headers={"Origin": SITE})
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_site_of_the_settings_may_read_the_rate_limit_headers(world: World) -> None:
    async with client_of(with_site(world)) as client:
        answer = await client.get("/api/v1/exchanges", headers={"Origin": SITE})
        preflight = await client.options("/api/v1/exchanges", headers=ASKS)
    assert answer.headers["Access-Control-Allow-Origin"] == SITE
    exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
    assert exposed == [*RATE_HEADERS, "Content-Disposition", "Onebook-Complete", "Onebook-Rows"]
    assert preflight.status_code == 200


async def test_a_site_of_the_settings_may_read_every_error(world: World) -> None:
    """Without these headers a browser shows the page nothing of a response, not even its status."""
    app = with_site(world)

    @app.get("/test/broken")
    async def broken() -> None:
        raise ZeroDivisionError

    app.state.routes = []
    asked = [
        ("GET", "/test/broken", b"", 500),
        ("GET", "/test/absent", b"", 404),
        ("POST", "/api/v1/authenticate", b"x" * 70_000, 413),
        ("POST", "/api/v1/authenticate", b"{", 400),
        ("POST", "/api/v1/transactions", b"{}", 401),
    ]
    async with client_of(app) as client:
        for method, path, body, status in asked:
            answer = await client.request(method, path, content=body, headers={"Origin": SITE})
            assert answer.status_code == status
            assert answer.headers["Access-Control-Allow-Origin"] == SITE, path
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_refused_preflight_has_the_error_body_of_every_other_error(world: World) -> None:
    asks = ASKS | {"Origin": "https://other.example"}
    async with client_of(with_site(world)) as client:
        answer = await client.options("/api/v1/transactions", headers=asks)
    assert answer.status_code == 403
    assert list(answer.json()) == ["error", "message", "timestamp"]
    assert answer.json()["error"] == "origin_not_allowed"


async def test_a_method_that_a_path_does_not_answer_names_those_that_it_does(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/api/v1/exchanges")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")

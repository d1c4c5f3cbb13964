"""A client written from the documentation alone computes the right books."""

import json
import re
from binascii import crc32

import httpx
import pytest
from fastapi import FastAPI

from core.both import EACH, book_of
from onebook.gateway import replies
from onebook.web import books, pages
from onebook.web.docs import render
from web.scripted import site


def test_every_form_of_a_level_is_shown_filled() -> None:
    shown = {title: json.loads(text)["bids"][0] for title, text in books.forms()}
    whole = {
        "price": 100.5,
        "amount": 1.75,
        "exchanges": ["kraken", "okx"],
        "exchange_count": 2,
        "value": 175.875,
    }
    assert shown == {
        "levels: object, split: false": whole,
        "levels: object, split: true": whole | {"amounts": [0.25, 1.5]},
        "levels: array, split: false": [100.5, 1.75],
        "levels: array, split: true": [100.5, 1.75, [["kraken", 0.25], ["okx", 1.5]]],
    }


def test_a_book_kept_by_the_page_s_rules_is_the_book_and_has_its_checksum() -> None:
    before, delta, after = (
        json.loads(text, parse_float=str, parse_int=str) for text in books.delta()
    )
    kept = {side: dict(before[side]) for side in ("bids", "asks")}
    gone = 0
    for side, levels in kept.items():
        for price, amount in delta[side]:
            levels[price] = amount
            if amount == "0":
                del levels[price]
                gone += 1
    assert gone == 1
    assert kept == {side: dict(after[side]) for side in kept}
    given: dict = {}
    exec(books.CHECKSUM_CODE, given)
    text, number = books.checksum().splitlines()
    assert given["checksum"](kept["bids"], kept["asks"]) == int(number) == int(delta["checksum"])
    assert crc32(text.encode()) == int(number)


@pytest.mark.parametrize("core", EACH)
def test_the_worked_example_of_asyncapi_is_the_core_s_checksum(core) -> None:
    book = book_of(core, replies.CHECKSUM_BIDS, replies.CHECKSUM_ASKS)
    view = core.View(["okx"], depth=20)
    view.merge([book])
    assert f"`{replies.CHECKSUM_TEXT}` and {view.checksum()}." in replies.CHECKSUM_RULE


def test_the_page_has_the_forms_the_deltas_and_the_checksum() -> None:
    given = site()
    page = render(given.openapi(), given.asyncapi(), exchanges=[], limits=[])
    part = page[page.index('<section id="books">') :]
    assert "an amount of 0 removes the level" in " ".join(part.split())
    assert books.checksum().splitlines()[1] in part


async def test_the_page_names_the_address_that_it_is_served_at() -> None:
    app = FastAPI(openapi_url=None)
    app.include_router(pages(site()))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://feed.example") as client:
        page = (await client.get("/docs")).text
        other = await client.get("/docs", headers={"Host": "other.example:8443"})
    assert "curl -s https://feed.example/api/v1/authenticate" in page
    assert "wss://feed.example/api/v1/ws" in page
    assert "wss://other.example:8443/api/v1/ws" in other.text
    assert not re.search(r"localhost|127\.0\.0\.1:8000|onebook\.invalid", page)

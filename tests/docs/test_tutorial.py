"""The tutorial, step by step as written, against the demo on a free port."""

import asyncio
import json
import re
import sys

import httpx
import pytest

from docs.examples import ROOT, addressed, blocks, environment, finished, kinds, printed
from e2e.test_process import process, read_until
from library.test_examples import Run
from onebook import exchanges
from onebook.simulator import SimulatedExchanges
from web.browser import CHROMIUM

PAGE = "tutorial.md"


def block(language, kind):
    (text,) = blocks(PAGE, language, kind)
    return text


def test_every_block_is_run_here():
    assert kinds(PAGE) == {
        ("sh", "start"), ("text", "demo"), ("sh", "setup"), ("sh", "watch"), ("sh", "program"),
        ("sh", "usage"), ("python", "client"), ("python", "socket"), ("python", "library"),
    }  # fmt: skip


def test_make_demo_starts_what_the_next_test_runs():
    assert block("sh", "start") == "make demo\n"
    target = (ROOT / "Makefile").read_text().partition("\ndemo: ")[2]
    assert target.splitlines()[1] == "\t$(BIN)/onebook demo"


async def test_each_step_against_the_demo(tmp_path, chromium):
    async with process("demo", "--port", "0", COLUMNS="200") as demo:
        said = ""
        for line in block("text", "demo").splitlines():
            label = re.match(r"  (\D+?)   ?", line)[1].strip()
            found = await read_until(demo.stdout, rf"{label} +(\S+)")
            said += found.group(0) + "\n"
        page = re.search(r"the live page +((http://127\.0\.0\.1:\d+)/#key=(ob_live_\w+))", said)
        link, url, key = page.groups()
        assert re.search(rf"the docs +{url}/docs\n", said)
        assert re.search(rf"a premium key +{key}\n", said)
        given = environment(url, key)

        async with httpx.AsyncClient(base_url=url) as http:
            served = (await http.get("/docs/tutorial")).text
        assert f"export ONEBOOK_URL={url}\n" in served, "the examples name this node"
        await the_page_shows_a_book(link, chromium)
        status, out, errors = await finished(
            "bash", "-ec", addressed(block("sh", "watch"), url, key), **given
        )
        assert (status, errors) == (0, "")
        assert out.count("spread") == 3
        (tmp_path / "book.py").write_text(block("python", "client"))
        program = f"exec {block('sh', 'program')}"
        shown = await printed("bash", "-ec", program, pattern=r"\|", cwd=tmp_path,
                              PYTHONUNBUFFERED="1", **given)  # fmt: skip
        assert re.search(r"^[0-9.]+ \('\w+'.*\) \| [0-9.]+ \('\w+'", shown, re.MULTILINE), shown
        shown = await printed(sys.executable, "-u", "-c", block("python", "socket"),
                              pattern="best_bid", **given)  # fmt: skip
        assert shown.startswith("1 {")
        status, out, errors = await finished(
            "bash", "-ec", addressed(block("sh", "usage"), url, key), **given
        )
        assert json.loads(out)["data_usage"]["bytes_limit"] == 50 * 2**30, errors


async def the_page_shows_a_book(link, chromium):
    if CHROMIUM is None:
        return
    async with chromium.page() as page:
        await page.open(link)
        await page.until("/\\d/.test(document.querySelector('.best-bid')?.textContent ?? '')")


def test_the_setup_is_what_the_steps_are_run_with():
    lines = block("sh", "setup").splitlines()
    assert lines[0] == ". .venv/bin/activate"
    assert {line.split("=")[0].removeprefix("export ") for line in lines[1:]} <= set(
        environment("", "")
    )


async def test_the_library_step(monkeypatch: pytest.MonkeyPatch):
    run = Run(block("python", "library"))
    names = re.search(r'exchanges=\["(\w+)", "(\w+)"\]', run.source).groups()
    async with SimulatedExchanges(list(names), seed=2, rate_hz=20) as sim:
        for name, exchange in sim.exchanges().items():
            monkeypatch.setitem(exchanges.EXCHANGES, name, exchange)
            sim[name].admit_all()
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "run", run.start)
            run.load()
        await run.ended()
    assert re.match(r"BookLevel\(price=Decimal\(.*not live: \(\)$", run.lines[-1]), run.lines

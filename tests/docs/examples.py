"""The examples of a page in `docs/`: fenced blocks, by the word after their language."""

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

from preloaded import early
from steady import PATIENCE_S

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:8000"  # of a service, as the pages write it
KEY = "ob_live_..."


def blocks(page, language, kind):
    """The text of each block of this kind."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language} {kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no block {language} {kind}"
    return found


def kinds(page):
    """All (language, kind) pairs of a page: each must be run by a test."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return set(re.findall(r"^```(\w+) (\w+)$", text, re.MULTILINE))


def addressed(text, url, key):
    """A block as a reader would type it, with the address and key of the running service."""
    return text.replace(ADDRESS, url.rpartition("/")[2]).replace(KEY, key)


def environment(url, key):
    """The environment variables that the tutorial exports, with this environment's programs."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "ONEBOOK_URL": url, "ONEBOOK_KEY": key, "HOME": os.environ["HOME"]}


async def finished(*words, cwd=None, **variables):
    """Run a program to its end; return its status, output and errors."""
    running = await _start(words, cwd, variables)
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, errors = await running.communicate()
    finally:
        await _end(running)
    return running.returncode, out.decode(), errors.decode()


async def typed(block, cwd=None, **variables):
    """Run each line of a block, which exports variables and runs `onebook`; yield what each gave.

    Without a shell, the commands start without their imports (`preloaded`).
    """
    variables = early(os.environ) | variables
    for line in block.splitlines():
        command, *words = shlex.split(line)
        if command == "export":
            variables.update(word.split("=", 1) for word in words)
            continue
        assert command == "onebook", line
        yield await finished(sys.executable, "-m", "onebook", *words, cwd=cwd, **variables)


async def printed(*words, pattern, cwd=None, **variables):
    """Run a program until its output matches the pattern, then end it."""
    running = await _start(words, cwd, variables)
    text = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not re.search(pattern, text):
                line = (await running.stdout.readline()).decode()
                assert line, f"{text}{(await running.stderr.read()).decode()}"
                text += line
    finally:
        await _end(running)
    return text


async def _start(words, cwd, variables):
    return await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=variables, limit=1 << 24,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _end(running):
    if running.returncode is None:
        running.kill()
        await running.wait()


INCLUDED = re.compile(
    r"(^<!-- example: ([\w./]+) -->\n```(?:python|jsx)[\w ]*\n)(.*?)(^```$)", re.S | re.M
)
TYPES = re.compile(r"(^<!-- types: (\w+) -->\n)((?:^\|.*\n)*)", re.M)
DECLARATIONS = ROOT / "clients/js/onebook.d.ts"


def pages():
    """The files in which programs of `examples/` may be shown."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_programs(text):
    """A page with the current programs of `examples/` and types of the JavaScript client."""
    shown = INCLUDED.sub(
        lambda found: f"{found[1]}{(ROOT / 'examples' / found[2]).read_text()}{found[4]}", text
    )
    return TYPES.sub(lambda found: f"{found[1]}{table_of(found[2])}", shown)


def table_of(name):
    """The members of a type of the JavaScript client as a table."""
    text = DECLARATIONS.read_text(encoding="utf-8")
    found = re.search(
        rf"^export (?:interface|class) {name}\b[^{{]*{{\n(.*?)^}}$", text, re.S | re.M
    )
    assert found, f"{DECLARATIONS.name} has no {name}"
    rows = [f"| `{name}` | Type | Meaning |", "|---|---|---|"]
    for meaning, member, kind in members(found[1]):
        kind = kind.replace("|", "\\|")
        rows.append(f"| `{member}` | `{kind}` | {meaning} |")
    return "\n".join(rows) + "\n"


MEMBER = re.compile(r"(?:readonly )?(\w+\??)(?:: (.+)|(\(.*))", re.S)


def members(body):
    """Documentation, name and type of each member of a type."""
    meaning, declaration, depth = "", "", 0
    for line in body.splitlines():
        text = line.strip()
        if not declaration and (found := re.fullmatch(r"/\*\* (.*) \*/", text)):
            meaning = found[1].replace("|", "\\|")
            continue
        declaration += f" {text}" if declaration else text
        depth += sum(map(text.count, "{(<")) - sum(map(text.count, "})>")) + text.count("=>")
        if depth or not text.endswith(";"):
            continue
        found = MEMBER.fullmatch(declaration.rstrip(";"))
        assert found, declaration
        yield meaning, found[1], (found[2] or found[3]).removeprefix("| ")
        meaning, declaration = "", ""

"""Reference pages that are written from the code: settings, commands, errors, messages."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from onebook import config, gateway
from onebook.api import WebSocketFacts
from onebook.api.documents import advice, asyncapi_document
from onebook.cli import commands
from onebook.cli.config import toml
from onebook.config.settings import data_dir
from onebook.errors import ConfigError, OnebookError
from onebook.gateway.codes import ACTION_ERRORS
from onebook.gateway.messages import ACTIONS
from onebook.gateway.upgrade import PATH
from onebook.model import Reason
from onebook.web.schema import Schemas

NOTE = "<!-- Written by `make reference` from {source}: change that. -->"
DATA_DIR = "~/.local/share/onebook"  # of a reader; the folder of this machine is not written
PRECEDENCE = """\
Flags win over the environment, the environment over the file `onebook.toml`, the file over the
defaults. The environment variable of a setting is `ONEBOOK_` and its name, with `__` for each dot:
`server.port` is `ONEBOOK_SERVER__PORT`. `onebook config default` prints a whole file,
`onebook config check` reports all errors."""
ACTIONS_GUIDE = "[over the WebSocket](../guides/coming-from.md#transactions)"


def code_pages() -> dict[str, str]:
    """Every page by the name of its file."""
    return {
        "settings.md": settings(),
        "commands.md": command_line(),
        "errors.md": errors(),
        "close-codes.md": close_codes(),
        "messages.md": messages(),
    }


def page(title: str, source: str, *parts: str) -> str:
    """Join a page from its parts."""
    return "\n\n".join((NOTE.format(source=source), f"# {title}", *parts)) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; a pipe within a cell is escaped."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    rule = "|---" * len(head) + "|"
    return "\n".join((f"| {' | '.join(head)} |", rule, *(f"| {line} |" for line in lines)))


# Settings


def settings() -> str:
    """Write the page of settings: a table for each table of the settings file."""
    tables: dict[str, list[config.Setting]] = {}
    for each in config.catalogue():
        tables.setdefault(each.name.rpartition(".")[0], []).append(each)
    parts = [
        part
        for name, found in tables.items()
        for part in (
            f"## {name}",
            table(("Setting", "Default", "Bounds", "Meaning"), map(setting, found)),
        )
    ]
    return page(
        "Settings",
        "`onebook.config`",
        "Every setting of a node, by table of the settings file: default, bounds, meaning.",
        PRECEDENCE,
        *parts,
    )


def setting(each: config.Setting) -> tuple[str, str, str, str]:
    """One row."""
    least, most = each.least, each.most
    bounds = "" if least is None else f"{least} to {most}"
    default = "" if each.default is None else f"`{local(toml(each.default))}`"
    return f"`{each.name}`", default, bounds, each.meaning


def local(text: str) -> str:
    """A default without the folder of this machine."""
    return text.replace(str(data_dir()), DATA_DIR)


# Commands


def command_line() -> str:
    """Write the page of commands."""
    parts = [
        part
        for name, place in commands.COMMANDS.items()
        for part in (
            f"## onebook {name}",
            place.summary,
            *_commands(commands.loaded(name), (name,)),
        )
    ]
    return page(
        "Commands",
        "`onebook.cli`",
        "Every command of `onebook` with its arguments and an example.",
        "`--help` prints the same. Exit status 0: success; 2: wrong usage; other statuses are in"
        " the text of their command.",
        *parts,
    )


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every runnable command, with its full name."""
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    for named, each in leaves(command, words):
        text, _, example = each.help.partition("Example: ")
        _, _, rest = text.strip().partition("\n")
        if named != words:
            yield f"### onebook {' '.join(named)}"
            rest = text.strip()
        if rest.strip():
            yield rest.strip()
        yield f"    {' '.join(example.split())}"
        if each.params:
            yield table(("Argument", "Default", "Meaning"), map(parameter, each.params))


def parameter(each: Any) -> tuple[str, str, str]:
    """An argument or option of a command as a row."""
    option = each.param_type_name == "option"
    names = [*each.opts, *each.secondary_opts] if option else [each.name.upper()]
    variable = f" Variable `{each.envvar}`." if each.envvar else ""
    return ", ".join(f"`{name}`" for name in names), default_of(each), each.help + variable


def default_of(each: Any) -> str:
    """The default of an argument."""
    if each.required:
        return "required"
    if isinstance(each.show_default, str):
        return each.show_default
    if each.default in (None, "", False, (), []) or callable(each.default):
        return ""
    return f"`{local(str(getattr(each.default, 'value', each.default)))}`"


# Errors and close codes


def kinds() -> list[type[OnebookError]]:
    """The errors of the service that a client may see, by status."""
    found = [each for each in OnebookError.__subclasses__() if each is not ConfigError]
    ours = [each for each in found if each.__module__ == OnebookError.__module__]
    return sorted(ours, key=lambda each: (each.status, each.code))


def errors() -> str:
    """Write the page of errors: REST, WebSocket, actions, and reasons of a book."""
    rest = [(f"`{each.code}`", str(each.status), summary(each)) for each in kinds()]
    socket = [
        (f"`{code}`", ", ".join(f"`{each}`" for each in types), when)
        for code, (types, when) in gateway.ERRORS.items()
    ]
    actions = [(f"`{code}`", str(number), when) for code, (number, when) in ACTION_ERRORS.items()]
    return page(
        "Errors",
        "`onebook/errors.py`, `onebook/gateway/codes.py` and `onebook/model`",
        "Every error code of REST and of the WebSocket, and every reason why an exchange is left"
        " out of a book.",
        "Codes are for programs and stay; messages are for people and may change.",
        "## REST",
        "Every error body has `error`, `message` and `timestamp`; some have more. With 429 comes"
        " `Retry-After`.",
        table(("Code", "Status", "When"), rest),
        "## WebSocket",
        "An error carries the `id` of the message that it answers. Where a close follows, see"
        " [the close codes](close-codes.md).",
        table(("Code", "Message type", "When"), socket),
        "## Actions",
        f"Messages of the transaction interface {ACTIONS_GUIDE} have a number too; errors of"
        " `POST /api/v1/transactions` come without one.",
        table(("Code", "Number", "When"), actions),
        "## Reasons of a book",
        "Why an exchange is left out: `reason` of `exchange_status`, of the library's"
        " `update.exchanges`, and a label of metrics.",
        table(("Reason", "Meaning"), ((f"`{each.value}`", each.meaning) for each in Reason)),
    )


def summary(kind: type) -> str:
    """The first line of a docstring."""
    return (kind.__doc__ or "").strip().partition("\n")[0]


def close_codes() -> str:
    """Write the page of close codes."""
    rows = [(f"`{code}`", why, advice(code)) for code, why in gateway.CLOSE_CODES.items()]
    return page(
        "Close codes of the WebSocket",
        "`onebook/gateway/codes.py`",
        "Why the service ends a WebSocket connection, and what a client should do.",
        "40xx: do not return unchanged. 41xx: back off, with jitter. 42xx: return at the time given"
        " in\n`server_shutdown`. The clients of this package keep to it.",
        table(("Code", "Why", "What to do"), rows),
        "Before the upgrade, a full node returns HTTP 503, and 429 after too many attempts of one "
        "address, both with\n`Retry-After`.",
    )


# Messages


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI document, without an address."""
    facts = WebSocketFacts(
        gateway.MESSAGES, gateway.ERRORS, gateway.ACTION_ERRORS, gateway.CLOSE_CODES
    )
    url = f"wss://onebook.example{PATH}"
    return asyncapi_document(facts, version="", websocket_url=url, query_key=True)


def messages() -> str:
    """Write the page of messages."""
    document = asyncapi()
    client = [name for name, each in document["operations"].items() if each["action"] == "receive"]
    server = [name for name in document["components"]["messages"] if name not in client]
    return page(
        "Messages of the WebSocket",
        "the AsyncAPI document",
        "Every message of `/api/v1/ws` with its fields, an example and its replies.",
        document["info"]["description"].strip(),
        "`/asyncapi.json` of a node is the same for programs.",
        "## From the client",
        *(part for name in client for part in message(document, name)),
        "## From the server",
        *(part for name in server for part in message(document, name)),
        "## Actions",
        f"Transactions {ACTIONS_GUIDE} are asked for with `action` instead of `type`.",
        table(
            ("Action", "Meaning"), ((f"`{name}`", summary(body)) for name, body in ACTIONS.items())
        ),
    )


def message(document: dict[str, Any], name: str) -> Iterator[str]:
    """One message: its fields, an example, its replies."""
    described = document["components"]["messages"][name]
    operation = document["operations"].get(name, {})
    schemas = Schemas(document)
    kind, _, variant = name.partition(".")
    yield f"### {kind}" + (f" ({variant})" if variant else "")
    yield described["summary"]
    if described.get("description"):
        yield described["description"]
    rows = [
        (f"`{each.name}`", each.kind, "yes" if each.required else "", each.meaning)
        for each in schemas.fields(described["payload"])
    ]
    yield table(("Field", "Type", "Required", "Meaning"), rows)
    whole = operation.get("action") == "receive"
    example = schemas.example(described["payload"], whole=whole)
    yield f"```json\n{json.dumps(example, indent=2, ensure_ascii=False)}\n```"
    if "reply" in operation:
        found = [each["$ref"].rpartition("/")[2] for each in operation["reply"]["messages"]]
        replies = dict.fromkeys(each.partition(".")[0] for each in found)
        yield "Answered by: " + ", ".join(f"`{each}`" for each in replies) + "."


# The index


def index(folder: Path) -> str:
    """Write the index of the reference: each page with its first sentence."""
    files = sorted(each for each in folder.glob("*.md") if each.name != "README.md")
    files += [folder / "exchanges/README.md"]
    rows = []
    for each in files:
        title, about = opening(each.read_text(encoding="utf-8"))
        rows.append((f"[{title}]({each.relative_to(folder).as_posix()})", about))
    return page(
        "Reference",
        "the pages of this folder",
        "What is here is written from the code or held to it by tests. A running node answers"
        " `/docs`, `/openapi.json` and\n`/asyncapi.json`.",
        table(("Page", "About"), rows),
    )


def opening(text: str) -> tuple[str, str]:
    """The title of a page and its first sentence."""
    blocks = [each for each in text.split("\n\n") if not each.startswith("<!--")]
    title = blocks[0].strip().removeprefix("# ")
    prose = (each for each in blocks[1:] if each[0].isalpha() or each[0] == "`")
    paragraph = next((each for each in prose if not each.startswith("Written by")), "")
    sentence, _, _ = " ".join(paragraph.split()).partition(". ")
    return title, sentence.rstrip(".:") + "."

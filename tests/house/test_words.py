"""The package and its documents are written in the field's words.

Only words that have no proper use here are in the table; what other words mean in their place, a
test cannot see.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".js", ".css", ".html", ".toml", ".md"}
FOLDERS = ("src/onebook", "docs", "clients", "deploy", "bench")
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
NOT_OURS = {"vendor", "node_modules", "results"}

BETTER = {
    r"nobody|somebody|anybody|everybody|everyone": "the client, subscriber, task or user meant",
    r"whoever|whom": "the client, caller or process meant",
    r"in doubt|distrust(ed|s)?": "invalid, stale, invalidate",
    r"signs? of life": "heartbeat, ping",
    r"carr(y|ies|ied|ying) out": "execute",
    r"hand(ed|s|ing)? on": "pass on, forward, emit",
    r"sen[dt]s? away|sending away": "disconnect, close",
    r"owed|owes": "pending, unanswered",
    r"audience": "subscribers",
    r"shared reads?": "request coalescing",
    r"beats?": "heartbeat, interval",
    r"ask(s|ed|ing)? for patience": "answer 429, send Retry-After",
    r"thinking": "state machine, decisions",
}
FOUND = re.compile("|".join(f"(?P<w{at}>\\b({each})\\b)" for at, each in enumerate(BETTER)), re.I)


def ours() -> Iterator[Path]:
    """Every text of the package, its documents, deployment files and benchmarks."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and not NOT_OURS & set(path.parts):
                yield path
    yield from (ROOT / name for name in DOCUMENTS)


def wrong(text: str) -> list[tuple[int, str, str]]:
    """Line, word and replacement of each word that is not the field's."""
    found = []
    for line, content in enumerate(text.splitlines(), 1):
        for match in FOUND.finditer(content):
            better = next(b for at, b in enumerate(BETTER.values()) if match[f"w{at}"])
            found.append((line, match[0], better))
    return found


def test_the_field_s_words_are_used() -> None:
    paths = list(ours())
    assert len(paths) > 500
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}, better: {better}"
        for path in paths
        for line, word, better in wrong(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Wake nobody: the player polls.", ["nobody"]),
        ("x\nEffects are carried out; whoever asks", ["carried out", "whoever"]),
        ("Levels IN DOUBT", ["IN DOUBT"]),
        ("The carrier is outside, without a doubt; a follower owns it.", []),
    ],
)
def test_a_word_is_found_as_a_whole_word_in_any_case(text: str, words: list[str]) -> None:
    assert [word for _, word, _ in wrong(text)] == words

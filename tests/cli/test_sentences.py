"""Messages of commands: wrapped between words on a terminal, otherwise one line."""

import pytest
import typer
from rich.console import Console

from onebook.cli import common

SENTENCE = (
    "  own transfers. The exchange does not show the other side of a transfer between its "
    "accounts, and /var/lib/onebook/exports/a-rather-long-name-of-a-file-that-has-no-spaces.csv."
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_breaks_no_word(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "console", Console(force_terminal=True, width=width))
    common.print_sentence(SENTENCE)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert " ".join(lines).split() == SENTENCE.split()
    assert all(line[:3].count(" ") == 2 for line in lines)  # indented alike
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


def test_elsewhere_a_sentence_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_sentence(SENTENCE)
    assert capsys.readouterr().out == f"{SENTENCE}\n"


def test_an_error_is_wrapped_like_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(
        stderr=True, force_terminal=True, width=40, highlight=False, color_system=None
    )
    monkeypatch.setattr(common, "errors", terminal)
    with pytest.raises(typer.Exit):
        common.fail("The exchange does not know this key; see `onebook credentials list`.")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rstrip() for line in lines] == [
        "error: The exchange does not know this",
        "key; see `onebook credentials list`.",
    ]

"""Runs a command with the variables of a file, parsed like systemd's `EnvironmentFile=`.

    python -m onebook.cli.environment /etc/onebook/environment onebook keys list

The systemd unit and the commands share one file of secrets and must parse it alike:
https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onebook.errors import file_problem
from onebook.files import read_bounded

EXIT_BAD_INPUT: Final = 2
COMMENTS: Final = ("#", ";")
QUOTES: Final = ("'", '"')
BLANKS: Final = " \t"
ENDS: Final = "\n\r"  # end of a line
ESCAPED: Final = '"\\`$'  # characters that a backslash escapes in double quotes
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def variables(text: str) -> dict[str, str]:
    """Parse an environment file as systemd does.

    Comments, lines without `=` and invalid names (`export A`) are skipped. A value may be quoted,
    also over several lines. In an unquoted value surrounding blanks are stripped, a backslash
    escapes the next character, and a backslash at the end of a line joins the next line.
    """
    found = {}
    characters = iter(text)
    for first in characters:
        if first in BLANKS + ENDS:
            continue
        if first in COMMENTS:
            _line(characters)
            continue
        name, has_value = _name(first, characters)
        if has_value:
            value = _value(characters)
            if _NAME.fullmatch(name):
                found[name] = value
    return found


def _line(characters: Iterator[str]) -> None:
    """Skip the rest of a line."""
    for each in characters:
        if each in ENDS:
            return


def _name(first: str, characters: Iterator[str]) -> tuple[str, bool]:
    """Read a name up to the `=`; the flag is False if the line has none."""
    name = ""
    each: str | None = first
    while each is not None and each != "=" and each not in ENDS:
        name += each
        each = next(characters, None)
    return name.strip(BLANKS), each == "="


def _value(characters: Iterator[str]) -> str:
    """Read a value, up to the end of its line."""
    value: list[str] = []
    blanks: list[str] = []
    plain = False
    for each in characters:
        if each in ENDS:
            break
        if each in BLANKS:  # kept only inside the value, unless quoted
            if plain:
                blanks.append(each)
        elif each in QUOTES and not plain:
            value.append(_quoted(each, characters))
        else:
            plain = True
            value += [*blanks, _unquoted(each, characters)]
            blanks.clear()
    return "".join(value)


def _unquoted(each: str, characters: Iterator[str]) -> str:
    """One unquoted character, or the one escaped by a backslash."""
    if each != "\\":
        return each
    quoted = next(characters, "")
    return "" if quoted in ENDS else quoted


def _quoted(quote: str, characters: Iterator[str]) -> str:
    """Read up to the closing quote."""
    value = ""
    for each in characters:
        if each == quote:
            break
        if each == "\\" and quote == '"':
            quoted = next(characters, "")
            if quoted in ENDS:
                continue
            each = quoted if quoted in ESCAPED else each + quoted
        value += each
    return value


def main(arguments: list[str]) -> None:
    """Run a command with the variables of a file, if it exists."""
    file, *command = arguments
    try:
        text = read_bounded(Path(file)).decode() if Path(file).exists() else ""
    except OSError as error:
        print(f"error: {file_problem(error)}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except UnicodeDecodeError:
        print(f"error: {file} is not UTF-8.", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    os.execvpe(command[0], command, os.environ | variables(text))  # noqa: S606 - the caller's


if __name__ == "__main__":
    main(sys.argv[1:])

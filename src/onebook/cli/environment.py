"""Runs a command with the variables of a file, read as systemd reads `EnvironmentFile=`.

    python -m onebook.cli.environment /etc/onebook/environment onebook keys list

One file of secrets serves the unit and the commands, so both must read the same from it:
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
ENDS: Final = "\n\r"  # of a line
ESCAPED: Final = '"\\`$'  # what a backslash quotes between double quotes; before others it stays
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def variables(text: str) -> dict[str, str]:
    """The variables that systemd takes from the text of an environment file.

    Lines without `=`, comments and names that are none (`export A`) are passed over. A value may
    stand in quotes, over several lines too; without them blanks around it are cut, a backslash
    quotes the next character, and one at the end of a line joins the next.
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
    """Read up to the `=`; whether there is one on this line."""
    name = ""
    each: str | None = first
    while each is not None and each != "=" and each not in ENDS:
        name += each
        each = next(characters, None)
    return name.strip(BLANKS), each == "="


def _value(characters: Iterator[str]) -> str:
    """Read a value, up to the end of its line."""
    value, blanks, plain = "", "", False
    for each in characters:
        if each in ENDS:
            break
        if each in BLANKS:  # inside the value only, unless in quotes
            blanks += each if plain else ""
        elif each in QUOTES and not plain:
            value += _quoted(each, characters)
        else:
            plain = True
            value, blanks = value + blanks + _unquoted(each, characters), ""
    return value


def _unquoted(each: str, characters: Iterator[str]) -> str:
    """One character outside quotes, or the one that its backslash quotes."""
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
    """Run a command with the variables of a file, which need not be there."""
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

"""Commands parse the file of secrets exactly as systemd does."""

import subprocess
import sys
from pathlib import Path

import pytest

from onebook.cli.environment import variables

# systemd's own reader of such files. This generator drops empty values, expands `$` and prints the
# end of a line as an escape: no such text is compared.
GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
FILES = {
    "A=1\n": {"A": "1"},
    "A=1": {"A": "1"},
    "A=postgresql://u:a;c&d@h/n?x=y # z  \r\nB=2": {
        "A": "postgresql://u:a;c&d@h/n?x=y # z",
        "B": "2",
    },
    "# A=1\n ; B=2\n\n  C = 3\nD =4": {"C": "3", "D": "4"},
    "A=\"one two \" \nB='it\"s'\nC=it's\n": {"A": "one two ", "B": 'it"s', "C": "it's"},
    'A="a" \'b\' c "d"\n': {"A": 'abc "d"'},
    "A='one\ntwo'\nB=\"one\\\ntwo\"\nC=one\\\ntwo\n": {
        "A": "one\ntwo",
        "B": "onetwo",
        "C": "onetwo",
    },
    'A="a\\"b\\\\c\\nd"\nB=a\\"b\\\\c\\nd\\ \nC=\'a\\b\'\n': {
        "A": 'a"b\\c\\nd',
        "B": 'a"b\\cnd ',
        "C": "a\\b",
    },
    "export A=1\n1B=2\nC\n=3\nA-B=4\nD=\nE=''\n": {"D": "", "E": ""},
    "A=1\nA=2\nB='open\n": {"A": "2", "B": "open\n"},
    "": {},
}


@pytest.mark.parametrize(("text", "found"), FILES.items(), ids=range(len(FILES)))
def test_values_are_those_that_systemd_documents(text, found):
    assert variables(text) == found


@pytest.mark.skipif(not GENERATOR.exists(), reason="systemd is not installed")
@pytest.mark.parametrize(
    "text", [each for each in FILES if "\n" not in "".join(variables(each).values())]
)
def test_systemd_reads_the_same(tmp_path, text):
    folder = tmp_path / "environment.d"
    folder.mkdir()
    (folder / "1.conf").write_text(text, newline="")
    printed = subprocess.run(
        [GENERATOR], env={"XDG_CONFIG_HOME": str(tmp_path)}, capture_output=True, check=True
    ).stdout
    shell = f"{printed.decode()}\nexec env -0"
    found = subprocess.run(
        ["bash", "-ac", shell], env={}, capture_output=True, check=True, text=True
    ).stdout
    read = dict(each.split("=", 1) for each in found.split("\0") if each)
    found = {name: value for name, value in variables(text).items() if value}
    assert {name: value for name, value in read.items() if name in "ABCDE"} == found


def test_a_command_runs_with_the_variables_of_the_file(tmp_path):
    words = [sys.executable, "-I", "-m", "onebook.cli.environment"]
    file = tmp_path / "environment"
    read = [*words, str(file), "printenv", "A", "B"]
    kept = {"B": "kept"}
    assert subprocess.run(read, env=kept, capture_output=True, check=False).stdout == b"kept\n"
    file.write_text("A='x y'\n")
    assert subprocess.run(read, env=kept, capture_output=True, check=True).stdout == b"x y\nkept\n"
    file.write_bytes(b"A=\xff\n")
    refused = subprocess.run(read, env=kept, capture_output=True, check=False, text=True)
    assert (refused.returncode, refused.stderr) == (2, f"error: {file} is not UTF-8.\n")
    file.unlink()
    file.mkdir()
    refused = subprocess.run(read, env=kept, capture_output=True, check=False, text=True)
    assert refused.returncode == 2
    assert refused.stderr == f"error: Cannot use {file}: Is a directory.\n"

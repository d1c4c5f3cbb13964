"""Invalid option values: refused in one clear sentence, for every kind of value."""

import pytest
from typer.testing import CliRunner

from onebook.cli.commands import app


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["keys", "create", "alice", "--tier", "gold"],
            "'--tier': 'gold' is not one of 'basic', 'premium', 'developer', 'enterprise'.",
        ),
        (["billing", "--format", "xml"], "'--format': 'xml' is not one of 'table', 'csv', 'json'."),
        (["serve", "--port", "abc"], "'--port': 'abc' must be a whole number."),
        (["audit", "--limit", "0"], "'--limit': '0' must be at least 1."),
        (["backup", "folder", "--timeout", "soon"], "'--timeout': 'soon' must be a number."),
        (["demo", "--rate", "2000"], "'--rate': '2000' must be at most 1000.0."),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_in_our_words(
    words: list[str], sentence: str
) -> None:
    found = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    assert found.exit_code == 2
    assert f"Invalid value for {sentence}" in found.stderr
    assert "Value error" not in found.stderr
    assert "Input should" not in found.stderr

"""`onebook config`: its output is usable, and bad files get one clear line."""

import os
import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from onebook import config
from onebook.cli.commands import app
from onebook.cli.config import toml


def run(*words):
    return CliRunner().invoke(app, ["config", *words], env={"COLUMNS": "400"})


def test_the_default_file_is_valid_and_holds_every_setting(tmp_path):
    text = run("default").output
    file = tmp_path / "onebook.toml"
    file.write_text(text)
    assert config.load(file).model_dump() == config.load().model_dump()
    for setting in config.catalogue():
        assert setting.name.rpartition(".")[2] in text
        assert f"# {setting.meaning}" in text


def test_the_default_file_of_one_account_serves_another(tmp_path, monkeypatch):
    """root creates the file, but the service runs as another account."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "root"))
    file = tmp_path / "onebook.toml"
    file.write_text(run("default").output)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "service"))
    found = config.load(file)
    assert found.model_dump() == config.load().model_dump()
    assert str(found.store.pepper_file) == f"{tmp_path}/service/onebook/pepper"


def test_a_good_file_is_said_to_be_good(tmp_path):
    file = tmp_path / "onebook.toml"
    file.write_text("[server]\nport = 9000\n")
    answer = run("check", str(file))
    assert (answer.exit_code, answer.output) == (0, f"{file}: no errors found.\n")
    assert run("check", "--config", str(file)).output == answer.output


def test_a_bad_file_is_one_clear_line_and_status_2(tmp_path):
    file = tmp_path / "onebook.toml"
    file.write_text("[gateway]\nsubscriptions = 9\n")
    answer = run("check", str(file))
    assert answer.exit_code == 2
    assert answer.output.startswith(
        f"error: {file}: Unknown setting gateway.subscriptions. "
        "Did you mean gateway.subscriptions_max?"
    )


def test_a_file_that_cannot_be_looked_up_is_a_fault_beside_others(tmp_path, monkeypatch):
    file = tmp_path / "onebook.toml"
    file.write_text("[server]\nport = 99999\n")
    name = "x" * 300
    monkeypatch.setenv("ONEBOOK_STORE__PEPPER_FILE", f"{tmp_path}/{name}")
    monkeypatch.setenv("ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE", f"{tmp_path}/{name}")
    answer = run("check", str(file))
    assert answer.exit_code == 2
    assert answer.output.count("File name too long") == 2
    assert "server.port" in answer.output


def test_doc_explains_every_setting_with_its_variable():
    text = run("doc").output
    for setting in config.catalogue():
        assert setting.name in text
    assert "ONEBOOK_SERVER__PORT" in text


@pytest.mark.parametrize(
    "value", [True, 1, 0.5, "a \"quoted\" \\ path", ["a", "b"], (), {"a": 1}]
)  # fmt: skip
def test_defaults_are_written_as_toml(value):
    plain = list(value) if isinstance(value, tuple) else value
    assert tomllib.loads(f"value = {toml(value)}")["value"] == plain


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_one_line(unbuffered):
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "onebook", "config", "default"]
        variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=variables
        )
    assert done.returncode == 2
    assert done.stderr == "error: Cannot write the output: No space left on device.\n"

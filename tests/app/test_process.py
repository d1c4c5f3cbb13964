"""Settings that a reload changes in place, and those that need a restart."""

from pathlib import Path

import pytest

from onebook import config
from onebook.app import process
from onebook.config import Settings

NAMES = [each.name for each in config.catalogue()]


def settings(**tables: object) -> Settings:
    return config.load(overrides=tables).model_copy(deep=True)


@pytest.mark.parametrize("pattern", [*process.LIVE, *process.FIXED, *process.TLS_FILES])
def test_every_pattern_names_a_setting(pattern: str) -> None:
    assert any(name == pattern or name.startswith(f"{pattern.rstrip('.')}.") for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_reload_changes_live_settings_and_reports_the_others(name: str) -> None:
    current, new = settings(), settings()
    section, other = current, new
    *path, leaf = name.split(".")
    for part in path:
        section, other = getattr(section, part), getattr(other, part)
    before, value = getattr(section, leaf), object()
    object.__setattr__(other, leaf, value)  # any other value
    changes = process.apply(current, new)
    if process.is_live(name):
        assert changes == ([name], [])
        assert getattr(section, leaf) is value
    else:
        assert changes == ([], [name])
        assert getattr(section, leaf) is before


def test_other_tls_files_are_taken_but_tls_itself_is_not_switched_on() -> None:
    plain, first, second = (
        settings(server=server)
        for server in (
            {},
            {"tls_cert_file": "a.pem", "tls_key_file": "a.key"},
            {"tls_cert_file": "b.pem", "tls_key_file": "b.key"},
        )
    )
    files = list(process.TLS_FILES)
    assert process.apply(plain, first) == ([], files)
    assert process.apply(first, second) == (files, [])
    assert first.server.tls_cert_file == Path("b.pem")


def test_the_settings_of_another_node_keep_their_values() -> None:
    one, other = settings(), settings()
    process.apply(one, settings(accounts={"allowance_bytes": 1}))
    assert one.accounts.allowance_bytes == 1
    assert other.accounts.allowance_bytes > 1
    assert Settings().accounts.allowance_bytes > 1

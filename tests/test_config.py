"""Settings: the order of their sources, and what is refused."""

import os

import pytest

from onebook import config
from onebook.errors import ConfigError
from onebook.files import TEXT_BYTES_MAX


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("ONEBOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_flags_win_over_environment_over_file_over_defaults(monkeypatch, nothing_set):
    assert config.load().server.port == 8000
    (nothing_set / "onebook.toml").write_text("[server]\nport = 1\nhost = '::1'\n")
    assert (config.load().server.port, config.load().server.host) == (1, "::1")
    monkeypatch.setenv("ONEBOOK_SERVER__PORT", "2")
    assert (config.load().server.port, config.load().server.host) == (2, "::1")
    assert config.load(overrides={"server": {"port": 3, "host": None}}).server.port == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[server]\nprot = 1", "Unknown setting server.prot. Did you mean server.port?"),
        ("[server]\nfoo = 1", "Unknown setting server.foo."),
        ("[severs]\nport = 1", "Unknown setting severs. Did you mean server?"),
        ("[server]\nport = 'x'", "x.toml: Setting server.port must be a whole number."),
        ("[server]\nport = 70000", "x.toml: Setting server.port must be at most 65535."),
        ("[sever]\nport = 1", "Unknown setting sever"),
        ("[accounts.tiers]\nbasic = 1", "x.toml: Setting accounts.tiers.basic must be a table."),
        (
            "[accounts.tiers.basic]\nconnections_max = 0",
            "x.toml: Setting accounts.tiers.basic.connections_max must be at least 1.",
        ),
        (
            "[accounts.tiers.basic]\nviews = 1",
            "Unknown setting accounts.tiers.basic.views.",
        ),
        ("not toml", "is not TOML"),
        ("a = " + "[" * 20_000, "x.toml is not TOML: it is nested too deeply."),
        ("a = " + "9" * 5_000, "x.toml is not TOML: "),
        ("#" * (TEXT_BYTES_MAX + 1), "Cannot read the settings file"),
    ],
)
def test_bad_settings_refuse_to_start_with_one_sentence(nothing_set, text, sentence):
    file = nothing_set / "x.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        config.load(file)
    assert sentence in refused.value.message


def test_one_limit_of_a_tier_leaves_its_others_at_their_defaults(monkeypatch, nothing_set):
    (nothing_set / "onebook.toml").write_text(
        "[accounts.tiers.enterprise]\nconnections_max = 7\nrequests_per_minute = 9\n"
    )
    monkeypatch.setenv("ONEBOOK_ACCOUNTS__TIERS__BASIC__CONNECTIONS_MAX", "8")
    tiers = config.load().accounts.tiers
    assert tiers.enterprise.model_dump() == {
        "requests_per_minute": 9,
        "connections_max": 7,
        "views_max": 10_000,
        "interval_ms_min": 0,
    }
    assert tiers.basic.model_dump() == {
        "requests_per_minute": 600,
        "connections_max": 8,
        "views_max": 500,
        "interval_ms_min": 0,
    }


def test_a_missing_file_is_named(nothing_set):
    with pytest.raises(ConfigError, match="not found"):
        config.load(nothing_set / "none.toml")


def test_an_unknown_variable_refuses_to_start(monkeypatch):
    monkeypatch.setenv("ONEBOOK_SEVER__PORT", "1")
    with pytest.raises(ConfigError, match="ONEBOOK_SEVER__PORT"):
        config.load()


def test_a_file_that_is_no_toml_hides_no_other_fault(monkeypatch, nothing_set):
    (nothing_set / "onebook.toml").write_text("not toml")
    monkeypatch.setenv("ONEBOOK_SEVER__PORT", "1")
    monkeypatch.setenv("ONEBOOK_SERVER__PORT", "x")
    settings, faults = config.examine()
    assert [each.partition(":")[0] for each in faults] == [
        "onebook.toml is not TOML",
        "Unknown setting in the variable ONEBOOK_SEVER__PORT.",
        "ONEBOOK_SERVER__PORT",
    ]
    assert settings.model_dump() == config.Settings.model_construct().model_dump()


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("ONEBOOK_FEEDS__EXCHANGES", "okx", "feeds.exchanges must be a list in square brackets"),
        ("ONEBOOK_FEEDS__OVERRIDES", "{okx}", "feeds.overrides must be a table"),
        ("ONEBOOK_SERVER", "port=1", "server must be a table"),
        ("ONEBOOK_ACCOUNTS__TIERS__BASIC", "[", "accounts.tiers.basic must be a table"),
    ],
)
def test_a_variable_that_is_no_json_is_named_beside_the_other_faults(
    monkeypatch, nothing_set, variable, text, sentence
):
    monkeypatch.setenv(variable, text)
    monkeypatch.setenv("ONEBOOK_LOG__LEVEL", "loud")
    _, faults = config.examine()
    assert f"{variable}: Setting {sentence}." in faults
    assert len(faults) == 2


def test_the_clients_variable_is_no_setting(monkeypatch):
    monkeypatch.setenv("ONEBOOK_KEY", "x")
    assert config.load().server.port == 8000


def test_every_setting_says_what_it_is_for():
    assert [each.name for each in config.catalogue() if not each.meaning] == []


def test_currency_codes_of_an_exchange_come_from_the_file_and_are_compared_in_capitals(tmp_path):
    file = tmp_path / "onebook.toml"
    file.write_text('[feeds.overrides.kraken]\ncurrencies = {luna = "lunc", "1INCH$" = "A.B"}\n')
    override = config.load(file).feeds.overrides["kraken"]
    assert override.currencies == {"LUNA": "LUNC", "1INCH$": "A.B"}


@pytest.mark.parametrize("code", ["", "A/B", "A B", "A" * 20, "<b>", "A\\n"])
def test_a_currency_code_that_could_not_be_part_of_a_symbol_is_refused(code, tmp_path):
    file = tmp_path / "onebook.toml"
    for row in (f'"{code}" = "B"', f'B = "{code}"'):
        file.write_text(f"[feeds.overrides.kraken]\ncurrencies = {{{row}}}\n")
        with pytest.raises(ConfigError, match=r"feeds\.overrides\.kraken\.currencies"):
            config.load(file)

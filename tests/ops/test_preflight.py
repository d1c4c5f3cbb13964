"""Errors that `config check` and the start report before opening anything."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from typer.testing import CliRunner

from e2e.test_tls import Authority
from onebook import config
from onebook.cli.commands import app
from onebook.ops import preflight

NOW = datetime.now(UTC)


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("ONEBOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return Authority(tmp_path, "known").vouch()


def faults(cert, key, now=NOW):
    server = config.ServerSettings(tls_cert_file=cert, tls_key_file=key)
    return preflight.tls_faults(server, now)


def test_a_good_certificate_is_no_fault(files):
    assert faults(*files) == []
    assert faults(None, None) == []


def test_every_tls_fault_has_its_own_sentence_that_names_setting_and_file(files, tmp_path):
    cert, key = files
    other = Authority(tmp_path, "other").vouch()[1]
    secret = tmp_path / "secret.pem"
    encrypted = BestAvailableEncryption(b"word")
    private = ec.generate_private_key(ec.SECP256R1())
    secret.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted))
    nothing, junk = tmp_path / "none.pem", tmp_path / "junk.pem"
    junk.write_text("junk")
    said = {
        f"server.tls_cert_file: {nothing} cannot be read: No such file or directory.":
            faults(nothing, key),
        f"server.tls_key_file: {nothing} cannot be read: No such file or directory.":
            faults(cert, nothing),
        f"server.tls_cert_file: {junk} contains no PEM certificate.": faults(junk, key),
        f"server.tls_key_file: {junk} contains no PEM private key.": faults(cert, junk),
        f"server.tls_key_file: {cert} contains no PEM private key.": faults(cert, None),
        f"server.tls_key_file: {other} is not the key of the certificate in {cert}.":
            faults(cert, other),
        f"server.tls_key_file: the key in {secret} is encrypted; remove its passphrase.":
            faults(cert, secret),
        "server.tls_key_file is set, but server.tls_cert_file is not.": faults(None, key),
    }  # fmt: skip
    for sentence, found in said.items():
        assert found == [sentence]
    [expired] = faults(cert, key, NOW + timedelta(days=1))
    assert f"the certificate in {cert} expired on" in expired
    [early] = faults(cert, key, NOW - timedelta(days=1))
    assert f"the certificate in {cert} is not valid before" in early


def test_check_names_all_faults_at_once_in_plain_words(files, tmp_path, monkeypatch):
    file = tmp_path / "onebook.toml"
    file.write_text(
        "[server]\nport = 'x'\ntls_cert_file = 'none.pem'\n"
        "[gateway]\nflood_per_s = 20\nconnects_per_minute = -1\norigins = 'https://a.example'\n"
        "forwarded_from = ['10.0.0.0/99']\n"
        "[feeds]\nexchanges = ['okx', 'mtgox']\n[feeds.overrides.btce]\nws_url = 'ws://x'\n"
        "[feeds.overrides.okx]\nchannel = 'faster'\n"
        "[transactions]\nmaster_key = 'secret-but-wrong'\n[sevrer]\n"
    )
    monkeypatch.setenv("ONEBOOK_ACCOUNTS__ALLOWANCE_BYTES", "0")
    monkeypatch.setenv("ONEBOOK_SEVER__PORT", "1")
    answer = CliRunner().invoke(app, ["config", "check", str(file)], env={"COLUMNS": "400"})
    assert answer.exit_code == 2
    known = "`onebook exchanges list` shows all."
    assert sorted(answer.output.removeprefix("error: ").splitlines()) == sorted([
        "Unknown setting in the variable ONEBOOK_SEVER__PORT.",
        f"{file}: Setting server.port must be a whole number.",
        "ONEBOOK_ACCOUNTS__ALLOWANCE_BYTES: Setting accounts.allowance_bytes must be at least 1.",
        f"{file}: Unknown setting gateway.flood_per_s.",
        f"{file}: Setting gateway.connects_per_minute must be at least 0.",
        f"{file}: Setting gateway.origins must be a list in square brackets.",
        f"{file}: Setting gateway.forwarded_from must hold addresses or networks such as "
        "10.0.0.0/8, and '10.0.0.0/99' is neither.",
        f"{file}: Setting transactions.master_key must hold keys of 32 bytes in base64.",
        f"{file}: Unknown setting sevrer. Did you mean server?",
        f"{file}: feeds.exchanges: unknown exchange 'mtgox'. {known}",
        f"{file}: feeds.overrides: unknown exchange 'btce'. {known}",
        f"{file}: feeds.overrides.okx.channel: unknown channel 'faster'; available: none but the "
        "default.",
        f"{file}: server.tls_cert_file: none.pem cannot be read: No such file or directory.",
    ])  # fmt: skip


@pytest.mark.parametrize("command", [["config", "check"], ["serve", "--config"]])
def test_faults_of_nats_and_workers_are_named_with_the_others(files, tmp_path, command):
    file = tmp_path / "onebook.toml"
    file.write_text(
        "[server]\nport = 'x'\nmetrics_port = 65535\n[node]\nworkers = 2\nrole = 'feeds'\n"
        "[nats]\ncredentials_file = 'none.creds'\ntls_ca_file = 'none.pem'\n"
    )
    answer = CliRunner().invoke(app, [*command, str(file)], env={"COLUMNS": "400"})
    assert answer.exit_code == 2
    gone = "cannot be read: No such file or directory."
    assert answer.output.removeprefix("error: ").splitlines() == [
        f"{file}: Setting server.port must be a whole number.",
        f"{file}: nats.credentials_file: none.creds {gone}",
        f"{file}: nats.tls_ca_file: none.pem {gone}",
        f"{file}: node.workers starts nodes of every role: node.role must be all.",
        f"{file}: node.workers needs the ports server.metrics_port to 65537 for metrics: they must "
        "not exceed 65535 or include server.port.",
        f"{file}: nats.credentials_file is set, but nats.servers is not: the nats-server of "
        "node.workers accepts only its own token.",
    ]


def test_files_of_nats_that_no_node_uses_are_no_fault(files, tmp_path):
    nats = {"credentials_file": "none.creds", "servers": ["nats://127.0.0.1:4222"]}
    overrides = {"nats": nats, "node": {"workers": 0}}
    assert preflight.faults(config.load(overrides=overrides)) == []
    overrides = {"nats": nats, "node": {"workers": 2}}
    [found] = preflight.faults(config.load(overrides=overrides))
    assert "none.creds cannot be read" in found


def test_serve_names_all_faults_at_once(tmp_path):
    file = tmp_path / "onebook.toml"
    file.write_text('[server]\nport = 99999\n[feeds]\nexchanges = ["krakn"]\n')
    answer = CliRunner().invoke(app, ["serve", "--config", str(file)])
    assert answer.exit_code == 2
    ports, exchange = answer.output.splitlines()
    assert "server.port" in ports
    assert exchange == (
        f"{file}: feeds.exchanges: unknown exchange 'krakn'. Did you mean kraken? "
        "`onebook exchanges list` shows all."
    )


def test_secrets_of_other_places_are_checked_too(files, tmp_path):
    data = tmp_path / "data" / "onebook"
    data.mkdir(parents=True)
    (data / "pepper").write_text("short")
    (data / "pepper").chmod(0o600)
    (data / "master_key").write_text("short")
    settings = config.load(overrides={"store": {"url": "mysql://host/name"}})
    found = " ".join(preflight.faults(settings))
    assert "The pepper file" in found
    assert "master_key can be read by others" in found
    assert "store.url must look like" in found


def test_addresses_of_accounts_name_a_known_exchange(files):
    urls = {"mainnet_url": "http://x"}
    settings = config.load(
        overrides={"transactions": {"overrides": {"bybit": urls, "bibyt": urls}}}
    )
    (found,) = preflight.faults(settings)
    assert found.endswith(
        "transactions.overrides: unknown exchange 'bibyt'; known: bybit, kraken, okx. "
        "Did you mean bybit?"
    )


def test_a_fault_names_the_flag_or_variable_that_gave_the_value(files, tmp_path, monkeypatch):
    file = tmp_path / "onebook.toml"
    file.write_text("[feeds.overrides.btce]\nws_url = 'ws://x'\n[server]\nport = 8000\n")
    monkeypatch.setenv("ONEBOOK_FEEDS__EXCHANGES", '["mtgox"]')
    monkeypatch.setenv("ONEBOOK_FEEDS__OVERRIDES__BTCD__WS_URL", "ws://x")
    flags = {"server": {"metrics_port": 8000}, "store": {"url": "mysql://host/name"}}
    settings, found = config.examine(file, overrides=flags)
    assert found == []
    origins = {each.partition(": ")[0] for each in preflight.faults(settings)}
    assert origins == {
        "ONEBOOK_FEEDS__EXCHANGES",
        "ONEBOOK_FEEDS__OVERRIDES__BTCD__WS_URL",
        str(file),
        "Command line",
    }
    assert settings.origin("log.level") == ""

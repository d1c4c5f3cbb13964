"""The service with TLS on both sides: wss and https, incoming and outgoing.

Exchanges are simulated behind a proxy that ends TLS, with certificates of an authority that the
process trusts by SSL_CERT_FILE, as an operator would add one. An exchange whose certificate no CA
vouches for must never be shown.
"""

import asyncio
import ipaddress
import json
import signal
import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect

from onebook.simulator import SimulatedExchanges

from .test_process import PATIENCE_S, ended, listening, merged, process, read_until

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536


class Authority:
    """A certificate authority, and the file that makes processes trust it."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basics = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = self._signed(self.subject, self.key, basics)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def vouch(self):
        """The files of a certificate for this host, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
        certificate = self._signed(subject, key, names)
        files = [self.folder / f"{self.name}-{part}.pem" for part in ("certificate", "key")]
        files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _signed(self, subject, key, extension):
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(extension, critical=True)
            .sign(self.key, hashes.SHA256())
        )


@asynccontextmanager
async def behind_tls(url, files):
    """The same address with TLS: a proxy that forwards bytes both ways."""
    plain = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)

    async def carry(reader, writer):
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader, writer):
        inner_reader, inner_writer = await asyncio.open_connection(HOST, plain.port)
        await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))

    server = await asyncio.start_server(accepted, HOST, 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        scheme = {"ws": "wss", "http": "https"}[plain.scheme]
        yield plain._replace(scheme=scheme, netloc=f"{HOST}:{port}").geturl()


async def onebook(*words, **environment):
    async with process(*words, **environment) as running:
        status, out, errors = await ended(running)
    assert status == 0, errors
    return out


async def test_books_over_tls_reach_a_client_over_tls_and_a_stranger_is_not_shown(tmp_path):
    known, stranger = Authority(tmp_path, "known"), Authority(tmp_path, "stranger")
    certificate, key = known.vouch()
    environment = {
        "XDG_DATA_HOME": str(tmp_path),
        "SSL_CERT_FILE": str(known.file),
        "ONEBOOK_FEEDS__EXCHANGES": '["okx", "binance", "kraken"]',
    }
    vouchers = {"okx": known, "binance": known, "kraken": stranger}
    async with SimulatedExchanges(vouchers) as simulated, AsyncExitStack() as stack:
        sections = []
        for name, urls in simulated.urls.items():
            ws = await stack.enter_async_context(behind_tls(urls.ws, vouchers[name].vouch()))
            rest = await stack.enter_async_context(behind_tls(urls.rest, known.vouch()))
            sections.append(f'[feeds.overrides.{name}]\nws_url = "{ws}"\nrest_url = "{rest}"\n')
        (tmp_path / "onebook.toml").write_text("".join(sections))
        config = ("--config", str(tmp_path / "onebook.toml"))
        await onebook("accounts", "create", "alice", *config, **environment)
        made = await onebook("keys", "create", "alice", "--json", *config, **environment)
        words = ("--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key))
        async with process("serve", *words, *config, **environment) as serve:
            await judge(await listening(serve), json.loads(made)["api_key"], known.file)
            await read_until(serve.stderr, r"kraken cannot be reached \(SSLCertVerification")


async def judge(port, key, authority):
    trusting = ssl.create_default_context(cafile=authority)
    async with connect(f"wss://{HOST}:{port}/api/v1/ws", ssl=trusting) as client:
        await client.send(json.dumps({"type": "authenticate", "api_key": key}))
        wanted = {"type": "subscribe_aggregated", "symbol": "BTC/USDT"}
        async with asyncio.timeout(PATIENCE_S):  # the node listens before it has read the lists
            for exchange in ("okx", "binance"):
                ask = {**wanted, "exchanges": [exchange]}
                while (await said(client, ask))["type"] == "subscription_error":
                    await asyncio.sleep(0.05)
        await client.send(json.dumps({**wanted, "exchanges": ["okx", "binance"]}))
        assert await merged(client) == ["binance", "okx"]
        await client.send(json.dumps({**wanted, "exchanges": "all"}))
        async with asyncio.timeout(PATIENCE_S):
            while "kraken" not in (message := json.loads(await client.recv())).get("data", {}).get(
                "stale_exchanges", ()
            ):
                assert message["type"] != "subscription_error", message
    async with httpx.AsyncClient(verify=trusting) as http:
        answer = await http.get(f"https://{HOST}:{port}/readyz")
    assert answer.status_code == 200


async def test_top_trusts_the_authorities_of_ssl_cert_file(tmp_path):
    known = Authority(tmp_path, "known")
    certificate, key = known.vouch()
    environment = {
        "XDG_DATA_HOME": str(tmp_path),
        "SSL_CERT_FILE": str(known.file),
        "ONEBOOK_FEEDS__EXCHANGES": "[]",
    }
    await onebook("accounts", "create", "alice", **environment)
    words = ("--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key), "-e", "kraken")
    async with process("serve", *words, **environment) as serve:
        url = f"https://{HOST}:{await listening(serve)}"
        assert "kraken" in await onebook("top", "--url", url, **environment)


def serial_at(port, authority):
    """The serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection((HOST, port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as wrapped,
    ):
        return int(wrapped.getpeercert()["serialNumber"], 16)


async def test_sighup_reads_certificate_and_log_level_again_and_ends_no_connection(tmp_path):
    known = Authority(tmp_path, "known")
    certificate, key = known.vouch()
    first = serial_of(certificate)
    file = tmp_path / "onebook.toml"
    text = f'[server]\nport = 0\ntls_cert_file = "{certificate}"\ntls_key_file = "{key}"\n'
    text += '[feeds]\nexchanges = ["okx"]\n[feeds.overrides.okx]\nrest_url = "http://127.0.0.1:1"\n'
    file.write_text(text)
    environment = {"XDG_DATA_HOME": str(tmp_path / "data")}
    async with process("serve", "--config", str(file), **environment) as serve:
        port = await listening(serve)
        url = f"wss://{HOST}:{port}/api/v1/ws"
        async with connect(url, ssl=ssl.create_default_context(cafile=known.file)) as client:
            assert json.loads(await client.recv())["type"] == "welcome"
            assert await asyncio.to_thread(serial_at, port, known.file) == first
            known.vouch()
            file.write_text(text + '[log]\nlevel = "debug"\n')
            serve.send_signal(signal.SIGHUP)
            await read_until(
                serve.stderr,
                r"the TLS certificate were reloaded; changed: log\.level\.",
            )
            second = serial_of(certificate)
            assert second != first
            assert await asyncio.to_thread(serial_at, port, known.file) == second
            key.write_text("no key")
            serve.send_signal(signal.SIGHUP)
            await read_until(
                serve.stderr,
                rf"SIGHUP: nothing was changed: {file}: server\.tls_key_file: ",
            )
            assert await asyncio.to_thread(serial_at, port, known.file) == second
            await client.send(json.dumps({"type": "ping"}))
            assert json.loads(await client.recv())["type"] == "pong"
        serve.send_signal(signal.SIGTERM)
        status, _, _ = await ended(serve)
    assert status == 0


def serial_of(certificate):
    return x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number


async def said(client, message):
    """The answer to a subscription."""
    await client.send(json.dumps(message))
    while True:
        answer = json.loads(await client.recv())
        if answer["type"] in ("subscription_error", "aggregated_subscription_response"):
            return answer

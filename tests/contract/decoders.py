"""Every decoder of foreign bytes: its size limit, its one exception, and hostile inputs.

`DECODERS` is the table; `test_decoders.py` looks for decoders of the package that it lacks. A
program of its own, as the bounds of memory and CPU time are the process's (`fuzz.py`):

    TMPDIR=FOLDER python tests/contract/decoders.py PLACE SEED INPUTS [NAME...]
"""

import gzip
import mmap
import os
import random
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from msgspec import msgpack
from pydantic import ValidationError

sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.fuzz import PLACE_BYTES, bounded, flipped, mutated
from onebook.accounts.pepper import load_pepper
from onebook.accounts.usage import FILE_MARK, SLOT_BYTES, newest_content
from onebook.cli.dates import day_ms
from onebook.cli.environment import variables
from onebook.cli.fetching import Summary, decoded_line
from onebook.cli.ladder import read_fees
from onebook.cli.top_view import Scrape
from onebook.client.failures import Refused, Unavailable
from onebook.client.session import decoded
from onebook.client.shapes import exact
from onebook.clock import ms_of_iso, s_of_http_date
from onebook.config import ServerSettings, load
from onebook.core.types import NumberError
from onebook.errors import ConfigError, InvalidRequest
from onebook.feeds.recording import RecordingError, read
from onebook.files import TEXT_BYTES_MAX, read_toml
from onebook.gateway import commands, messages
from onebook.inflate import (
    BodyReader,
    MessageInflater,
    NotNegotiated,
    Uninflatable,
    inflated,
    negotiated,
)
from onebook.library import replay
from onebook.model import Health, Instrument
from onebook.nodes import interest, lists, membership, wire
from onebook.nodes.key_sharing import KeyTally
from onebook.nodes.nats import credentials_text
from onebook.nodes.payloads import PayloadReader
from onebook.ops.backup import Manifest, read_archive, write_archive
from onebook.ops.livecheck.forms import FORM_BYTES_MAX, form_of
from onebook.ops.preflight import tls_faults
from onebook.rest import retry_after_s
from onebook.simulator.kit.replay import scripts
from onebook.transactions.adapter import SourceFailed
from onebook.transactions.bybit import stream as bybit_stream
from onebook.transactions.bybit.api import API, signature
from onebook.transactions.bybit.trades import extra_fees
from onebook.transactions.client import Call
from onebook.transactions.credentials import MasterKeys, parse_keys
from onebook.transactions.cursor import CHARS_MAX, Cursors
from onebook.transactions.export_jobs import BadExport
from onebook.transactions.kraken import api as kraken
from onebook.transactions.kraken import stream as kraken_stream
from onebook.transactions.okx import api as okx
from onebook.transactions.okx import stream as okx_stream
from onebook.transactions.okx.exports import bills_of
from onebook.transactions.request import TransactionsRequest

MIB: Final = 1 << 20
KIB: Final = 1 << 10
HEADER_BYTES: Final = 100 << 10  # of an HTTP answer, by httpcore
NATS_BYTES: Final = 8 << 20
HUGE_BYTES_MAX: Final = MIB // 8  # of an input here: time, not memory, is short in a test
BOMB_BYTES: Final = 64 << 20
SAMPLES_BYTES: Final = 200  # of what a failure prints


class Decoder(NamedTuple):
    """One decoder.

    Args:
        name: In failures.
        sources: The source files that decode, below `src/onebook`.
        read: Decodes bytes.
        raises: The one exception that it may raise; None where it returns something instead.
        bytes_max: The longest input that reaches it.
        bound: What holds `bytes_max`.
        seeds: Valid inputs.
    """

    name: str
    sources: tuple[str, ...]
    read: Callable[[bytes], object]
    raises: type[Exception] | None
    bytes_max: int
    bound: str
    seeds: tuple[bytes, ...]


FOLDER: Final = Path(tempfile.gettempdir())  # of the test, as it sets TMPDIR


def in_file(read_path: Callable[[Path], object], suffix: str = "") -> Callable[[bytes], object]:
    """Adapt a decoder of files to bytes."""
    path = FOLDER / f"input{suffix}"

    def read_content(content: bytes) -> object:
        path.touch(0o600)
        path.write_bytes(content)
        return read_path(path)

    return read_content


def text(read_text: Callable[[str], object]) -> Callable[[bytes], object]:
    """Adapt a decoder of text to bytes."""
    return lambda content: read_text(content.decode(errors="replace"))


def body(encoding: str) -> Callable[[bytes], object]:
    """Decode a body in parts, as it arrives."""

    def read_parts(content: bytes) -> object:
        reader = BodyReader([encoding], MIB)
        for at in range(0, len(content), 64 * KIB):
            reader.add(content[at : at + 64 * KIB])
            while reader.pending:
                reader.add(b"")
        return reader.end()

    return read_parts


def archive(path: Path) -> object:
    """Unpack a backup."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        return read_archive(path, Path(folder))


def an_archive() -> bytes:
    """A backup of two small files."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        members = {}
        for each in ("pepper", "database"):
            members[each] = folder / each
            members[each].write_bytes(each.encode() * 99)
        digests = dict.fromkeys(members, "0" * 64)
        manifest = Manifest(1, "1.0", "2026-01-01T00:00:00.000Z", "sqlite", "1", digests)
        write_archive(folder / "a.tar", manifest, members, folder / "draft")
        return (folder / "a.tar").read_bytes()


def usage(payload: bytes) -> object:
    """Read a usage file with a valid checksum."""
    header = struct.pack(">8sQII", FILE_MARK, 1, len(payload), zlib.crc32(payload))
    path = FOLDER / "usage"
    path.write_bytes(header + payload[: SLOT_BYTES - len(header)])
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return newest_content(descriptor)
    finally:
        os.close(descriptor)


def certificate(path: Path) -> object:
    """Check a certificate and its key in one file."""
    server = ServerSettings(tls_cert_file=path, tls_key_file=path)
    return tls_faults(server, datetime(2026, 1, 1, tzinfo=UTC))


def a_certificate() -> bytes:
    """A certificate and its key, as an operator may create them."""
    from datetime import timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "books.example")])
    now = datetime(2025, 12, 31, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=9))
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    private = key.private_bytes(
        form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(form) + private


def deflated(content: bytes) -> bytes:
    """A message of permessage-deflate."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(content) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


INSTRUMENT: Final = Instrument("kraken", "BTC/USDT", "BTC/USDT")


def node_message(payload: bytes) -> object:
    """A message of a feeds node, of any kind."""
    frame = wire.frame_of(payload)
    if frame.kind is wire.Kind.SNAPSHOT:
        return wire.snapshot_of(frame, INSTRUMENT)
    if frame.kind is wire.Kind.DELTA:
        return wire.delta_of(frame, INSTRUMENT)
    return wire.state_of(frame) if frame.kind is wire.Kind.HEALTH else frame


RECORDING: Final = (
    b'wss://ws.kraken.com/v2 <-> 1618678132.35\n1618678132.4: {"channel":"heartbeat"}\n'
    b'1618678132.5: {"channel":"book","type":"snapshot","data":[{"symbol":"BTC/USD","bids":'
    b'[{"price":5.1,"qty":2.0}],"asks":[{"price":5.2,"qty":1.0}],"checksum":7}]}\n'
    b"1618678133.5: b'\\x1f\\x8b\\x00'\n"
    b'https://api.kraken.com/0/depth?symbol=A -> 1618678134.0: {"a":\n1} header: {"X": "1"}\n'
)
FRAME: Final = b'{"channel":"book","data":[1,2,3],"symbol":"BTC/USD"}'
CONFIG: Final = b"[server]\nport = 8000\n[feeds]\nexchanges = ['kraken']\n"
METRICS: Final = b'# TYPE onebook_a counter\nonebook_a_total{exchange="kraken"} 1.5\n'
EXPORT: Final = b"billId,ts,ccy,balChg,bal,subType\n" + b"1,1700000000000,BTC,1,2,1\n" * 9
CURSORS: Final = Cursors(b"secret")


def zipped(table: bytes, method: int = ZIP_DEFLATED) -> bytes:
    """A zip archive with one table."""
    target = BytesIO()
    with ZipFile(target, "w", method) as archive:
        archive.writestr(ZipInfo("a.csv"), table, method)
    return target.getvalue()


DECODERS: Final = (
    Decoder(
        *("settings", ("config/sources.py", "files.py"), in_file(load, ".toml"), ConfigError),
        *(TEXT_BYTES_MAX, "read_bounded", (CONFIG,)),
    ),
    Decoder(
        *("TOML", ("files.py",), in_file(read_toml, ".toml"), ValueError),
        *(TEXT_BYTES_MAX, "read_bounded raises OSError", (CONFIG, b"a = 1.5\nb = 1979-05-27")),
    ),
    Decoder(
        *("fees", ("cli/ladder.py",), in_file(read_fees, ".toml"), ValueError),
        *(TEXT_BYTES_MAX, "read_bounded", (b"okx = 0.08\nothers = 1\n",)),
    ),
    Decoder(
        *("environment file", ("cli/environment.py",), text(variables), None),
        *(TEXT_BYTES_MAX, "read_bounded", (b'A=\'x y\'\nB="z\\""\nC=a\\\nb\n',)),
    ),
    Decoder(
        *("dates of a command", ("cli/dates.py",), text(day_ms), InvalidRequest),
        *(128 * KIB, "the arguments of a process", (b"2027-01-31", b"2027-01-31T10:00+01:00")),
    ),
    Decoder(
        "a line of a service's answer",
        ("cli/fetching.py",),
        lambda line: decoded_line(line, Summary),
        *(Unavailable, MIB, "lines of an answer", (b'{"type":"summary","success":false}',)),
    ),
    Decoder(
        *("pepper", ("accounts/pepper.py",), in_file(load_pepper), ConfigError),
        *(TEXT_BYTES_MAX, "read_bounded", (b"ab" * 32,)),
    ),
    Decoder(
        "master key file",
        ("transactions/credentials.py",),
        in_file(lambda path: MasterKeys(path).read()),
        *(ConfigError, TEXT_BYTES_MAX, "read_bounded", (b"A" * 43 + b"=\n",)),
    ),
    Decoder(
        *("master key setting", ("config/settings.py",), text(parse_keys), ConfigError),
        *(128 * KIB, "the environment of a process", (b"A" * 43 + b"=",)),
    ),
    Decoder(
        *("certificate", ("ops/preflight.py",), in_file(certificate, ".pem"), None),
        *(TEXT_BYTES_MAX, "read_bounded", (a_certificate(),)),
    ),
    Decoder(
        "exchange's private key",
        ("transactions/bybit/api.py", "cli/credentials.py"),
        text(lambda secret: signature("-----BEGIN PRIVATE KEY" + secret, b"a")),
        *(SourceFailed, 8_192, "read_bounded", (a_certificate()[-200:],)),
    ),
    Decoder(
        *("usage file", ("accounts/usage.py",), usage, None, SLOT_BYTES, "the slots of the file"),
        (msgpack.encode(("epoch", [(1, [("key", 1_700_000_000_000, 5)])])),),
    ),
    Decoder(
        *("backup", ("ops/backup.py",), in_file(archive), ConfigError),
        *(MIB, "unpacks to no more than its own length", (an_archive(),)),
    ),
    Decoder(
        *("recording", ("feeds/recording.py",), in_file(read), RecordingError),
        *(160 << 20, "of a line; of a file 4 GiB", (RECORDING,)),
    ),
    Decoder(
        "recording to be served",
        ("simulator/kit/replay.py",),
        in_file(lambda path: scripts([path])),
        *(RecordingError, 160 << 20, "the reader of recordings", (RECORDING,)),
    ),
    Decoder(
        "recording to be replayed",
        ("library/replay.py",),
        in_file(lambda path: list(replay(path))),
        *(RecordingError, 160 << 20, "the reader of recordings", (RECORDING,)),
    ),
    Decoder(
        "HTTP body",
        ("inflate.py", "rest.py", "client/rest.py", "transactions/client.py"),
        *(body("gzip"), Uninflatable, 32 << 20, "BodyReader", (gzip.compress(FRAME * 9),)),
    ),
    Decoder(
        "compressed frame",
        ("inflate.py", "feeds/connection.py"),
        partial(inflated, bytes_max=MIB),
        *(Uninflatable, 4 << 20, "FeedLimits.frame_bytes_max", (gzip.compress(FRAME),)),
    ),
    Decoder(
        "permessage-deflate",
        ("inflate.py",),
        lambda content: MessageInflater(fresh=True).inflated(content, MIB),
        *(Uninflatable, 4 << 20, "FeedLimits.frame_bytes_max", (deflated(FRAME),)),
    ),
    Decoder(
        *("extensions of a handshake", ("inflate.py",), text(negotiated), NotNegotiated),
        *(64 * KIB, "picows", (b"permessage-deflate; server_no_context_takeover",)),
    ),
    Decoder(
        *("HTTP date", ("clock.py", "ops/doctor.py"), text(s_of_http_date), ValueError),
        *(HEADER_BYTES, "httpcore", (b"Tue, 14 Nov 2023 22:13:20 GMT",)),
    ),
    Decoder(
        *("Retry-After", ("rest.py",), text(partial(retry_after_s, now_s=0.0)), None),
        *(HEADER_BYTES, "httpcore", (b"Tue, 14 Nov 2023 22:13:20 GMT", b"120")),
    ),
    Decoder(
        *("ISO 8601", ("clock.py",), text(ms_of_iso), ValueError),
        *(MIB, "the body of a request", (b"2025-11-20T10:00:00.123Z",)),
    ),
    *(
        Decoder(
            f"action {name}",
            ("gateway/messages.py",),
            text(partial(messages.decode, body=body)),
            *(commands.CommandRefused, 64 * KIB, "gateway.limits.MESSAGE_BYTES_MAX"),
            (b'{"action":"%s","exchange":"bybit","id":1}' % name.encode(),),
        )
        for name, body in messages.ACTIONS.items()
    ),
    Decoder(
        "answer of Bybit",
        ("transactions/bybit/api.py",),
        lambda content: API.read(Call("/"), 200, {"x-bapi-limit": "9" * 99}, content),
        *(None, 8 << 20, "BodyReader"),
        (b'{"retCode":0,"retMsg":"OK","result":{"list":[{"a":"1"}]},"time":1700000000000}',),
    ),
    Decoder(
        "answer of Kraken",
        ("transactions/kraken/api.py",),
        lambda content: kraken.read(Call("/", host=kraken.SPOT_HOST), 200, {}, content),
        *(None, 16 << 20, "BodyReader"),
        (
            b'{"error":[],"result":{"count":1,"ledger":{"A":{"time":1.5}}}}',
            b'{"error":["EService:Throttled: 1700000000"]}',
        ),
    ),
    Decoder(
        "answer of Kraken Futures",
        ("transactions/kraken/api.py",),
        lambda content: kraken.read(Call("/", host=kraken.FUTURES_HOST), 200, {}, content),
        *(None, 16 << 20, "BodyReader"),
        (b'{"logs":[{"id":1,"change":0.5}]}', b'{"result":"error","error":"apiLimitExceeded"}'),
    ),
    Decoder(
        "answer of OKX",
        ("transactions/okx/api.py",),
        lambda content: okx.read(Call("/"), 200, {}, content),
        *(None, 16 << 20, "BodyReader"),
        (
            b'{"code":"0","msg":"","data":[{"billId":"1","ts":"1700000000000"}]}',
            b'{"code":"50011"}',
        ),
    ),
    Decoder(
        *(
            "export of OKX",
            ("transactions/okx/exports.py",),
            in_file(lambda path: list(bills_of(path)), ".zip"),
            BadExport,
        ),
        *(16 << 20, "DOWNLOAD_BYTES_MAX", (zipped(EXPORT), zipped(EXPORT, ZIP_STORED))),
    ),
    *(
        Decoder(
            f"private stream of {name}",
            (f"transactions/{name}/stream.py",),
            stream.read,
            *(None, 1 << 20, "WebSocket"),
            (frame,),
        )
        for name, stream, frame in (
            ("bybit", bybit_stream, b'{"topic":"wallet","data":[{"coin":"BTC"}]}'),
            ("kraken", kraken_stream, b'{"channel":"balances","type":"update","data":[{}]}'),
            ("okx", okx_stream, b'{"arg":{"channel":"orders"},"data":[{"tradeId":"1"}]}'),
        )
    ),
    Decoder(
        "Kraken's private key",
        ("transactions/kraken/api.py",),
        text(lambda secret: kraken.spot_signature(secret, "/", "1", b"")),
        *(SourceFailed, 8_192, "read_bounded", (b"a2V5", b"kQH5HW/8p1uGOVjbgWA7FunAmGO8")),
    ),
    Decoder(
        *("fees of a trade", ("transactions/bybit/trades.py",), text(extra_fees), NumberError),
        *(8 << 20, "BodyReader", (b'[{"feeCoin":"BTC","fee":"0.1","feeRate":"0.2"}]',)),
    ),
    Decoder(
        "cursor",
        ("transactions/cursor.py",),
        text(partial(CURSORS.open, digest="a", key_id="b")),
        *(InvalidRequest, CHARS_MAX, "Cursors", (b"QUJD" * 20,)),
    ),
    Decoder(
        "request body",
        ("api/edge.py", "api/fees.py", "api/transactions.py"),
        lambda content: TransactionsRequest.model_validate_json(content, strict=True),
        *(ValidationError, MIB, "BODY_BYTES_MAX"),
        (b'{"exchange":"bybit","transaction_types":["trades"],"limit":5}',),
    ),
    Decoder(
        *("JSON in the SDK", ("client/shapes.py",), exact, ValueError),
        *(64 << 20, "BodyReader", (b'{"a":[1,2.5,"x"]}',)),
    ),
    Decoder(
        *("message in the SDK", ("client/session.py", "client/ask.py"), decoded, Refused),
        *(16 << 20, "websockets", (b'{"type":"pong","id":1}',)),
    ),
    Decoder(
        *(
            "metrics",
            ("cli/top_view.py", "cli/top.py"),
            text(lambda words: Scrape(words, 0.0)),
            ValueError,
        ),
        *(MIB, "cli/top.py", (METRICS,)),
    ),
    Decoder(
        *("message about a book", ("nodes/wire.py",), node_message, wire.WireError),
        *(wire.FRAME_BYTES_MAX, "wire.frame_of"),
        (wire.mark_frame(1, 2, 3), wire.health_frame(1, 2, 3, Health.LIVE, None, "x")),
    ),
    *(
        Decoder(
            *(name, sources, read_payload, wire.WireError),
            *(NATS_BYTES, "PayloadReader", (msgpack.encode(seed),)),
        )
        for name, sources, read_payload, seed in (
            ("heartbeat", ("nodes/membership.py",), membership.heartbeat_of, {"node": 1}),
            ("list request", ("nodes/lists.py",), lists.request_of, ["kraken", 1]),
            ("list page", ("nodes/lists.py",), lists.page_of, {"digest": "a", "rows": []}),
            (
                "interest",
                ("nodes/interest.py",),
                partial(interest.interest_of, whole=True),
                {"gateway": 1, "seq": 2},
            ),
            (
                "tally",
                ("nodes/key_sharing.py", "nodes/payloads.py"),
                PayloadReader(KeyTally).read,
                {"gateway": 1, "taken": {"a": 1.5}},
            ),
            (
                "keys of books",
                ("nodes/feeds_node.py", "cli/nodes.py"),
                PayloadReader(list[str]).read,
                ["kraken BTC/USDT"],
            ),
        )
    ),
    Decoder(
        *(
            "NATS credentials",
            ("nodes/nats.py",),
            in_file(credentials_text),
            ValueError,
        ),
        *(TEXT_BYTES_MAX, "read_bounded"),
        (b"-----BEGIN NATS USER JWT-----\neyJ0\n-----BEGIN USER NKEY SEED-----\nSUAA\n",),
    ),
    Decoder(
        *("form of a frame", ("ops/livecheck/forms.py",), partial(form_of, names=()), None),
        *(FORM_BYTES_MAX, "form_of", (FRAME,)),
    ),
)


# Decoders of this package that are held to the same by another suite, and by which.
ELSEWHERE: Final = {
    "exchanges/*.py": "contract/test_fuzz.py: lists, frames and bodies of every connector",
    "core/*": "core/test_levels.py and contract/test_fuzz.py: levels of every connector",
    "gateway/frames.py": "gateway/test_connection.py: frames of clients",
    "gateway/connection.py": "gateway/test_connection.py: messages that are not UTF-8",
    "gateway/processor.py": "gateway/test_processor.py: messages of clients",
    "archive/proof.py": "archive/test_proof.py: flipped bits in manifests, entries and signatures",
}
# They read what this package itself wrote, packaged or authenticated.
OURS: Final = {
    "accounts/keys.py": "computes checksums only",
    "gateway/transactions.py": "an answer that this node encoded",
    "exchanges/kit/quality.py": "files of the package",
    "feeds/ccxt/client.py": "commands of our own connector",
    "web/*.py": "pages of the package",
    "archive/folder.py": "names of files that this package wrote",
    "archive/segments.py": "files that this package wrote; archive/test_past.py damages one",
    "updates.py": "the schema of the package",
    "api/orderbooks.py": "an option of a query, whose fields the gateway checks",
    "streams/basket.py": "levels that the core packed",
    "app/workers.py": "the ports file of its own nats-server",
    "transactions/address.py": "its own file of a fixed size",
    "transactions/export.py": "writes archives only",
    "transactions/bybit/instruments.py": "eight characters that a pattern matched",
    "transactions/okx/instruments.py": "six digits that a pattern matched",
    "transactions/export_files.py": "files that this package stored, checked as they are opened",
    "store/exports.py": "times that this package stored",
    "transactions/collected.py": "records that this package stored, checked as they are opened",
    "client/usage.py": "checked by client/shapes.py before",
    "client/view.py": "checked by client/shapes.py before",
    "library/update.py": "levels that the core packed",
    "streams/fill.py": "levels that the core packed",
    "simulator/*": "requests of the node under test, on loopback",
}


def nested(size: int) -> Iterator[bytes]:
    """Brackets of every format, nested deeper than any recursion limit."""
    for head, unit in (
        *((b"", b"["), (b"", b'{"a":'), (b'{"type":1,"x":', b"["), (b"a = ", b"[")),
        *((b"a = ", b"{a="), (b"", b"\x91"), (b"", b"\x81\xa1a"), (b"\x94", b"\x91")),
        *((b"1.0: b'' ", b"("), (b"https://a.example -> 1.0: x header: ", b"[")),
        *((b"", b"a."), (b"[", b"a."), (b"", b"'"), (b"", b'"'), (b"", b"\\")),
    ):
        yield (head + unit * (size // len(unit)))[:size]


def numbers() -> Iterator[bytes]:
    """Numbers too large for any type."""
    for number in (
        *(b"9" * 400, b"9" * 5_000, b"-" + b"9" * 25, b"1e400", b"1e" + b"9" * 25, b"NaN"),
        *(b"-1", b"18446744073709551616", b"9223372036854775808", b"1.7976931348623159e308"),
    ):
        yield number
        for form in (
            *(b"a = %s", b"[server]\nport = %s", b'{"a":%s}', b'{"type":"a","id":%s}'),
            *(b"%s: x", b"wss://ws.kraken.com/v2 <-> %s", b"Tue, 14 Nov %s 22:13:20 GMT"),
            *(
                b"%s-01-01T00:00:00Z",
                b"onebook_a %s",
                b'{"retCode":%s,"time":%s}',
            ),
        ):
            yield form.replace(b"%s", number)


def zeros(wbits: int) -> bytes:
    """Compressed zeros, more bytes than any decoder accepts."""
    packer, mib = zlib.compressobj(9, wbits=wbits), bytes(MIB)
    return b"".join(packer.compress(mib) for _ in range(BOMB_BYTES // MIB)) + packer.flush()


@cache
def bombs() -> tuple[bytes, ...]:
    """Small inputs that expand to large ones."""
    head = wire.HEAD.pack(wire.VERSION, 1 | wire.DEFLATED, 1, 2, 3)
    return (
        *(zeros(31), gzip.compress(zeros(31)), zeros(-15), head + zeros(15)),
        *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),
        *(b"\x92\xa1a\xdd\x7f\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    )


def huge(size: int) -> Iterator[bytes]:
    """Long repetitions of one unit."""
    for unit in (
        *(b"\0", b"\xff", b" ", b"\n", b"9", b"a", b"[],", b"a=1\n", b"A=\\\n", b"1.0: x\n"),
        *(b"\x90", b"\xc0", b'a{b="', b"=", b",", b"-----BEGIN PRIVATE KEY-----\n"),
        *(b"[a]\n", b"#", b"%41", b"1 Jan ", b";"),
    ):
        yield unit * (size // len(unit))


def encodings(seed: bytes) -> Iterator[bytes]:
    """Valid text in another encoding."""
    words = seed.decode(errors="replace")
    for encoding in ("utf-16", "utf-32", "utf-7", "utf-8-sig"):
        yield words.encode(encoding, "replace")
    yield seed.replace(b"a", b"\xed\xa0\x80").replace(b"1", "١".encode())


def inputs(decoder: Decoder, source: random.Random, count: int) -> Iterator[bytes]:
    """Hostile inputs of a decoder, none longer than its limit."""
    size = min(decoder.bytes_max, HUGE_BYTES_MAX)
    yield b""
    for seed in decoder.seeds:
        yield seed
        yield from (seed[:at] for at in range(0, len(seed), max(1, len(seed) // 40)))
        yield from encodings(seed)
        for _ in range(count):
            yield (mutated if source.random() < 0.5 else flipped)(source, seed)
    yield from nested(size)
    yield from nested(min(size, 30_000))
    yield from numbers()
    yield from bombs()
    yield from huge(size)
    for _ in range(count):
        yield source.randbytes(source.choice((1, 3, 20, 600, 5_000)))


def attack(decoder: Decoder, source: random.Random, count: int, place: mmap.mmap) -> int:
    """Decode every input; print each violation, and return the number of inputs."""
    read = 0
    for content in inputs(decoder, source, count):
        read += 1
        about = f"{decoder.name}: {len(content)} bytes {content[:SAMPLES_BYTES]!r}"
        place[:] = about.encode()[:PLACE_BYTES].ljust(PLACE_BYTES)
        try:
            with bounded():
                decoder.read(content)
        except BaseException as error:
            if decoder.raises is None or not isinstance(error, decoder.raises):
                print(f"{about}: {type(error).__name__}: {str(error)[:SAMPLES_BYTES]}")
    return read


def main(place: str, seed: str, count: str, *names: str) -> None:
    """Attack all decoders, or those with the given names."""
    read = 0
    with open(place, "r+b") as file, mmap.mmap(file.fileno(), PLACE_BYTES) as shared:
        for decoder in DECODERS:
            if not names or decoder.name in names:
                read += attack(decoder, random.Random(f"{seed} {decoder.name}"), int(count), shared)
    print(f"{read:,} inputs", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])

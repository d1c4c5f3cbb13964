"""TLS and passwords of connections to PostgreSQL, with a PostgreSQL of the test's own."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from e2e.test_tls import Authority
from onebook.errors import ConfigError
from onebook.ops.backup import dump_postgresql
from onebook.store import Store
from onebook.store.database import tls_variables, tls_words, without_tls
from steady import PATIENCE_S

HOST = "127.0.0.1"
USER = "onebook"
PASSWORD = "s3cret-of-postgresql"
PORTS_TRIED_MAX = 5


class Postgresql(NamedTuple):
    """A PostgreSQL server with passwords over TCP, and with TLS if it has a certificate."""

    port: int
    folder: Path

    def url(self, *, password: str = PASSWORD, host: str = HOST, **words: str | Path) -> str:
        """Its URL with these TLS parameters."""
        query = {name: str(value) for name, value in words.items()}
        address = URL.create("postgresql", USER, password, host, self.port, "postgres", query)
        return address.render_as_string(hide_password=False)


def program(name: str) -> str:
    """A program of the PostgreSQL server; skips where there is none."""
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        pytest.skip(f"no {name}: the programs of the PostgreSQL server are not installed")
    return found


def owner() -> pwd.struct_passwd:
    """The user that runs the server, which must not be root."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


@contextmanager
def postgresql(authority: Authority | None) -> Iterator[Postgresql]:
    """A new PostgreSQL with a certificate of an authority, or without TLS."""
    initdb, server = program("initdb"), program("postgres")
    user = owner()
    changes = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    who = changes if not os.geteuid() else {}
    with tempfile.TemporaryDirectory(prefix="onebook-postgresql-") as name:
        folder = Path(name)
        data = folder / "data"
        password = folder / "password"
        password.write_text(PASSWORD)
        words = ["-c", "fsync=off", "-c", f"unix_socket_directories={folder}"]
        files = [password]
        if authority is not None:
            files += [shutil.copy(each, folder) for each in authority.vouch()]
            words += ["-c", "ssl=on", "-c", f"ssl_cert_file={files[1]}"]
            words += ["-c", f"ssl_key_file={files[2]}"]
        for each in (folder, *files):
            os.chown(each, user.pw_uid, user.pw_gid)
            os.chmod(each, 0o700 if each is folder else 0o600)
        words_of_initdb = ["-U", USER, f"--pwfile={password}", "-A", "scram-sha-256"]
        made = subprocess.run(
            [initdb, "-D", data, *words_of_initdb, "-E", "UTF8", "--no-locale", "--no-sync"],
            capture_output=True,
            text=True,
            cwd=folder,
            **who,
        )
        assert made.returncode == 0, made.stderr
        kind = "host" if authority is None else "hostssl"
        (data / "pg_hba.conf").write_text(f"{kind} all all {HOST}/32 scram-sha-256\n")
        for _ in range(PORTS_TRIED_MAX):  # another program may take the port before it does
            port = free_port()
            running = subprocess.Popen(
                [server, "-D", data, "-h", HOST, "-p", str(port), *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=folder,
                **who,
            )
            try:
                if listens(running, data):
                    yield Postgresql(port, folder)
                    return
            finally:
                running.kill()
                _, said = running.communicate()
        raise AssertionError(said.decode())


def free_port() -> int:
    """A port that was free a moment ago, because PostgreSQL cannot choose one."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def listens(running: subprocess.Popen[bytes], data: Path) -> bool:
    """Wait until the server accepts connections; False if it ended."""
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at and running.poll() is None:
        with suppress(OSError):
            if (data / "postmaster.pid").read_text().rstrip().endswith("ready"):
                return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Authority]:
    folder = tmp_path_factory.mktemp("authorities")
    return {name: Authority(folder, name) for name in ("known", "stranger")}


@pytest.fixture(scope="module")
def server(authorities: dict[str, Authority]) -> Iterator[Postgresql]:
    with postgresql(authorities["known"]) as running:
        yield running


async def in_use(url: str) -> bool:
    """Whether a connection of the store is encrypted."""
    async with Store(url) as store, store.database.reading() as connection:
        asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        return bool((await connection.execute(text(asked))).scalar_one())


async def refusal(url: str) -> str:
    """The error of a node that starts with this URL."""
    with pytest.raises(ConfigError) as refused:
        async with Store(url) as store:
            await store.database.upgrade(create=False)
    return refused.value.message


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca", "require"])
async def test_the_right_password_over_a_certificate_of_a_known_authority_is_let_in(
    server: Postgresql, authorities: dict[str, Authority], mode: str
) -> None:
    url = server.url(sslmode=mode, sslrootcert=authorities["known"].file)
    async with Store(url) as store:
        await store.database.upgrade(create=False)
        await store.facts.probe(1)
    assert await in_use(url)


async def test_the_driver_s_own_word_for_the_mode_works_too(
    server: Postgresql, authorities: dict[str, Authority]
) -> None:
    assert await in_use(server.url(ssl="verify-full", sslrootcert=authorities["known"].file))
    assert await in_use(server.url())  # the driver prefers TLS, and checks nothing


async def test_each_refusal_is_one_sentence_that_names_the_setting_and_no_secret(
    server: Postgresql, authorities: dict[str, Authority], tmp_path: Path
) -> None:
    known, stranger = (authorities[name].file for name in ("known", "stranger"))
    full = {"sslmode": "verify-full", "sslrootcert": known}
    place = f"PostgreSQL at {HOST}:{server.port}"
    empty = tmp_path / "empty.pem"
    empty.touch()
    said = {
        server.url(sslmode="verify-full", sslrootcert=stranger): (
            f"{place} has a certificate that is not trusted",
            "check host and sslrootcert in store.url.",
        ),
        server.url(host="localhost", **full): (
            "PostgreSQL at localhost",
            "certificate is not valid for 'localhost'; check host and sslrootcert in store.url.",
        ),
        server.url(sslmode="disable"): (
            f"{place} refuses user {USER}",
            "sslmode in store.url",
        ),
        server.url(password="guess-of-postgresql", **full): (
            f"{place} refuses the password of user {USER}; check store.url.",
        ),
        server.url(sslmode="verify-full", sslrootcert=tmp_path / "none.pem"): (
            "sslrootcert in store.url",
            "none.pem cannot be read: No such file or directory.",
        ),
        server.url(sslmode="verify-full", sslrootcert=empty): (
            "check sslrootcert, sslcert and sslkey in store.url.",
        ),
        server.url(sslmode="fully"): ("sslmode in store.url must be one of disable, allow",),
    }
    for url, words in said.items():
        message = await refusal(url)
        assert all(each in message for each in words), message
        assert message.count(". ") == 0
        assert PASSWORD not in message
        assert "guess-of-postgresql" not in message


async def test_a_server_without_tls_is_refused_where_tls_is_required() -> None:
    with postgresql(None) as plain:
        assert not await in_use(plain.url())
        message = await refusal(plain.url(sslmode="require"))
    wanted = "does not offer TLS, which sslmode in store.url requires."
    assert message == f"PostgreSQL at {HOST}:{plain.port} {wanted}"


async def test_a_backup_is_taken_over_the_same_tls(
    server: Postgresql, authorities: dict[str, Authority], tmp_path: Path
) -> None:
    program("pg_dump")
    known, stranger = (authorities[name].file for name in ("known", "stranger"))
    dump = tmp_path / "dump"
    dump_postgresql(server.url(sslmode="verify-full", sslrootcert=known), dump, PATIENCE_S)
    assert dump.stat().st_size
    with pytest.raises(ConfigError, match="certificate verify failed") as refused:
        dump_postgresql(server.url(sslmode="verify-full", sslrootcert=stranger), dump, PATIENCE_S)
    assert PASSWORD not in refused.value.message


def test_a_mode_that_verifies_needs_an_authority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    url = make_url("postgresql://u@h/n?sslmode=verify-full")
    with pytest.raises(ConfigError, match="needs sslrootcert"):
        tls_words(url)
    monkeypatch.setenv("PGSSLROOTCERT", "/a/file")
    assert tls_words(url) == {"sslmode": "verify-full"}


def test_other_words_of_an_address_stay_in_it() -> None:
    url = make_url("postgresql://u@h/n?sslmode=require&prepared_statement_cache_size=0")
    assert dict(without_tls(url).query) == {"prepared_statement_cache_size": "0"}
    assert tls_variables(tls_words(url)) == {"PGSSLMODE": "require"}

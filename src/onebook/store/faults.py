"""Maps database exceptions to a sentence for the operator.


Drivers raise their own exceptions, wrapped by SQLAlchemy or not: SQLite's have an error name
(https://www.sqlite.org/rescode.html), PostgreSQL's an SQLSTATE
(https://www.postgresql.org/docs/current/errcodes-appendix.html).
"""

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from onebook.errors import DatabaseUnavailable

SHM_BYTES: Final = 1 << 15  # the least size of a database's -shm file


class FileFault(OSError):
    """The file of a SQLite database is not the one it should be; its text is the reason."""


_SQLITE: Final = (
    ("SQLITE_NOTADB", "is not a SQLite database; restore it from a backup"),
    ("SQLITE_CORRUPT", "is damaged; restore it from a backup"),
    ("SQLITE_FULL", "cannot grow: the disk is full"),
    ("SQLITE_BUSY", "stays locked by another program"),
    ("SQLITE_LOCKED", "stays locked by another program"),
    ("SQLITE_READONLY", "may only be read; check the owner and the mode of {place}"),
    ("SQLITE_PERM", "may not be opened; check the owner and the mode of {place}"),
    ("SQLITE_CANTOPEN", "cannot be opened; check the owner and the mode of {place}"),
    ("SQLITE_IOERR", "cannot be read or written: the disk reports an error"),
)
_POSTGRES: Final = {
    "28P01": "refuses the password of user {user}; check store.url",
    "28000": "refuses user {user}; check pg_hba.conf, and sslmode in store.url if it wants TLS",
    "3D000": "has no database {name}; create it",
    "42501": "does not allow user {user} to do this; grant it",
    "53100": "has a full disk",
    "53300": "has no connection left for us; raise max_connections",
    "57P01": "ended the connection: an administrator ended it, or the server stops",
    "57P03": "is starting up or shutting down",
    "25006": "only lets us read: it is a standby",
}
_NO_TLS: Final = "rejected SSL upgrade"  # asyncpg's words; it has no type or number for it
_CONNECTING: Final = {
    errno.ECONNREFUSED: "refuses connections; check host and port, and that it runs",
    errno.EHOSTUNREACH: "cannot be reached; check the host and the network",
    errno.ENETUNREACH: "cannot be reached; check the host and the network",
    errno.ECONNRESET: "ended the connection",
}


@asynccontextmanager
async def database_errors(url: URL) -> AsyncIterator[None]:
    """Map what drivers raise to `DatabaseUnavailable`; a violated constraint passes through."""
    try:
        yield
    except IntegrityError:
        raise
    except Exception as error:
        if not _of_database(error):
            raise
        raise DatabaseUnavailable(reason_of(error, url)) from error


def reason_of(error: BaseException, url: URL) -> str:
    """Describe an error of the database, without the password."""
    if isinstance(error, FileFault):
        return str(error)
    if url.get_backend_name() == "sqlite":
        return _sqlite(error, url.database or "")
    return _postgres(error, url)


def _of_database(error: Exception) -> bool:
    # asyncpg's exceptions while connecting are not wrapped; they have an SQLSTATE.
    return isinstance(error, SQLAlchemyError | OSError | TimeoutError) or hasattr(error, "sqlstate")


def _sqlite(error: BaseException, path: str) -> str:
    for cause in _causes(error):
        name = getattr(cause, "sqlite_errorname", None) or ""
        if name.startswith("SQLITE_IOERR") and _is_full(path):
            name = "SQLITE_FULL"  # no room for the files beside it, which reading needs too
        for prefix, words in _SQLITE:
            if name.startswith(prefix):
                return f"The database {path} {words.format(place=_denied(path))}."
        if name and "no such table" in str(cause):
            return f"The database {path} has no tables of ours; run `onebook db upgrade`."
    return f"The database {path} does not answer in time."


def _denied(path: str) -> str:
    """Which of the files of a database, or its folder, this account may not write.

    SQLite makes the -wal and -shm files with the mode that the database has then, and they keep it.
    """
    for beside in ("", "-wal", "-shm"):
        file = path + beside
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            return file
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return f"its folder {folder}"
    return "file and folder"


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < SHM_BYTES


def _postgres(error: BaseException, url: URL) -> str:
    place = f"PostgreSQL at {url.host or 'localhost'}:{url.port or 5432}"
    for cause in _causes(error):
        words = _POSTGRES.get(getattr(cause, "sqlstate", None) or "")
        if words:
            return f"{place} {words.format(user=url.username, name=url.database)}."
        if getattr(cause, "sqlstate", None) == "42P01":
            return f"{place} has no tables of ours in {url.database}; run `onebook db upgrade`."
        if found := _tls(cause):
            return f"{place} {found}."
        if isinstance(cause, socket.gaierror):
            return f"{place} cannot be found: there is no address for this host."
        if isinstance(cause, OSError) and cause.errno in _CONNECTING:
            return f"{place} {_CONNECTING[cause.errno]}."
        if isinstance(cause, TimeoutError):
            return f"{place} does not answer in time; check host, port and firewall."
    return f"{place} does not answer."


def _tls(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return (
            f"has a certificate that is not trusted: {why}; check host and sslrootcert in store.url"
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"cannot be reached by TLS ({error.reason or 'no reason given'}); "
            "check sslrootcert, sslcert and sslkey in store.url"
        )
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return "does not offer TLS, which sslmode in store.url requires"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it came from: SQLAlchemy's `orig`, causes, members of a group."""
    seen: list[BaseException] = [error]
    for each in seen:
        yield each
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        for inner in (getattr(each, "orig", None), each.__cause__, each.__context__, *members):
            if isinstance(inner, BaseException) and inner not in seen:
                seen.append(inner)

"""The operator's exchange credentials, encrypted at rest.

Envelope encryption: every row has its own data key, wrapped by a master key that is not in the
database. Rotating the master key re-wraps the small data keys and never touches the secrets.
AES-256-GCM (NIST SP 800-38D); the associated data binds a row to its exchange and environment, so a
row copied elsewhere cannot be decrypted.

The master key is a file of mode 0600 (or a value from the settings) with one base64 key per line.
The first line wraps; all lines unwrap, so a rotation can be interrupted at any point.
"""

import asyncio
import hashlib
import os
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import MsgspecError, Struct, json

from onebook.config import TransactionSettings
from onebook.errors import ConfigError
from onebook.files import read_bounded, try_lock
from onebook.store.rows import AuditedChange, CredentialsRow, DataKeyRow

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
WRAPPED_BYTES: Final = NONCE_BYTES + KEY_BYTES + 16
KEY_ID_CHARS: Final = 16
FILE_MODE: Final = 0o600
LOCK_PAUSE_S: Final = 0.05
LOCK_WAIT_S: Final = 30.0  # a rotation wraps a few rows, in milliseconds
SECRET_CHARS_MAX: Final = 8_192  # an RSA key in PEM is about 1,700


class CredentialStore(Protocol):
    """Storage of encrypted rows, such as `store.CredentialsStore`."""

    async def put_credentials(
        self, row: CredentialsRow, change: AuditedChange | None = None
    ) -> None:
        """Store a row, replacing any previous one, and record the change in the audit trail."""
        ...

    async def credentials(self, exchange: str, environment: str) -> CredentialsRow | None:
        """Find a row."""
        ...

    async def list_credentials(self) -> list[CredentialsRow]:
        """Every row."""
        ...

    async def rewrap_credentials(self, before: CredentialsRow, after: CredentialsRow) -> bool:
        """Replace a row if it still equals `before`."""
        ...

    async def delete_credentials(
        self, exchange: str, environment: str, change: AuditedChange | None = None
    ) -> bool:
        """Delete a row, and record the change in the audit trail."""
        ...

    async def data_keys(self) -> list[DataKeyRow]:
        """Every data key."""
        ...

    async def add_data_key(self, row: DataKeyRow) -> DataKeyRow:
        """Store a data key unless its name exists; return the stored one."""
        ...

    async def rewrap_data_key(self, before: DataKeyRow, after: DataKeyRow) -> bool:
        """Replace a data key if it still equals `before`."""
        ...


class Credentials:
    """An API key, its secret and other fields of an exchange. Its repr shows none of them.

    Args:
        others: The fields that only some exchanges have, by name, such as `passphrase`.
    """

    __slots__ = ("_others", "api_key", "secret")

    def __init__(self, api_key: str, secret: str, **others: str) -> None:
        self.api_key = api_key
        self.secret = secret
        self._others = others

    @property
    def fields(self) -> dict[str, str]:
        """Every field by its name."""
        return {"api_key": self.api_key, "secret": self.secret} | self._others

    def field(self, name: str) -> str:
        """Return a field that the exchange requires.

        Raises:
            ConfigError: The operator has not set it.
        """
        value = self.fields.get(name, "")
        if not value:
            raise ConfigError(
                f"The stored exchange credentials have no {name}; set the credentials again."
            )
        return value

    def __repr__(self) -> str:
        return f"Credentials({masked(self.api_key)})"

    def __reduce__(self) -> str:
        raise TypeError("Credentials are only ever written to the encrypted store.")


def masked(api_key: str) -> str:
    """Mask a key: enough remains to recognise it, too little to use it."""
    return f"{api_key[:4]}..." if len(api_key) > 8 else "..."


class _Secrets(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content to encrypt."""

    api_key: str
    secret: str
    others: dict[str, str] = {}

    def __repr__(self) -> str:
        return "_Secrets(...)"


class KeyRing:
    """Master keys: the first wraps, all unwrap."""

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ConfigError("A master key for exchange credentials must be 32 bytes in base64.")
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}
        self.current_id = key_id(keys[0])

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    def __contains__(self, kek_id: str) -> bool:
        return kek_id in self._ciphers

    def wrap(self, data_key: bytes, bound_to: bytes) -> bytes:
        """Wrap a data key with the current master key."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._ciphers[self.current_id].encrypt(nonce, data_key, bound_to)

    def unwrap(self, kek_id: str, wrapped: bytes, bound_to: bytes) -> bytes:
        """Unwrap a data key with the master key that it names."""
        cipher = self._ciphers.get(kek_id)
        if cipher is None:
            raise ConfigError(
                "Stored exchange credentials are encrypted under a master key that is missing; "
                "restore the key file or set the credentials again."
            )
        try:
            return cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], bound_to)
        except InvalidTag:
            raise ConfigError(DAMAGED) from None


DAMAGED: Final = "Stored exchange credentials cannot be decrypted; set them again."


def key_id(key: bytes) -> str:
    """A master key's name: a digest that does not reveal the key."""
    return hashlib.sha256(b"onebook master key " + key).hexdigest()[:KEY_ID_CHARS]


def new_master_key() -> bytes:
    """Generate a master key."""
    return os.urandom(KEY_BYTES)


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Parse master keys from base64 lines.

    Raises:
        ConfigError: A line is not a key; the message does not contain it.
    """
    try:
        return tuple(b64decode(line, validate=True) for line in text.split())
    except ValueError:
        raise ConfigError("A master key for exchange credentials is not base64.") from None


class MasterKeys:
    """Source of master keys: a value of the settings, or a file that can be rotated.

    Args:
        file: The key file; created with one new key when it is first needed for writing.
        value: Keys from the settings, separated by blanks; they take precedence over the file.
        lock_wait_s: Maximum seconds that a change waits for another one.
    """

    def __init__(
        self, file: Path | None, *, value: str = "", lock_wait_s: float = LOCK_WAIT_S
    ) -> None:
        self._file = file
        self._lock_wait_s = lock_wait_s
        self._value = value

    def __repr__(self) -> str:
        return f"MasterKeys({self._file})"

    @property
    def rotatable(self) -> bool:
        """Whether `rotate` can write a new key: not if the keys come from the settings."""
        return not self._value and self._file is not None

    def read(self) -> KeyRing:
        """Read the current keys.

        Raises:
            ConfigError: There are no keys, or other users can read the file.
        """
        if self._value:
            return KeyRing(parse_keys(self._value))
        if self._file is None or not self._file.exists():
            raise ConfigError(
                "There is no master key for exchange credentials; "
                "`onebook credentials set` makes one."
            )
        if self._file.stat().st_mode & 0o077:
            raise ConfigError(f"{self._file} can be read by others; give it mode 0600.")
        return KeyRing(self._in_file(self._file))

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Lock the file: until then, no other command changes it or stores rows under its keys.

        Without the lock, two concurrent rotations would each drop the other's key, and with it its
        rows.

        Raises:
            ConfigError: Another command holds the lock.
        """
        if self._value or self._file is None:
            yield
            return
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._file.with_name(self._file.name + ".lock")
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        try:
            until = time.monotonic() + self._lock_wait_s
            while not try_lock(descriptor):
                if time.monotonic() >= until:
                    raise ConfigError(
                        f"Another command is changing the credentials: it has locked {path}."
                    )
                await asyncio.sleep(LOCK_PAUSE_S)
            yield
        finally:
            os.close(descriptor)

    def read_or_make(self) -> KeyRing:
        """Read the keys; a missing file is created with a new one."""
        if not self._value and self._file is not None and not self._file.exists():
            self.write((new_master_key(),))
        return self.read()

    def keys(self) -> tuple[bytes, ...]:
        """Read the keys of the file, for a rotation."""
        assert self._file is not None
        self.read()  # raises if the file is missing or readable by others
        return self._in_file(self._file)

    def _in_file(self, file: Path) -> tuple[bytes, ...]:
        try:
            return parse_keys(read_bounded(file).decode("ascii", "replace"))
        except OSError as error:
            reason = f"The master key file {file} cannot be read: {error.strerror}."
            raise ConfigError(reason) from None

    def write(self, keys: tuple[bytes, ...]) -> None:
        """Write keys to the file atomically; it is never readable by other users."""
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._file.with_name(self._file.name + ".new")
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(b"".join(b64encode(key) + b"\n" for key in keys))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY)  # rows must not outlive their key
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def master_keys(settings: TransactionSettings) -> MasterKeys:
    """The master keys of an operator's settings."""
    return MasterKeys(settings.master_key_file, value=settings.master_key.get_secret_value())


class Vault:
    """Exchange credentials, decrypted only when they are used."""

    def __init__(self, store: CredentialStore, masters: MasterKeys) -> None:
        self._store = store
        self._masters = masters
        self._ring: KeyRing | None = None

    def __repr__(self) -> str:
        return f"Vault({self._masters})"

    async def get(self, exchange: str, environment: str) -> Credentials | None:
        """The credentials of an exchange environment; None if not set."""
        row = await self._store.credentials(exchange, environment)
        if row is not None and row.kek_id not in self._ring_for(row.kek_id):
            # The key was rotated between our two reads: the row is under the new key by now.
            row = await self._store.credentials(exchange, environment)
        return None if row is None else _open(row, self._ring_for(row.kek_id))

    async def has(self, exchange: str, environment: str) -> bool:
        """Whether the operator has set credentials."""
        return await self._store.credentials(exchange, environment) is not None

    async def put(
        self,
        exchange: str,
        environment: str,
        credentials: Credentials,
        *,
        now_ms: int,
        change: AuditedChange | None = None,
    ) -> None:
        """Encrypt and store credentials, and record the change in the audit trail."""
        async with self._masters.exclusive():
            self._ring = self._masters.read_or_make()
            row = _seal(exchange, environment, credentials, self._ring, now_ms=now_ms)
            await self._store.put_credentials(row, change)

    async def data_key(self, name: str) -> bytes | None:
        """Return a data key; None if no key has this name.

        Raises:
            ConfigError: Its master key is missing.
        """
        row = await self._data_key_row(name)
        if row is not None and row.kek_id not in self._ring_for(row.kek_id):
            # The master key was rotated between our two reads.
            row = await self._data_key_row(name)
        if row is None:
            return None
        ring = self._ring_for(row.kek_id)
        if row.kek_id not in ring:
            raise ConfigError(_NO_MASTER_KEY.format(name=name))
        try:
            return ring.unwrap(row.kek_id, row.wrapped, _data_key_of(name))
        except ConfigError:
            raise ConfigError(_NO_MASTER_KEY.format(name=name)) from None

    async def _data_key_row(self, name: str) -> DataKeyRow | None:
        rows = await self._store.data_keys()
        return next((row for row in rows if row.name == name), None)

    async def make_data_key(self, name: str) -> bytes:
        """Return a data key, generated if no key has this name."""
        found = await self.data_key(name)
        if found is not None:
            return found
        async with self._masters.exclusive():
            self._ring = ring = self._masters.read_or_make()
            wrapped = ring.wrap(new_master_key(), _data_key_of(name))
            await self._store.add_data_key(DataKeyRow(name, ring.current_id, wrapped))
        found = await self.data_key(name)
        assert found is not None
        return found

    async def listed(self) -> list[CredentialsRow]:
        """Every row, still encrypted."""
        return await self._store.list_credentials()

    async def remove(
        self, exchange: str, environment: str, *, change: AuditedChange | None = None
    ) -> bool:
        """Delete credentials; return whether there were any."""
        return await self._store.delete_credentials(exchange, environment, change)

    async def rotate(self) -> int:
        """Rotate the master key and re-wrap every data key; return their number. Safe while
        serving.

        A running service that finds a row under an unknown key reads the file again. If the keys
        come from the settings, no key is generated: rows are re-wrapped with the first one.
        """
        async with self._masters.exclusive():
            return await self._rotate()

    async def _rotate(self) -> int:
        if self._masters.rotatable:
            old = self._masters.keys()
            self._masters.write((new_master_key(), *old))
        self._ring = self._masters.read()
        count = 0
        for row in await self._store.list_credentials():
            count += await self._rewrap(row, self._ring)
        for key in await self._store.data_keys():
            if key.kek_id != self._ring.current_id:
                count += await self._store.rewrap_data_key(key, _rewrapped_key(key, self._ring))
        if self._masters.rotatable and await self._all_under(self._ring.current_id):
            self._masters.write(self._masters.keys()[:1])
        return count

    async def _rewrap(self, row: CredentialsRow, ring: KeyRing) -> bool:
        if row.kek_id == ring.current_id:
            return False
        return await self._store.rewrap_credentials(row, rewrapped(row, ring))

    async def _all_under(self, kek_id: str) -> bool:
        used = {row.kek_id for row in await self._store.list_credentials()}
        return used | {row.kek_id for row in await self._store.data_keys()} <= {kek_id}

    def _ring_for(self, kek_id: str) -> KeyRing:
        if self._ring is None or kek_id not in self._ring:
            self._ring = self._masters.read()
        return self._ring


_NO_MASTER_KEY: Final = (
    "The data key of {name} is under a master key that is missing; restore the key file."
)


def _data_key_of(name: str) -> bytes:
    return f"onebook data key v1|{name}".encode()


def _rewrapped_key(row: DataKeyRow, ring: KeyRing) -> DataKeyRow:
    bound_to = _data_key_of(row.name)
    data_key = ring.unwrap(row.kek_id, row.wrapped, bound_to)
    return DataKeyRow(row.name, ring.current_id, ring.wrap(data_key, bound_to))


def _bound_to(exchange: str, environment: str, part: str) -> bytes:
    return f"onebook credentials v1|{part}|{exchange}|{environment}".encode()


def _seal(
    exchange: str, environment: str, credentials: Credentials, ring: KeyRing, *, now_ms: int
) -> CredentialsRow:
    data_key, nonce = new_master_key(), os.urandom(NONCE_BYTES)
    plaintext = json.encode(_secrets_of(credentials.fields))
    sealed = AESGCM(data_key).encrypt(nonce, plaintext, _bound_to(exchange, environment, "data"))
    wrapped = ring.wrap(data_key, _bound_to(exchange, environment, "key"))
    return CredentialsRow(exchange, environment, ring.current_id, wrapped + sealed, nonce, now_ms)


def _open(row: CredentialsRow, ring: KeyRing) -> Credentials:
    wrapped, sealed = row.ciphertext[:WRAPPED_BYTES], row.ciphertext[WRAPPED_BYTES:]
    data_key = ring.unwrap(row.kek_id, wrapped, _bound_to(row.exchange, row.environment, "key"))
    bound_to = _bound_to(row.exchange, row.environment, "data")
    try:
        plaintext = AESGCM(data_key).decrypt(row.nonce, sealed, bound_to)
        found = json.decode(plaintext, type=_Secrets)
    except (InvalidTag, MsgspecError):
        raise ConfigError(DAMAGED) from None
    return Credentials(found.api_key, found.secret, **found.others)


def _secrets_of(fields: dict[str, str]) -> _Secrets:
    return _Secrets(fields.pop("api_key"), fields.pop("secret"), fields)


def rewrapped(row: CredentialsRow, ring: KeyRing) -> CredentialsRow:
    """Return a row with its data key re-wrapped by the current master key; its secrets stay."""
    bound_to = _bound_to(row.exchange, row.environment, "key")
    data_key = ring.unwrap(row.kek_id, row.ciphertext[:WRAPPED_BYTES], bound_to)
    ciphertext = ring.wrap(data_key, bound_to) + row.ciphertext[WRAPPED_BYTES:]
    return CredentialsRow(
        row.exchange,
        row.environment,
        ring.current_id,
        ciphertext,
        row.nonce,
        row.created_at_ms,
    )

"""Settings of the transaction interface."""

from base64 import b64decode
from pathlib import Path
from typing import Final

from pydantic import Field, SecretStr, field_validator

from onebook.config.section import Section, data_dir

MASTER_KEY_BYTES: Final = 32


class TransactionSettings(Section):
    """The transaction interface."""

    bybit_mainnet_url: str = "https://api.bybit.com"
    """Base URL of Bybit's live API."""
    bybit_testnet_url: str = "https://api-testnet.bybit.com"
    """Base URL of Bybit's testnet API."""
    master_key_file: Path = Field(default_factory=lambda: data_dir() / "master_key")
    """File of the key that encrypts exchange credentials; created with mode 0600 when first
    needed."""
    master_key: SecretStr = SecretStr("")
    """The master key itself, instead of `master_key_file`: base64. To rotate it, put the new key
    first and the old ones after it, separated by blanks."""
    deadline_s: float = Field(60.0, ge=0.1, le=3_600)
    """Seconds before a JSON answer ends; it is then partial and contains a cursor to continue
    from."""
    stream_deadline_s: float = Field(3_600.0, ge=1, le=86_400)
    """Seconds before a streamed answer ends."""
    runs_max: int = Field(16, ge=1, le=1_000)
    """Concurrent transaction queries of this node."""
    runs_per_key_max: int = Field(4, ge=1, le=1_000)
    """Concurrent transaction queries of one API key; choose it below `runs_max`, so that one key
    cannot block all others."""
    unread_s: float = Field(30.0, ge=0.001, le=3_600)
    """Seconds a client may read nothing of a streamed answer before the answer is ended."""
    reserve_share: float = Field(0.1, ge=0, le=0.5)
    """Fraction of each per-minute limit of the exchange that one API key leaves to others. 0: a
    single key may use all of it, and another key then waits up to a minute."""

    @field_validator("master_key")
    @classmethod
    def _keys_of_32_bytes(cls, value: SecretStr) -> SecretStr:
        for each in value.get_secret_value().split():
            try:
                size = len(b64decode(each, validate=True))
            except ValueError:
                size = 0
            if size != MASTER_KEY_BYTES:
                raise ValueError(f"must hold keys of {MASTER_KEY_BYTES} bytes in base64")
        return value

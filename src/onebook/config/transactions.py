"""Settings of the transaction interface."""

from base64 import b64decode
from pathlib import Path
from typing import Final

from pydantic import Field, SecretStr, field_validator

from onebook.config.section import Section, data_dir

MASTER_KEY_BYTES: Final = 32


class TransactionSettings(Section):
    """The transaction interface and its exchanges."""

    bybit_mainnet_url: str = "https://api.bybit.com"
    """Address of Bybit's live exchange."""
    bybit_testnet_url: str = "https://api-testnet.bybit.com"
    """Address of Bybit's testnet."""
    master_key_file: Path = Field(default_factory=lambda: data_dir() / "master_key")
    """Key that wraps exchange credentials; made with mode 0600 when first needed."""
    master_key: SecretStr = SecretStr("")
    """The same from the environment instead of a file: base64, the newest first, then a blank."""
    deadline_s: float = Field(60.0, ge=0.1, le=3_600)
    """A JSON answer ends here, partial, with a cursor to go on."""
    stream_deadline_s: float = Field(3_600.0, ge=1, le=86_400)
    """A streamed answer ends here."""
    runs_max: int = Field(16, ge=1, le=1_000)
    """Answers being made at once."""
    runs_per_key_max: int = Field(4, ge=1, le=1_000)
    """Answers being made at once for one API key; fewer than `runs_max`, or one key takes all."""
    unread_s: float = Field(30.0, ge=0.001, le=3_600)
    """A streamed answer of which the client reads nothing for so long is ended."""
    reserve_share: float = Field(0.1, ge=0, le=0.5)
    """Share of each limit of the exchange by the minute that one API key leaves to others; 0: a
    key that asks alone may use all of it, and then another waits up to a minute."""

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

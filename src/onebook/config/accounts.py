"""Settings of the database, and of keys, sessions, tiers and metering."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from onebook.config.section import Section, data_dir
from onebook.model import GIB_BYTES, Tier


class TierLimits(Section):
    """The limits of one billing tier."""

    requests_per_minute: int = Field(ge=1, le=1_000_000)
    """REST requests and WebSocket messages of one key per minute, counted together."""
    connections_max: int = Field(ge=1, le=100_000)
    """Open WebSocket connections of one key."""
    views_max: int = Field(500, ge=1, le=1_000_000)
    """Distinct views (symbol, exchanges and options) that one key is subscribed to at a time."""


class TierSettings(Section):
    """The billing tiers."""

    basic: TierLimits = TierLimits(requests_per_minute=600, connections_max=5, views_max=500)
    premium: TierLimits = TierLimits(requests_per_minute=1_200, connections_max=20, views_max=2_000)
    developer: TierLimits = TierLimits(
        requests_per_minute=1_000, connections_max=15, views_max=1_500
    )
    enterprise: TierLimits = TierLimits(
        requests_per_minute=10_000, connections_max=100, views_max=10_000
    )

    @field_validator("*", mode="before")
    @classmethod
    def _keep_other_limits(cls, given: Any, tier: ValidationInfo) -> Any:
        """Keep the tier's defaults for limits that the table does not set."""
        if not isinstance(given, Mapping):
            return given
        assert tier.field_name is not None
        return cls.model_fields[tier.field_name].default.model_dump() | dict(given)

    def of(self, tier: Tier) -> TierLimits:
        """The limits of one tier."""
        limits: TierLimits = getattr(self, tier.value)
        return limits


class StoreSettings(Section):
    """The database of accounts, keys, sessions and usage."""

    url: str = Field(default_factory=lambda: f"sqlite+aiosqlite:///{data_dir() / 'onebook.db'}")
    """SQLAlchemy URL: sqlite+aiosqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME. PostgreSQL
    with TLS: ...?sslmode=verify-full&sslrootcert=FILE."""
    pepper_file: Path = Field(default_factory=lambda: data_dir() / "pepper")
    """File of the secret that keys and tokens are hashed with; created with mode 0600 at the first
    start. All nodes of a service need the same file."""
    usage_dir: Path | None = None
    """Folder for usage records that could not be written to the database. Default: the folder of
    the SQLite database; with PostgreSQL, the folder of `pepper_file`."""


class AccountsSettings(Section):
    """Keys, sessions, limits and metering."""

    allowance_bytes: int = Field(50 * GIB_BYTES, ge=1, le=1 << 60)
    """Bytes that one key may receive per billing month."""
    failures_per_minute: int = Field(10, ge=1, le=1_000_000)
    """Failed authentications per minute and address; further attempts are refused until the minute
    has passed."""
    unknown_keys_per_minute: int = Field(60, ge=1, le=1_000_000)
    """Usage reports of unknown keys per minute and address; further requests are refused."""
    sessions_per_key_max: int = Field(100, ge=1, le=10_000)
    """Live sessions of one key; a new session replaces the oldest."""
    flush_interval_s: float = Field(0.5, ge=0.01, le=0.5)
    """Seconds between writes of usage to the database. A crash loses at most this much usage, plus
    0.25 s and the time of one write."""
    flush_age_max_s: float = Field(5.0, ge=3, le=600)
    """`/readyz` fails if no database write has succeeded for this many seconds."""
    final_flush_timeout_s: float = Field(10.0, ge=0.1, le=60)
    """Seconds a stopping node tries to write usage to the database; the rest is saved in the usage
    file."""
    poll_interval_s: float = Field(1.0, ge=0.01, le=2)
    """Seconds between queries for changed keys; a revoked key stays valid at most this long on
    other nodes."""
    tiers: TierSettings = TierSettings()
    """Limits of each billing tier."""

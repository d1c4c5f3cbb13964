"""Settings of the database, and of keys, sessions, tiers and metering."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from onebook.config.section import Section, data_dir
from onebook.model import GIB_BYTES, Tier


class TierLimits(Section):
    """What one billing tier may do."""

    requests_per_minute: int = Field(ge=1, le=1_000_000)
    """REST requests and WebSocket messages of a key together."""
    connections_max: int = Field(ge=1, le=100_000)
    """WebSocket connections of a key."""
    views_max: int = Field(500, ge=1, le=1_000_000)
    """Distinct views (symbol, exchanges and options) that a key subscribes to at one time."""


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
        """A table that sets one limit leaves the others at the defaults of its tier."""
        if not isinstance(given, Mapping):
            return given
        assert tier.field_name is not None
        return cls.model_fields[tier.field_name].default.model_dump() | dict(given)

    def of(self, tier: Tier) -> TierLimits:
        """The limits of one tier."""
        limits: TierLimits = getattr(self, tier.value)
        return limits


class StoreSettings(Section):
    """Where accounts, keys, sessions and usage live."""

    url: str = Field(default_factory=lambda: f"sqlite+aiosqlite:///{data_dir() / 'onebook.db'}")
    """SQLAlchemy address: sqlite+aiosqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME; of
    PostgreSQL with TLS: ...?sslmode=verify-full&sslrootcert=FILE."""
    pepper_file: Path = Field(default_factory=lambda: data_dir() / "pepper")
    """Secret under which keys and tokens are digested; made with mode 0600 at the first start."""
    usage_dir: Path | None = None
    """Folder for usage that the database does not take; none: SQLite's own, or the pepper's."""


class AccountsSettings(Section):
    """Keys, sessions, limits and the meter."""

    allowance_bytes: int = Field(50 * GIB_BYTES, ge=1, le=1 << 60)
    """What a key may have delivered in a billing month, in bytes."""
    failures_per_minute: int = Field(10, ge=1, le=1_000_000)
    """Failed authentications of one address before it must wait."""
    unknown_keys_per_minute: int = Field(60, ge=1, le=1_000_000)
    """Usage reports of unknown keys that one address may ask for."""
    sessions_per_key_max: int = Field(100, ge=1, le=10_000)
    """Live sessions of one key; the oldest goes."""
    flush_interval_s: float = Field(0.5, ge=0.01, le=0.5)
    """How often usage is written; a crash loses at most this, 0.25 s and the time of one write."""
    flush_age_max_s: float = Field(5.0, ge=3, le=600)
    """Not ready when the database has taken neither usage nor a probe for so long."""
    final_flush_timeout_s: float = Field(10.0, ge=0.1, le=60)
    """How long a stop tries to write usage; what is left then goes into the usage file."""
    poll_interval_s: float = Field(1.0, ge=0.01, le=2)
    """How often the database is asked for changed keys."""
    tiers: TierSettings = TierSettings()
    """What each billing tier may do."""

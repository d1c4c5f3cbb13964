"""Usage of a key's monthly allowance."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """The usage of an API key in this billing period."""

    username: str
    tier: str
    active: bool
    used_bytes: int
    limit_bytes: int
    resets_at: datetime

    @property
    def remaining_bytes(self) -> int:
        """Remaining bytes of the allowance; never negative."""
        return max(0, self.limit_bytes - self.used_bytes)

    @property
    def exceeded(self) -> bool:
        """Whether the allowance is exhausted until its renewal."""
        return self.used_bytes > self.limit_bytes

    @property
    def share(self) -> float:
        """Used fraction of the allowance; 1.0 means all."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 1.0

    @classmethod
    def read(cls, report: Mapping[str, Any]) -> "KeyUsage":
        """Parse the body of GET /data-usage."""
        data = report["data_usage"]
        return cls(
            username=report["username"],
            tier=report["billing_tier"],
            active=report["api_key_active"],
            used_bytes=data["bytes_used"],
            limit_bytes=data["bytes_limit"],
            resets_at=datetime.fromisoformat(report["billing_period"]["reset_date"]),
        )

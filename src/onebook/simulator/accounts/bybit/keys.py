"""API keys of the simulated exchange, and the authentication of requests.

https://bybit-exchange.github.io/docs/v5/guide#authentication
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from onebook.simulator.accounts.admission import in_time

AHEAD_MS_MAX: Final = 1_000
RECV_WINDOW_MS: Final = 5_000
ALL_PERMISSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "ContractTrade": ("Order", "Position"),
    "Spot": ("SpotTrade",),
    "Wallet": ("AccountTransfer", "SubMemberTransfer"),
    "Options": (),
    "Derivatives": ("DerivativesTrade",),
    "Exchange": ("ExchangeHistory",),
}


@dataclass(frozen=True)
class SimulatedKey:
    """An API key of the simulated exchange."""

    api_key: str
    secret: str = field(repr=False)
    permissions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: ALL_PERMISSIONS)
    ips: tuple[str, ...] = ()
    expires_ms: int | None = None
    read_only: bool = True
    days_left: int = 80

    def grants(self, names: tuple[str, ...]) -> bool:
        """Return whether the key has one of these permissions; True if none is required."""
        return not names or any(
            name in group for group in self.permissions.values() for name in names
        )


class AccountRefused(Exception):
    """A response with a retCode other than 0."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def authenticate(
    keys: Mapping[str, SimulatedKey],
    headers: Mapping[str, str],
    signed_text: str,
    *,
    now_ms: int,
    address: str,
) -> SimulatedKey:
    """Authenticate a request; `signed_text` is the query string as sent, or the body.

    Raises:
        AccountRefused: The key, time stamp or signature is invalid, as on the real exchange.
    """
    api_key, sign = headers.get("x-bapi-api-key", ""), headers.get("x-bapi-sign", "")
    stamp = headers.get("x-bapi-timestamp", "")
    if not (api_key and sign and stamp.isdigit()):
        raise AccountRefused(
            10001,
            f"empty value: apiTimestamp[{stamp}] apiKey[{api_key}] apiSignature[{sign}]: "
            "openapi sign params error!",
        )
    window = headers.get("x-bapi-recv-window") or str(RECV_WINDOW_MS)
    key = keys.get(api_key)
    if key is None:
        raise AccountRefused(10003, "API key is invalid.")
    _check_time(int(stamp), int(window), now_ms)
    origin = f"{stamp}{api_key}{window}{signed_text}"
    digest = hmac.new(key.secret.encode(), origin.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(digest, sign):
        raise AccountRefused(10004, f"error sign! origin_string[{origin}]")
    if key.expires_ms is not None and now_ms >= key.expires_ms:
        raise AccountRefused(33004, "Your api key has expired.")
    if key.ips and address not in key.ips:
        raise AccountRefused(10010, "Unmatched IP, please check your API key's bound IP addresses.")
    return key


def _check_time(stamp_ms: int, window_ms: int, now_ms: int) -> None:
    if not in_time(stamp_ms, now_ms, behind_ms=window_ms, ahead_ms=AHEAD_MS_MAX):
        raise AccountRefused(
            10002,
            "invalid request, please check your server timestamp or recv_window param. "
            f"req_timestamp[{stamp_ms}],server_timestamp[{now_ms}],recv_window[{window_ms}]",
        )

"""API keys of the simulated Kraken: signatures, nonces, permissions, lockouts.

Spot signs path, nonce and body (https://docs.kraken.com/exchange/guides/rest/authentication),
Kraken Futures signs the query, an optional nonce, and the path without `/derivatives`; each has its
own keys.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from onebook.simulator.accounts.admission import Lockouts, RisingStamps

READING: Final = ("query-funds", "query-ledger", "query-closed-trades", "query-open-trades",
                  "export-data")  # fmt: skip
NONCE_MAX: Final = 2**64 - 1
STRIKES: Final = 10  # consecutive bad keys, signatures or nonces
LOCKOUT_S: Final = 900.0


@dataclass(frozen=True)
class SimulatedKrakenKey:
    """A key of the spot account; `query_from_s` and `query_to_s` silently limit what it sees."""

    api_key: str
    secret: str = field(repr=False)
    permissions: tuple[str, ...] = READING
    nonce_window: int = 0
    query_from_s: int = 0
    query_to_s: int = 0
    valid_until_s: int = 0
    ips: tuple[str, ...] = ()
    websockets: bool = True


@dataclass(frozen=True)
class SimulatedFuturesKey:
    """A key of Kraken Futures; `access` is `none`, `read-only` or `full`."""

    api_key: str
    secret: str = field(repr=False)
    access: str = "read-only"


class KrakenRefused(Exception):
    """An error answer with Kraken's text."""


class SpotGate:
    """Authenticates requests of the spot account."""

    def __init__(self, keys: Mapping[str, SimulatedKrakenKey], lockout_s: float) -> None:
        self._keys = keys
        self.nonces = RisingStamps()
        self.lockouts = Lockouts(STRIKES, lockout_s=lockout_s)

    def admit(
        self,
        headers: Mapping[str, str],
        path: str,
        body: bytes,
        nonce: str,
        *,
        now_ms: int,
        address: str,
    ) -> SimulatedKrakenKey:
        """Return the key of a request.

        Raises:
            KrakenRefused: The key, signature or nonce is invalid, or too many were invalid.
        """
        name = headers.get("api-key", "")
        if self.lockouts.locked(name, now_ms) or self.lockouts.locked(address, now_ms):
            raise KrakenRefused("EGeneral:Temporary lockout")
        key = self._keys.get(name)
        expired = key is not None and 0 < key.valid_until_s * 1_000 <= now_ms
        if key is None or expired or (key.ips and address not in key.ips):
            self.lockouts.strike(address, now_ms)
            raise KrakenRefused("EAPI:Invalid key")
        sign = spot_signature(key.secret, path, nonce, body)
        if not hmac.compare_digest(sign, headers.get("api-sign", "")):
            self.lockouts.strike(name, now_ms)
            raise KrakenRefused("EAPI:Invalid signature")
        valid = nonce.isdecimal() and int(nonce) <= NONCE_MAX
        if not valid or not self.nonces.accept(name, int(nonce), window=key.nonce_window):
            self.lockouts.strike(name, now_ms)
            raise KrakenRefused("EAPI:Invalid nonce")
        self.lockouts.clear(name)
        return key


class FuturesGate:
    """Authenticates requests of Kraken Futures."""

    def __init__(self, keys: Mapping[str, SimulatedFuturesKey]) -> None:
        self._keys = keys
        self._nonces = RisingStamps()

    def admit(self, headers: Mapping[str, str], path: str, query: str) -> SimulatedFuturesKey:
        """Return the key of a request.

        Raises:
            KrakenRefused: The key, signature or nonce is invalid, or the key may not read.
        """
        key, nonce = self._keys.get(headers.get("apikey", "")), headers.get("nonce", "")
        if key is None:
            raise KrakenRefused("authenticationError")
        sign = futures_signature(key.secret, path, query, nonce)
        if not hmac.compare_digest(sign, headers.get("authent", "")):
            raise KrakenRefused("authenticationError")
        if nonce:
            highest = self._nonces.highest(key.api_key)
            if not nonce.isdecimal() or not self._nonces.accept(key.api_key, int(nonce)):
                same = nonce == str(highest)
                raise KrakenRefused("nonceDuplicate" if same else "nonceBelowThreshold")
        if key.access == "none":
            raise KrakenRefused("insufficientPrivileges")
        return key


def spot_signature(secret: str, path: str, nonce: str, body: bytes) -> str:
    """Return the `API-Sign` of a request."""
    inner = hashlib.sha256(nonce.encode() + body).digest()
    return _signed(secret, path.encode() + inner)


def futures_signature(secret: str, path: str, query: str, nonce: str = "") -> str:
    """Return the `Authent` of a request; `query` is URL-encoded, as sent."""
    text = query + nonce + path.removeprefix("/derivatives")
    return _signed(secret, hashlib.sha256(text.encode()).digest())


def _signed(secret: str, message: bytes) -> str:
    try:
        key = b64decode(secret)
    except Base64Error:
        key = secret.encode()
    return b64encode(hmac.new(key, message, hashlib.sha512).digest()).decode()
